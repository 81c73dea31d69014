package statements

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/rpc"
)

// lateSpending is how many periods before the present one are worked out for new usage. Usage of a period's last
// minutes comes after its end; older usage belongs to an adjustment.
const lateSpending = 1

// spell is a period of a tenant whose spending is worked out.
type spell struct {
	of      *alert.Spender
	current bool
	in      *billing.Input
}

// Spending is the cost of tenants' usage in the present period. It includes the period before if that has new usage and
// its statement is not closed. It counts a preview's lines of usage and overage, less what credits pay beyond the fee
// and the minimum. The fee, the minimum and adjustments are left out, because usage makes none of them grow. It reads
// roll-ups, and the same code rates them.
func (s *Service) Spending(ctx context.Context, all []alert.Spender, sum alert.Sum) error {
	shadows, err := s.policy.Shadows(ctx)
	if err != nil {
		return err
	}
	now := s.now().Unix()
	known := make(map[billing.Period][]billing.Version) // many tenants have one period
	var spells []spell
	var asks []alert.Ask
	for i := range all {
		t := &all[i]
		c, err := courseAfter(&t.Subscriber, terms.Household{}, t.Closed) // its own usage, whoever pays
		if err != nil {
			t.Err = err
			continue
		}
		for _, p := range c.spells(now, t.First, t.Subscriptions[0].From) {
			in := &billing.Input{Tenant: t.ID, Cycle: c.cycle, Period: p, Subscriptions: t.Subscriptions}
			if p == c.next {
				for i := range t.Credits {
					in.Credits = append(in.Credits, t.Credits[i].Billing())
				}
			}
			versions, ok := known[p]
			if !ok {
				if versions, err = s.prices.during(ctx, []billing.Period{p}, nil); err != nil {
					return err
				}
				known[p] = versions
			}
			in.Versions = versions
			spells = append(spells, spell{t, p.Has(now), in})
			asks = append(asks, alert.Ask{Tenant: t.ID, Query: ledger.HourlyQuery{From: p.From, To: p.To, Metered: true, Edges: in.Edges(), Except: shadows}})
		}
	}
	answers, err := sum(ctx, asks)
	if err != nil {
		return err
	}
	for i, p := range spells {
		if p.of.Err != nil {
			continue
		}
		spent := alert.Spent{Period: p.in.Period, Current: p.current}
		err := answers[i].Err
		if err == nil {
			spent.Charges, err = s.charges(ctx, p.in, answers[i].Sums)
		}
		if err != nil {
			err = fmt.Errorf("period %s of tenant %s: %w", p.in.Period.Name, p.of.ID, rpc.LedgerError(err))
			if ctx.Err() != nil || errors.Is(err, fault.ErrUnavailable) {
				return err
			}
			p.of.Err = err
			continue
		}
		p.of.Spent = append(p.of.Spent, spent)
	}
	return nil
}

// spells are the periods whose spending counts now, oldest first. They are the present one, and earlier ones with a new
// slot that are not closed.
func (c *course) spells(now, first, began int64) []billing.Period {
	periods := []billing.Period{c.at(now)}
	for len(periods) <= lateSpending && first < periods[0].From && periods[0].From > began {
		periods = slices.Insert(periods, 0, c.at(periods[0].From-1))
	}
	return slices.DeleteFunc(periods, func(p billing.Period) bool {
		return slices.ContainsFunc(c.closed, func(closed terms.Closed) bool { return closed.Period.Name == p.Name })
	})
}

// charges is the cost of usage, by currency.
func (s *Service) charges(ctx context.Context, in *billing.Input, sums []ledger.HourlySum) (map[string]int64, error) {
	var besides []int64 // versions that did not hold in the period
	for _, h := range sums {
		in.Usage = append(in.Usage, billing.Usage{
			Slot: h.Start, Version: h.Version, Plan: h.Plan, Units: billing.Units{Meter: h.Meter, Admitted: h.Admitted, Overage: h.Overage},
		})
		if !slices.ContainsFunc(in.Versions, func(v billing.Version) bool { return v.Number == h.Version }) {
			besides = append(besides, h.Version)
		}
	}
	if len(besides) > 0 {
		var err error
		if in.Versions, err = s.prices.during(ctx, []billing.Period{in.Period}, besides); err != nil {
			return nil, err
		}
	}
	statement, err := billing.Rate(in)
	if err != nil {
		return nil, err
	}
	charges, rest := make(map[string]int64), make(map[string]int64)
	for _, l := range statement.Lines {
		switch l.Kind {
		case billing.KindUsage, billing.KindOverage:
			charges[l.Currency] += l.Amount
		case billing.KindCarried: // of nothing that is charged here
		default: // the fee and the minimum, less what credits pay: they pay these first
			rest[l.Currency] += l.Amount
		}
	}
	for currency := range charges {
		charges[currency] = max(0, charges[currency]+min(0, rest[currency]))
	}
	return charges, nil
}
