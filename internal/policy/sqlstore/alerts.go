package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

var _ alert.Store = (*Store)(nil)

// Marks implements alert.Store.
func (s *Store) Marks(ctx context.Context) (alert.Marks, error) {
	m, sweeping := alert.Marks{Height: -1}, int64(0)
	err := s.db.QueryRowContext(ctx, "SELECT height, change, version, audit, sweeping, sweep FROM alert_marks WHERE id = 1").
		Scan(&m.Height, &m.Change, &m.Version, &m.Audit, &sweeping, &m.Sweep)
	m.Sweeping = sweeping != 0
	if errors.Is(err, sql.ErrNoRows) {
		return m, nil
	}
	return m, unavailable("read marks", err)
}

// SetMarks implements alert.Store.
func (s *Store) SetMarks(ctx context.Context, m alert.Marks) error {
	sweeping := int64(0)
	if m.Sweeping {
		sweeping = 1
	}
	_, err := s.exec(ctx, `INSERT INTO alert_marks (id, height, change, version, audit, sweeping, sweep) VALUES (1, $1, $2, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET height = excluded.height, change = excluded.change, version = excluded.version,
		audit = excluded.audit, sweeping = excluded.sweeping, sweep = excluded.sweep`, m.Height, m.Change, m.Version, m.Audit, sweeping, m.Sweep)
	return unavailable("write marks", err)
}

// Audited implements alert.Store.
func (s *Store) Audited(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT audit FROM policy_heads WHERE id = 1").Scan(&n)
	return n, unavailable("read heads", err)
}

const eventColumns = "number, id, kind, alert, tenant, plan, limit_name, threshold, period, used, of, currency, action, height, at_ms, body"

func scanEvent(e *alert.Event, rows *sql.Rows) error {
	var at int64
	err := rows.Scan(&e.Number, &e.ID, &e.Kind, &e.Alert, &e.Tenant, &e.Plan, &e.Limit, &e.Threshold, &e.Period, &e.Used, &e.Of, &e.Currency,
		&e.Action, &e.Height, &at, &e.Body)
	e.At = time.UnixMilli(at)
	return err
}

// Raise implements alert.Store.
func (s *Store) Raise(ctx context.Context, tenant string, events []alert.Event, capped *policy.Capped) (raised []alert.Event, err error) {
	if capped == nil { // mostly all of them are there: that needs no lock
		if events, err = missing(ctx, s.db, events); err != nil || len(events) == 0 {
			return nil, err
		}
	}
	err = s.change(ctx, func(t *tx) error {
		raised = nil
		fresh, err := missing(ctx, t, events)
		if err != nil {
			return err
		}
		var last int64
		if err := t.QueryRowContext(ctx, "SELECT coalesce(max(number), 0) FROM alerts").Scan(&last); err != nil {
			return unavailable("read alerts", err)
		}
		now := time.UnixMilli(t.s.now().UnixMilli())
		var rows, deliveries [][]any
		for _, e := range fresh {
			last++
			e.Number, e.At = last, now
			e.Encode()
			rows = append(rows, []any{e.Number, e.ID, e.Kind, e.Alert, e.Tenant, e.Plan, e.Limit, e.Threshold, e.Period, e.Used, e.Of, e.Currency, e.Action, e.Height, now.UnixMilli(), e.Body})
			for _, w := range e.Webhooks {
				deliveries = append(deliveries, []any{e.Number, w, alert.Pending, 0, now.UnixMilli(), now.UnixMilli(), 0, 0, ""})
			}
			raised = append(raised, e)
		}
		if err := t.insert(ctx, "INSERT INTO alerts ("+eventColumns+") VALUES ", "", rows); err != nil {
			return unavailable("write alerts", err)
		}
		if err := t.insert(ctx, "INSERT INTO alert_deliveries (number, webhook, state, attempts, since_ms, next_ms, tried_ms, status, error) VALUES ", "", deliveries); err != nil {
			return unavailable("write deliveries", err)
		}
		t.wrote = len(rows) > 0
		if capped == nil {
			return nil
		}
		return t.cap(ctx, tenant, *capped)
	})
	if err != nil {
		return nil, err
	}
	return raised, nil
}

// cap puts in force what a tenant reached.
func (t *tx) cap(ctx context.Context, tenant string, capped policy.Capped) error {
	was, err := t.one(ctx, tenant)
	if err != nil {
		return err
	}
	next, action := was, "tenant.cap"
	if next.Capped = capped.Text(); next == was {
		return nil
	}
	if next.Capped == "" {
		action = "tenant.uncap"
	}
	if err := t.write(ctx, &next); err != nil {
		return err
	}
	return t.audit(alert.Actor, action, tenant, was.json(true), next.json(true))
}

// missing are the events that are not there yet.
func missing(ctx context.Context, q querier, events []alert.Event) (fresh []alert.Event, err error) {
	for _, e := range events {
		var there bool
		if err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM alerts WHERE alert = $1 AND tenant = $2 AND threshold = $3 AND period = $4)",
			e.Alert, e.Tenant, e.Threshold, e.Period).Scan(&there); err != nil {
			return nil, unavailable("read alerts", err)
		}
		if !there {
			fresh = append(fresh, e)
		}
	}
	return fresh, nil
}

// Capped implements alert.Store.
func (s *Store) Capped(ctx context.Context, after string, n int) ([]alert.CappedTenant, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, capped FROM tenants WHERE capped <> '' AND id > $1 ORDER BY id LIMIT $2", after, page(n))
	return collect(rows, err, "read capped tenants", func(c *alert.CappedTenant, rows *sql.Rows) error {
		var text string
		err := rows.Scan(&c.ID, &text)
		if err == nil {
			c.Capped, err = policy.ParseCapped(text)
		}
		return err
	})
}

// Events implements alert.Store.
func (s *Store) Events(ctx context.Context, q alert.Query) ([]alert.Event, error) {
	which, order := "(CAST($1 AS bigint) = 0 OR number < $1)", "DESC"
	bound := q.Before
	if q.Forward {
		which, order, bound = "number > $1", "ASC", q.After
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+eventColumns+" FROM alerts a WHERE "+which+` AND (CAST($2 AS text) = '' OR tenant = $2) AND (CAST($3 AS text) = '' OR alert = $3)
		AND (CAST($4 AS text) = '' OR EXISTS (SELECT 1 FROM alert_deliveries d WHERE d.number = a.number AND d.state = $4))
		ORDER BY number `+order+" LIMIT $5", bound, q.Tenant, q.Alert, q.State, page(q.N))
	return collect(rows, err, "read alerts", scanEvent)
}

const deliveryColumns = "d.number, d.webhook, d.state, d.attempts, d.since_ms, d.next_ms, d.tried_ms, d.status, d.error"

func scanDelivery(d *alert.Delivery, rows *sql.Rows, more ...any) error {
	var since, next, tried int64
	err := rows.Scan(append([]any{&d.Number, &d.Webhook, &d.State, &d.Attempts, &since, &next, &tried, &d.Status, &d.Error}, more...)...)
	d.Since, d.Next = time.UnixMilli(since), time.UnixMilli(next)
	if tried != 0 {
		d.Tried = time.UnixMilli(tried)
	}
	return err
}

// Event implements alert.Store.
func (s *Store) Event(ctx context.Context, number int64) (alert.Event, error) {
	return event(ctx, s.db, number)
}

func event(ctx context.Context, q querier, number int64) (alert.Event, error) {
	rows, err := q.QueryContext(ctx, "SELECT "+eventColumns+" FROM alerts WHERE number = $1", number)
	all, err := collect(rows, err, "read alert", scanEvent)
	if err != nil {
		return alert.Event{}, err
	}
	if len(all) == 0 {
		return alert.Event{}, fmt.Errorf("%w: alert %d", policy.ErrNotFound, number)
	}
	rows, err = q.QueryContext(ctx, "SELECT "+deliveryColumns+" FROM alert_deliveries d WHERE d.number = $1 ORDER BY d.webhook", number)
	all[0].Deliveries, err = collect(rows, err, "read deliveries", func(d *alert.Delivery, rows *sql.Rows) error { return scanDelivery(d, rows) })
	return all[0], err
}

// Claim implements alert.Store.
func (s *Store) Claim(ctx context.Context, webhook string, now, until time.Time, n int) (claimed []alert.Delivery, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+deliveryColumns+`, a.id, a.body, a.tenant FROM alert_deliveries d JOIN alerts a ON a.number = d.number
		WHERE d.state = 'pending' AND d.webhook = $1 AND d.next_ms <= $2 ORDER BY d.next_ms, d.number LIMIT $3`, webhook, now.UnixMilli(), page(n))
	due, err := collect(rows, err, "read deliveries", func(d *alert.Delivery, rows *sql.Rows) error { return scanDelivery(d, rows, &d.ID, &d.Body, &d.Tenant) })
	if err != nil {
		return nil, err
	}
	for _, d := range due {
		// Of two who lead at once, one gets it.
		r, err := s.exec(ctx, "UPDATE alert_deliveries SET next_ms = $1, attempts = attempts + 1 WHERE number = $2 AND webhook = $3 AND state = 'pending' AND next_ms = $4 AND attempts = $5",
			until.UnixMilli(), d.Number, d.Webhook, d.Next.UnixMilli(), d.Attempts)
		if err != nil {
			return claimed, unavailable("claim delivery", err)
		}
		got, err := r.RowsAffected()
		if err != nil {
			return claimed, unavailable("claim delivery", err)
		}
		if got == 1 {
			d.Attempts++
			d.Next = until
			claimed = append(claimed, d)
		}
	}
	slices.SortFunc(claimed, func(a, b alert.Delivery) int { return cmp.Compare(a.Number, b.Number) })
	return claimed, nil
}

// Tried implements alert.Store.
func (s *Store) Tried(ctx context.Context, claimed time.Time, d alert.Delivery) error {
	_, err := s.exec(ctx, `UPDATE alert_deliveries SET state = $1, next_ms = $2, tried_ms = $3, status = $4, error = $5
		WHERE number = $6 AND webhook = $7 AND state = 'pending' AND next_ms = $8 AND attempts = $9`,
		d.State, d.Next.UnixMilli(), d.Tried.UnixMilli(), d.Status, d.Error, d.Number, d.Webhook, claimed.UnixMilli(), d.Attempts)
	return unavailable("write delivery", err)
}

// Untried implements alert.Store. What waits longest stays first.
func (s *Store) Untried(ctx context.Context, claimed time.Time, d alert.Delivery) error {
	_, err := s.exec(ctx, "UPDATE alert_deliveries SET next_ms = since_ms, attempts = attempts - 1 WHERE number = $1 AND webhook = $2 AND state = 'pending' AND next_ms = $3 AND attempts = $4",
		d.Number, d.Webhook, claimed.UnixMilli(), d.Attempts)
	return unavailable("give delivery back", err)
}

// Retry implements alert.Store.
func (s *Store) Retry(ctx context.Context, actor string, number int64, webhook string) (out alert.Event, err error) {
	err = s.change(ctx, func(t *tx) error {
		e, err := event(ctx, t, number)
		if err != nil {
			return err
		}
		var begun []string
		now := t.s.now().UnixMilli()
		for _, d := range e.Deliveries {
			if webhook != "" && d.Webhook != webhook || d.State == alert.Delivered {
				continue
			}
			if _, err := t.ExecContext(ctx, "UPDATE alert_deliveries SET state = 'pending', since_ms = $1, next_ms = $1, attempts = 0 WHERE number = $2 AND webhook = $3", now, number, d.Webhook); err != nil {
				return unavailable("write delivery", err)
			}
			begun = append(begun, d.Webhook)
		}
		if len(begun) == 0 {
			said := "any webhook"
			if webhook != "" {
				said = limit.Quote(webhook)
			}
			return fmt.Errorf("%w: alert %d has no delivery to %s that is not delivered", policy.ErrInvalid, number, said)
		}
		if err := t.audit(actor, "alert.retry", strconv.FormatInt(number, 10), nil, map[string]any{"webhooks": begun}); err != nil {
			return err
		}
		out, err = event(ctx, t, number)
		return err
	})
	return out, err
}

// Orphan implements alert.Store.
func (s *Store) Orphan(ctx context.Context, known []string, before time.Time, why string) (int64, error) {
	args, marks := []any{why, before.UnixMilli()}, []string{"''"}
	for i, w := range known {
		args = append(args, w)
		marks = append(marks, "$"+strconv.Itoa(i+3))
	}
	r, err := s.exec(ctx, "UPDATE alert_deliveries SET state = 'dead', error = $1 WHERE state = 'pending' AND since_ms < $2 AND webhook NOT IN ("+strings.Join(marks, ",")+")", args...)
	if err != nil {
		return 0, unavailable("end deliveries", err)
	}
	n, err := r.RowsAffected()
	return n, unavailable("end deliveries", err)
}

// Count implements alert.Store.
func (s *Store) Count(ctx context.Context) (pending, dead int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM alert_deliveries WHERE state = 'pending'), (SELECT count(*) FROM alert_deliveries WHERE state = 'dead')").Scan(&pending, &dead)
	return pending, dead, unavailable("count deliveries", err)
}

// OwnCaps implements alert.Store.
func (s *Store) OwnCaps(ctx context.Context) (any bool, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM tenants WHERE spending_cap <> '')").Scan(&any)
	return any, unavailable("read caps", err)
}
