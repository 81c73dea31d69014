package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Sealed is ledger.Books'.
func (b *Books) Sealed(ctx context.Context, q ledger.SealedQuery) (out ledger.SealedSums, err error) {
	_, now, err := b.room(ctx)
	if err != nil {
		return out, err
	}
	err = b.read(ctx, func(tx *sql.Tx) error {
		if out.Block, err = sealedBlock(ctx, tx, q.Height); err != nil {
			return err
		}
		if err := b.rollupsArchived(ctx, tx, &q); err != nil {
			return err
		}
		q.Hourly = q.Hourly && q.Height == 0 // roll-ups have all blocks
		if out.Usage, err = b.d.sealedUsage(ctx, tx, &q, out.Block.Height); err != nil {
			return err
		}
		if out.Late, err = b.d.sealedLate(ctx, tx, &q, out.Block.Height); err != nil || q.Height != 0 {
			return err
		}
		c, err := b.complete(ctx, tx, []string{q.Tenant}, now, q.From)
		if err != nil {
			return err
		}
		out.Complete, out.Lagging = c.Through, c.Lagging
		out.Lost, err = askTx(tx).losses(ctx, b.engine, c.Lost, q.From, q.To, ledger.MaxUsageLosses, now)
		return err
	})
	if err == nil { // and it was not archived while it was read, as in Breakdown
		err = b.read(ctx, func(tx *sql.Tx) error { return b.rollupsArchived(ctx, tx, &q) })
	}
	return out, err
}

// complete says through when all usage of the tenants, nil for all, is in blocks, and
// which agents hold that back. Lost epochs are those of usage from a time on, in Unix seconds.
func (b *Books) complete(ctx context.Context, tx *sql.Tx, tenants []string, now time.Time, from int64) (c ledger.Completed, err error) {
	unfolded, err := b.unfolded(ctx, tx, tenants)
	if err != nil {
		return c, err
	}
	tenant := ""
	if len(tenants) == 1 {
		tenant = tenants[0]
	}
	epochs, settled, err := askTx(tx).living(ctx, now, from, tenant)
	if err != nil {
		return c, err
	}
	return unfolded.Complete(epochs, settled, now, b.options.Slot), nil
}

// sealedBlock is the block of a height, 0 for the newest: none where nothing was folded.
func sealedBlock(ctx context.Context, tx *sql.Tx, height int64) (info ledger.KeptBlockInfo, err error) {
	var sum []byte
	var folded int64
	err = tx.QueryRowContext(ctx, "SELECT height, hash, folded_ms FROM blocks WHERE height = $1 OR $1 = 0 ORDER BY height DESC LIMIT 1", height).
		Scan(&info.Height, &sum, &folded)
	switch {
	case errors.Is(err, sql.ErrNoRows) && height == 0:
		return info, nil
	case errors.Is(err, sql.ErrNoRows):
		return info, fmt.Errorf("%w: block %d", ledger.ErrNotFound, height)
	case err != nil:
		return info, err
	}
	hash(&info.Hash, sum)
	info.Folded = time.UnixMilli(folded).UTC()
	return info, nil
}

// sealedKeys holds for keys k of the tenant ($1) that count for a meter, but for the
// versions left out.
func sealedKeys(q *ledger.SealedQuery) string {
	which := "k.tenant = $1 AND k.meter <> ''"
	if len(q.Except) > 0 {
		which += " AND k.version NOT IN (" + numbers(q.Except) + ")"
	}
	return which
}

// sealedEntries are entries e with keys k of the tenant with slots in [from, to) up to a height.
func (d *dialect) sealedEntries(q *ledger.SealedQuery, from, to, height int64) string {
	return fmt.Sprintf("FROM keys k JOIN entries e ON e.key = k.key WHERE %s AND e.slot >= %d AND e.slot < %d AND e.height <= %d%s",
		sealedKeys(q), from, to, height, d.during(from, to))
}

// SealedSQL is the query of the sealed usage of a tenant, $1, as of the newest block, and the query of its late
// part. For tests of how they are planned.
func SealedSQL(engine Engine, q *ledger.SealedQuery, height int64) (usage, late string) {
	d := dialects[engine]
	return d.sealed(q, height), d.late(q, height)
}

// sealed is the query of a tenant's usage.
func (d *dialect) sealed(q *ledger.SealedQuery, height int64) string {
	divided, with := q.Divided(), ""
	var parts []string
	part := func(at, late, t, from string) {
		parts = append(parts, fmt.Sprintf("SELECT %s AS at, k.meter AS meter, k.version AS version, k.plan AS plan, %s AS late, %s.admitted AS a, %s.overage AS o %s", at, late, t, t, from))
	}
	if q.Hourly {
		hours := fmt.Sprintf("FROM keys k JOIN rollups r ON r.key = k.key WHERE %s AND r.hour >= %d AND r.hour < %d", sealedKeys(q), q.From-3599, q.To)
		if len(divided) > 0 {
			hours += " AND r.hour NOT IN (" + numbers(divided) + ")"
			with = "divided(hour) AS (VALUES (" + strings.ReplaceAll(numbers(divided), ",", "), (") + ")),\n\t"
			// Only hours of the range: it may end where its last hour begins.
			part("e.slot", "0", "e", fmt.Sprintf(`FROM keys k CROSS JOIN divided x JOIN entries e ON e.key = k.key AND e.slot >= x.hour AND e.slot < x.hour + 3600
		WHERE %s AND e.slot >= %d AND e.slot < %d AND e.height <= %d%s`, sealedKeys(q), q.From, q.To, height, d.during(q.From, q.To)))
		}
		part("r.hour", "0", "r", hours)
	} else {
		part("e.slot", fmt.Sprintf("CASE WHEN e.height > %d THEN 1 ELSE 0 END", q.Since), "e", d.sealedEntries(q, q.From, q.To, height))
	}
	half := func(expression string) string { return "CAST(sum(" + expression + ") AS bigint)" }
	return "WITH " + with + "parts AS (" + strings.Join(parts, "\n\tUNION ALL ") + ")\nSELECT at, meter, version, plan, late, " +
		half("a >> 32") + ", " + half("a & 4294967295") + ", " + half("o >> 32") + ", " + half("o & 4294967295") + " FROM parts GROUP BY at, meter, version, plan, late"
}

func (d *dialect) sealedUsage(ctx context.Context, tx *sql.Tx, q *ledger.SealedQuery, height int64) (all []ledger.SealedUsage, err error) {
	rows, err := tx.QueryContext(ctx, d.sealed(q, height), q.Tenant)
	err = each(rows, err, func(rows *sql.Rows) error {
		var u ledger.SealedUsage
		var late int
		var high, low ledger.Sum
		if err := rows.Scan(&u.Slot, &u.Meter, &u.Version, &u.Plan, &late, &high.Admitted, &low.Admitted, &high.Overage, &low.Overage); err != nil {
			return err
		}
		sum := ledger.SumOf(high, low)
		u.Admitted, u.Overage, u.Late = sum.Admitted, sum.Overage, late == 1
		all = append(all, u)
		return nil
	})
	ledger.SortSealed(all)
	return all, err
}

// late is the query of the earliest slot before q.From with an entry above q.Since.
func (d *dialect) late(q *ledger.SealedQuery, height int64) string {
	return "SELECT coalesce(min(e.slot), 0) " + d.sealedEntries(q, 0, q.From, height) + fmt.Sprintf(" AND e.height > %d", q.Since)
}

// sealedLate is that slot. A height of zero tells as any other does: a statement may have been made before any block.
func (d *dialect) sealedLate(ctx context.Context, tx *sql.Tx, q *ledger.SealedQuery, height int64) (slot int64, err error) {
	if !q.Late {
		return 0, nil
	}
	err = tx.QueryRowContext(ctx, d.late(q, height), q.Tenant).Scan(&slot)
	return slot, err
}

// numbers are a list of them.
func numbers(all []int64) string {
	text := make([]string, len(all))
	for i, n := range all {
		text[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(text, ",")
}

// unfolded reads what of the tenants is settled and in no block yet.
func (b *Books) unfolded(ctx context.Context, tx *sql.Tx, tenants []string) (*ledger.Unfolded, error) {
	u := &ledger.Unfolded{Tenants: tenants}
	rows, err := tx.QueryContext(ctx, pendingSQL(b.engine))
	err = each(rows, err, func(rows *sql.Rows) error {
		var p ledger.Pending
		if err := rows.Scan(&p.ID.Epoch.Agent, &p.ID.Epoch.Epoch, &p.ID.Seq, &p.Closed, &p.Payload, &p.Held); err != nil {
			return err
		}
		return u.Report(&p)
	})
	if err != nil {
		return nil, err
	}
	corrections, err := readCorrections(ctx, tx, "WHERE number IN (SELECT number FROM corrections_queue)")
	if err != nil {
		return nil, err
	}
	for i := range corrections {
		if err := u.Correction(&corrections[i]); err != nil {
			return nil, err
		}
	}
	ask := func(query string, args ...any) error {
		rows, err := tx.QueryContext(ctx, query, args...)
		return each(rows, err, func(rows *sql.Rows) error {
			var e ledger.Epoch
			err := rows.Scan(&e.Agent, &e.Epoch)
			u.Touched(e)
			return err
		})
	}
	if tenants == nil {
		return u, ask(ledger.TouchedByAny)
	}
	for _, tenant := range tenants {
		if err := ask("SELECT agent, epoch FROM touched WHERE tenant = $1", tenant); err != nil {
			return nil, err
		}
	}
	return u, nil
}
