package alert

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

const (
	// changedPage is how many tenants with new usage are read at a time where the new blocks' sums are not at hand.
	// Each page reads all entries of those blocks.
	changedPage = lookAtOnce
	// sweepTime is how long a round goes on looking at all tenants.
	sweepTime = 2 * time.Second
)

// Usage is what evaluation needs of ledger.Books.
type Usage interface {
	Newest(ctx context.Context) (ledger.KeptBlockInfo, error)
	Changed(ctx context.Context, since, height int64, after string, n int) ([]ledger.ChangedTenant, error)
	Added(ctx context.Context, since ledger.KeptBlockInfo, height int64, n int) ([]ledger.AddedSum, bool, error)
	Hourly(ctx context.Context, q ledger.HourlyQuery) (ledger.HourlySums, error)
}

// Spent is the cost of a tenant's usage in a period: the charges for units, in every currency, less what credits pay of
// it.
type Spent struct {
	Period  billing.Period
	Charges map[string]int64 // minor units by currency
	Current bool             // the period that is now
}

// Spender is a tenant whose spending is asked for, and the answer.
type Spender struct {
	terms.Standing
	First int64 // the earliest slot that is new

	Spent []Spent
	Err   error // the tenant's own
}

// Evaluator finds the events to tell of, and the caps that hold. The server that leads runs its rounds, one at a time.
type Evaluator struct {
	Store  Store
	Policy policystore.Store
	Usage  Usage
	// InForce is the policy that holds; nil before there is one.
	InForce func() (*policy.Document, *limit.Rules)
	// Spending works out each tenant's spending in the present period, and in earlier ones with a new slot, by sums. An
	// error concerns all tenants.
	Spending func(ctx context.Context, all []Spender, sum Sum) error
	Now      func() time.Time

	// Looked is told how long a completed round took. Raised is told of events that were kept, Turned of caps that came
	// in force or were lifted. Failed is told of tenants that cannot be looked at.
	Looked func(took time.Duration)
	Raised func(e *Event)
	Turned func(tenant string, c terms.Capped)
	Failed func(tenant string, err error)

	sums *sums
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
	keep    func(context.Context) (bool, error)
	// added is the sums since the last round. They are nil, with told unset, if the ledger could not tell them.
	added []ledger.AddedSum
	told  bool
}

// Round looks at what has changed since the last round. Between pages of tenants it asks keep whether to go on.
func (e *Evaluator) Round(ctx context.Context, keep func(context.Context) (bool, error)) error {
	if e.sums == nil {
		e.sums = &sums{usage: e.Usage, now: e.Now}
	}
	begun := time.Now()
	if err := e.round(ctx, keep); err != nil {
		e.sums.kept = nil // how far it came is not known
		return err
	}
	e.Looked(time.Since(begun))
	return nil
}

func (e *Evaluator) round(ctx context.Context, keep func(context.Context) (bool, error)) error {
	r := &round{Evaluator: e, now: e.Now(), keep: keep}
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
		r.sums.forget(newest)
	} else {
		if r.shadows, err = e.Policy.Shadows(ctx); err != nil {
			return err
		}
		if r.added, r.told, err = r.sums.advance(ctx, m.Height, newest); err != nil {
			return err
		}
	}
	// A new version counts too: here the policy may come in force after its row in the log.
	if err := r.capped(ctx, audited != m.Audit || m.Version != was.Version); err != nil {
		return err
	}
	m.Audit = audited
	for _, step := range []func(context.Context, *Marks) error{r.blocks, r.changes, r.sweep} {
		if err := step(ctx, &m); err != nil {
			return err
		}
	}
	if m == was {
		return nil
	}
	return e.Store.SetMarks(ctx, m)
}

// errLost ends a round of a server that no longer leads. The new leader goes on.
var errLost = errors.New("alert: another server leads")

func (r *round) goesOn(ctx context.Context) error {
	leads, err := r.keep(ctx)
	if err == nil && !leads {
		err = errLost
	}
	return err
}

// capped looks at tenants that reached their caps. It looks at all of them if an administrator may have changed
// something, else at those whose period has ended.
func (r *round) capped(ctx context.Context, all bool) error {
	for after := ""; ; {
		if err := r.goesOn(ctx); err != nil {
			return err
		}
		page, err := r.Store.Capped(ctx, after, policystore.MaxPage)
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
		if len(page) < policystore.MaxPage {
			return nil
		}
	}
}

// blocks looks at tenants with usage in new blocks.
func (r *round) blocks(ctx context.Context, m *Marks) error {
	if r.told {
		if err := r.changed(ctx, firsts(r.added)); err != nil {
			return err
		}
	}
	for after := ""; !r.told && r.height > m.Height; {
		if err := r.goesOn(ctx); err != nil {
			return err
		}
		page, err := r.Usage.Changed(ctx, m.Height, r.height, after, changedPage)
		if err != nil {
			return err
		}
		if err := r.changed(ctx, page); err != nil {
			return err
		}
		if len(page) < changedPage {
			break
		}
		after = page[len(page)-1].Tenant
	}
	m.Height = r.height // a ledger that was restored may be lower, too
	return nil
}

// firsts are the tenants of the added sums. They keep the order of the sums, which is by tenant.
func firsts(added []ledger.AddedSum) (all []ledger.ChangedTenant) {
	for i := range added {
		a := &added[i]
		if n := len(all); n > 0 && all[n-1].Tenant == a.Tenant {
			all[n-1].First = min(all[n-1].First, a.Slot)
			continue
		}
		all = append(all, ledger.ChangedTenant{Tenant: a.Tenant, First: a.Slot})
	}
	return all
}

// changed looks at tenants with new usage.
func (r *round) changed(ctx context.Context, list []ledger.ChangedTenant) error {
	ids, first := make([]string, len(list)), make(map[string]int64, len(list))
	for i, c := range list {
		ids[i], first[c.Tenant] = c.Tenant, c.First
	}
	return r.tenants(ctx, ids, first)
}

// changes looks at tenants whose settings changed since the last round.
func (r *round) changes(ctx context.Context, m *Marks) error {
	for {
		page, through, err := r.Policy.TenantChanges(ctx, m.Change, policystore.MaxPage)
		sound, err := r.sound(page, err)
		if err != nil {
			return err
		}
		m.Change = through
		if err := r.all(ctx, sound, nil); err != nil {
			return err
		}
		if len(page) < policystore.MaxPage {
			return nil
		}
		if err := r.goesOn(ctx); err != nil {
			return err
		}
	}
}

// sweep looks at all tenants after the policy has changed. It takes part of each round, because new usage comes first.
func (r *round) sweep(ctx context.Context, m *Marks) error {
	for begun := time.Now(); m.Sweeping && time.Since(begun) < sweepTime; {
		if err := r.goesOn(ctx); err != nil {
			return err
		}
		var list []limit.Tenant
		for m.Sweeping && len(list) < lookAtOnce {
			page, err := r.Policy.TenantPage(ctx, m.Sweep, policystore.MaxPage)
			sound, err := r.sound(page, err)
			if err != nil {
				return err
			}
			list = append(list, sound...)
			if len(page) > 0 {
				m.Sweep = page[len(page)-1].ID
			}
			m.Sweeping = len(page) == policystore.MaxPage
		}
		if err := r.all(ctx, list, nil); err != nil {
			return err
		}
	}
	return nil
}

// tenants looks at tenants by id; first is the earliest new slot of each.
func (r *round) tenants(ctx context.Context, ids []string, first map[string]int64) error {
	for some := range slices.Chunk(ids, lookAtOnce) {
		if err := r.goesOn(ctx); err != nil {
			return err
		}
		list, err := r.Policy.Tenants(ctx, some)
		if list, err = r.sound(list, err); err != nil {
			return err
		}
		if err := r.all(ctx, list, first); err != nil {
			return err
		}
	}
	return nil
}

// sound are the tenants that can be looked at. A tenant that this server cannot make out must not hold up others.
func (r *round) sound(list []limit.Tenant, err error) ([]limit.Tenant, error) {
	var faulty policystore.FaultyTenants
	if !errors.As(err, &faulty) {
		return list, err
	}
	return slices.DeleteFunc(slices.Clone(list), func(t limit.Tenant) bool {
		if faulty[t.ID] != nil {
			r.Failed(t.ID, faulty[t.ID])
		}
		return faulty[t.ID] != nil
	}), nil
}
