package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/ledger"
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
		if out.Usage, err = sealedUsage(ctx, tx, &q, out.Block.Height); err != nil {
			return err
		}
		if out.Late, err = sealedLate(ctx, tx, &q, out.Block.Height); err != nil || q.Height != 0 {
			return err
		}
		out.Complete, out.Lagging, err = b.complete(ctx, tx, []string{q.Tenant}, now)
		return err
	})
	if err == nil { // and it was not archived while it was read, as in Breakdown
		err = b.read(ctx, func(tx *sql.Tx) error { return b.rollupsArchived(ctx, tx, &q) })
	}
	return out, err
}

// complete says through when all usage of the tenants, nil for all, is in blocks, and
// which agents hold that back.
func (b *Books) complete(ctx context.Context, tx *sql.Tx, tenants []string, now time.Time) (time.Time, []string, error) {
	unfolded, err := b.unfolded(ctx, tx, tenants)
	if err != nil {
		return time.Time{}, nil, err
	}
	s := snapshot{b, tx}
	var epochs []ledger.Frontier
	settled := false
	err = s.Frontiers(ctx, func(f *ledger.Frontier) error {
		settled = settled || f.Seq > 0
		if f.State != ledger.StateClosed {
			epochs = append(epochs, *f)
		}
		return nil
	})
	complete, lagging := unfolded.Complete(epochs, settled, now, b.options.Slot)
	return complete, lagging, err
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

// sealedOf holds for entries e with keys k of the tenant ($1) with slots in [$2, $3) up to
// a height ($4), but for the versions left out.
func sealedOf(q *ledger.SealedQuery) string {
	which := `FROM keys k JOIN entries e ON e.key = k.key
		WHERE k.tenant = $1 AND k.meter <> '' AND e.slot >= $2 AND e.slot < $3 AND e.height <= $4`
	if len(q.Except) == 0 {
		return which
	}
	versions := make([]string, len(q.Except))
	for i, v := range q.Except {
		versions[i] = strconv.FormatInt(v, 10)
	}
	return which + " AND k.version NOT IN (" + strings.Join(versions, ",") + ")"
}

func sealedUsage(ctx context.Context, tx *sql.Tx, q *ledger.SealedQuery, height int64) (all []ledger.SealedUsage, err error) {
	half := func(expression string) string { return "CAST(sum(" + expression + ") AS bigint)" }
	rows, err := tx.QueryContext(ctx, `SELECT e.slot, k.meter, k.version, CASE WHEN e.height > $5 THEN 1 ELSE 0 END,
			`+half("e.admitted >> 32")+`, `+half("e.admitted & 4294967295")+`, `+half("e.overage >> 32")+`, `+half("e.overage & 4294967295")+`
		`+sealedOf(q)+` GROUP BY 1, 2, 3, 4`, q.Tenant, q.From, q.To, height, q.Since)
	err = each(rows, err, func(rows *sql.Rows) error {
		var u ledger.SealedUsage
		var late int
		var high, low ledger.Sum
		if err := rows.Scan(&u.Slot, &u.Meter, &u.Version, &late, &high.Admitted, &low.Admitted, &high.Overage, &low.Overage); err != nil {
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

// sealedLate is the earliest slot before q.From with an entry above q.Since.
func sealedLate(ctx context.Context, tx *sql.Tx, q *ledger.SealedQuery, height int64) (int64, error) {
	var slot int64
	err := tx.QueryRowContext(ctx, "SELECT coalesce(min(e.slot), 0) "+sealedOf(q)+" AND e.height > $5",
		q.Tenant, int64(0), q.From, height, q.Since).Scan(&slot)
	return slot, err
}

// unfolded reads what of the tenants is settled and in no block yet.
func (b *Books) unfolded(ctx context.Context, tx *sql.Tx, tenants []string) (*ledger.Unfolded, error) {
	u := &ledger.Unfolded{Tenants: tenants}
	rows, err := tx.QueryContext(ctx, `SELECT r.agent, r.epoch, r.seq, r.closed, r.payload, r.held
		FROM queue q JOIN reports r ON r.agent = q.agent AND r.epoch = q.epoch AND r.seq = q.seq`)
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
	for _, tenant := range tenants {
		rows, err = tx.QueryContext(ctx, "SELECT agent, epoch FROM touched WHERE tenant = $1", tenant)
		err = each(rows, err, func(rows *sql.Rows) error {
			var e ledger.Epoch
			err := rows.Scan(&e.Agent, &e.Epoch)
			u.Touched(e)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return u, nil
}
