package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/engines"
	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/migrations"
)

// policy lets every tenant in, and counts each user's requests.
const policy = `
plans: {free: {limits: [{name: requests, by: [tenant, user], meter: requests}]}}
default_plan: free
`

// site is a server in this process on a Postgres of its own.
type site struct {
	postgres *engines.Postgres
	reader   *pgx.Conn // as the superuser
	addr     string    // of gRPC
	app      string    // URL of the server's role
	stops    []func() error
}

// open starts both; the server folds every so often. It is closed whatever open returns.
func open(ctx context.Context, every time.Duration) (s *site, err error) {
	s = &site{}
	dir, err := engines.TempDir("books")
	if err != nil {
		return s, err
	}
	s.stops = append(s.stops, engines.RemoveTempDirs)
	if s.postgres, err = engines.StartPostgres(ctx, dir, engines.PostgresOptions{Durable: true}); err != nil {
		return s, err
	}
	s.stops = append(s.stops, s.postgres.Close)
	password := rand.Text()
	if err := migrations.Postgres(ctx, s.postgres.URL("postgres", "", ""), migrations.AppPassword(password)); err != nil {
		return s, err
	}
	if err := s.read(ctx); err != nil {
		return s, err
	}
	s.stops = append(s.stops, func() error { return s.reader.Close(context.WithoutCancel(ctx)) })
	s.app = s.postgres.URL("postgres", migrations.AppRole, password)
	c := boot.Config{
		LeaseStore: "memory", Ledger: s.app, FoldInterval: every,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if c.GRPC, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return s, err
	}
	if c.HTTP, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return s, err
	}
	s.addr = c.GRPC.Addr().String()
	server, err := boot.New(ctx, c)
	if err != nil {
		return s, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	s.stops = append(s.stops, func() error {
		cancel()
		return <-ended
	})
	conn, err := s.dial()
	if err != nil {
		return s, err
	}
	defer conn.Close()
	return s, stack.Apply(ctx, conn, policy)
}

func (s *site) close() error {
	var errs []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		errs = append(errs, s.stops[i]())
	}
	return errors.Join(errs...)
}

func (s *site) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// read connects for ask.
func (s *site) read(ctx context.Context) (err error) {
	s.reader, err = pgx.Connect(ctx, s.postgres.URL("postgres", "", ""))
	return err
}

// ask runs a query for one number, as the superuser.
func (s *site) ask(ctx context.Context, query string) (n int64, err error) {
	err = s.reader.QueryRow(ctx, query).Scan(&n)
	return n, err
}

// folded waits until nothing is left to fold.
func (s *site) folded(ctx context.Context) error {
	for {
		n, err := s.ask(ctx, "SELECT count(*) FROM (SELECT FROM queue LIMIT 1) AS q")
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// cpu is how much processor time this process, and Postgres, have used.
func (s *site) cpu(ctx context.Context) (own, postgres time.Duration, err error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	own = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	postmaster, err := s.ask(ctx, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::bigint")
	if err != nil {
		return 0, 0, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0, err
	}
	for _, p := range processes {
		pid, err := strconv.ParseInt(p.Name(), 10, 64)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue // it ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) < 15 {
			continue
		}
		ticks := func(fields ...int) (sum time.Duration) {
			for _, i := range fields {
				n, _ := strconv.ParseInt(f[i], 10, 64) // the kernel writes numbers
				sum += time.Duration(n) * time.Second / 100
			}
			return sum
		}
		switch {
		case pid == postmaster:
			postgres += ticks(11, 12, 13, 14) // its own, and that of backends that ended
		case f[1] == fmt.Sprint(postmaster):
			postgres += ticks(11, 12)
		}
	}
	return own, postgres, nil
}

// load is how busy the machine is with everything.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}
