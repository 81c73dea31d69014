package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/fault"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Simulate prices past periods twice.
func (s *statementService) Simulate(ctx context.Context, req *quotav1.SimulateRequest) (*quotav1.SimulateResponse, error) {
	tried, err := s.tried(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.SimulateResponse{}
	one := func(tenant string) error { return s.simulate(ctx, tenant, req, tried, resp) }
	if req.Tenant != "" {
		return resp, one(req.Tenant)
	}
	_, resp.NextAfter, err = s.tenants(ctx, req.After, int(req.PageSize), one)
	return resp, err
}

// tried are the prices that are tried, by plan.
func (s *statementService) tried(ctx context.Context, req *quotav1.SimulateRequest) (map[string]*billing.Price, error) {
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

// simulate adds a tenant's last periods that have ended, the oldest first.
func (s *statementService) simulate(ctx context.Context, tenant string, req *quotav1.SimulateRequest, tried map[string]*billing.Price, resp *quotav1.SimulateResponse) error {
	subscriber, err := s.policy.Subscriber(ctx, tenant)
	if err != nil {
		return err
	}
	c, err := s.course(ctx, &subscriber)
	if err != nil {
		return err
	}
	var periods []billing.Period
	begun, p := subscriber.Subscriptions[0].From, c.at(s.now().Unix())
	for range max(req.Periods, 1) {
		if p = c.at(p.From - 1); p.To <= begun {
			break
		}
		periods = append(periods, p)
	}
	slices.Reverse(periods)
	for _, p := range periods {
		in := &billing.Input{Tenant: tenant, Cycle: c.cycle, Period: p, Subscriptions: subscriber.Subscriptions}
		if _, err := s.usage(ctx, in); err != nil {
			return err
		}
		was, err := billing.Rate(in)
		if err != nil {
			return statementError(err)
		}
		// No usage is of this version: all of it is priced by what holds then, which is it alone.
		in.Versions = []billing.Version{{Number: 1 << 62, Prices: tried}}
		if req.Plan != "" {
			in.Subscriptions = []billing.Subscription{{Plan: req.Plan, From: begun}}
		}
		wouldBe, err := billing.Rate(in)
		if err != nil {
			return statementError(err)
		}
		resp.Periods = append(resp.Periods, compared(tenant, p.Name, was, wouldBe)...)
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
