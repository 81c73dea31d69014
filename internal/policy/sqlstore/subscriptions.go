package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

// subscribe notes the plans that tenants have from now on. A tenant's subscriptions
// follow one another: where the clock was put back, the next one begins just after the
// one before.
func (t *tx) subscribe(ctx context.Context, plans map[string]string) error {
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
		from := t.s.now().UnixMilli()
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

// Subscriber implements policy.Store.
func (s *Store) Subscriber(ctx context.Context, tenant string) (policy.Subscriber, error) {
	out := policy.Subscriber{ID: tenant}
	rows, err := s.db.QueryContext(ctx, `SELECT t.billing, t.spending_cap, t.capped, s.from_ms, s.plan FROM tenants t JOIN subscriptions s ON s.tenant = t.id
		WHERE t.id = $1 ORDER BY s.from_ms`, tenant)
	type kept struct {
		billing, plan, cap, capped string
		from                       int64
	}
	all, err := collect(rows, err, "read subscriptions", func(k *kept, rows *sql.Rows) error { return rows.Scan(&k.billing, &k.cap, &k.capped, &k.from, &k.plan) })
	if err != nil {
		return out, err
	}
	if len(all) == 0 {
		return out, fmt.Errorf("%w: tenant %s", policy.ErrNotFound, limit.Quote(tenant))
	}
	for i, k := range all {
		from := (k.from + 999) / 1000 // what begins within a second begins with the next
		if i > 0 {
			out.Subscriptions[i-1].To = from
		}
		out.Subscriptions = append(out.Subscriptions, billing.Subscription{Plan: k.plan, From: from})
	}
	if out.Billing, err = policy.ParseBilling(all[0].billing); err != nil {
		return out, fmt.Errorf("tenant %s: billing: %w", tenant, err)
	}
	if out.Cap, err = policy.ParseCap(all[0].cap); err != nil {
		return out, fmt.Errorf("tenant %s: spending cap: %w", tenant, err)
	}
	if out.Capped, err = policy.ParseCapped(all[0].capped); err != nil {
		return out, fmt.Errorf("tenant %s: capped: %w", tenant, err)
	}
	return out, nil
}
