package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/policy"
)

// lateSpending is how many periods before the present one are worked out for usage that is
// new: that of their last minutes comes after their end, and older usage is an adjustment's.
const lateSpending = 1

// spending is what a tenant's usage of the present period comes to, and of the one before
// where a slot of it is new and its statement was not closed: what a preview has as lines of
// usage and overage, less what credits pay beyond the fee and the minimum. The fee, the minimum and adjustments are left
// out, for usage makes none of them grow. It reads roll-ups, and is rated by the same code.
func (s *statementService) spending(ctx context.Context, sub *policy.Subscriber, first int64) (all []alert.Spent, err error) {
	// Of its statements only those can matter that are of these periods, and the last.
	closed, err := s.policy.Statements(ctx, sub.ID, 0, lateSpending+2)
	if err != nil {
		return nil, err
	}
	c, err := courseAfter(sub, closed)
	if err != nil {
		return nil, err
	}
	now := s.now().Unix()
	present := c.at(now)
	periods := []billing.Period{present}
	for len(periods) <= lateSpending && first < periods[0].From && periods[0].From > sub.Subscriptions[0].From {
		periods = slices.Insert(periods, 0, c.at(periods[0].From-1))
	}
	for _, p := range periods {
		if slices.ContainsFunc(c.closed, func(closed policy.Closed) bool { return closed.Period.Name == p.Name }) {
			continue
		}
		spent := alert.Spent{Period: p, Current: p == present}
		if spent.Charges, err = s.charges(ctx, sub, c, p); err != nil {
			return nil, fmt.Errorf("period %s: %w", p.Name, err)
		}
		all = append(all, spent)
	}
	return all, nil
}

// charges are a period's, of usage, by currency.
func (s *statementService) charges(ctx context.Context, sub *policy.Subscriber, c *course, p billing.Period) (map[string]int64, error) {
	in := &billing.Input{Tenant: sub.ID, Cycle: c.cycle, Period: p, Subscriptions: sub.Subscriptions}
	if p == c.next {
		credits, err := s.policy.Credits(ctx, sub.ID)
		if err != nil {
			return nil, err
		}
		for i := range credits {
			in.Credits = append(in.Credits, credits[i].Billing())
		}
	}
	shadows, err := s.policy.Shadows(ctx)
	if err != nil {
		return nil, err
	}
	periods := []billing.Period{p}
	if in.Versions, err = s.prices.during(ctx, periods, nil); err != nil {
		return nil, err
	}
	sums, err := s.books.Hourly(ctx, ledger.HourlyQuery{
		Tenant: sub.ID, From: p.From, To: p.To, Metered: true, Edges: in.Edges(), Except: shadows,
	})
	if err != nil {
		return nil, ledgerError(err)
	}
	var versions []int64
	for _, h := range sums {
		in.Usage = append(in.Usage, billing.Usage{
			Slot: h.Start, Version: h.Version, Units: billing.Units{Meter: h.Meter, Admitted: h.Admitted, Overage: h.Overage},
		})
		if !slices.Contains(versions, h.Version) {
			versions = append(versions, h.Version)
		}
	}
	has := func(number int64) bool {
		return slices.ContainsFunc(in.Versions, func(v billing.Version) bool { return v.Number == number })
	}
	if slices.ContainsFunc(versions, func(number int64) bool { return !has(number) }) {
		if in.Versions, err = s.prices.during(ctx, periods, versions); err != nil {
			return nil, err
		}
	}
	statement, err := billing.Rate(in)
	if err != nil {
		return nil, err
	}
	charges, besides := make(map[string]int64), make(map[string]int64)
	for _, l := range statement.Lines {
		switch l.Kind {
		case billing.KindUsage, billing.KindOverage:
			charges[l.Currency] += l.Amount
		default: // the fee and the minimum, less what credits pay: they pay these first
			besides[l.Currency] += l.Amount
		}
	}
	for currency := range charges {
		charges[currency] = max(0, charges[currency]+min(0, besides[currency]))
	}
	return charges, nil
}
