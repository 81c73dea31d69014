package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

var _ ledger.Books = (*Books)(nil)

// Books are one server's. They are safe for concurrent use.
type Books struct {
	db       *sql.DB
	engine   Engine
	d        *dialect
	options  ledger.Options
	classify func(error) error // the engine's: what is not the fault of the data is ErrUnavailable
	room     Room
}

// Room returns the months that there is room for, some having been made around now
// where they were missing, and the ledger's time.
type Room func(context.Context) (ledger.Window, time.Time, error)

// New returns the books of a ledger. db stays the caller's to close; classify names
// the engine's errors.
func New(db *sql.DB, engine Engine, options ledger.Options, room Room, classify func(error) error) *Books {
	name := func(err error) error { return classified(err, classify) }
	return &Books{db: db, engine: engine, d: dialects[engine], options: options, room: room, classify: name}
}

// read runs do in one snapshot.
func (b *Books) read(ctx context.Context, do func(*sql.Tx) error) (err error) {
	o := sql.TxOptions{ReadOnly: true}
	if b.engine == Postgres {
		o.Isolation = sql.LevelRepeatableRead
	}
	tx, err := b.db.BeginTx(ctx, &o)
	if err != nil {
		return b.classify(err)
	}
	defer func() { err = b.classify(errors.Join(err, ended(tx.Rollback()))) }()
	return do(tx)
}

// write runs do in a transaction; an error leaves nothing of it.
func (b *Books) write(ctx context.Context, do func(*sql.Tx) error) (err error) {
	var o sql.TxOptions
	if b.engine == Postgres {
		// Whatever the database's default: at a higher level, waiting for the change
		// before would end in a serialization failure instead.
		o.Isolation = sql.LevelReadCommitted
	}
	tx, err := b.db.BeginTx(ctx, &o)
	if err != nil {
		return b.classify(err)
	}
	if err := do(tx); err != nil {
		return b.classify(errors.Join(err, ended(tx.Rollback())))
	}
	return b.classify(tx.Commit())
}

// ended forgives that a transaction had ended already, by its context.
func ended(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// each calls do for every row and closes them.
func each(rows *sql.Rows, err error, do func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// hash copies a column of 32 bytes; another length, where somebody changed it, is no hash.
func hash(to *[32]byte, b []byte) {
	*to = [32]byte{}
	if len(b) == len(to) {
		copy(to[:], b)
	}
}

// months are the first seconds of the months that there is room for, and of the month
// after the last.
func (b *Books) months(ctx context.Context, tx *sql.Tx) ([]int64, error) {
	var months []int64
	rows, err := tx.QueryContext(ctx, b.d.months)
	err = each(rows, err, func(rows *sql.Rows) error {
		var m int64
		err := rows.Scan(&m)
		months = append(months, m)
		return err
	})
	if err == nil && len(months) > 0 {
		last := time.Unix(months[len(months)-1], 0).UTC()
		months = append(months, last.AddDate(0, 1, 0).Unix())
	}
	if err != nil {
		err = fmt.Errorf("read months: %w", err)
	}
	return months, err
}
