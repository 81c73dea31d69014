package statements

import (
	"context"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/terms"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Simulate prices past periods twice.
func (s *Service) Simulate(ctx context.Context, req *quotav1.SimulateRequest) (*quotav1.SimulateResponse, error) {
	if _, err := s.policy.MakePlanChanges(ctx); err != nil { // as for a statement
		return nil, err
	}
	prices, err := s.tried(ctx, req)
	if err != nil {
		return nil, err
	}
	t := &trial{prices: prices, plan: req.Plan, tenant: req.Tenant, periods: int(max(req.Periods, 1))}
	resp := &quotav1.SimulateResponse{}
	if req.Tenant != "" {
		return resp, s.simulatePayers(ctx, t, resp)
	}
	_, resp.NextPageToken, err = s.tenants(ctx, req.PageToken, int(req.PageSize), func(tenant string) error {
		subscriber, err := s.policy.Subscriber(ctx, tenant)
		if err != nil {
			return err
		}
		return s.simulate(ctx, &subscriber, t, resp)
	})
	return resp, err
}

// trial is the prices of the second run.
type trial struct {
	prices  map[string]*billing.Price // by plan
	plan    string                    // in the place of what tenants had; empty for none
	tenant  string                    // whose plan alone it is; empty for all
	periods int                       // how many
}

// takes replaces a tenant's plans and prices by the trial's.
func (t *trial) takes(in *billing.Input) {
	// No usage names this version. So all of it is priced by the version in force, which is only this one.
	in.Versions = []billing.Version{{Number: 1 << 62, Prices: t.prices}}
	if t.plan != "" && (t.tenant == "" || t.tenant == in.Tenant) {
		had := billing.Subscription{Plan: t.plan, From: in.Subscriptions[0].From}
		if last := in.Subscriptions[len(in.Subscriptions)-1]; last.Plan == "" { // deleted
			had.To = last.From
		}
		in.Subscriptions = []billing.Subscription{had}
		for i := range in.Usage {
			in.Usage[i].Plan = "" // as if it had been admitted under that plan
		}
	}
	for i := range in.Members {
		t.takes(&in.Members[i])
	}
}

// simulatePayers adds the statements on which a tenant's usage stands: those of all who ever paid for it.
func (s *Service) simulatePayers(ctx context.Context, t *trial, resp *quotav1.SimulateResponse) error {
	if _, err := s.policy.Subscriber(ctx, t.tenant); err != nil { // there is none
		return err
	}
	payers, err := s.policy.Payers(ctx, t.tenant)
	if err != nil {
		return err
	}
	done := make(map[string]bool)
	for _, part := range payers.Of(t.tenant) {
		if done[part.Payer] {
			continue
		}
		done[part.Payer] = true
		subscriber, err := s.policy.Subscriber(ctx, part.Payer)
		if err != nil {
			return err
		}
		if err := s.simulate(ctx, &subscriber, t, resp); err != nil {
			return err
		}
	}
	return nil
}

// covers reports whether a statement has usage of the tenant whose plan is tried.
func (t *trial) covers(in *billing.Input) bool {
	if t.tenant == "" || t.tenant == in.Tenant && in.Pays(in.Period) {
		return true
	}
	return slices.ContainsFunc(in.Members, func(m billing.Input) bool { return m.Tenant == t.tenant && m.Pays(m.Period) })
}

// tried are the prices that are tried, by plan.
func (s *Service) tried(ctx context.Context, req *quotav1.SimulateRequest) (map[string]*billing.Price, error) {
	file, text := req.File, req.Document
	if text == "" {
		v, err := s.policy.Version(ctx, 0)
		if err != nil {
			return nil, err
		}
		file, text = v.File, v.Text
	}
	doc, err := policy.Parse(file, []byte(text))
	if err != nil {
		return nil, err
	}
	if req.Plan != "" && doc.Policy(0).Plan(req.Plan) == nil {
		return nil, fmt.Errorf("%w: the policy has no plan %s", fault.ErrInvalid, limit.Quote(req.Plan))
	}
	return pricesOf(doc), nil
}

// simulate adds the last periods that have ended of a paying tenant, the oldest first. Each holds what the statement
// comes to, with all members.
func (s *Service) simulate(ctx context.Context, subscriber *terms.Subscriber, t *trial, resp *quotav1.SimulateResponse) error {
	c, err := s.course(ctx, subscriber)
	if err != nil {
		return err
	}
	if !c.pays {
		return nil // it is on others'
	}
	var periods []billing.Period
	begun, p := c.begins, c.at(s.now().Unix())
	for range t.periods {
		if p = c.at(p.From - 1); p.To <= begun {
			break
		}
		periods = append(periods, p)
	}
	slices.Reverse(periods)
	for _, p := range periods {
		in := &billing.Input{Tenant: subscriber.ID, Cycle: c.cycle, Period: p, Subscriptions: subscriber.Subscriptions}
		if _, err := s.together(ctx, in, &c.home); err != nil {
			return err
		}
		if !t.covers(in) {
			continue
		}
		was, err := billing.Rate(in)
		if err != nil {
			return statementError(err)
		}
		t.takes(in)
		wouldBe, err := billing.Rate(in)
		if err != nil {
			return statementError(err)
		}
		resp.Periods = append(resp.Periods, compared(subscriber.ID, p.Name, was, wouldBe)...)
	}
	return nil
}

// compared puts the totals of two statements side by side, by currency.
func compared(tenant, period string, was, wouldBe *billing.Statement) (all []*quotav1.SimulatedPeriod) {
	sums := map[string][2]int64{}
	for i, s := range []*billing.Statement{was, wouldBe} {
		for _, t := range s.Totals {
			sum := sums[t.Currency]
			sum[i] = t.Total
			sums[t.Currency] = sum
		}
	}
	var currencies []string
	for currency := range sums {
		currencies = append(currencies, currency)
	}
	slices.Sort(currencies)
	for _, currency := range currencies {
		text := func(n int64) string { return billing.Money{Amount: n, Currency: currency}.String() }
		n := sums[currency]
		all = append(all, &quotav1.SimulatedPeriod{
			Tenant: tenant, Period: period, Currency: currency, Was: n[0], WouldBe: n[1],
			WasText: text(n[0]), WouldBeText: text(n[1]), DifferenceText: text(n[1] - n[0]),
		})
	}
	return all
}
