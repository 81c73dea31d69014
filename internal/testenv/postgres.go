package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/f4ee788f/quota/internal/engines"
)

// AppUser and AppPassword are the login that AppURL prepares: the role of the product that owns nothing. Roles belong
// to the server, not to a database, so tests share it.
const (
	AppUser     = "quota_app"
	AppPassword = "quota_app"
)

// PG is a Postgres database as one test sees it: new, empty, its own.
type PG struct {
	t        testing.TB
	owner    *url.URL
	database string
	server   *engines.Postgres // nil unless private
}

type postgresEngine struct {
	url    *url.URL // of the superuser, in the maintenance database
	server *engines.Postgres
}

var sharedPostgres shared[postgresEngine]

// Postgres is a new database on the server that all tests of this binary share. It is
// dropped at the end of the test, connected or not. The test ends here when there is no server.
func Postgres(t testing.TB) *PG {
	t.Helper()
	e, err := sharedPostgres.get(func(ctx context.Context) (postgresEngine, func() error, error) {
		if given := os.Getenv("QUOTA_TEST_POSTGRES"); given != "" {
			u, err := url.Parse(given)
			if err != nil {
				return postgresEngine{}, nil, fmt.Errorf("QUOTA_TEST_POSTGRES: %w", err)
			}
			say("postgres: given: %s", u.Redacted())
			return postgresEngine{url: u}, nil, nil
		}
		return startPostgres(ctx, engines.PostgresOptions{})
	})
	give(t, "postgres", err)
	return newDatabase(t, e.url, nil)
}

// PrivatePostgres is a new server for this test alone, with Stop and Start; it ends
// with the test. durable keeps fsync on. QUOTA_TEST_POSTGRES does not provide one.
func PrivatePostgres(t testing.TB, durable bool) *PG {
	t.Helper()
	return private(t, startPostgres, engines.PostgresOptions{Durable: durable})
}

// CopiedPostgres is a private server by this machine's own programs. Its data can be copied: Backup, Standby.
func CopiedPostgres(t testing.TB) *PG {
	t.Helper()
	return private(t, func(ctx context.Context, o engines.PostgresOptions) (postgresEngine, func() error, error) {
		if _, err := engines.FindPostgres(); err != nil {
			return postgresEngine{}, nil, fmt.Errorf("%w: %w", errNone, err)
		}
		return launchPostgres(ctx, o, fromMachine)
	}, engines.PostgresOptions{})
}

func private(t testing.TB, start func(context.Context, engines.PostgresOptions) (postgresEngine, func() error, error), o engines.PostgresOptions) *PG {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	e, end, err := start(ctx, o)
	give(t, "postgres", err)
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("stop postgres: %v", err)
		}
	})
	return newDatabase(t, e.url, e.server)
}

func startPostgres(ctx context.Context, o engines.PostgresOptions) (e postgresEngine, end func() error, err error) {
	from, err := choose(ctx,
		func(ctx context.Context) error { return postgresImage.have(ctx) },
		func() error { _, err := engines.FindPostgres(); return err })
	if err != nil {
		return e, nil, err
	}
	return launchPostgres(ctx, o, from)
}

func launchPostgres(ctx context.Context, o engines.PostgresOptions, from source) (e postgresEngine, end func() error, err error) {
	dir, err := engines.TempDir("postgres")
	if err != nil {
		return e, nil, err
	}
	clean := func() error { return os.RemoveAll(dir) }
	if from == fromDocker {
		made := postgresImage.boxes()
		o.Launch = made.launch
		clean = func() error { return errors.Join(made.remove(), os.RemoveAll(dir)) }
		say("postgres: docker, a container of %s", postgresImage.name)
	} else {
		if o.Bin, err = engines.FindPostgres(); err != nil {
			return e, nil, err
		}
		say("postgres: local process, %s/postgres", o.Bin)
	}
	s, err := engines.StartPostgres(ctx, dir, o)
	if err != nil {
		return e, nil, errors.Join(err, clean())
	}
	u, err := url.Parse(s.URL("postgres", "", ""))
	if err != nil {
		return e, nil, errors.Join(err, s.Close(), clean())
	}
	return postgresEngine{u, s}, func() error { return errors.Join(s.Close(), clean()) }, nil
}

func newDatabase(t testing.TB, maintenance *url.URL, server *engines.Postgres) *PG {
	t.Helper()
	p := &PG{t: t, owner: maintenance, database: "t" + strings.ToLower(rand.Text()[:16]), server: server}
	if err := p.maintain(t.Context(), "CREATE DATABASE "+p.database+" TEMPLATE template0"); err != nil {
		t.Fatalf("postgres: %v", err)
	}
	if server == nil { // a private server goes whole, and may be stopped by now
		t.Cleanup(func() {
			if err := p.maintain(context.Background(), "DROP DATABASE "+p.database+" WITH (FORCE)"); err != nil {
				t.Errorf("postgres: %v", err)
			}
		})
	}
	return p
}

// maintain runs statements as superuser outside the test's database.
func (p *PG) maintain(ctx context.Context, statements ...string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.owner.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// OwnerURL is the test's database for a superuser, as migrations use it.
func (p *PG) OwnerURL() string {
	u := *p.owner
	u.Path = "/" + p.database
	return u.String()
}

// URL is the test's database for another user.
func (p *PG) URL(user, password string) string {
	u := *p.owner
	u.User = url.UserPassword(user, password)
	u.Path = "/" + p.database
	return u.String()
}

// AppURL is the test's database for AppUser. The user can log in from now on, whether migrations have made the role
// already or will find it. Migrations grant its rights.
func (p *PG) AppURL() string {
	p.t.Helper()
	// Tests and their migrations may make the role at the same time. The lock keeps tests apart; the exception handles
	// a migration that came first.
	err := p.maintain(p.t.Context(),
		"SELECT pg_advisory_lock(7600)",
		"DO $$ BEGIN CREATE ROLE "+AppUser+"; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
		"ALTER ROLE "+AppUser+" LOGIN PASSWORD '"+AppPassword+"'")
	if err != nil {
		p.t.Fatalf("postgres: %v", err)
	}
	return p.URL(AppUser, AppPassword)
}

// TerminateBackends breaks every connection to the test's database and returns how many.
func (p *PG) TerminateBackends() (n int) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.owner.String())
	if err != nil {
		p.t.Fatalf("postgres: %v", err)
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(p.t.Context(),
		"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1", p.database).Scan(&n)
	if err != nil {
		p.t.Fatalf("postgres: %v", err)
	}
	return n
}

// mine is the server to stop. Only a private server has one.
func (p *PG) mine() *engines.Postgres {
	p.t.Helper()
	if p.server == nil {
		p.t.Fatal("a shared postgres must not be stopped: use testenv.PrivatePostgres")
	}
	return p.server
}

// Stop stops the server at once, as a crash would, and waits for its end. Private servers only.
func (p *PG) Stop() {
	p.t.Helper()
	if err := p.mine().Stop(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// Start starts it again on the same port and data, and returns when it answers. Private servers only.
func (p *PG) Start() {
	p.t.Helper()
	if err := p.mine().Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// Backup copies the server's data. restore stops the server, puts the copy in the place of its data, and starts it
// again. Only of a CopiedPostgres.
func (p *PG) Backup() (restore func()) {
	p.t.Helper()
	dir := p.place("backup")
	if err := p.mine().Backup(p.t.Context(), filepath.Join(dir, "data")); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		p.t.Helper()
		if err := p.mine().Restore(p.t.Context(), filepath.Join(dir, "data")); err != nil {
			p.t.Fatal(err)
		}
		p.Start()
	}
}

// Standby starts a replica of the server, which does not wait for it. It has the test's database too, and ends with the
// test. Only of a CopiedPostgres.
func (p *PG) Standby() *PG {
	p.t.Helper()
	s, err := p.mine().Standby(p.t.Context(), p.place("standby"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			p.t.Errorf("stop the standby: %v", err)
		}
	})
	u, err := url.Parse(s.URL("postgres", "", ""))
	if err != nil {
		p.t.Fatal(err)
	}
	return &PG{t: p.t, owner: u, database: p.database, server: s}
}

// Deafen cuts a standby off from its primary, once it has everything that is committed there now.
func (p *PG) Deafen(primary *PG) {
	p.t.Helper()
	if err := p.mine().Deafen(p.t.Context(), primary.mine()); err != nil {
		p.t.Fatal(err)
	}
}

// Promote makes a standby a primary.
func (p *PG) Promote() {
	p.t.Helper()
	if err := p.mine().Promote(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// place is a directory that ends with the test and that the server's user can reach.
func (p *PG) place(name string) string {
	p.t.Helper()
	dir, err := engines.TempDir(name)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			p.t.Error(err)
		}
	})
	return dir
}
