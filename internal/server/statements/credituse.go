package statements

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// wouldUse refuses a credit that no statement would use, unless it was given already.
func (s *Service) wouldUse(ctx context.Context, c *terms.Credit) error {
	subscriber, err := s.policy.Subscriber(ctx, c.Tenant)
	if err != nil {
		return err
	}
	all, err := s.policy.Credits(ctx, c.Tenant)
	if err != nil || slices.ContainsFunc(all, func(o terms.Credit) bool { return o.ID == c.ID }) {
		return err // the same one again is answered as before
	}
	if err := s.paysSome(ctx, &subscriber); err != nil {
		return err
	}
	return s.paysIn(ctx, &subscriber, c.Currency)
}

// paysSome refuses a tenant that pays for nothing from the present period on. It has been deleted, or others pay for
// it.
func (s *Service) paysSome(ctx context.Context, of *terms.Subscriber) error {
	c, err := s.course(ctx, of)
	if err != nil {
		return err
	}
	now := s.now().Unix()
	if c.home.Pays(of, c.at(now).From) {
		return nil
	}
	if ended := of.Ended(); ended != 0 {
		return fmt.Errorf("%w: tenant %s was deleted at %s, and would never use a credit", fault.ErrInvalid, of.ID, time.Unix(ended, 0).UTC().Format(time.RFC3339))
	}
	above, err := s.policy.Payers(ctx, of.ID)
	if err != nil {
		return err
	}
	payer, _ := above.At(of.ID, now)
	return fmt.Errorf("%w: its parent pays for tenant %s, whose usage is on %s's statements: give the credit to %s", fault.ErrInvalid, of.ID, payer, payer)
}

// paysIn refuses a currency that no plan has been priced in since the tenant began. A statement uses only credits in
// its own currency, so a credit in another would never be used.
func (s *Service) paysIn(ctx context.Context, subscriber *terms.Subscriber, currency string) error {
	tenant := subscriber.ID
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
