package pgledger

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// Usage is ledger.Store's. All of it is read in one snapshot. A dropped partition is gone from the snapshot all
// the same. So a query that needs entries asks afterwards whether they were there.
func (s *Store) Usage(ctx context.Context, q ledger.Query) (u ledger.Usage, err error) {
	_, now, err := s.room(ctx)
	if err != nil {
		return u, err
	}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	var r *ledger.Reading
	err = pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
		first, last, archived, err := readBounds(ctx, tx)
		if err != nil {
			return err
		}
		r, err = ledger.NewReading(q, first, last)
		if err == nil {
			err = r.NeedsEntries(archived)
		}
		if err != nil {
			return err
		}
		u, err = ask(tx).Usage(ctx, sqlbooks.Postgres, r, now, s.options.Slot)
		return err
	})
	if err == nil && len(r.Cut) > 0 {
		var archived int64
		err = s.pool.QueryRow(ctx, "SELECT "+archivedBefore).Scan(&archived)
		if err == nil {
			err = r.NeedsEntries(archived)
		}
	}
	return u, classify(err)
}

// archivedBefore is the first second that entries are not archived from; 0 without archives.
const archivedBefore = `(SELECT coalesce(extract(epoch FROM max(month) + interval '1 month')::bigint, 0) FROM archives)`

// readBounds returns the first and the last second that usage can be in, and before which entries are archived.
// It also makes the transaction plan each query for its own arguments. A plan for any range and any tenant was
// 6 to 9 times slower over a million roll-ups.
func readBounds(ctx context.Context, tx pgx.Tx) (first, last, archived int64, err error) {
	err = tx.QueryRow(ctx, `SELECT least(extract(epoch FROM min(month))::bigint, (SELECT min(hour) FROM rollups)),
		extract(epoch FROM max(month) + interval '1 month')::bigint - 1,
		`+archivedBefore+`
		FROM months, set_config('plan_cache_mode', 'force_custom_plan', true)`).Scan(&first, &last, &archived)
	return first, last, archived, err
}

// ask runs the books' queries in a transaction.
func ask(tx pgx.Tx) sqlbooks.Ask {
	return func(ctx context.Context, text string, args []any, row func(func(...any) error) error) error {
		rows, err := tx.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// identities name the server's data, its timeline, the database, and when the server began. Each name is new
// after a standby was promoted, and after every restart; a backup cannot be put in place without one. The first
// counts that the role may read: some operators let nobody read the system's identifier, or the place in the
// log.
var identities = [...]string{
	`SELECT 'postgres/' || (SELECT system_identifier FROM pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)` + began,
	`SELECT 'postgres//' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)` + began,
	`SELECT 'postgres//'` + began + ` WHERE NOT pg_is_in_recovery()`,
}

const began = ` || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
	|| '/' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint`

// Standing is ledger.Store's. A standby, which has no place to write at, refuses.
func (s *Store) Standing(ctx context.Context, epochs []ledger.Epoch) (st ledger.Standing, err error) {
	for _, name := range identities {
		st, err = s.standing(ctx, name, epochs)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" { // insufficient privilege
			break
		}
	}
	return st, classify(err)
}

// standing is one statement, so a proxy before the database cannot split it. The name is of the server that has
// these frontiers, and of no other that took its place meanwhile.
func (s *Store) standing(ctx context.Context, name string, epochs []ledger.Epoch) (st ledger.Standing, err error) {
	agents, numbers := columns(epochs)
	rows, err := s.pool.Query(ctx, `SELECT n.name, coalesce(f.agent, ''), coalesce(f.epoch, 0), coalesce(f.seq, 0), coalesce(f.total, 0),
			coalesce(f.through_ms, 0), coalesce(f.seen_ms, 0), f.digest, coalesce(f.state, ''), coalesce(f.reason, ''),
			coalesce(f.next_epoch, 0), coalesce(f.ends_at, 0)
		FROM (`+name+`) AS n (name) LEFT JOIN (SELECT `+sqlbooks.FrontierColumns+` FROM frontier
			WHERE (agent, epoch) IN (SELECT agent, epoch FROM unnest($1::text[], $2::bigint[]) AS b (agent, epoch))) AS f ON true`, agents, numbers)
	if err != nil {
		return st, err
	}
	found := make(map[ledger.Epoch]ledger.Frontier, len(epochs))
	var f ledger.Frontier
	var digest []byte
	tag, err := pgx.ForEachRow(rows, []any{&st.Ledger, &f.Epoch.Agent, &f.Epoch.Epoch, &f.Seq, &f.Total, &f.Through, &f.Seen, &digest, &f.State, &f.Reason, &f.Next, &f.Ends}, func() error {
		f.Digest = [32]byte{}
		copy(f.Digest[:], digest)
		found[f.Epoch] = f
		return nil
	})
	if err == nil && tag.RowsAffected() == 0 {
		err = pgx.ErrNoRows // it has no name: a standby
	}
	if err != nil {
		return ledger.Standing{}, err
	}
	for _, e := range epochs {
		f, ok := found[e]
		if !ok {
			f = ledger.Frontier{Epoch: e, State: ledger.StateOpen}
		}
		st.Frontiers = append(st.Frontiers, f)
	}
	return st, nil
}

// Agents is ledger.Store's.
func (s *Store) Agents(ctx context.Context, after string, n int) ([]ledger.AgentState, error) {
	_, now, err := s.room(ctx)
	if err != nil {
		return nil, err
	}
	agent, epoch := ledger.ParseCursor(after)
	rows, err := s.pool.Query(ctx, "SELECT "+sqlbooks.Living+` FROM frontier f
		WHERE (agent > $1 OR agent = $1 AND epoch < $2)
		AND (state <> 'closed' OR epoch = (SELECT max(epoch) FROM frontier g WHERE g.agent = f.agent))
		ORDER BY agent, epoch DESC LIMIT $3`, agent, epoch, n)
	if err != nil {
		return nil, classify(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.Frontier, error) { return sqlbooks.ScanLiving(row.Scan) })
	var states []ledger.AgentState
	for i := range found {
		states = append(states, found[i].Agent(now))
	}
	return states, classify(err)
}
