package alert

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

const (
	// lookAtOnce is how many tenants are looked at together. The ledger and the policy store answer for all of them in
	// a few statements.
	lookAtOnce = 10_000
	// raiseAtOnce is the number of tenants whose findings are kept in one transaction. A policy change waits for it.
	raiseAtOnce = 250
	// latePeriods is how many periods before the present one are looked at for usage that came late. Usage of a
	// period's last seconds is in a block only after the period.
	latePeriods = 8
)

// look is a look at a tenant, and what was found.
type look struct {
	tenant limit.Tenant
	plan   string
	first  int64 // the earliest slot that is new
	found  Found
	err    error // the tenant's own: what was found counts for nothing
}

// all looks at tenants, and keeps their events in the tenants' order. A fault of one tenant does not hold up others.
func (r *round) all(ctx context.Context, list []limit.Tenant, first map[string]int64) error {
	for some := range slices.Chunk(list, lookAtOnce) {
		looks := make([]look, len(some))
		for i, t := range some {
			l := &looks[i]
			l.tenant, l.plan, l.first, l.found.Tenant = t, t.Plan, r.now.Unix(), t.ID
			if !t.Exists {
				l.plan = r.rules.Policy.DefaultPlan
			}
			if at, ok := first[t.ID]; ok {
				l.first = at
			}
		}
		for _, step := range []func(context.Context, []look) error{r.quotas, r.denials, r.spending, r.raise} {
			if err := step(ctx, looks); err != nil {
				return err
			}
		}
	}
	return nil
}

// raise keeps what was found.
func (r *round) raise(ctx context.Context, looks []look) error {
	var found []Found
	for i := range looks {
		l := &looks[i]
		switch {
		case l.err != nil:
			r.Failed(l.tenant.ID, l.err)
		case len(l.found.Events) > 0 || l.found.Capped != nil:
			found = append(found, l.found)
		}
	}
	for some := range slices.Chunk(found, raiseAtOnce) {
		if err := r.goesOn(ctx); err != nil {
			return err
		}
		err := r.raised(ctx, some)
		if err != nil && !away(ctx, err) && len(some) > 1 { // whosever it is
			for i := range some {
				if err = r.raised(ctx, some[i:i+1]); away(ctx, err) {
					break
				}
				r.failed(some[i].Tenant, err)
			}
		} else if err != nil && !away(ctx, err) {
			r.failed(some[0].Tenant, err)
		}
		if away(ctx, err) {
			return fmt.Errorf("tenants from %s on: %w", some[0].Tenant, err)
		}
	}
	return nil
}

func (r *round) raised(ctx context.Context, found []Found) error {
	raised, err := r.Store.Raise(ctx, found)
	if err != nil {
		return err
	}
	for i := range raised {
		r.Raised(&raised[i])
	}
	for _, f := range found {
		if f.Capped != nil {
			r.Turned(f.Tenant, *f.Capped)
		}
	}
	return nil
}

func (r *round) failed(tenant string, err error) {
	if err != nil && !errors.Is(err, fault.ErrNotFound) { // it is gone
		r.Failed(tenant, err)
	}
}

// away reports an error that concerns no single tenant.
func away(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, fault.ErrUnavailable) || errors.Is(err, ledger.ErrUnavailable))
}

// tell adds events for thresholds that were crossed.
func (r *round) tell(l *look, a *policy.Alert, kind string, at []int64, period string, used, of int64) {
	for _, ppm := range at {
		l.found.Events = append(l.found.Events, Event{
			ID: "alr_" + rand.Text(), Kind: kind, Alert: a.Name, Tenant: l.tenant.ID, Plan: l.plan, Limit: a.Quota + a.Denials, Threshold: ppm, Period: period,
			Used: used, Of: of, Height: r.height, Webhooks: a.Webhooks,
		})
	}
}

// rule is the tenant's limit that an alert is about; nil where it has none.
func (r *round) rule(t limit.Tenant, name string) *limit.Rule {
	own, err := r.rules.Tenant(t)
	if err != nil {
		return nil // no plan: all its requests are refused
	}
	for _, rule := range slices.Concat(own, r.rules.Top()) {
		if rule.Limit.Name == name {
			return rule
		}
	}
	return nil
}

// quotas compares the usage of windows with new usage with the units that the limits have now.
func (r *round) quotas(ctx context.Context, looks []look) error {
	type part struct {
		l      *look
		a      *policy.Alert
		rule   *limit.Rule
		window time.Time
	}
	var parts []part
	var asks []Ask
	for i := range looks {
		l := &looks[i]
		for j := range r.doc.Alerts() {
			a := &r.doc.Alerts()[j]
			if a.Quota == "" || !a.Holds(l.tenant.ID, l.plan) {
				continue
			}
			rule := r.rule(l.tenant, a.Quota)
			if rule == nil || rule.Limit.Algorithm != limit.FixedWindow || !rule.Limit.Rate.Calendar.Zoned() || rule.Limit.Meter == "" ||
				slices.ContainsFunc(rule.Limit.By, func(by string) bool { return by != limit.AttrTenant }) {
				continue // an override has made something else of it
			}
			var windows [][2]time.Time
			for at := r.now; ; {
				from, to := rule.Window(at)
				windows = append(windows, [2]time.Time{from, to})
				if from.Unix() <= l.first || len(windows) > latePeriods {
					break
				}
				at = from.Add(-1)
			}
			for _, w := range slices.Backward(windows) {
				parts = append(parts, part{l, a, rule, w[0]})
				asks = append(asks, Ask{Tenant: l.tenant.ID, Query: ledger.HourlyQuery{From: w[0].Unix(), To: w[1].Unix(), Limit: a.Quota, Metered: true, Except: r.shadows}})
			}
		}
	}
	answers, err := r.sums.answer(ctx, asks)
	if err != nil {
		return err
	}
	for i, p := range parts {
		used := int64(0)
		for _, s := range answers[i].Sums {
			used += s.Admitted
		}
		p.l.err = errors.Join(p.l.err, answers[i].Err)
		of := p.rule.Limit.Rate.Units
		r.tell(p.l, p.a, KindQuota, crossed(used, of, p.a.At), p.window.Format(time.RFC3339), used, of)
	}
	return nil
}

// denials compares what limits deny now with what they denied before, once a day (UTC).
func (r *round) denials(ctx context.Context, looks []look) error {
	type part struct {
		l    *look
		a    *policy.Alert
		from int64 // of what is now
		now  denials
	}
	var parts []part
	var asks []Ask
	ask := func(l *look, rule *limit.Rule, from, to int64) Ask {
		q := ledger.HourlyQuery{From: from, To: to, Except: r.shadows}
		if rule.Limit.Meter != "" {
			q.Limit = rule.Limit.Name
		}
		return Ask{Tenant: l.tenant.ID, Query: q, Once: true}
	}
	sum := func(p *part, answer Answer) (d denials) {
		p.l.err = errors.Join(p.l.err, answer.Err)
		for _, s := range answer.Sums {
			if s.Limit == p.a.Denials {
				d.denied += s.Denied
			}
			if s.Meter != "" { // of a limit without one: what was admitted beside it
				d.admitted += s.Admitted
			}
		}
		return d
	}
	for i := range looks {
		l := &looks[i]
		for j := range r.doc.Alerts() {
			a := &r.doc.Alerts()[j]
			if a.Denials == "" || !a.Holds(l.tenant.ID, l.plan) {
				continue
			}
			rule := r.rule(l.tenant, a.Denials)
			if rule == nil {
				continue
			}
			from := r.now.Add(-a.Over).Unix()
			from -= from % billing.Grid
			parts = append(parts, part{l: l, a: a, from: from})
			asks = append(asks, ask(l, rule, from, r.now.Unix()+1))
		}
	}
	answers, err := r.sums.answer(ctx, asks)
	if err != nil {
		return err
	}
	var many []part // that deny enough now to be held against their past
	var past []Ask
	for i := range parts {
		p := &parts[i]
		if p.now = sum(p, answers[i]); p.now.denied < p.a.Least {
			continue
		}
		q := asks[i]
		q.Query.From, q.Query.To = p.from-int64(p.a.Against/time.Second), p.from
		many, past = append(many, *p), append(past, q)
	}
	if answers, err = r.sums.answer(ctx, past); err != nil {
		return err
	}
	for i := range many {
		p := &many[i]
		before := sum(p, answers[i])
		r.tell(p.l, p.a, KindDenials, risen(p.now, before, p.a.Least, p.a.At), r.now.UTC().Format(time.DateOnly), p.now.share(), before.share())
	}
	return nil
}

// spending compares the cost of periods with amounts and with the tenants' caps.
func (r *round) spending(ctx context.Context, looks []look) error {
	var which []*look
	var ids []string
	for i := range looks {
		l := &looks[i]
		alerted := slices.ContainsFunc(r.doc.Alerts(), func(a policy.Alert) bool { return a.Spending && a.Holds(l.tenant.ID, l.plan) })
		if l.tenant.Exists && (alerted || r.own || l.tenant.Capped || throttled(&l.tenant) || r.doc.Cap(l.plan) != terms.Cap{}) {
			which, ids = append(which, l), append(ids, l.tenant.ID)
		}
	}
	standings, err := r.Policy.Standings(ctx, ids)
	if err != nil {
		return err
	}
	var all []Spender
	var of []*look
	for i, s := range standings {
		l := which[i]
		if s.Err != nil || len(s.Subscriptions) == 0 { // not to be made out, or gone
			l.err = errors.Join(l.err, s.Err)
			continue
		}
		wanted := r.cap(&s, l.plan).Amount > 0 || s.Capped != terms.Capped{}
		for _, a := range r.doc.Alerts() {
			wanted = wanted || a.Spending && a.Amount.Amount > 0 && a.Holds(l.tenant.ID, l.plan)
		}
		if wanted {
			all, of = append(all, Spender{Standing: s, First: l.first}), append(of, l)
		}
	}
	if err := r.Spending(ctx, all, r.sums.answer); err != nil {
		return err
	}
	for i := range all {
		if of[i].err = errors.Join(of[i].err, all[i].Err); all[i].Err == nil {
			r.spent(of[i], &all[i])
		}
	}
	return nil
}

// throttled reports whether the tenant's cap throttles it.
func throttled(t *limit.Tenant) bool {
	return slices.ContainsFunc(t.Overrides, func(l limit.Limit) bool { return l.Name == terms.CapName })
}

// cap is the cap that holds for a tenant: its own, or its plan's.
func (r *round) cap(s *terms.Standing, plan string) terms.Cap {
	if s.Cap != (terms.Cap{}) {
		return s.Cap
	}
	return r.doc.Cap(plan)
}

// spent tells which thresholds a tenant's periods reached, and its cap's state if that changes.
func (r *round) spent(l *look, s *Spender) {
	limited := r.cap(&s.Standing, l.plan)
	alerts := r.doc.Alerts()
	var holds terms.Capped
	for _, p := range s.Spent {
		base := Event{Tenant: l.tenant.ID, Plan: l.plan, Period: p.Period.Name, Height: r.height}
		for i := range alerts {
			a := &alerts[i]
			of := a.Amount
			if of.Amount == 0 {
				of = limited.Money()
			}
			if !a.Spending || !a.Holds(l.tenant.ID, l.plan) {
				continue
			}
			for _, ppm := range crossed(p.Charges[of.Currency], of.Amount, a.At) {
				e := base
				e.ID, e.Kind, e.Alert, e.Threshold, e.Webhooks = "alr_"+rand.Text(), KindSpending, a.Name, ppm, a.Webhooks
				e.Used, e.Of, e.Currency = p.Charges[of.Currency], of.Amount, of.Currency
				l.found.Events = append(l.found.Events, e)
			}
		}
		used := p.Charges[limited.Currency]
		if limited.Amount == 0 || used < limited.Amount {
			continue
		}
		e := base
		e.ID, e.Kind, e.Alert, e.Threshold, e.Webhooks = "alr_"+rand.Text(), KindCap, terms.CapName, limit.Micro, limited.WebhookNames()
		e.Used, e.Of, e.Currency, e.Action = used, limited.Amount, limited.Currency, terms.CapAlert
		if p.Current && limited.At != terms.CapAlert {
			e.Action = limited.At
			holds = terms.Capped{At: limited.At, Rate: limited.Rate, Period: p.Period.Name, Until: p.Period.To}
		}
		l.found.Events = append(l.found.Events, e)
	}
	if holds != s.Capped {
		l.found.Capped = &holds
	}
}
