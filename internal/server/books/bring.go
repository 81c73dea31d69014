package books

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

const (
	// maxBroughtVersions bounds the policy versions of one backfill, each of which is read whole.
	maxBroughtVersions = 64
	// maxBroughtTold is how many refused rows an error names.
	maxBroughtTold = 10
)

// bringing judges rows that a person wrote, more strictly than the ledger judges an agent's rows. An agent cannot
// misspell a limit, and reports no usage from before its tenant existed. A person can, and the row would be in the
// ledger and on no statement.
type bringing struct {
	store    policystore.Store
	versions []billing.Version // that ever were in force, without prices
	tenants  map[string]*broughtTenant
	policies map[int64]*limit.Policy
}

// broughtTenant is what a tenant's rows are checked against.
type broughtTenant struct {
	terms.Subscriber // without subscriptions where nobody made it
	inForce          func(slot int64) (plan string, version int64)
	overrides        []limit.Limit
	faulty           bool // its overrides cannot be made out
}

// bring fills in, where rows name none, the policy version in force in their slot and the plan that their tenant had
// then. It refuses rows that no statement would show as they are meant. Errors wrap fault.ErrInvalid, and say which
// rows.
func (s *Service) bring(ctx context.Context, rows []ledger.Row) error {
	if _, err := s.policy.MakePlanChanges(ctx); err != nil { // as for a statement
		return err
	}
	b := &bringing{store: s.policy, policies: make(map[int64]*limit.Policy)}
	var err error
	if b.versions, err = s.versions.Versions(ctx); err != nil {
		return err
	}
	if err := b.readTenants(ctx, rows); err != nil {
		return err
	}
	var refused []string
	for i := range rows {
		err := b.judge(ctx, &rows[i])
		switch {
		case err == nil:
		case !errors.Is(err, fault.ErrInvalid):
			return err
		case len(rows) == 1:
			return err
		default:
			refused = append(refused, fmt.Sprintf("row %d: %s", i+1, strings.TrimPrefix(err.Error(), fault.ErrInvalid.Error()+": ")))
		}
	}
	if n := len(refused); n > 0 {
		return fmt.Errorf("%w: %d of %d rows are refused, and nothing was changed: %s", fault.ErrInvalid, n, len(rows), strings.Join(refused[:min(n, maxBroughtTold)], "; "))
	}
	return nil
}

func (b *bringing) readTenants(ctx context.Context, rows []ledger.Row) error {
	b.tenants = make(map[string]*broughtTenant)
	var ids []string
	for i := range rows {
		if id := rows[i].Tenant; b.tenants[id] == nil {
			b.tenants[id] = &broughtTenant{}
			ids = append(ids, id)
		}
	}
	standings, err := b.store.Standings(ctx, ids)
	if err != nil {
		return err
	}
	tenants, err := b.store.Tenants(ctx, ids)
	var faulty policystore.FaultyTenants
	if err != nil && !errors.As(err, &faulty) {
		return err
	}
	for i, id := range ids {
		t := b.tenants[id]
		t.Subscriber, t.overrides, t.faulty = standings[i].Subscriber, tenants[i].Overrides, faulty[id] != nil
		t.inForce = billing.InForce(t.Subscriptions, b.versions)
	}
	return nil
}

// judge completes a row, or says why it is refused.
func (b *bringing) judge(ctx context.Context, row *ledger.Row) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{fault.ErrInvalid}, args...)...)
	}
	t := b.tenants[row.Tenant]
	slot := time.Unix(row.Slot, 0).UTC().Format(time.RFC3339)
	if len(t.Subscriptions) > 0 {
		if began := t.Subscriptions[0].From / 3600 * 3600; row.Slot < began { // as billing has it: its first plan begins with the hour
			return refuse("tenant %s began at %s, and slot %s is before: no statement would have it", limit.Quote(row.Tenant),
				time.Unix(began, 0).UTC().Format(time.RFC3339), slot)
		}
	}
	if ended := t.Ended(); ended != 0 && row.Slot >= ended {
		return refuse("tenant %s was deleted at %s, and slot %s is after: no statement would have it", limit.Quote(row.Tenant),
			time.Unix(ended, 0).UTC().Format(time.RFC3339), slot)
	}
	plan, inForce := t.inForce(row.Slot)
	if row.Version == 0 {
		if row.Version = inForce; inForce == 0 {
			return refuse("no policy was in force at %s; give the version that the usage is to be priced by", slot)
		}
	}
	p, err := b.policy(ctx, row.Version)
	if err != nil {
		return err
	}
	if len(t.Subscriptions) == 0 {
		if plan = p.DefaultPlan; plan == "" {
			return refuse("there is no tenant %s, and version %d has no default plan", limit.Quote(row.Tenant), row.Version)
		}
	}
	switch {
	case row.Plan == "":
		row.Plan = plan
	case p.Plan(row.Plan) == nil:
		return refuse("there is no plan %s in version %d", limit.Quote(row.Plan), row.Version)
	}
	plan = row.Plan
	limits := slices.Concat(t.overrides, p.Limits)
	if of := p.Plan(plan); of != nil {
		limits = append(limits, of.Limits...)
	}
	var names, meters []string // of other limits, and of this one in other places
	for i := range limits {
		l := &limits[i]
		switch {
		case l.Name != row.Limit:
			names = append(names, l.Name)
		case l.Meter != row.Meter:
			meters = append(meters, limit.Quote(l.Meter))
		default:
			return checkAttributes(l, row)
		}
	}
	switch {
	case t.faulty:
		return nil // an override may have any name, and feed any meter
	case len(meters) > 0 && row.Meter == "":
		return refuse("its meter is empty, and limit %s feeds %s: nothing would be billed", limit.Quote(row.Limit), meters[0])
	case len(meters) > 0:
		return refuse("its meter is %s, and limit %s feeds %s in version %d", limit.Quote(row.Meter), limit.Quote(row.Limit), meters[0], row.Version)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return refuse("tenant %s has no limit %s in version %d under plan %s; it has %s", limit.Quote(row.Tenant), limit.Quote(row.Limit), row.Version,
		limit.Quote(plan), strings.Join(names, ", "))
}

// checkAttributes requires that a row's attributes, if it has any, are the limit's.
func checkAttributes(l *limit.Limit, row *ledger.Row) error {
	if row.Attributes == "" {
		return nil
	}
	by := slices.DeleteFunc(slices.Clone(l.By), func(name string) bool { return name == limit.AttrTenant }) // which is the row's
	for _, pair := range strings.Split(row.Attributes, ledger.AttributeSep) {
		name, _, ok := strings.Cut(pair, "=")
		is := func(by string) bool { return by == name || strings.HasPrefix(by, name+"/") } // ip/24 is called ip
		if !ok || !slices.ContainsFunc(by, is) {
			return fmt.Errorf("%w: attribute %s is none of limit %s, which has those of %s", fault.ErrInvalid, limit.Quote(pair), limit.Quote(l.Name), strings.Join(by, ", "))
		}
	}
	return nil
}

// policy is a version that was in force. Errors wrap fault.ErrInvalid where it never was.
func (b *bringing) policy(ctx context.Context, number int64) (*limit.Policy, error) {
	if p := b.policies[number]; p != nil {
		return p, nil
	}
	if len(b.policies) == maxBroughtVersions {
		return nil, fmt.Errorf("%w: these rows are of more than %d policy versions; bring them in by several calls", fault.ErrInvalid, maxBroughtVersions)
	}
	v, err := billedBy(ctx, b.store, number)
	if errors.Is(err, policystore.ErrNotFound) {
		return nil, fmt.Errorf("%w: there is no policy version %d", fault.ErrInvalid, number)
	}
	if err != nil {
		return nil, err
	}
	doc, err := policy.Parse(v.File, []byte(v.Text))
	if err != nil {
		return nil, fmt.Errorf("policy version %d cannot be read by this server: %s", number, err.Error()) // its text: this is not the caller's document
	}
	b.policies[number] = doc.Policy(number)
	return b.policies[number], nil
}

// billedBy returns a policy version that usage is billed by. Errors wrap policystore.ErrNotFound without it. They wrap
// fault.ErrInvalid if it was only a shadow: its usage would vanish.
func billedBy(ctx context.Context, store policystore.Store, number int64) (v policystore.Version, err error) {
	if number < 1 { // 0 would be the one in force
		return v, fmt.Errorf("%w: version %d", policystore.ErrNotFound, number)
	}
	if v, err = store.Version(ctx, number); err == nil && v.Shadow {
		err = fmt.Errorf("%w: policy version %d was only tried beside another, and nothing is billed by it", fault.ErrInvalid, number)
	}
	return v, err
}
