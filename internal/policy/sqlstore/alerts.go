package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
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
func (s *Store) Raise(ctx context.Context, found []alert.Found) (raised []alert.Event, err error) {
	var events []alert.Event
	caps := false
	for _, f := range found {
		events = append(events, f.Events...)
		caps = caps || f.Capped != nil
	}
	// Usually all of them are there, which a read without a lock shows.
	if events, err = s.missing(ctx, s.db, events); err != nil || len(events) == 0 && !caps {
		return nil, err
	}
	err = s.change(ctx, func(t *tx) error {
		raised = nil
		fresh, err := s.missing(ctx, t, events)
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
		for _, f := range found {
			if f.Capped == nil {
				continue
			}
			if err := t.cap(ctx, f.Tenant, *f.Capped); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return raised, nil
}

// cap puts in force that a tenant reached its cap.
func (t *tx) cap(ctx context.Context, tenant string, capped terms.Capped) error {
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

// missing are the events that are not stored yet. Two events are the same only at the same amount, as the index
// alerts_once says. An event that only alerts is told of already if one with any other action is.
func (s *Store) missing(ctx context.Context, q querier, events []alert.Event) (fresh []alert.Event, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	type asked struct {
		I         int    `json:"i"`
		Alert     string `json:"alert"`
		Tenant    string `json:"tenant"`
		Threshold int64  `json:"threshold"`
		Period    string `json:"period"`
		Of        int64  `json:"amount"`
		Currency  string `json:"currency"`
		Action    string `json:"action"`
	}
	list := make([]asked, len(events))
	for i, e := range events {
		list[i] = asked{i, e.Alert, e.Tenant, e.Threshold, e.Period, e.Of, e.Currency, e.Action}
		if e.Kind == alert.KindDenials { // of a past that moves
			list[i].Of = 0
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	from, bytewise := `jsonb_to_recordset($1::jsonb) AS x (i bigint, alert text, tenant text, threshold bigint, period text, amount bigint, currency text, action text)`, ` COLLATE "C"`
	if s.engine == SQLite {
		from, bytewise = `(SELECT value ->> 'i' AS i, value ->> 'alert' AS alert, value ->> 'tenant' AS tenant, value ->> 'threshold' AS threshold, value ->> 'period' AS period,
			value ->> 'amount' AS amount, value ->> 'currency' AS currency, value ->> 'action' AS action FROM json_each($1)) AS x`, ""
	}
	rows, err := q.QueryContext(ctx, "SELECT DISTINCT x.i FROM "+from+" JOIN alerts a ON a.alert = x.alert"+bytewise+" AND a.tenant = x.tenant"+bytewise+
		" AND a.threshold = x.threshold AND a.period = x.period"+bytewise+" AND (CASE WHEN a.kind = 'denials' THEN 0 ELSE a.of END) = x.amount AND a.currency = x.currency"+
		" AND (a.action = x.action OR x.action = '"+terms.CapAlert+"')", string(text))
	there, err := collect(rows, err, "read alerts", func(i *int, rows *sql.Rows) error { return rows.Scan(i) })
	if err != nil {
		return nil, err
	}
	told := make(map[int]bool, len(there))
	for _, i := range there {
		told[i] = true
	}
	for i, e := range events {
		if !told[i] {
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
			c.Capped, err = terms.ParseCapped(text)
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

const deliveryColumns = "d.number, d.webhook, d.state, d.attempts, d.since_ms, d.next_ms, d.tried_ms, d.status, d.error, d.waited_ms"

func scanDelivery(d *alert.Delivery, rows *sql.Rows, more ...any) error {
	var since, next, tried, waited int64
	err := rows.Scan(append([]any{&d.Number, &d.Webhook, &d.State, &d.Attempts, &since, &next, &tried, &d.Status, &d.Error, &waited}, more...)...)
	d.Waited = time.Duration(waited) * time.Millisecond
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
		return alert.Event{}, fmt.Errorf("%w: alert %d", policystore.ErrNotFound, number)
	}
	rows, err = q.QueryContext(ctx, "SELECT "+deliveryColumns+" FROM alert_deliveries d WHERE d.number = $1 ORDER BY d.webhook", number)
	all[0].Deliveries, err = collect(rows, err, "read deliveries", func(d *alert.Delivery, rows *sql.Rows) error { return scanDelivery(d, rows) })
	for i := range all[0].Deliveries {
		d := &all[0].Deliveries[i]
		if d.State != alert.Pending || err != nil {
			continue
		}
		var o alert.Outage
		if o, err = outage(ctx, q, d.Webhook); !o.Open.IsZero() {
			d.Next = o.Next
			d.Error = fmt.Sprintf("webhook %s has failed %d times since before %s, and is tried again first: %s", d.Webhook, o.Failures, o.Open.UTC().Format(time.RFC3339), o.Error)
		}
	}
	return all[0], err
}

// Claim implements alert.Store.
func (s *Store) Claim(ctx context.Context, webhook string, now, until time.Time, n int) (claimed []alert.Delivery, err error) {
	order := "d.next_ms"
	o, err := outage(ctx, s.db, webhook)
	if err != nil || o.Next.After(now) && !o.Open.IsZero() {
		return nil, err
	}
	if !o.Open.IsZero() {
		n, order = 1, "d.attempts"
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+deliveryColumns+`, a.id, a.body, a.tenant FROM alert_deliveries d JOIN alerts a ON a.number = d.number
		WHERE d.state = 'pending' AND d.webhook = $1 AND d.next_ms <= $2 ORDER BY `+order+", d.number LIMIT $3", webhook, now.UnixMilli(), page(n))
	due, err := collect(rows, err, "read deliveries", func(d *alert.Delivery, rows *sql.Rows) error { return scanDelivery(d, rows, &d.ID, &d.Body, &d.Tenant) })
	if err != nil {
		return nil, err
	}
	if !o.Open.IsZero() && len(due) > 0 { // of two who lead at once, one tries it
		r, err := s.exec(ctx, "UPDATE webhook_outages SET next_ms = $1 WHERE webhook = $2 AND next_ms = $3", until.UnixMilli(), webhook, o.Next.UnixMilli())
		if err != nil {
			return nil, unavailable("claim webhook", err)
		}
		if got, err := r.RowsAffected(); err != nil || got == 0 {
			return nil, unavailable("claim webhook", err)
		}
	}
	for _, d := range due {
		// If two servers lead at once, one gets it.
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

// outage is a webhook's outage; zero if it has none.
func outage(ctx context.Context, q querier, webhook string) (o alert.Outage, err error) {
	rows, err := q.QueryContext(ctx, "SELECT "+outageColumns+" FROM webhook_outages WHERE webhook = $1", webhook)
	all, err := collect(rows, err, "read outages", scanOutage)
	if len(all) > 0 {
		o = all[0]
	}
	return o, err
}

const outageColumns = "webhook, failures, open_ms, next_ms, error"

func scanOutage(o *alert.Outage, rows *sql.Rows) error {
	var open, next int64
	err := rows.Scan(&o.Webhook, &o.Failures, &open, &next, &o.Error)
	if open != 0 {
		o.Open = time.UnixMilli(open)
	}
	o.Next = time.UnixMilli(next)
	return err
}

// Failing implements alert.Store.
func (s *Store) Failing(ctx context.Context, webhook string, at time.Time, why string) (o alert.Outage, err error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return o, unavailable("begin", err)
	}
	defer tx.Rollback() // does nothing once committed
	// Writing first locks the row, because lanes fail at once.
	if _, err := tx.ExecContext(ctx, `INSERT INTO webhook_outages (webhook, failures, open_ms, next_ms, error) VALUES ($1, 1, 0, 0, $2)
		ON CONFLICT (webhook) DO UPDATE SET failures = webhook_outages.failures + 1, error = excluded.error`, webhook, why); err != nil {
		return o, unavailable("write outage", err)
	}
	if o, err = outage(ctx, tx, webhook); err != nil {
		return o, err
	}
	if o.Failures >= alert.OutageAfter {
		if o.Open.IsZero() {
			o.Open = at
		}
		o.Next = time.UnixMilli(alert.Probe(at, o.Failures).UnixMilli())
		if _, err := tx.ExecContext(ctx, "UPDATE webhook_outages SET open_ms = $1, next_ms = $2 WHERE webhook = $3", o.Open.UnixMilli(), o.Next.UnixMilli(), webhook); err != nil {
			return o, unavailable("write outage", err)
		}
	}
	return o, unavailable("commit", tx.Commit())
}

// Working implements alert.Store.
func (s *Store) Working(ctx context.Context, webhook string, at time.Time) error {
	o, err := outage(ctx, s.db, webhook)
	if err != nil || o.Failures == 0 {
		return err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return unavailable("begin", err)
	}
	defer tx.Rollback() // does nothing once committed
	if _, err := tx.ExecContext(ctx, "DELETE FROM webhook_outages WHERE webhook = $1", webhook); err != nil {
		return unavailable("end outage", err)
	}
	if !o.Open.IsZero() {
		// Their due times stay, so that a delivery in another lane's hands is not taken from it.
		if _, err := tx.ExecContext(ctx, `UPDATE alert_deliveries SET waited_ms = waited_ms + CASE WHEN since_ms < $2 THEN CAST($1 AS bigint) - CAST($2 AS bigint)
			WHEN since_ms < $1 THEN CAST($1 AS bigint) - since_ms ELSE 0 END WHERE webhook = $3 AND state = 'pending'`, at.UnixMilli(), o.Open.UnixMilli(), webhook); err != nil {
			return unavailable("end outage", err)
		}
	}
	return unavailable("commit", tx.Commit())
}

// Outages implements alert.Store.
func (s *Store) Outages(ctx context.Context) ([]alert.Outage, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+outageColumns+" FROM webhook_outages WHERE open_ms <> 0 ORDER BY webhook")
	return collect(rows, err, "read outages", scanOutage)
}

// Tried implements alert.Store.
func (s *Store) Tried(ctx context.Context, claimed time.Time, d alert.Delivery) error {
	_, err := s.exec(ctx, `UPDATE alert_deliveries SET state = $1, next_ms = $2, tried_ms = $3, status = $4, error = $5
		WHERE number = $6 AND webhook = $7 AND state = 'pending' AND next_ms = $8 AND attempts = $9`,
		d.State, d.Next.UnixMilli(), d.Tried.UnixMilli(), d.Status, d.Error, d.Number, d.Webhook, claimed.UnixMilli(), d.Attempts)
	return unavailable("write delivery", err)
}

// Untried implements alert.Store. The delivery that waits longest stays first.
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
			if _, err := t.ExecContext(ctx, "UPDATE alert_deliveries SET state = 'pending', since_ms = $1, next_ms = $1, attempts = 0, waited_ms = 0 WHERE number = $2 AND webhook = $3", now, number, d.Webhook); err != nil {
				return unavailable("write delivery", err)
			}
			if _, err := t.ExecContext(ctx, "UPDATE webhook_outages SET next_ms = $1 WHERE webhook = $2 AND open_ms <> 0", now, d.Webhook); err != nil {
				return unavailable("write outage", err)
			}
			begun = append(begun, d.Webhook)
		}
		if len(begun) == 0 {
			said := "any webhook"
			if webhook != "" {
				said = limit.Quote(webhook)
			}
			return fmt.Errorf("%w: alert %d has no delivery to %s that is not delivered", policystore.ErrInvalid, number, said)
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
	in := s.among("webhook", "$1")
	if _, err := s.exec(ctx, "DELETE FROM webhook_outages WHERE NOT ("+in+")", s.texts(known)); err != nil {
		return 0, unavailable("end outages", err)
	}
	r, err := s.exec(ctx, "UPDATE alert_deliveries SET state = 'dead', error = $2 WHERE state = 'pending' AND since_ms < $3 AND NOT ("+in+")", s.texts(known), why, before.UnixMilli())
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
