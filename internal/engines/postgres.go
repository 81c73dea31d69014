package engines

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions says what server to start. The zero value is the one of the tests.
type PostgresOptions struct {
	// Durable keeps fsync and full page writes on. Without it Postgres survives a crash of the server but not of the
	// machine. That is enough for tests, and twice as fast.
	Durable        bool
	MaxConnections int      // 100 when 0
	Settings       []string // more settings: "synchronous_commit=off"
	Env            []string // more of the server's environment: "TZ=UTC"
	Launch         Launcher // of a server that makes its own data directory; initdb and Start when nil
	Bin            string   // the directory of initdb and postgres; found when empty
}

// Postgres is a running server on loopback. Its methods are safe for concurrent use, except those of standby.go.
type Postgres struct {
	o        PostgresOptions
	dir      string
	port     int
	password string
	uid, gid int
	ports    *ports

	mu   sync.Mutex
	unit Unit // nil while stopped
}

// StartPostgres makes a database cluster below dir, starts a server on it, and
// returns when it answers. Stop it when done; it ends with this process anyway.
// As root it runs as user postgres (or nobody), who must be able to traverse dir.
func StartPostgres(ctx context.Context, dir string, o PostgresOptions) (*Postgres, error) {
	if o.MaxConnections == 0 {
		o.MaxConnections = 100
	}
	if o.Bin == "" && o.Launch == nil {
		var err error
		if o.Bin, err = FindPostgres(); err != nil {
			return nil, err
		}
	}
	ports, err := reservePorts(1)
	if err != nil {
		return nil, err
	}
	p := &Postgres{o: o, dir: dir, port: ports.numbers[0], password: rand.Text(), ports: ports}
	start := func() error {
		if o.Launch == nil {
			if err := p.initdb(ctx); err != nil {
				return err
			}
		}
		return p.Start(ctx)
	}
	if err := start(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// initdb makes the data directory, owned by the user that will run the server.
func (p *Postgres) initdb(ctx context.Context) error {
	data := filepath.Join(p.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				return fmt.Errorf("engines: postgres refuses root, and there is no other user to run it: %w", err)
			}
		}
		if p.uid, err = strconv.Atoi(u.Uid); err != nil {
			return fmt.Errorf("engines: %w", err)
		}
		if p.gid, err = strconv.Atoi(u.Gid); err != nil {
			return fmt.Errorf("engines: %w", err)
		}
		for _, path := range []string{p.dir, data} {
			if err := os.Chown(path, p.uid, p.gid); err != nil {
				return fmt.Errorf("engines: %w", err)
			}
		}
	}
	secret := filepath.Join(data, "..", "password")
	if err := os.WriteFile(secret, []byte(p.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	defer os.Remove(secret)
	if p.uid > 0 {
		if err := os.Chown(secret, p.uid, p.gid); err != nil {
			return fmt.Errorf("engines: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.o.Bin, "initdb"),
		"-D", data, "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", "--pwfile", secret, "--no-sync")
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	if p.uid > 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("engines: initdb: %w: %s", err, out)
	}
	return nil
}

func (p *Postgres) args() []string {
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(p.port),
		"max_connections=" + strconv.Itoa(p.o.MaxConnections),
		"shared_buffers=64MB", "max_wal_size=512MB", "timezone=UTC", "jit=off", "autovacuum_naptime=10s",
	}
	if p.o.Launch == nil {
		settings = append(settings, "unix_socket_directories=")
	}
	if !p.o.Durable {
		settings = append(settings, "fsync=off", "full_page_writes=off")
	}
	var args []string
	for _, s := range append(settings, p.o.Settings...) {
		args = append(args, "-c", s)
	}
	return args
}

// Start starts a stopped server on its data again, at the same port, and returns
// when it answers. It does nothing to a running one.
func (p *Postgres) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unit != nil && !p.unit.Exited() {
		return nil
	}
	if err := p.launchLocked(ctx); err != nil {
		return fmt.Errorf("engines: start postgres: %w", err)
	}
	if err := p.answersLocked(ctx); err != nil {
		return errors.Join(fmt.Errorf("engines: postgres: %w: %s", err, p.unit.Log()), p.unit.Kill())
	}
	return nil
}

func (p *Postgres) launchLocked(ctx context.Context) error {
	launch := p.o.Launch
	args := p.args()
	if launch == nil {
		launch = Start
		args = append([]string{"-D", filepath.Join(p.dir, "data")}, args...)
	}
	unit, err := launch(ctx, Command{
		Name: "postgres", Path: filepath.Join(p.o.Bin, "postgres"), Dir: p.dir, Args: args,
		Env: append([]string{"PGPASSWORD=" + p.password, "TZ=UTC"}, p.o.Env...), UID: p.uid, GID: p.gid, Quit: syscall.SIGQUIT,
	})
	if err != nil {
		return err
	}
	p.unit = unit
	return nil
}

func (p *Postgres) answersLocked(ctx context.Context) error {
	var last error
	died := false
	err := waitFor(ctx, func() bool {
		if died = p.unit.Exited(); died {
			return true
		}
		conn, err := pgx.Connect(ctx, p.URL("postgres", "", "")+"&connect_timeout=2")
		if err == nil {
			_, err = conn.Exec(ctx, "SELECT 1")
			err = errors.Join(err, conn.Close(ctx))
		}
		last = err
		return err == nil
	})
	if died {
		return errors.New("ended at its start")
	}
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// URL is the address of a database for a user. The empty user is the superuser.
func (p *Postgres) URL(database, username, password string) string {
	if username == "" {
		username, password = "postgres", p.password
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(username, password),
		Host: "127.0.0.1:" + strconv.Itoa(p.port), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Stop stops the server at once (Postgres's immediate mode). Connections break, and the next Start recovers committed
// data.
func (p *Postgres) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unit == nil {
		return nil
	}
	unit := p.unit
	p.unit = nil
	return unit.Quit(ctx)
}

// Close stops the server for good and gives its port back. The files stay for their
// owner to remove.
func (p *Postgres) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(p.Stop(ctx), p.ports.release())
}
