package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/engines"
	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/migrations"
)

// startTimeout bounds how long an engine or a server may take to answer.
const startTimeout = 60 * time.Second

// Embedded starts a server with leases in memory and a SQLite ledger, in a directory
// of its own that Stop removes.
func Embedded(ctx context.Context, policy string) (*Stack, error) {
	return embedded(ctx, Server{Policy: policy})
}

func embedded(ctx context.Context, server Server) (*Stack, error) {
	s := &Stack{Engines: Memory}
	dir, err := os.MkdirTemp("", "quota-")
	if err != nil {
		return nil, fmt.Errorf("stack: %w", err)
	}
	s.stops = append(s.stops, func() error { return os.RemoveAll(dir) })
	return s.finish(s.serve(ctx, boot.Config{DataDir: dir, FoldInterval: server.FoldEvery}, server.Policy))
}

// startReal starts the engines, and a server on both, as the role of the database that owns nothing.
func startReal(ctx context.Context, server Server, progress io.Writer) (*Stack, error) {
	s := &Stack{Engines: Real}
	return s.finish(s.startReal(ctx, server, progress))
}

func (s *Stack) finish(err error) (*Stack, error) {
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stack) startReal(ctx context.Context, server Server, progress io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dir, err := engines.TempDir("loadtest")
	if err != nil {
		return err
	}
	s.stops = append(s.stops, engines.RemoveTempDirs)
	begin := time.Now()
	redisDir, postgresDir := filepath.Join(dir, "redis"), filepath.Join(dir, "postgres")
	for _, d := range []string{redisDir, postgresDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("stack: %w", err)
		}
	}
	redis, err := engines.StartRedisCluster(ctx, redisDir, engines.RedisOptions{})
	if err != nil {
		return err
	}
	s.stops = append(s.stops, redis.Stop)
	fmt.Fprintf(progress, "engines: a Redis Cluster of %d nodes, after %.1f s\n", len(redis.Addrs()), time.Since(begin).Seconds())
	postgres, err := engines.StartPostgres(ctx, postgresDir, engines.PostgresOptions{Durable: true})
	if err != nil {
		return err
	}
	s.stops = append(s.stops, postgres.Close)
	fmt.Fprintf(progress, "engines: a Postgres, durable, after %.1f s\n", time.Since(begin).Seconds())
	password := rand.Text()
	if err := migrations.Postgres(ctx, postgres.URL("postgres", "", ""), migrations.AppPassword(password)); err != nil {
		return err
	}
	s.Redis, s.postgres = redis.Addrs(), postgres.URL("postgres", "", "")
	c := boot.Config{
		LeaseStore:   "redis://" + strings.Join(s.Redis, ","),
		Ledger:       postgres.URL("postgres", migrations.AppRole, password),
		FoldInterval: server.FoldEvery,
	}
	if server.Program == "" {
		return s.serve(ctx, c, server.Policy)
	}
	return s.launch(ctx, server.Program, filepath.Dir(redisDir), c, server.Policy)
}

// launch runs a server as a process of its own under the policy.
func (s *Stack) launch(ctx context.Context, program, dir string, c boot.Config, policy string) error {
	var addrs [2]string
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("stack: %w", err)
		}
		addrs[i] = l.Addr().String()
		if err := l.Close(); err != nil {
			return fmt.Errorf("stack: %w", err)
		}
	}
	s.Addr, s.HTTP = addrs[0], addrs[1]
	// The password is in a file, not in the arguments that everybody can list.
	config := fmt.Sprintf("ledger %s\nlease-store %s\ngrpc-addr %s\nhttp-addr %s\nlog-level error\nfold-interval %s\n",
		c.Ledger, c.LeaseStore, s.Addr, s.HTTP, c.FoldInterval)
	if err := os.WriteFile(filepath.Join(dir, "server.conf"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	unit, err := engines.Start(ctx, engines.Command{
		Name: "quota-server", Path: program, Dir: dir, Quit: syscall.SIGTERM, Args: []string{"--config", "server.conf"},
	})
	if err != nil {
		return err
	}
	s.stops = append(s.stops, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		return unit.Quit(ctx)
	})
	if err := s.apply(ctx, policy); err != nil {
		return fmt.Errorf("%w; the server says: %s", err, unit.Log())
	}
	return nil
}

// serve runs a server in this process under the policy. It is told to stop by Stop.
func (s *Stack) serve(ctx context.Context, c boot.Config, policy string) error {
	var err error
	if c.GRPC, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	if c.HTTP, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return errors.Join(fmt.Errorf("stack: %w", err), c.GRPC.Close())
	}
	s.Addr, s.HTTP, s.Shared = c.GRPC.Addr().String(), c.HTTP.Addr().String(), true
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	server, err := boot.New(ctx, c)
	if err != nil {
		cancel()
		return err
	}
	go func() { ended <- server.Run(running) }()
	s.stops = append(s.stops, func() error {
		cancel()
		return <-ended
	})
	return s.apply(ctx, policy)
}

// apply waits for the server to take the policy.
func (s *Stack) apply(ctx context.Context, policy string) error {
	conn, err := grpc.NewClient(s.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("stack: %w", err)
	}
	defer conn.Close()
	return Apply(ctx, conn, policy)
}
