package statements

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// longCall is after how long a call over many tenants stops and returns where it is.
const longCall = 15 * time.Second

// dueOptions say how the periods that are due are closed.
type dueOptions struct {
	grace  time.Duration
	force  string
	dryRun bool
}

// due is the outcome for one period that was to be closed: its statement, or why it was not.
type due struct {
	tenant    string
	period    billing.Period
	statement *quotav1.Statement
	why       error
}

// CloseDue closes what is due of some tenants.
func (s *Service) CloseDue(ctx context.Context, req *quotav1.CloseDueRequest) (*quotav1.CloseDueResponse, error) {
	resp := &quotav1.CloseDueResponse{}
	o := dueOptions{time.Duration(req.GraceMs) * time.Millisecond, req.ForceReason, req.DryRun}
	looked, next, err := s.tenants(ctx, req.PageToken, int(req.PageSize), func(tenant string) error {
		return s.closeDue(ctx, authn.PrincipalOf(ctx).Name, tenant, &o, func(d *due) {
			if d.why != nil {
				resp.Refused = append(resp.Refused, &quotav1.CloseRefusal{Tenant: d.tenant, Period: d.period.Name, Reason: d.why.Error()})
				return
			}
			d.statement.Document = ""
			resp.Closed = append(resp.Closed, d.statement)
		})
	})
	resp.Tenants, resp.NextPageToken = int32(looked), next
	return resp, err
}

// tenants calls do for each tenant with an id above after, in order. It stops at the last one, after n (0: the usual
// page), or once longCall has passed. next is where to go on, empty at the end.
func (s *Service) tenants(ctx context.Context, after string, n int, do func(tenant string) error) (looked int, next string, err error) {
	if n == 0 {
		n = wire.DefaultPage
	}
	list, err := s.policy.TenantPage(ctx, after, n)
	var faulty policystore.FaultyTenants // all are there, and their overrides do not matter here
	if err != nil && !errors.As(err, &faulty) {
		return 0, "", err
	}
	begun := time.Now()
	for i := range list {
		if err := do(list[i].ID); err != nil {
			return looked, "", fmt.Errorf("tenant %s: %w", list[i].ID, err)
		}
		looked++
		if next = list[i].ID; time.Since(begun) > longCall {
			return looked, next, nil
		}
	}
	if len(list) < min(n, policystore.MaxPage) {
		next = ""
	}
	return looked, next, nil
}

// dueTries is how often closing is tried for a period that changes meanwhile. If another closes it, that is over at
// once; anything that repeats is a fault.
const dueTries = 3

// closeDue closes all of a tenant's periods that are due, one after another, until one is refused. tell reports a
// refusal, which concerns this tenant alone. A period that another caller closes meanwhile counts as closed. An error
// concerns no tenant: the stores do not answer, or the caller has gone.
func (s *Service) closeDue(ctx context.Context, actor, tenant string, o *dueOptions, tell func(*due)) error {
	refuse := func(d *due) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if errors.Is(d.why, fault.ErrUnavailable) {
			return d.why
		}
		tell(d)
		return nil
	}
	tried, period := 0, billing.Period{}
	for ctx.Err() == nil {
		d := &due{tenant: tenant}
		subscriber, err := s.policy.Subscriber(ctx, tenant)
		if err != nil {
			d.why = err
			return refuse(d)
		}
		c, err := s.course(ctx, &subscriber)
		if err != nil {
			d.why = err
			return refuse(d)
		}
		if !c.pays { // it is on others'
			return nil
		}
		if c.next.To > s.now().Add(-o.grace).Unix() {
			return nil
		}
		if ended := subscriber.Ended(); ended != 0 && c.next.From >= ended { // deleted: its last statements are those of late usage
			last, err := s.draft(ctx, tenant, func(c *course, _ int64) (billing.Period, error) { return c.next, nil })
			if err == nil && last.Statement != nil && len(last.Lines) == 0 && len(last.withheld) == 0 {
				return nil
			}
		}
		if d.period = c.next; d.period != period {
			tried, period = 0, d.period
		}
		if o.dryRun {
			d.statement, d.why = s.wouldClose(ctx, tenant, c.next.Name, o.force)
		} else {
			d.statement, d.why = s.close(ctx, actor, tenant, c.next.Name, o.force)
		}
		tried++
		switch {
		case errors.Is(d.why, fault.ErrConflict) && tried < dueTries:
			continue // something changed under it
		case d.why != nil:
			return refuse(d)
		}
		tell(d)
		if o.dryRun {
			return nil // the periods after it are drafted when it is closed
		}
	}
	return ctx.Err()
}

// wouldClose is what close would, without closing.
func (s *Service) wouldClose(ctx context.Context, tenant, period, force string) (*quotav1.Statement, error) {
	d, err := s.draft(ctx, tenant, func(c *course, _ int64) (billing.Period, error) { return c.named(period) })
	if err != nil {
		return nil, err
	}
	if d.closed != nil {
		return closedToProto(d.closed)
	}
	if err := d.mayClose(s.now(), force); err != nil {
		return nil, err
	}
	return d.toProto()
}
