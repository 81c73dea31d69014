package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// subscribe notes the plans that tenants have from now on. A tenant's subscriptions follow one another. If the clock
// was put back, the next one begins just after the one before.
func (t *tx) subscribe(ctx context.Context, plans map[string]string) error {
	return t.subscribeFrom(ctx, plans, t.s.now())
}

// subscribeFrom notes the plans that tenants have from a time on.
func (t *tx) subscribeFrom(ctx context.Context, plans map[string]string, at time.Time) error {
	ids := make([]string, 0, len(plans))
	for id := range plans {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	last, err := t.lastSubscriptions(ctx, ids)
	if err != nil {
		return err
	}
	rows := make([][]any, len(ids))
	for i, id := range ids {
		from := at.UnixMilli()
		if before, ok := last[id]; ok {
			from = max(from, before+1)
		}
		rows[i] = []any{id, from, plans[id]}
	}
	return unavailable("write subscriptions", t.insert(ctx, "INSERT INTO subscriptions (tenant, from_ms, plan) VALUES ", "", rows))
}

// lastSubscriptions returns when the newest subscription of each tenant begins.
func (t *tx) lastSubscriptions(ctx context.Context, ids []string) (map[string]int64, error) {
	last := make(map[string]int64, len(ids))
	for chunk := range slices.Chunk(ids, selectIDs) {
		var b strings.Builder
		args := make([]any, len(chunk))
		for i, id := range chunk {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("$" + strconv.Itoa(i+1))
			args[i] = id
		}
		rows, err := t.QueryContext(ctx, "SELECT tenant, max(from_ms) FROM subscriptions WHERE tenant IN ("+b.String()+") GROUP BY tenant", args...)
		type begun struct {
			tenant string
			from   int64
		}
		all, err := collect(rows, err, "read subscriptions", func(s *begun, rows *sql.Rows) error { return rows.Scan(&s.tenant, &s.from) })
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			last[s.tenant] = s.from
		}
	}
	return last, nil
}

// Subscriber implements policystore.Store.
func (s *Store) Subscriber(ctx context.Context, tenant string) (terms.Subscriber, error) {
	all, err := s.subscribers(ctx, []string{tenant})
	if err != nil {
		return terms.Subscriber{}, err
	}
	found, ok := all[tenant]
	if !ok {
		return terms.Subscriber{ID: tenant}, fmt.Errorf("%w: tenant %s", policystore.ErrNotFound, limit.Quote(tenant))
	}
	return found.Subscriber, found.Err
}

// subscribers are the stored ones of the ids, by id.
func (s *Store) subscribers(ctx context.Context, ids []string) (map[string]*terms.Standing, error) {
	type kept struct {
		id, parent, billing, plan, cap, capped string
		from                                   int64
	}
	rows, err := s.db.QueryContext(ctx, `SELECT t.id, t.parent, t.billing, t.spending_cap, t.capped, s.from_ms, s.plan FROM tenants t JOIN subscriptions s ON s.tenant = t.id
		WHERE `+s.among("t.id", "$1")+" ORDER BY t.id, s.from_ms", s.texts(ids))
	all, err := collect(rows, err, "read subscriptions", func(k *kept, rows *sql.Rows) error {
		return rows.Scan(&k.id, &k.parent, &k.billing, &k.cap, &k.capped, &k.from, &k.plan)
	})
	if err != nil {
		return nil, err
	}
	found := make(map[string]*terms.Standing, len(ids))
	for _, k := range all {
		from := (k.from + 999) / 1000 // what begins within a second begins with the next
		out := found[k.id]
		if out == nil {
			out = &terms.Standing{Subscriber: terms.Subscriber{ID: k.id, Parent: k.parent}}
			found[k.id] = out
			errs := make([]error, 3)
			out.Billing, errs[0] = terms.ParseBilling(k.billing)
			out.Cap, errs[1] = terms.ParseCap(k.cap)
			out.Capped, errs[2] = terms.ParseCapped(k.capped)
			for i, what := range []string{"billing", "spending cap", "capped"} {
				if errs[i] != nil {
					out.Err = errors.Join(out.Err, fmt.Errorf("tenant %s: %s: %w", k.id, what, errs[i]))
				}
			}
		} else {
			out.Subscriptions[len(out.Subscriptions)-1].To = from
		}
		out.Subscriptions = append(out.Subscriptions, billing.Subscription{Plan: k.plan, From: from})
	}
	return found, nil
}

// standingIDs is how many tenants a statement of Standings reads.
const standingIDs = 2_000

// Standings implements policystore.Store.
func (s *Store) Standings(ctx context.Context, tenants []string) ([]terms.Standing, error) {
	out := make([]terms.Standing, 0, len(tenants))
	for ids := range slices.Chunk(tenants, standingIDs) {
		found, err := s.subscribers(ctx, ids)
		if err != nil {
			return nil, err
		}
		rows, err := s.db.QueryContext(ctx, "SELECT "+closedColumns+" FROM statements s WHERE "+s.among("s.tenant", "$1")+
			" AND number > (SELECT max(l.number) FROM statements l WHERE l.tenant = s.tenant) - $2 ORDER BY tenant, number DESC", s.texts(ids), terms.MaxStanding)
		closed, err := collect(rows, err, "read statements", func(c *terms.Closed, rows *sql.Rows) error { return scanClosed(c, rows) })
		if err != nil {
			return nil, err
		}
		for i := range closed {
			if of := found[closed[i].Tenant]; of != nil {
				of.Closed = append(of.Closed, closed[i])
			}
		}
		rows, err = s.db.QueryContext(ctx, selectCredits+"WHERE "+s.among("c.tenant", "$1")+" ORDER BY c.tenant, c.id", s.texts(ids))
		credits, err := collect(rows, err, "read credits", scanCredit)
		if err != nil {
			return nil, err
		}
		for i := range credits {
			if of := found[credits[i].Tenant]; of != nil {
				of.Credits = append(of.Credits, credits[i])
			}
		}
		for _, id := range ids {
			if of := found[id]; of != nil {
				out = append(out, *of)
			} else {
				out = append(out, terms.Standing{Subscriber: terms.Subscriber{ID: id}})
			}
		}
	}
	return out, nil
}
