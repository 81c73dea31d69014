package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/fault"
	"github.com/f4ee788f/quota/internal/limit"
)

// paysIn refuses a currency that no plan has cost since the tenant began: a statement pays
// from credits of its own currency, so that a credit in another would never be used.
func (s *statementService) paysIn(ctx context.Context, tenant, currency string) error {
	subscriber, err := s.policy.Subscriber(ctx, tenant)
	if err != nil {
		return err
	}
	ever := billing.Period{From: subscriber.Subscriptions[0].From, To: 1 << 62}
	versions, err := s.prices.during(ctx, []billing.Period{ever}, nil)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for i := range versions {
		for _, price := range versions[i].Prices {
			if price != nil { // nil says that the plan costs nothing
				known[price.Currency] = true
			}
		}
	}
	switch {
	case known[currency]:
		return nil
	case len(known) == 0:
		return fmt.Errorf("%w: no plan has a price, so that tenant %s would never use a credit", fault.ErrInvalid, limit.Quote(tenant))
	}
	return fmt.Errorf("%w: no plan costs %s, so that tenant %s would never use the credit; plans cost %s", fault.ErrInvalid, currency, limit.Quote(tenant),
		strings.Join(slices.Sorted(maps.Keys(known)), ", "))
}
