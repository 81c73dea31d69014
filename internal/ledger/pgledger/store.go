package pgledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// Bounds of what a store remembers of what the database holds already.
const (
	seenKeys    = 500_000
	seenTouches = 2_000_000 // gateways times tenants
)

// intakeWidth is how many transactions of intake a server has under way: one
// waits for its COMMIT while the next is made.
const intakeWidth = 3

// deskWidth is how many connections the books have. A verification takes one for as long as it lasts, and must
// not keep others, or intake, from theirs.
const deskWidth = 6

// windowFor is how long a server believes what it read of months and of the
// database's clock.
const windowFor = time.Minute

// connectTimeout bounds finding out that the database is away, where the URL says
// nothing about it.
const connectTimeout = 5 * time.Second

// session is what every connection needs. Whatever the database's default is, a
// COMMIT is durable when it answers. The locks of a server whose host died or hangs,
// of frontiers and of leading the fold, are free again within a minute.
const session = `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
	SET idle_in_transaction_session_timeout = '60s';
	SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3`

var _ ledger.Store = (*Store)(nil)

// Store is one server's ledger. It is safe for concurrent use.
type Store struct {
	options ledger.Options
	pool    *pgxpool.Pool
	settler *ledger.Settler
	desk    *pgxpool.Pool // connections of the books
	books   *sql.DB       // over desk

	mu     sync.Mutex
	window ledger.Window
	offset time.Duration // of the database's clock from ours
	read   time.Time     // when window and offset were

	folding sync.Mutex // guards what follows: one fold of this server at a time
	server  string     // the server of Postgres's that keys and touches are of
	keys    *ledger.Seen[ledger.Key]
	touches *ledger.Notes
	halved  int // how many times the bounds of a block were, because it took too long
}

// Open returns a store on the database of the URL, in the schema of its
// search_path. It fails only where the URL cannot be read. Close ends its connections.
func Open(ctx context.Context, url string, options ledger.Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("pgledger: %w", err)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = "quota-server"
	}
	given := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if given != nil {
			if err := given(ctx, conn); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, session)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("pgledger: %w", err)
	}
	config = config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = deskWidth, 0, 0
	desk, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("pgledger: %w", err)
	}
	s := &Store{
		options: options, pool: pool, desk: desk, books: stdlib.OpenDBFromPool(desk),
		keys: ledger.NewSeen[ledger.Key](seenKeys), touches: ledger.NewNotes(seenTouches),
	}
	s.settler = ledger.NewSettler(intakeWidth, s.commit)
	return s, nil
}

// Pool is the store's connections, for what else is kept in the database. Closed
// with the store.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Books is what operators do with the ledger, on connections of its own. Closed with
// the store.
func (s *Store) Books() ledger.Books {
	return sqlbooks.New(s.books, sqlbooks.Postgres, s.options, s.room, classify)
}

// Settle is ledger.Store's.
func (s *Store) Settle(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	return s.settler.Settle(ctx, reports)
}

// Ping asks the database whether reports could be settled: it answers, its schema
// is there, it takes writes, and there is room for this month.
func (s *Store) Ping(ctx context.Context) error {
	var standby bool
	if err := s.pool.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return classify(err)
	}
	if standby {
		return fmt.Errorf("%w: the database is a standby, it takes no writes", ledger.ErrUnavailable)
	}
	s.mu.Lock()
	s.read = time.Time{}
	s.mu.Unlock()
	_, _, err := s.room(ctx)
	return err
}

// Close waits for settlement under way, then ends the connections.
func (s *Store) Close() error {
	s.settler.Close()
	err := s.books.Close()
	s.desk.Close()
	s.pool.Close()
	return err
}

// room returns the months that there are partitions for, and the time. It has missing months around now made
// first. The time is the database's, unless a test has another.
func (s *Store) room(ctx context.Context) (ledger.Window, time.Time, error) {
	s.mu.Lock()
	window, offset, read := s.window, s.offset, s.read
	s.mu.Unlock()
	if age := time.Since(read); read.IsZero() || age > windowFor || age < 0 || !window.Covers(s.now(offset)) {
		var err error
		if window, offset, err = s.readRoom(ctx); err != nil {
			return window, time.Time{}, classify(err)
		}
		if now := s.now(offset); !window.Covers(now) {
			first, last := ledger.MonthsAround(now)
			if _, err = s.pool.Exec(ctx, "SELECT make_months($1, $2)", first, last); err == nil {
				window, offset, err = s.readRoom(ctx)
			}
			if err != nil {
				return window, time.Time{}, classify(fmt.Errorf("make partitions: %w", err))
			}
		}
		s.mu.Lock()
		s.window, s.offset, s.read = window, offset, time.Now()
		s.mu.Unlock()
	}
	return window, s.now(offset), nil
}

func (s *Store) now(offset time.Duration) time.Time {
	if s.options.Now != nil {
		return s.options.Now()
	}
	return time.Now().Add(offset)
}

func (s *Store) readRoom(ctx context.Context) (w ledger.Window, offset time.Duration, err error) {
	var first, last *time.Time
	var theirs time.Time
	sent := time.Now()
	err = s.pool.QueryRow(ctx, "SELECT min(month), max(month), clock_timestamp() FROM months").Scan(&first, &last, &theirs)
	if err != nil {
		return w, 0, err
	}
	if first != nil {
		w = ledger.Window{From: first.Unix(), To: last.AddDate(0, 1, 0).Unix()}
	}
	return w, theirs.Sub(sent.Add(time.Since(sent) / 2)), nil
}

// write runs one transaction, again where the database gave it up for another.
func (s *Store) write(ctx context.Context, do func(pgx.Tx) error) error {
	for attempt := 0; ; attempt++ {
		err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, do)
		var pg *pgconn.PgError
		if err == nil || attempt == 3 || !errors.As(err, &pg) || pg.Code != "40001" && pg.Code != "40P01" {
			return classify(err)
		}
	}
}

// classify wraps errors other than the data's own in ErrUnavailable.
func classify(err error) error {
	if err == nil || errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrQuery) || errors.Is(err, ledger.ErrEncoding) {
		return err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && len(pg.Code) == 5 {
		switch pg.Code[:2] {
		case "22", "23", "54": // data exception, constraint, a limit of the program
			return fmt.Errorf("pgledger: %w", err)
		}
	}
	return fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
}
