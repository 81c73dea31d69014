package boot

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/server/judge"
	"github.com/f4ee788f/quota/internal/server/leasing"
	"github.com/f4ee788f/quota/internal/server/switches"
)

const (
	// openTimeout bounds opening the files of an embedded server.
	openTimeout = 30 * time.Second
	// connectTimeout bounds finding out that a database is away.
	connectTimeout = 3 * time.Second
)

// engines are what a server keeps its state in.
type engines struct {
	leases     lease.Store
	ledger     ledger.Store
	books      ledger.Books
	policy     policystore.Store
	judge      *judge.Judge
	board      switches.Board // beside the policy store; nil for none
	leaseName  string
	ledgerName string
	shared     bool // with other servers
	closers    []io.Closer
}

// accept is the ledger's question about a row. The judge is set before the first report comes; it needs what the ledger
// opened.
func (e *engines) accept(agent string, r ledger.Row) error { return e.judge.Accept(agent, r) }

// Close closes in reverse.
func (e *engines) Close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i].Close())
	}
	e.closers = nil
	return errors.Join(errs...)
}

func open(ctx context.Context, c *Config, log *slog.Logger) (_ *engines, err error) {
	e := &engines{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	path, url, err := c.ledger()
	if err != nil {
		return nil, err
	}
	if path != "" {
		err = e.openSQLite(ctx, path, c.now)
	} else {
		err = e.openPostgres(ctx, url)
	}
	if err != nil {
		return nil, err
	}
	if c.Leases != nil {
		e.leases, e.leaseName = c.Leases, "given"
		return e, nil
	}
	if c.LeaseStore == "memory" {
		e.leases, e.leaseName = memstore.New(), "memory"
		if e.shared {
			log.Warn("leases are kept in this process: run one server only, or give --lease-store redis://...")
		}
		return e, nil
	}
	if err := e.openRedis(c.LeaseStore); err != nil {
		return nil, err
	}
	return e, nil
}

// openSQLite opens the file and holds it for this process: a second server on it
// would lease everything out again from its own memory.
func (e *engines) openSQLite(ctx context.Context, path string, now func() time.Time) error {
	if err := own(path); err != nil {
		return err
	}
	held, err := hold(path + ".lock")
	if err != nil {
		return err
	}
	e.closers = append(e.closers, held)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	l, err := sqliteledger.Open(ctx, path, ledger.Options{Accept: e.accept, Now: now})
	if err != nil {
		return err
	}
	e.closers = append(e.closers, l)
	e.ledger, e.books, e.ledgerName = l, l.Books(), "sqlite"
	e.policy = sqlstore.New(l.DB(), sqlstore.SQLite, now)
	e.judge = judge.New(e.policy)
	return nil
}

// openPostgres connects to nothing yet: the database may be away.
func (e *engines) openPostgres(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return errors.New("--ledger: this Postgres URL cannot be read") // without the password in it
	}
	l, err := pgledger.Open(ctx, url, ledger.Options{Accept: e.accept})
	if err != nil {
		return err
	}
	e.closers = append(e.closers, l)
	e.ledger, e.books, e.ledgerName, e.shared = l, l.Books(), "postgres", true
	// The policy has connections of its own, so that a flood of usage cannot keep a
	// policy change waiting.
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(4)
	db.SetConnMaxIdleTime(5 * time.Minute)
	e.closers = append(e.closers, db)
	e.policy = sqlstore.New(db, sqlstore.Postgres, nil)
	e.judge = judge.New(e.policy)
	return nil
}

func (e *engines) openRedis(place string) error {
	p, err := parseRedis(place)
	if err != nil {
		return err
	}
	s := redisstore.New(p.client(), p.prefix)
	j := leasing.NewJoiner(s)
	e.closers = append(e.closers, s, j)
	e.leases, e.leaseName, e.board = j, "redis", s
	return nil
}
