package sqliteledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/migrations"
)

// Bounds of what a store remembers of what its file holds already.
const (
	seenKeys    = 200_000
	seenTouches = 1_000_000
)

// leastHalved is the least number of times that a block's bounds are halved. Intake waits for a fold here, so a
// fold should take a second or so.
const leastHalved = 3

// busyTimeout is how long a writer waits for another, in milliseconds.
const busyTimeout = 10_000

var _ ledger.Store = (*Store)(nil)

// Store is a ledger in a SQLite file. It is safe for concurrent use.
type Store struct {
	options ledger.Options
	db      *sql.DB
	settler *ledger.Settler
	opened  string // new each time: a file can only be put in place of another while it is not open

	// writing serialises this process's transactions and guards what follows. The
	// file's own lock would as well, by polling.
	writing sync.Mutex
	writer  *writer
	doubt   bool // a transaction failed for want of room or of the right to write, and no probe succeeded since
	probed  time.Time
	window  ledger.Window
	keys    *ledger.Seen[ledger.Key]
	touches *ledger.Notes
	halved  int // how many times the bounds of a block are
}

// Open opens or makes the file, with its directory, and brings its schema up to
// date. Close releases it.
func Open(ctx context.Context, path string, options ledger.Options) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("sqliteledger: %w", err)
	}
	pragmas := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout), // first: the others may have to wait
		"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)",
	}}
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: pragmas.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("sqliteledger: %w", err)
	}
	db.SetMaxOpenConns(8) // one writes, the others read
	db.SetMaxIdleConns(8)
	s := &Store{
		options: options, db: db, opened: "sqlite/" + rand.Text(),
		keys:    ledger.NewSeen[ledger.Key](seenKeys),
		touches: ledger.NewNotes(seenTouches), halved: leastHalved,
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sqliteledger: open %s: %w", path, err), db.Close())
	}
	s.settler = ledger.NewSettler(1, s.commit)
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	if err := migrations.SQLite(ctx, s.db); err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	s.writer = &writer{conn: conn, prepared: map[string]*sql.Stmt{}}
	s.window, err = readWindow(ctx, s.db)
	return err
}

// DB is the file's pool, for what else is kept in it. Its transactions take the
// write lock when they begin, unless they are read-only. Closed with the store.
func (s *Store) DB() *sql.DB { return s.db }

// Books is what operators do with the ledger. It must not be used once the store is closed.
func (s *Store) Books() ledger.Books {
	room := func(ctx context.Context) (ledger.Window, time.Time, error) {
		now := s.now()
		window, err := s.room(ctx, now)
		return window, now, err
	}
	return sqlbooks.New(s.db, sqlbooks.SQLite, s.options, room, classify)
}

// Settle is ledger.Store's.
func (s *Store) Settle(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	return s.settler.Settle(ctx, reports)
}

const (
	// probeBytes is how much room a file must have to be ready: some seconds of usage. What is smaller may fit
	// where there is room for nothing else.
	probeBytes = 256 << 10
	// probeEvery is how often that is tried while nothing fails, in case nothing is written.
	probeEvery = 30 * time.Second
)

// Ping takes the write lock, and writes probeBytes: first, every half minute, and each time once a
// transaction has failed. So a disk that is full is known before usage comes, and until there is room again.
func (s *Store) Ping(ctx context.Context) error {
	return s.write(ctx, func(ctx context.Context, w *writer) error {
		if !s.doubt && time.Since(s.probed) < probeEvery {
			return nil
		}
		_, err := w.exec(ctx, "INSERT OR REPLACE INTO probe (id, filler) VALUES (1, zeroblob(?))", probeBytes)
		if err == nil {
			s.doubt, s.probed = false, time.Now()
		}
		return err
	})
}

// Close waits for settlement under way.
func (s *Store) Close() error {
	s.settler.Close()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer == nil {
		return nil
	}
	err := errors.Join(s.writer.close(), s.db.Close())
	s.writer = nil
	if err != nil {
		return fmt.Errorf("sqliteledger: close: %w", err)
	}
	return nil
}

// now is the clock of intake and completeness.
func (s *Store) now() time.Time {
	if s.options.Now != nil {
		return s.options.Now()
	}
	return time.Now()
}

// write runs one transaction. Its error wraps ErrUnavailable unless it is for what
// is in it.
func (s *Store) write(ctx context.Context, do func(context.Context, *writer) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer == nil {
		return ledger.ErrClosed
	}
	err := s.writer.transact(ctx, do)
	s.doubt = s.doubt || unwritable(err)
	return classify(err)
}

// unwritable reports whether the file could not be written.
func unwritable(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY:
		return true
	}
	return false
}

// room returns the months that there is room for, after having made some around now
// where they are missing.
func (s *Store) room(ctx context.Context, now time.Time) (ledger.Window, error) {
	s.writing.Lock()
	window := s.window
	s.writing.Unlock()
	if window.Covers(now) {
		return window, nil
	}
	window, add := window.Extend(now)
	err := s.write(ctx, func(ctx context.Context, w *writer) error {
		for _, m := range add {
			if _, err := w.exec(ctx, "INSERT INTO months (month) VALUES (?) ON CONFLICT DO NOTHING", m.Unix()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return window, err
	}
	s.writing.Lock()
	s.window = window // months that are retired meanwhile are missed in holdMonthsLocked
	s.writing.Unlock()
	return window, nil
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func readWindow(ctx context.Context, q queryer) (ledger.Window, error) {
	var first, last sql.NullInt64
	if err := q.QueryRowContext(ctx, "SELECT min(month), max(month) FROM months").Scan(&first, &last); err != nil || !first.Valid {
		return ledger.Window{}, err
	}
	return ledger.Window{From: first.Int64, To: time.Unix(last.Int64, 0).UTC().AddDate(0, 1, 0).Unix()}, nil
}

// writer is the one connection that ledger transactions are written with. Guarded
// by Store.writing.
type writer struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt // by text, of which there are as many as in this package
}

func (w *writer) close() error {
	var errs []error
	for _, p := range w.prepared {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// transact begins and ends without ctx, which would have the driver answer that it
// gave up on what may have been done. The lock is waited for at most busyTimeout.
func (w *writer) transact(ctx context.Context, do func(context.Context, *writer) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	whole := context.WithoutCancel(ctx)
	if _, err := w.conn.ExecContext(whole, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := do(ctx, w)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		_, err = w.conn.ExecContext(whole, "COMMIT")
	}
	if err != nil {
		// Where the failure has rolled back already, this one fails, rightly.
		_, _ = w.conn.ExecContext(whole, "ROLLBACK")
	}
	return err
}

func (w *writer) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if p := w.prepared[text]; p != nil {
		return p, nil
	}
	p, err := w.conn.PrepareContext(ctx, text)
	if err == nil {
		w.prepared[text] = p
	}
	return p, err
}

// exec returns how many rows changed.
func (w *writer) exec(ctx context.Context, text string, args ...any) (int64, error) {
	p, err := w.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	result, err := p.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (w *writer) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	p, err := w.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	return p.QueryContext(ctx, args...)
}

// classify wraps errors other than the data's own in ErrUnavailable.
func classify(err error) error {
	if err == nil || errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrQuery) || errors.Is(err, ledger.ErrEncoding) {
		return err
	}
	var e *sqlite.Error
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
			return fmt.Errorf("sqliteledger: %w", err)
		}
	}
	return fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
}
