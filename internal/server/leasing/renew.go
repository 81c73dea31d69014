package leasing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// stepTimeout bounds the lease store's part of a call. By default an agent waits no longer for the call.
const stepTimeout = 2 * time.Second

// renewBudget counts buckets renewed and tenants asked for. A gateway of 10,000 tenants that starts uses a tenth of it.
// It also bounds the buckets that one key can create in the lease store.
var renewBudget = authn.Allowance{Burst: 250_000, Rate: 50_000, What: "renewals and tenants"}

// Renew answers renewals of many buckets in one batch to the lease store.
func (s *Service) Renew(ctx context.Context, req *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	if err := authn.SpeaksFor(ctx, req.Agent); err != nil {
		return nil, err
	}
	if err := s.renewing.Take(authn.PrincipalOf(ctx), req.Agent, len(req.Renewals)+len(req.Tenants)); err != nil {
		return nil, err
	}
	now := s.view.Current()
	if now.Rules == nil {
		return nil, s.view.UnknownPolicy()
	}
	if req.PolicyVersion > now.Version() {
		s.view.Wake() // another server told the agent first
	}
	wrong := wrongRenewals(req)
	asked, wrong := s.narrow(ctx, now, req, wrong)
	who := s.tenantsOf(ctx, req, asked, wrong)
	resp := &quotav1.RenewResponse{
		Grants:        make([]*quotav1.Grant, len(req.Renewals)),
		Tenants:       make([]*quotav1.Tenant, len(req.Tenants)),
		PolicyVersion: now.Version(),
		Agents:        s.fleet.hear(req.Agent, time.Now()),
	}
	for i, id := range req.Tenants {
		if id == "" || asked != nil && asked[i] == authn.Undecided {
			resp.Tenants[i] = &quotav1.Tenant{}
			continue
		}
		if asked != nil && asked[i] == authn.Outside {
			resp.Tenants[i] = &quotav1.Tenant{Id: id} // as one that there is not
			continue
		}
		r := who.of(id)
		if r.Err != nil {
			resp.Tenants[i] = &quotav1.Tenant{} // without an id: not known now, ask again
			continue
		}
		resp.Tenants[i] = wire.TenantToProto(r.Tenant)
	}
	by := authn.PrincipalOf(ctx)
	s.holders.note(ledger.Hold{Epoch: ledger.Epoch{Agent: req.Agent, Epoch: req.Epoch}, Tenants: mayUse(req, &who), Key: by.Key()})
	s.grant(ctx, req, now, &who, wrong, resp)
	return resp, nil
}

// mayUse returns the tenants of which the agent may have usage once it has the answer. Limits without a rate need no
// lease, so knowing a tenant's rules suffices. The empty tenant stands for usage without a tenant.
func mayUse(req *quotav1.RenewRequest, who *tenantsByID) []string {
	tenants := make([]string, 0, len(who.places)+1)
	for id, at := range who.places {
		if r := &who.all[at]; r.Err == nil && len(r.Rules) > 0 {
			tenants = append(tenants, id)
		}
	}
	for _, r := range req.Renewals {
		if r.Tenant == "" && !r.Final {
			return append(tenants, "")
		}
	}
	return tenants
}

// wrongRenewals returns the renewals that break a bound, by their places, with their faults. They hold back no other
// renewal of the call: an agent asks for hundreds of buckets at once, and repeats its requests.
func wrongRenewals(req *quotav1.RenewRequest) map[int]error {
	var wrong map[int]error
	for i, r := range req.Renewals {
		if err := wire.CheckRenewal(r); err != nil {
			if wrong == nil {
				wrong = make(map[int]error)
			}
			wrong[i] = err
		}
	}
	return wrong
}

// tenantsOf resolves every tenant that the call names, each once. It leaves out tenants of wrong renewals, and tenants
// asked for that the key does not cover.
func (s *Service) tenantsOf(ctx context.Context, req *quotav1.RenewRequest, asked []authn.Reach, wrong map[int]error) tenantsByID {
	most := len(req.Tenants) + len(req.Renewals)
	who := tenantsByID{places: make(map[string]int, most)}
	ids := make([]string, 0, most)
	ask := func(id string) {
		if _, ok := who.places[id]; !ok && id != "" {
			who.places[id] = len(ids)
			ids = append(ids, id)
		}
	}
	for i, id := range req.Tenants {
		if asked == nil || asked[i] == authn.Within || asked[i] == authn.Above {
			ask(id)
		}
	}
	for i, r := range req.Renewals {
		if wrong[i] == nil {
			ask(r.Tenant)
		}
	}
	who.all = s.view.Tenants(ctx, ids)
	return who
}

// tenantsByID are the tenants that a call names. They are large, so they are not copied.
type tenantsByID struct {
	places map[string]int
	all    []view.Resolved
}

// of returns a tenant that the call names.
func (t *tenantsByID) of(id string) *view.Resolved { return &t.all[t.places[id]] }

// grant fills in the grants.
func (s *Service) grant(ctx context.Context, req *quotav1.RenewRequest, now *view.InForce, who *tenantsByID, wrong map[int]error, resp *quotav1.RenewResponse) {
	holder := holderName(req.Agent, req.Epoch)
	at := s.now()
	renewals := make([]lease.Renewal, 0, len(req.Renewals))
	places := make([]int, 0, len(req.Renewals))
	var inLedger map[int]*limit.Rule // the renewals of windows that the ledger counts
	for i, r := range req.Renewals {
		if err := wrong[i]; err != nil {
			label := "INVALID"
			switch resp.Grants[i] = wire.RefusedToProto(r, err, now.Version()); {
			case errors.Is(err, fault.ErrUnavailable):
				resp.Grants[i].Status, resp.Grants[i].Reason, label = quotav1.Grant_STATUS_UNAVAILABLE, "", rpc.StatusLabel(quotav1.Grant_STATUS_UNAVAILABLE)
			case errors.Is(err, fault.ErrDenied):
				label = "DENIED"
			}
			s.metrics.renewals.WithLabelValues("", label).Inc()
			continue
		}
		rule, status := find(now, who, r)
		if status == quotav1.Grant_STATUS_UNKNOWN && req.PolicyVersion > now.Version() {
			status = quotav1.Grant_STATUS_UNAVAILABLE // it may be known under the agent's newer version
		}
		if rule == nil {
			resp.Grants[i] = &quotav1.Grant{Status: status, Number: r.Number, PolicyVersion: now.Version()}
			s.metrics.renewals.WithLabelValues("", rpc.StatusLabel(status)).Inc()
			continue
		}
		renewal := wire.RenewalFromProto(r)
		renewal.Key = bucketKey(keyName(r), r.Tenant, r.Values)
		renewal.Holder, renewal.Strain = holder, int64(req.Strain)
		renewal.Spec = spec(rule, at)
		if renewal.Spec.Ledgered = ledgered(now, rule, r, &renewal.Spec); renewal.Spec.Ledgered {
			if inLedger == nil {
				inLedger = make(map[int]*limit.Rule)
			}
			inLedger[len(renewals)] = rule
			renewal.Figure = s.figures.of(renewal.Key)
		}
		renewals = append(renewals, renewal)
		places = append(places, i)
	}
	s.metrics.batch.Observe(float64(len(req.Renewals)))
	if len(renewals) == 0 {
		return
	}
	stepCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	start := time.Now()
	answers := s.leases.Renew(stepCtx, renewals)
	if inLedger != nil {
		s.consult(stepCtx, req, inLedger, places, renewals, answers)
	}
	cancel()
	s.metrics.step.Observe(time.Since(start).Seconds())
	s.grants.Answered(req.Agent, req.Epoch, req.Renewals, places, renewals, answers)
	grants := make([]quotav1.Grant, len(places)) // of one call, and at once
	var counts *limitCounts                      // most renewals of a call are of one limit
	var kind limitKind
	for j, i := range places {
		a := answers[j]
		if a.Err != nil {
			a.Grant.Number = req.Renewals[i].Number
			if errors.Is(a.Err, lease.ErrFormat) {
				s.metrics.foreign.Inc()
			}
		}
		g := &grants[j]
		wire.WriteGrant(g, a, now.Version())
		resp.Grants[i] = g
		if of := (limitKind{req.Renewals[i].Limit, kindOf(req.Renewals[i])}); counts == nil || of != kind {
			counts, kind = s.metrics.limits.of(of.limit, of.kind), of
		}
		counts.answered(req.Renewals[i], g, &renewals[j].Spec, &a.Grant)
	}
}

// consult asks the ledger about windows that the lease store would not begin without a figure, and sends these renewals
// once more. Where the store only doubts its figure, a later renewal brings the ledger's.
func (s *Service) consult(ctx context.Context, req *quotav1.RenewRequest, in map[int]*limit.Rule, places []int, renewals []lease.Renewal, answers []lease.Answer) {
	wait, cancel := context.WithTimeout(ctx, figureWait)
	defer cancel()
	var again []lease.Renewal
	var at []int
	doubted := func(j int, doubted bool) {
		s.figures.doubted(renewals[j].Key, func() counted { return countedOf(in[j], req.Renewals[places[j]], &renewals[j].Spec) }, doubted)
	}
	for j := range in {
		if errors.Is(answers[j].Err, lease.ErrUnsure) {
			doubted(j, true) // all of them before the first is waited for
			at = append(at, j)
		} else if answers[j].Err == nil {
			doubted(j, answers[j].Grant.Unsure > 0)
		}
	}
	if len(at) == 0 {
		return
	}
	slices.Sort(at) // of one bucket, in the given order
	for _, j := range at {
		r := renewals[j]
		r.Figure = s.figures.ask(wait, r.Key, countedOf(in[j], req.Renewals[places[j]], &r.Spec))
		again = append(again, r)
	}
	for k, a := range s.leases.Renew(ctx, again) {
		answers[at[k]] = a
		if a.Err == nil {
			doubted(at[k], a.Grant.Unsure > 0)
		}
	}
}

// find returns the rule of a renewal. Without one, the status says why.
func find(now *view.InForce, who *tenantsByID, r *quotav1.Renewal) (*limit.Rule, quotav1.Grant_Status) {
	rules, status := rulesOf(now, who, r)
	for _, rule := range rules {
		if rule.Limit.Name != r.Limit {
			continue
		}
		if r.Kind == quotav1.Renewal_KIND_OVERAGE {
			rule = rule.Overage()
		}
		if rule == nil || rule.Limit.CountsOnly() || rule.Values() != len(r.Values) {
			break
		}
		return rule, quotav1.Grant_STATUS_GRANTED
	}
	return nil, status
}

// rulesOf returns the rules among which the renewal's is sought, and the status if it is not among them.
func rulesOf(now *view.InForce, who *tenantsByID, r *quotav1.Renewal) ([]*limit.Rule, quotav1.Grant_Status) {
	rules := now.Rules
	if r.Shadow {
		rules = now.Shadow
	}
	switch {
	case rules == nil:
		return nil, quotav1.Grant_STATUS_UNKNOWN
	case r.Tenant == "":
		return rules.Top(), quotav1.Grant_STATUS_UNKNOWN
	}
	switch t := who.of(r.Tenant); {
	case t.Err != nil:
		return nil, quotav1.Grant_STATUS_UNAVAILABLE
	case r.Shadow:
		held, _ := rules.Tenant(t.Tenant) // without a plan there, none
		return held, quotav1.Grant_STATUS_UNKNOWN
	default:
		return t.Rules, quotav1.Grant_STATUS_UNKNOWN
	}
}
