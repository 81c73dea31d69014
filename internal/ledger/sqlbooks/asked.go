package sqlbooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Ask runs a query in a transaction of a store, and hands each row's Scan to row. Stores have drivers of their own.
type Ask func(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error

// Usage adds to a reading all that its query wants, as the transaction has it, and returns the answer. now is the
// ledger's.
func (a Ask) Usage(ctx context.Context, engine Engine, r *ledger.Reading, now time.Time, slot time.Duration) (u ledger.Usage, err error) {
	if err := a.sums(ctx, engine, r); err != nil {
		return u, err
	}
	if err := a.unfolded(ctx, engine, r); err != nil {
		return u, err
	}
	u = r.Usage()
	c, err := a.completeness(ctx, r, now, slot)
	if err != nil {
		return u, err
	}
	u.Complete, u.Lagging = c.Through, c.Lagging
	u.Lost, err = a.losses(ctx, engine, c.Lost, r.From, r.To, ledger.MaxUsageLosses, now)
	return u, err
}

// sums reads roll-ups and entries.
func (a Ask) sums(ctx context.Context, engine Engine, r *ledger.Reading) error {
	text, args := usageSQL(engine, r)
	var high, low ledger.Sum
	counts := []any{&high.Admitted, &low.Admitted, &high.Overage, &low.Overage, &high.Denied, &low.Denied}
	return a(ctx, text, args, func(scan func(...any) error) error {
		var start int64
		var n ledger.Names
		columns := []any{&start}
		if r.ByName {
			columns = []any{&n.Limit, &n.Meter, &n.Attributes}
		}
		if err := scan(append(columns, counts...)...); err != nil {
			return err
		}
		if r.ByName {
			r.AddNames(n, ledger.SumOf(high, low))
		} else {
			r.AddTime(start, ledger.SumOf(high, low))
		}
		return nil
	})
}

// unfolded reads reports and corrections that are in no block yet.
func (a Ask) unfolded(ctx context.Context, engine Engine, r *ledger.Reading) error {
	err := a.pending(ctx, pendingSQL(engine), nil, r.AddPending)
	if err != nil {
		return err
	}
	corrections, err := a.Corrections(ctx, 0)
	for i := range corrections {
		err = errors.Join(err, r.AddCorrection(&corrections[i]))
	}
	return err
}

// completeness says through when the reading has all usage, and whom it waits for.
func (a Ask) completeness(ctx context.Context, r *ledger.Reading, now time.Time, slot time.Duration) (c ledger.Completed, err error) {
	epochs, settled, err := a.living(ctx, now, r.From, r.Tenant)
	if err != nil {
		return c, err
	}
	text, args := ledger.TouchedByAny, []any(nil)
	if r.Tenant != "" {
		text, args = "SELECT agent, epoch FROM touched WHERE tenant = $1", []any{r.Tenant}
	}
	folded := map[ledger.Epoch]bool{}
	err = a(ctx, text, args, func(scan func(...any) error) error {
		var e ledger.Epoch
		err := scan(&e.Agent, &e.Epoch)
		folded[e] = true
		return err
	})
	if err != nil {
		return c, err
	}
	touched := func(e ledger.Epoch) bool { return folded[e] || r.Touched(e) }
	return ledger.Completeness(epochs, touched, settled, now, slot), nil
}

// FrontierColumns are what ScanFrontier reads.
const FrontierColumns = "agent, epoch, seq, total, through_ms, seen_ms, digest, state, reason, next_epoch, ends_at, key_id"

// ScanFrontier reads a row of FrontierColumns.
func ScanFrontier(scan func(...any) error) (f ledger.Frontier, err error) {
	var digest []byte
	err = scan(&f.Epoch.Agent, &f.Epoch.Epoch, &f.Seq, &f.Total, &f.Through, &f.Seen, &digest, &f.State, &f.Reason, &f.Next, &f.Ends, &f.Key)
	hash(&f.Digest, digest)
	return f, err
}

// Pending adds the oldest reports of the queue to a block, as many as it takes, its bounds halved so many
// times. It returns their ids, and whether there are more. Reports are named by id throughout, for in Postgres
// one with a lower id may commit in between.
func (a Ask) Pending(ctx context.Context, engine Engine, halved int, into *ledger.Sealing) (ids []int64, more bool, err error) {
	var queue []ledger.Waiting
	err = a(ctx, "SELECT id, row_count, size FROM queue ORDER BY id LIMIT $1", []any{ledger.MaxBlockReports + 1}, func(scan func(...any) error) error {
		var w ledger.Waiting
		err := scan(&w.ID, &w.Rows, &w.Size)
		queue = append(queue, w)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	d := dialects[engine]
	text := pendingSQL(engine) + " WHERE " + d.inNumbers("q.id", "$1") + " ORDER BY q.id"
	for _, page := range ledger.Pages(queue, halved) {
		if into.Full(halved) {
			break
		}
		ids = append(ids, page...)
		if err := a.pending(ctx, text, []any{d.numbers(page)}, into.Add); err != nil {
			return nil, false, err
		}
	}
	if into.Reports() != len(ids) {
		return nil, false, fmt.Errorf("%w: the queue names %d reports, %d are there", ledger.ErrUnavailable, len(ids), into.Reports())
	}
	return ids, len(ids) < len(queue), nil
}

// pendingSQL is the reports of the queue.
func pendingSQL(engine Engine) string {
	return `SELECT r.agent, r.epoch, r.seq, r.closed, r.payload, r.held FROM queue q
		JOIN reports r ON ` + dialects[engine].sameMonth + `r.agent = q.agent AND r.epoch = q.epoch AND r.seq = q.seq`
}

func (a Ask) pending(ctx context.Context, text string, args []any, add func(*ledger.Pending) error) error {
	return a(ctx, text, args, func(scan func(...any) error) error {
		var p ledger.Pending
		if err := scan(&p.ID.Epoch.Agent, &p.ID.Epoch.Epoch, &p.ID.Seq, &p.Closed, &p.Payload, &p.Held); err != nil {
			return err
		}
		return add(&p)
	})
}

// Corrections returns the oldest corrections that are not folded yet; n 0 for all.
func (a Ask) Corrections(ctx context.Context, n int) (all []ledger.Correction, err error) {
	text, args := `SELECT c.number, c.negative, c.payload, c.digest
		FROM corrections_queue q JOIN corrections c ON c.number = q.number ORDER BY c.number`, []any(nil)
	if n > 0 {
		text, args = text+" LIMIT $1", []any{n}
	}
	err = a(ctx, text, args, func(scan func(...any) error) error {
		var c ledger.Correction
		var digest []byte
		err := scan(&c.Number, &c.Negative, &c.Payload, &digest)
		copy(c.Digest[:], digest)
		all = append(all, c)
		return err
	})
	return all, err
}

// LastBlock is the newest block's height and hash; 0 before the first.
func (a Ask) LastBlock(ctx context.Context) (height int64, last [32]byte, err error) {
	err = a(ctx, "SELECT height, hash FROM blocks ORDER BY height DESC LIMIT 1", nil, func(scan func(...any) error) error {
		var b []byte
		err := scan(&height, &b)
		copy(last[:], b)
		return err
	})
	return height, last, err
}

// InsertBlock makes a block, of BlockArgs.
const InsertBlock = "INSERT INTO blocks (height, previous, hash, reports, entries, sources, corrections, folded_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"

// BlockArgs are the columns of InsertBlock.
func BlockArgs(b *ledger.Block, now time.Time) []any {
	notNil := func(p []byte) []byte { return append([]byte{}, p...) }
	return []any{b.Height, b.Previous[:], b.Hash[:], b.Reports, len(b.Entries), notNil(b.Sources), notNil(b.Corrections), now.UnixMilli()}
}

// AddRollup adds to a roll-up that is there already, under the name that the statement gives the table.
func AddRollup(table string) string {
	return "ON CONFLICT (key, hour) DO UPDATE SET admitted = " + Added(table, "admitted") + ", overage = " + Added(table, "overage") + ", denied = " + Added(table, "denied")
}
