package sqlbooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// succeeded is Frontier.Succeeded of a frontier f.
const succeeded = "EXISTS (SELECT 1 FROM frontier g WHERE g.agent = f.agent AND g.epoch > f.epoch AND g.seq > 0 AND g.seen_ms > f.seen_ms)"

// Living are the columns of ScanLiving, of a frontier f.
const Living = FrontierColumns + ", " + succeeded

// ScanLiving reads a row of Living.
func ScanLiving(scan func(...any) error) (ledger.Frontier, error) {
	var later bool
	f, err := ScanFrontier(func(columns ...any) error { return scan(append(columns, &later)...) })
	f.Succeeded = later
	return f, err
}

// living are the epochs that are not closed, and whether any epoch ever settled. Those silent for ledger.SilentAfter
// are told if they may have had usage from a time on, in Unix seconds, of the tenant; empty for any.
func (a Ask) living(ctx context.Context, now time.Time, from int64, tenant string) (epochs []ledger.Frontier, settled bool, err error) {
	err = a(ctx, "SELECT 1 FROM frontier WHERE seq > 0 LIMIT 1", nil, func(func(...any) error) error { settled = true; return nil })
	if err != nil {
		return nil, false, err
	}
	text := "SELECT " + Living + ` FROM frontier f WHERE state <> 'closed' AND (seen_ms > $1 OR seen_ms + $2 > $3
		AND EXISTS (SELECT 1 FROM touched t WHERE t.agent = f.agent AND t.epoch = f.epoch AND ($4 = '' OR t.tenant = $4)))`
	args := []any{now.Add(-ledger.SilentAfter).UnixMilli(), ledger.SilentAfter.Milliseconds(), 1000 * from, tenant}
	err = a(ctx, text, args, func(scan func(...any) error) error {
		f, err := ScanLiving(scan)
		epochs = append(epochs, f)
		return err
	})
	return epochs, settled, err
}

// losses says what may be missing of lost epochs in [from, to), in Unix seconds: of at most n.
func (a Ask) losses(ctx context.Context, engine Engine, lost []ledger.Frontier, from, to int64, n int, now time.Time) (l ledger.Losses, err error) {
	lost, l.More = ledger.During(lost, from, to, n)
	if len(lost) == 0 {
		return l, nil
	}
	of := make(map[ledger.Epoch]*accountsOf, len(lost))
	epochs := make([]ledger.Source, len(lost))
	for i := range lost {
		epochs[i] = ledger.Source{Epoch: lost[i].Epoch, First: 1, Last: math.MaxInt64}
		of[lost[i].Epoch] = &accountsOf{}
	}
	if err := a.accounts(ctx, engine, epochs, of); err != nil {
		return l, fmt.Errorf("read accounts of lost epochs: %w", err)
	}
	for i := range lost {
		accounts := of[lost[i].Epoch]
		for at := lost[i].Epoch; !accounts.leased; {
			var before ledger.Epoch
			err := a(ctx, "SELECT agent, epoch FROM frontier WHERE agent = $1 AND epoch < $2 AND next_epoch = $2", []any{at.Agent, at.Epoch},
				func(scan func(...any) error) error { return scan(&before.Agent, &before.Epoch) })
			if err != nil {
				return l, fmt.Errorf("read what lost epochs go on from: %w", err)
			}
			if before.Epoch == 0 {
				break
			}
			if err := a.accounts(ctx, engine, []ledger.Source{{Epoch: before}}, map[ledger.Epoch]*accountsOf{before: accounts}); err != nil {
				return l, fmt.Errorf("read accounts of lost epochs: %w", err)
			}
			at = before
		}
		l.Told = append(l.Told, ledger.NewLoss(&lost[i], accounts.all, now))
	}
	return l, nil
}

// accountsOf are an epoch's accounts.
type accountsOf struct {
	all    []ledger.Reconciled
	leased bool // one of them has leases
}

// accounts adds what is recorded, said and settled of epochs to their accounts. Parts of one account come apart.
func (a Ask) accounts(ctx context.Context, engine Engine, epochs []ledger.Source, of map[ledger.Epoch]*accountsOf) error {
	d := dialects[engine]
	text, err := json.Marshal(runList(epochs))
	if err != nil {
		return err
	}
	add := func(r ledger.Reconciled) {
		to := of[r.ID.Epoch]
		to.all = append(to.all, r)
	}
	err = a(ctx, `SELECT l.agent, l.epoch, l.limit_name, l.granted, l.unrun, l.returned, l.spent, l.said_number, l.said_granted, l.said_unrun,
			l.said_returned, l.said_told, l.said_spent, l.said_beyond, l.said_held, l.said_booked
		FROM `+d.runs+` JOIN leases l ON l.agent = s.agent AND l.epoch = s.epoch`, []any{string(text)}, func(scan func(...any) error) error {
		var r ledger.Reconciled
		var s ledger.Said
		err := scan(&r.ID.Epoch.Agent, &r.ID.Epoch.Epoch, &r.ID.Limit, &r.Recorded.Granted, &r.Recorded.Unrun, &r.Recorded.Returned, &r.Recorded.Spent,
			&s.Number, &s.Granted, &s.Unrun, &s.Returned, &s.Told, &s.Spent, &s.Beyond, &s.Held, &s.Booked)
		if s.Number > 0 {
			r.Said = &s
		}
		if err == nil {
			add(r)
			of[r.ID.Epoch].leased = of[r.ID.Epoch].leased || r.Recorded != (ledger.Recorded{})
		}
		return err
	})
	if err != nil {
		return err
	}
	err = a(ctx, "SELECT t.agent, t.epoch, t.limit_name, t.units FROM "+d.runs+" JOIN settled t ON t.agent = s.agent AND t.epoch = s.epoch",
		[]any{string(text)}, func(scan func(...any) error) error {
			var r ledger.Reconciled
			err := scan(&r.ID.Epoch.Agent, &r.ID.Epoch.Epoch, &r.ID.Limit, &r.Settled)
			if err == nil {
				add(r)
			}
			return err
		})
	if err != nil {
		return err
	}
	return a.pending(ctx, pendingSQL(engine)+" JOIN "+d.runs+" ON s.agent = q.agent AND s.epoch = q.epoch", []any{string(text)}, func(p *ledger.Pending) error {
		settled, err := p.Settled()
		for _, u := range settled {
			add(ledger.Reconciled{ID: u.ID, Settled: u.Units})
		}
		return err
	})
}

// askTx runs queries in a transaction of the books.
func askTx(tx *sql.Tx) Ask {
	return func(ctx context.Context, text string, args []any, row func(func(...any) error) error) error {
		rows, err := tx.QueryContext(ctx, text, args...)
		return each(rows, err, func(rows *sql.Rows) error { return row(rows.Scan) })
	}
}

// Losses is ledger.Books'.
func (b *Books) Losses(ctx context.Context, since time.Time, n int) (l ledger.Losses, err error) {
	_, now, err := b.room(ctx)
	if err != nil {
		return l, err
	}
	err = b.read(ctx, func(tx *sql.Tx) error {
		l, err = (&snapshot{b, tx, now}).losses(ctx, since, n)
		return err
	})
	return l, err
}

// Losses is ledger.Snapshot's.
func (s *snapshot) Losses(ctx context.Context) (ledger.Losses, error) {
	return s.losses(ctx, time.Time{}, ledger.MaxLosses)
}

func (s *snapshot) losses(ctx context.Context, since time.Time, n int) (l ledger.Losses, err error) {
	ask := askTx(s.tx)
	if !since.IsZero() {
		since = since.Add(ledger.SilentAfter)
	}
	from, to := between(since, time.Time{})
	epochs, settled, err := ask.living(ctx, s.now, from, "")
	if err != nil {
		return l, err
	}
	touched := make(map[ledger.Epoch]bool)
	err = ask(ctx, ledger.TouchedByAny+" UNION SELECT agent, epoch FROM queue", nil, func(scan func(...any) error) error {
		var e ledger.Epoch
		err := scan(&e.Agent, &e.Epoch)
		touched[e] = true
		return err
	})
	if err != nil {
		return l, err
	}
	c := ledger.Completeness(epochs, func(e ledger.Epoch) bool { return touched[e] }, settled, s.now, s.options.Slot)
	return ask.losses(ctx, s.engine, c.Lost, from, to, n, s.now)
}

// between is a range that may have no beginning and no end, in Unix seconds.
func between(begin, end time.Time) (from, to int64) {
	from, to = math.MinInt64/1000, math.MaxInt64/1000
	if !begin.IsZero() {
		from = begin.Unix()
	}
	if !end.IsZero() {
		to = end.Unix()
	}
	return from, to
}
