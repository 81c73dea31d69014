package pgledger

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Usage is ledger.Store's. All of it is read in one snapshot; a partition that is dropped
// is gone from it all the same, so that what needs entries asks afterwards whether they
// were there.
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
		if err := readSums(ctx, tx, r); err != nil {
			return err
		}
		if err := readUnfolded(ctx, tx, r); err != nil {
			return err
		}
		u = r.Usage()
		u.Complete, u.Lagging, err = s.completeness(ctx, tx, r, now)
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

// readBounds returns the first and the last second that usage can be in, and before
// which entries are archived. It also
// sees to it that the transaction's queries are planned for what they ask: a plan
// for any range and any tenant was 6 to 9 times slower over a million roll-ups.
func readBounds(ctx context.Context, tx pgx.Tx) (first, last, archived int64, err error) {
	err = tx.QueryRow(ctx, `SELECT least(extract(epoch FROM min(month))::bigint, (SELECT min(hour) FROM rollups)),
		extract(epoch FROM max(month) + interval '1 month')::bigint - 1,
		`+archivedBefore+`
		FROM months, set_config('plan_cache_mode', 'force_custom_plan', true)`).Scan(&first, &last, &archived)
	return first, last, archived, err
}

// wouldDeny holds for what only would have been denied; see ledger.WouldDeny.
const wouldDeny = "meter = '' AND attributes = '" + ledger.WouldDeny + "'"

func readSums(ctx context.Context, tx pgx.Tx, r *ledger.Reading) error {
	tenant := ""
	if r.Tenant != "" {
		tenant = " AND k.tenant = $6"
	}
	of := ledger.Names{}
	if r.Of != nil {
		of = *r.Of
		tenant += " AND (k.limit_name, k.meter, k.attributes) = ($7, $8, $9)"
	}
	which := tenant + versions(r)
	parts := `(SELECT r.hour AS start, k.limit_name, k.meter, k.attributes, r.admitted, r.overage, r.denied
		FROM rollups r JOIN keys k ON k.key = r.key
		WHERE r.hour >= $1 AND r.hour < $2` + which
	if len(r.Cut) > 0 {
		parts += ` AND r.hour <> ALL ($3::bigint[])
		UNION ALL
		SELECT e.slot, k.limit_name, k.meter, k.attributes, e.admitted, e.overage, e.denied
		FROM unnest($3::bigint[]) AS h (hour) JOIN entries e ON e.slot >= h.hour AND e.slot < h.hour + 3600 JOIN keys k ON k.key = e.key
		WHERE e.slot >= $4 AND e.slot < $5` + which
	}
	// Every parameter is named, whichever of them this query needs.
	parts += `) AS parts WHERE ($3::bigint[], $4::bigint, $5::bigint, $6::text, $7::text, $8::text, $9::text) IS NOT NULL`
	args := []any{r.HourFrom, r.HourTo, append([]int64{}, r.Cut...), r.From, r.To, r.Tenant, of.Limit, of.Meter, of.Attributes}
	var sum ledger.Sum
	if !r.ByName {
		rows, err := tx.Query(ctx, `SELECT start, greatest(least(coalesce(sum(admitted) FILTER (WHERE meter <> ''), 0), `+maxSum+`), -`+maxSum+`)::bigint,
			greatest(least(coalesce(sum(overage) FILTER (WHERE meter <> ''), 0), `+maxSum+`), -`+maxSum+`)::bigint, greatest(least(sum(denied), `+maxSum+`), -`+maxSum+`)::bigint
			FROM `+parts+` AND NOT (`+wouldDeny+`) GROUP BY start`, args...)
		if err != nil {
			return err
		}
		var start int64
		_, err = pgx.ForEachRow(rows, []any{&start, &sum.Admitted, &sum.Overage, &sum.Denied}, func() error {
			r.AddTime(start, sum)
			return nil
		})
		return err
	}
	attributes := "CASE WHEN " + wouldDeny + " THEN attributes ELSE '' END"
	if r.ByAttributes {
		attributes = "attributes"
	}
	rows, err := tx.Query(ctx, `SELECT limit_name, meter, attributes, greatest(least(sum(admitted), `+maxSum+`), -`+maxSum+`)::bigint,
			greatest(least(sum(overage), `+maxSum+`), -`+maxSum+`)::bigint, greatest(least(sum(denied), `+maxSum+`), -`+maxSum+`)::bigint
		FROM (SELECT limit_name, meter, `+attributes+`::text COLLATE "C" AS attributes, admitted, overage, denied FROM `+parts+`) AS named
		WHERE (limit_name, meter, attributes) > ($10, $11, $12)
		GROUP BY limit_name, meter, attributes ORDER BY limit_name, meter, attributes LIMIT $13`,
		append(args, r.After.Limit, r.After.Meter, r.After.Attributes, r.Limit+1)...)
	if err != nil {
		return err
	}
	var n ledger.Names
	_, err = pgx.ForEachRow(rows, []any{&n.Limit, &n.Meter, &n.Attributes, &sum.Admitted, &sum.Overage, &sum.Denied}, func() error {
		r.AddNames(n, sum)
		return nil
	})
	return err
}

// versions is the condition on keys k for the policy versions that are wanted. They
// are numbers, so that they stand in the text: a list of parameters differs by engine.
func versions(r *ledger.Reading) string {
	switch {
	case r.Version != 0:
		return " AND k.version = " + strconv.FormatInt(r.Version, 10)
	case len(r.Except) == 0:
		return ""
	}
	var b strings.Builder
	b.WriteString(" AND k.version NOT IN (")
	for i, v := range r.Except {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(v, 10))
	}
	b.WriteByte(')')
	return b.String()
}

func readUnfolded(ctx context.Context, tx pgx.Tx, r *ledger.Reading) error {
	rows, err := tx.Query(ctx, pendingQuery)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scanPending(rows)
		if err != nil {
			return err
		}
		if err := r.AddPending(&p); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	corrections, err := readCorrections(ctx, tx, 0)
	for i := range corrections {
		err = errors.Join(err, r.AddCorrection(&corrections[i]))
	}
	return err
}

func (s *Store) completeness(ctx context.Context, tx pgx.Tx, r *ledger.Reading, now time.Time) (time.Time, []string, error) {
	var settled bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM frontier WHERE seq > 0)").Scan(&settled); err != nil {
		return time.Time{}, nil, err
	}
	rows, err := tx.Query(ctx, "SELECT "+frontierColumns+" FROM frontier WHERE state <> 'closed' AND seen_ms > $1",
		now.Add(-ledger.SilentAfter).UnixMilli())
	if err != nil {
		return time.Time{}, nil, err
	}
	epochs, err := pgx.CollectRows(rows, scanFrontier)
	if err != nil {
		return time.Time{}, nil, err
	}
	folded := map[ledger.Epoch]bool{}
	if r.Tenant != "" {
		rows, err = tx.Query(ctx, "SELECT agent, epoch FROM touched WHERE tenant = $1", r.Tenant)
	} else {
		rows, err = tx.Query(ctx, ledger.TouchedByAny)
	}
	if err != nil {
		return time.Time{}, nil, err
	}
	var e ledger.Epoch
	if _, err = pgx.ForEachRow(rows, []any{&e.Agent, &e.Epoch}, func() error { folded[e] = true; return nil }); err != nil {
		return time.Time{}, nil, err
	}
	touched := func(e ledger.Epoch) bool { return folded[e] || r.Touched(e) }
	complete, lagging := ledger.Completeness(epochs, touched, settled, now, s.options.Slot)
	return complete, lagging, nil
}

// identities name the server's data, its timeline, the database, and when the server began: each is another once
// a standby was promoted, and after every restart, without which no backup can be put in place. The first counts that
// the role may read: some operators let nobody read the system's identifier, or the place in the log.
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

// standing is one statement, whatever is between here and the database: the name is of the server that has these
// frontiers, and of no other that took its place meanwhile.
func (s *Store) standing(ctx context.Context, name string, epochs []ledger.Epoch) (st ledger.Standing, err error) {
	agents, numbers := columns(epochs)
	rows, err := s.pool.Query(ctx, `SELECT n.name, coalesce(f.agent, ''), coalesce(f.epoch, 0), coalesce(f.seq, 0), coalesce(f.total, 0),
			coalesce(f.through_ms, 0), coalesce(f.seen_ms, 0), f.digest, coalesce(f.state, ''), coalesce(f.reason, ''),
			coalesce(f.next_epoch, 0), coalesce(f.ends_at, 0)
		FROM (`+name+`) AS n (name) LEFT JOIN (SELECT `+frontierColumns+` FROM frontier
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
	rows, err := s.pool.Query(ctx, "SELECT "+frontierColumns+` FROM frontier f
		WHERE (agent > $1 OR agent = $1 AND epoch < $2)
		AND (state <> 'closed' OR epoch = (SELECT max(epoch) FROM frontier g WHERE g.agent = f.agent))
		ORDER BY agent, epoch DESC LIMIT $3`, agent, epoch, n)
	if err != nil {
		return nil, classify(err)
	}
	found, err := pgx.CollectRows(rows, scanFrontier)
	var states []ledger.AgentState
	for i := range found {
		states = append(states, found[i].Agent(now))
	}
	return states, classify(err)
}
