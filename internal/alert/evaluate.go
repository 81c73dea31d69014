package alert

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/fault"
	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

const (
	// changedPage is how many tenants are looked at between two marks of a leader: each page
	// of those with new usage reads all entries of the new blocks.
	changedPage = policy.MaxPage
	// atOnce is how many tenants are looked at at once. Looking is waiting for the ledger
	// and the policy store: a connection of the few to each is left for others.
	atOnce = 3
	// seenAtOnce is of how many tenants it is kept what was found, before that is told: a
	// cap comes in force no later for those that are looked at after it.
	seenAtOnce = 64
	// sweepTime is how long a round goes on looking at all tenants.
	sweepTime = 2 * time.Second
	// latePeriods is how many periods before the present one are looked at for usage that
	// came late: what was used in the last seconds of a period is in a block only after it.
	latePeriods = 8
)

// Usage is what evaluation needs of ledger.Books.
type Usage interface {
	Newest(ctx context.Context) (ledger.KeptBlockInfo, error)
	Changed(ctx context.Context, since, height int64, after string, n int) ([]ledger.ChangedTenant, error)
	Hourly(ctx context.Context, q ledger.HourlyQuery) ([]ledger.HourlySum, error)
}

// Spent is what a tenant's usage of a period comes to: its charges for units, of every
// currency, less what credits pay of the period.
type Spent struct {
	Period  billing.Period
	Charges map[string]int64 // minor units by currency
	Current bool             // the period that is now
}

// Evaluator finds what is to be told, and what caps hold. Whoever leads runs its rounds,
// one at a time.
type Evaluator struct {
	Store  Store
	Policy policy.Store
	Usage  Usage
	// InForce is the policy that holds; nil before there is one.
	InForce func() (*policy.Document, *limit.Rules)
	// Spending works out the period that is now, and those before that a slot is of. It is
	// asked of several tenants at once.
	Spending func(ctx context.Context, sub *policy.Subscriber, first int64) ([]Spent, error)
	Now      func() time.Time

	// Raised is told of events that were kept, Turned of caps that came in force or were
	// lifted, Failed of tenants that cannot be looked at.
	Raised func(e *Event)
	Turned func(tenant string, c policy.Capped)
	Failed func(tenant string, err error)
}

// round is one look at tenants, under one policy.
type round struct {
	*Evaluator
	doc     *policy.Document
	rules   *limit.Rules
	shadows []int64
	height  int64
	now     time.Time
	idle    bool // the policy has nothing to tell of, and no tenant has a cap
	own     bool // some tenant has a cap of its own
}

// Round looks at what has changed since the last one. keep is asked between pages of
// tenants whether to go on.
func (e *Evaluator) Round(ctx context.Context, keep func(context.Context) (bool, error)) error {
	r := &round{Evaluator: e, now: e.Now()}
	if r.doc, r.rules = e.InForce(); r.doc == nil || r.rules == nil {
		return nil
	}
	was, err := e.Store.Marks(ctx)
	if err != nil {
		return err
	}
	m := was
	newest, err := e.Usage.Newest(ctx)
	if err != nil {
		return err
	}
	r.height = newest.Height
	heads, err := e.Policy.Heads(ctx)
	if err != nil {
		return err
	}
	audited, err := e.Store.Audited(ctx)
	if err != nil {
		return err
	}
	if r.own, err = e.Store.OwnCaps(ctx); err != nil {
		return err
	}
	r.idle = len(r.doc.Alerts()) == 0 && !r.doc.Caps() && !r.own
	if m.Height < 0 { // all tenants are looked at as they are now
		m = Marks{Height: newest.Height, Change: heads.Tenants, Version: -1}
	}
	if version := r.rules.Policy.Version; m.Version != version {
		m.Version, m.Sweeping, m.Sweep = version, true, ""
	}
	if r.idle {
		m.Height, m.Change, m.Sweeping = newest.Height, heads.Tenants, false
	} else if r.shadows, err = e.Policy.Shadows(ctx); err != nil {
		return err
	}
	// Under another version, too: what is in force here may come after its row in the log.
	if err := r.capped(ctx, audited != m.Audit || m.Version != was.Version, keep); err != nil {
		return err
	}
	m.Audit = audited
	for _, step := range []func(context.Context, *Marks, func(context.Context) (bool, error)) error{r.blocks, r.changes, r.sweep} {
		if err := step(ctx, &m, keep); err != nil {
			return err
		}
	}
	if m == was {
		return nil
	}
	return e.Store.SetMarks(ctx, m)
}

// errLost ends a round of a server that leads no more: who does goes on.
var errLost = errors.New("alert: another server leads")

func goesOn(ctx context.Context, keep func(context.Context) (bool, error)) error {
	leads, err := keep(ctx)
	if err == nil && !leads {
		err = errLost
	}
	return err
}

// capped looks at the tenants that reached their caps: all where an administrator may have
// changed something, and those whose period has ended.
func (r *round) capped(ctx context.Context, all bool, keep func(context.Context) (bool, error)) error {
	for after := ""; ; {
		if err := goesOn(ctx, keep); err != nil {
			return err
		}
		page, err := r.Store.Capped(ctx, after, policy.MaxPage)
		if err != nil {
			return err
		}
		var ids []string
		for _, c := range page {
			if after = c.ID; all || r.now.Unix() >= c.Until {
				ids = append(ids, c.ID)
			}
		}
		if err := r.tenants(ctx, ids, nil); err != nil {
			return err
		}
		if len(page) < policy.MaxPage {
			return nil
		}
	}
}

// blocks looks at tenants with usage in blocks that came since.
func (r *round) blocks(ctx context.Context, m *Marks, keep func(context.Context) (bool, error)) error {
	for after := ""; r.height > m.Height; {
		if err := goesOn(ctx, keep); err != nil {
			return err
		}
		page, err := r.Usage.Changed(ctx, m.Height, r.height, after, changedPage)
		if err != nil {
			return err
		}
		ids, first := make([]string, len(page)), make(map[string]int64, len(page))
		for i, c := range page {
			ids[i], after = c.Tenant, c.Tenant
			first[c.Tenant] = c.First
		}
		if err := r.tenants(ctx, ids, first); err != nil {
			return err
		}
		if len(page) < changedPage {
			break
		}
	}
	m.Height = r.height // a ledger that was restored may be lower, too
	return nil
}

// changes looks at tenants that were changed since.
func (r *round) changes(ctx context.Context, m *Marks, keep func(context.Context) (bool, error)) error {
	for {
		page, through, err := r.Policy.TenantChanges(ctx, m.Change, changedPage)
		if err != nil {
			return err
		}
		m.Change = through
		if err := r.all(ctx, page, nil); err != nil {
			return err
		}
		if len(page) < changedPage {
			return nil
		}
		if err := goesOn(ctx, keep); err != nil {
			return err
		}
	}
}

// sweep looks at all tenants, after the policy has changed: for some time of each round,
// since usage that is new comes first.
func (r *round) sweep(ctx context.Context, m *Marks, keep func(context.Context) (bool, error)) error {
	for begun := time.Now(); m.Sweeping && time.Since(begun) < sweepTime; {
		if err := goesOn(ctx, keep); err != nil {
			return err
		}
		page, err := r.Policy.TenantPage(ctx, m.Sweep, changedPage)
		if err != nil {
			return err
		}
		if err := r.all(ctx, page, nil); err != nil {
			return err
		}
		if len(page) > 0 {
			m.Sweep = page[len(page)-1].ID
		}
		m.Sweeping = len(page) == changedPage
	}
	return nil
}

// tenants looks at tenants by id; first is the earliest slot of each that is new.
func (r *round) tenants(ctx context.Context, ids []string, first map[string]int64) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := r.Policy.Tenants(ctx, ids)
	if err != nil {
		return err
	}
	return r.all(ctx, list, first)
}

// all looks at tenants, some at once, and keeps what there is to tell of them in their order.
func (r *round) all(ctx context.Context, list []limit.Tenant, first map[string]int64) error {
	type seen struct {
		events []Event
		capped *policy.Capped
		err    error
	}
	for some := range slices.Chunk(list, seenAtOnce) {
		found := make([]seen, len(some))
		var next atomic.Int64
		var looking sync.WaitGroup
		for range min(atOnce, len(some)) {
			looking.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(some)) && ctx.Err() == nil; i = next.Add(1) - 1 {
					at, ok := first[some[i].ID]
					if !ok {
						at = r.now.Unix()
					}
					s := &found[i]
					s.events, s.capped, s.err = r.look(ctx, some[i], at)
				}
			})
		}
		looking.Wait()
		if err := ctx.Err(); err != nil {
			return err
		}
		for i, s := range found {
			if err := r.keep(ctx, some[i].ID, s.events, s.capped, s.err); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep keeps what was found of a tenant. Whatever is wrong with it is no other's: an error
// is none of the tenant's.
func (r *round) keep(ctx context.Context, tenant string, events []Event, capped *policy.Capped, err error) error {
	if err == nil && (len(events) > 0 || capped != nil) {
		var raised []Event
		if raised, err = r.Store.Raise(ctx, tenant, events, capped); err == nil {
			for i := range raised {
				r.Raised(&raised[i])
			}
			if capped != nil {
				r.Turned(tenant, *capped)
			}
		}
	}
	switch {
	case err == nil, errors.Is(err, fault.ErrNotFound):
		return nil
	case ctx.Err() != nil, errors.Is(err, fault.ErrUnavailable), errors.Is(err, ledger.ErrUnavailable):
		return fmt.Errorf("tenant %s: %w", tenant, err)
	}
	r.Failed(tenant, err)
	return nil
}

// look finds what there is to tell of a tenant, and what its cap holds where that changes.
func (r *round) look(ctx context.Context, t limit.Tenant, first int64) (events []Event, capped *policy.Capped, err error) {
	plan := t.Plan
	if !t.Exists {
		plan = r.rules.Policy.DefaultPlan
	}
	spending := t.Exists && (r.own || t.Capped || r.doc.Cap(plan) != policy.Cap{} || slices.ContainsFunc(t.Overrides, func(l limit.Limit) bool { return l.Name == policy.CapName }))
	told := func(a *policy.Alert, kind string, at []int64, period string, used, of int64) {
		for _, ppm := range at {
			events = append(events, Event{
				ID: "alr_" + rand.Text(), Kind: kind, Alert: a.Name, Tenant: t.ID, Plan: plan, Limit: a.Quota + a.Denials, Threshold: ppm, Period: period,
				Used: used, Of: of, Height: r.height, Webhooks: a.Webhooks,
			})
		}
	}
	alerts := r.doc.Alerts()
	for i := range alerts {
		a := &alerts[i]
		if !a.Holds(t.ID, plan) {
			continue
		}
		switch {
		case a.Spending:
			spending = spending || t.Exists
		case a.Quota != "":
			err = r.quota(ctx, a, t, first, told)
		default:
			err = r.denials(ctx, a, t, told)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if !spending {
		return events, nil, nil
	}
	more, capped, err := r.spending(ctx, t.ID, plan, first)
	return append(events, more...), capped, err
}

type tell func(a *policy.Alert, kind string, at []int64, period string, used, of int64)

// rule is the limit of an alert as the tenant has it; nil where it has none.
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

// quota holds the windows that new usage is of against the units that the limit has now.
func (r *round) quota(ctx context.Context, a *policy.Alert, t limit.Tenant, first int64, tell tell) error {
	rule := r.rule(t, a.Quota)
	if rule == nil || rule.Limit.Algorithm != limit.FixedWindow || !rule.Limit.Rate.Calendar.Zoned() || rule.Limit.Meter == "" ||
		slices.ContainsFunc(rule.Limit.By, func(by string) bool { return by != limit.AttrTenant }) {
		return nil // an override has made something else of it
	}
	var windows [][2]time.Time
	for at := r.now; ; {
		from, to := rule.Window(at)
		windows = append(windows, [2]time.Time{from, to})
		if from.Unix() <= first || len(windows) > latePeriods {
			break
		}
		at = from.Add(-1)
	}
	for _, w := range slices.Backward(windows) {
		sums, err := r.Usage.Hourly(ctx, ledger.HourlyQuery{Tenant: t.ID, From: w[0].Unix(), To: w[1].Unix(), Limit: a.Quota, Metered: true, Except: r.shadows})
		if err != nil {
			return err
		}
		used := int64(0)
		for _, s := range sums {
			used += s.Admitted
		}
		tell(a, KindQuota, crossed(used, rule.Limit.Rate.Units, a.At), w[0].Format(time.RFC3339), used, rule.Limit.Rate.Units)
	}
	return nil
}

// denials holds what a limit denies now against what it denied before, once a day (UTC).
func (r *round) denials(ctx context.Context, a *policy.Alert, t limit.Tenant, tell tell) error {
	rule := r.rule(t, a.Denials)
	if rule == nil {
		return nil
	}
	from := r.now.Add(-a.Over).Unix()
	from -= from % billing.Grid
	sum := func(from, to int64) (d denials, err error) {
		q := ledger.HourlyQuery{Tenant: t.ID, From: from, To: to, Except: r.shadows}
		if rule.Limit.Meter != "" {
			q.Limit = a.Denials
		}
		sums, err := r.Usage.Hourly(ctx, q)
		for _, s := range sums {
			if s.Limit == a.Denials {
				d.denied += s.Denied
			}
			if s.Meter != "" { // of a limit without one: what was admitted beside it
				d.admitted += s.Admitted
			}
		}
		return d, err
	}
	now, err := sum(from, r.now.Unix()+1)
	if err != nil || now.denied < a.Least {
		return err
	}
	past, err := sum(from-int64(a.Against/time.Second), from)
	if err != nil {
		return err
	}
	tell(a, KindDenials, risen(now, past, a.Least, a.At), r.now.UTC().Format(time.DateOnly), now.share(), past.share())
	return nil
}

// spending holds what the periods come to against amounts and the tenant's cap.
func (r *round) spending(ctx context.Context, tenant, plan string, first int64) (events []Event, capped *policy.Capped, err error) {
	sub, err := r.Policy.Subscriber(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	limited := sub.Cap
	if limited == (policy.Cap{}) {
		limited = r.doc.Cap(plan)
	}
	alerts := r.doc.Alerts()
	wanted := limited.Amount > 0 || sub.Capped != policy.Capped{}
	for i := range alerts {
		wanted = wanted || alerts[i].Spending && alerts[i].Amount.Amount > 0 && alerts[i].Holds(tenant, plan)
	}
	if !wanted {
		return nil, nil, nil
	}
	periods, err := r.Spending(ctx, &sub, first)
	if err != nil {
		return nil, nil, err
	}
	var holds policy.Capped
	for _, p := range periods {
		base := Event{Tenant: tenant, Plan: plan, Period: p.Period.Name, Height: r.height}
		for i := range alerts {
			a := &alerts[i]
			of := a.Amount
			if of.Amount == 0 {
				of = limited.Money()
			}
			if !a.Spending || !a.Holds(tenant, plan) {
				continue
			}
			for _, ppm := range crossed(p.Charges[of.Currency], of.Amount, a.At) {
				e := base
				e.ID, e.Kind, e.Alert, e.Threshold, e.Webhooks = "alr_"+rand.Text(), KindSpending, a.Name, ppm, a.Webhooks
				e.Used, e.Of, e.Currency = p.Charges[of.Currency], of.Amount, of.Currency
				events = append(events, e)
			}
		}
		used := p.Charges[limited.Currency]
		if limited.Amount == 0 || used < limited.Amount {
			continue
		}
		e := base
		e.ID, e.Kind, e.Alert, e.Threshold, e.Webhooks = "alr_"+rand.Text(), KindCap, policy.CapName, limit.Micro, limited.WebhookNames()
		e.Used, e.Of, e.Currency, e.Action = used, limited.Amount, limited.Currency, policy.CapAlert
		if p.Current && limited.At != policy.CapAlert {
			e.Action = limited.At
			holds = policy.Capped{At: limited.At, Rate: limited.Rate, Period: p.Period.Name, Until: p.Period.To}
		}
		events = append(events, e)
	}
	if holds != sub.Capped {
		capped = &holds
	}
	return events, capped, nil
}
