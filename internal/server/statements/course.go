package statements

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// course is where a tenant's periods stand.
type course struct {
	cycle  billing.Cycle
	closed []terms.Closed // newest first
	next   billing.Period // the one to close next; none where it never pays
	home   terms.Household
	begins int64 // the first slot that it pays for
	pays   bool  // for any slot, its own or another's
}

func (s *Service) course(ctx context.Context, sub *terms.Subscriber) (*course, error) {
	var closed []terms.Closed
	for before := int64(0); ; {
		page, err := s.policy.Statements(ctx, sub.ID, before, policystore.MaxPage)
		if err != nil {
			return nil, err
		}
		closed = append(closed, page...)
		if len(page) < policystore.MaxPage {
			break
		}
		before = page[len(page)-1].Number
	}
	home, err := s.policy.Household(ctx, sub.ID)
	if err != nil {
		return nil, err
	}
	return courseAfter(sub, home, closed)
}

// courseAfter is the state of a tenant's periods after its last statements. Before any, they begin with the first slot
// that it pays for, its own or a member's.
func courseAfter(sub *terms.Subscriber, home terms.Household, closed []terms.Closed) (*course, error) {
	c := &course{closed: closed, home: home}
	c.begins, c.pays = home.Begins(sub)
	var err error
	if c.cycle, err = sub.Cycle(); err != nil {
		return nil, err
	}
	if len(c.closed) == 0 {
		if c.pays {
			c.next = c.cycle.At(c.begins)
		}
		return c, nil
	}
	// It begins where the last one ended, wherever the edges are now. The rules of a time zone change, and a gap would
	// never be billed.
	last := c.closed[0].Period
	if c.next = c.cycle.At(last.To); c.next.Name <= last.Name {
		c.next = c.cycle.At(c.next.To)
	}
	c.next.From = last.To
	return c, nil
}

// named is a period by its name.
func (c *course) named(name string) (billing.Period, error) {
	if name == c.next.Name {
		return c.next, nil
	}
	return c.cycle.Named(name)
}

// at is the period that t is in.
func (c *course) at(t int64) billing.Period {
	if c.next.Has(t) {
		return c.next
	}
	return c.cycle.At(t)
}

// PeriodAt is the billing period that a time is in, for a tenant. It is the period of the tenant's payer at that time.
func (s *Service) PeriodAt(ctx context.Context, tenant string, at time.Time) (p billing.Period, err error) {
	payers, err := s.policy.Payers(ctx, tenant)
	if err != nil {
		return p, err
	}
	payer, _ := payers.At(tenant, at.Unix())
	subscriber, err := s.policy.Subscriber(ctx, payer)
	if err != nil {
		return p, err
	}
	c, err := s.course(ctx, &subscriber)
	if err != nil {
		return p, err
	}
	return c.at(at.Unix()), nil
}
