package sqliteledger

import (
	"context"
	"database/sql"
	"errors"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// Usage is ledger.Store's. A read transaction is one snapshot.
func (s *Store) Usage(ctx context.Context, q ledger.Query) (u ledger.Usage, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return u, classify(err)
	}
	defer func() { err = classify(errors.Join(err, tx.Rollback())) }()
	first, last, archived, err := readBounds(ctx, tx)
	if err != nil {
		return u, err
	}
	r, err := ledger.NewReading(q, first, last)
	if err == nil {
		err = r.NeedsEntries(archived)
	}
	if err != nil {
		return u, err
	}
	return ask(tx.QueryContext).Usage(ctx, sqlbooks.SQLite, r, s.now(), s.options.Slot)
}

// readBounds returns the first and the last second that usage can be in, and before
// which entries are archived.
func readBounds(ctx context.Context, tx *sql.Tx) (first, last, archived int64, err error) {
	w, err := readWindow(ctx, tx)
	if err != nil {
		return 0, 0, 0, err
	}
	var hour, month sql.NullInt64
	err = tx.QueryRowContext(ctx, "SELECT (SELECT min(hour) FROM rollups), (SELECT max(month) FROM archives)").Scan(&hour, &month)
	if err != nil {
		return 0, 0, 0, err
	}
	if hour.Valid {
		w.From = min(w.From, hour.Int64)
	}
	if month.Valid {
		archived = ledger.Month(month.Int64).AddDate(0, 1, 0).Unix()
	}
	return w.From, w.To - 1, archived, nil
}

// ask runs the books' queries in a transaction.
func ask(query func(ctx context.Context, text string, args ...any) (*sql.Rows, error)) sqlbooks.Ask {
	return func(ctx context.Context, text string, args []any, row func(func(...any) error) error) error {
		rows, err := query(ctx, text, args...)
		return each(rows, err, func(s scanner) error { return row(s.Scan) })
	}
}

// Standing is ledger.Store's.
func (s *Store) Standing(ctx context.Context, epochs []ledger.Epoch) (st ledger.Standing, err error) {
	st.Ledger = s.opened
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return st, classify(err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	for _, e := range epochs {
		f, err := sqlbooks.ScanFrontier(tx.QueryRowContext(ctx, "SELECT "+sqlbooks.FrontierColumns+" FROM frontier WHERE agent = ? AND epoch = ?", e.Agent, e.Epoch).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			f, err = ledger.Frontier{Epoch: e, State: ledger.StateOpen}, nil
		}
		if err != nil {
			return st, classify(err)
		}
		st.Frontiers = append(st.Frontiers, f)
	}
	return st, nil
}

// Agents is ledger.Store's.
func (s *Store) Agents(ctx context.Context, after string, n int) ([]ledger.AgentState, error) {
	agent, epoch := ledger.ParseCursor(after)
	rows, err := s.db.QueryContext(ctx, "SELECT "+sqlbooks.Living+` FROM frontier f
		WHERE (agent > ?1 OR agent = ?1 AND epoch < ?2)
		AND (state <> 'closed' OR epoch = (SELECT max(epoch) FROM frontier g WHERE g.agent = f.agent))
		ORDER BY agent, epoch DESC LIMIT ?3`, agent, epoch, n)
	now := s.now()
	var states []ledger.AgentState
	err = each(rows, err, func(row scanner) error {
		f, err := sqlbooks.ScanLiving(row.Scan)
		states = append(states, f.Agent(now))
		return err
	})
	return states, classify(err)
}

// each calls do for every row and closes them.
func each(rows *sql.Rows, err error, do func(scanner) error) error {
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
