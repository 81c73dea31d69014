package server

import (
	"context"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/fault"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// SetTenantPlan changes a tenant's plan, now or when its time comes.
func (s *adminService) SetTenantPlan(ctx context.Context, req *quotav1.SetTenantPlanRequest) (*quotav1.Tenant, error) {
	actor := principalOf(ctx).name
	at := moment(req.AtMs)
	if req.AtPeriodEnd {
		if req.AtMs != 0 {
			return nil, fmt.Errorf("%w: at_ms and at_period_end are two times; give one", fault.ErrInvalid)
		}
		p, err := s.periodAt(ctx, req.Id, s.now())
		if err != nil {
			return nil, err
		}
		at = time.Unix(p.To, 0)
	}
	if at.IsZero() {
		t, err := s.store.SetTenantPlan(ctx, actor, req.Id, req.Plan)
		return s.tenant(ctx, t, err)
	}
	t, err := s.store.SchedulePlan(ctx, actor, req.Id, req.Plan, at)
	return s.tenant(ctx, t, err)
}

// CancelPlanChange takes a change back that has not come yet.
func (s *adminService) CancelPlanChange(ctx context.Context, req *quotav1.CancelPlanChangeRequest) (*quotav1.Tenant, error) {
	t, err := s.store.UnschedulePlan(ctx, principalOf(ctx).name, req.Id, time.UnixMilli(req.AtMs))
	return s.tenant(ctx, t, err)
}

// ListPlanChanges tells which plan a tenant had when, and will have.
func (s *adminService) ListPlanChanges(ctx context.Context, req *quotav1.ListPlanChangesRequest) (*quotav1.ListPlanChangesResponse, error) {
	subscriber, err := s.store.Subscriber(ctx, req.Tenant)
	if err != nil {
		return nil, err
	}
	waiting, err := s.store.PlanChanges(ctx, req.Tenant)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListPlanChangesResponse{}
	for _, had := range subscriber.Subscriptions {
		resp.Changes = append(resp.Changes, &quotav1.PlanChange{Plan: had.Plan, FromMs: 1000 * had.From})
	}
	for _, c := range waiting {
		resp.Changes = append(resp.Changes, &quotav1.PlanChange{Plan: c.Plan, FromMs: c.At.UnixMilli(), Scheduled: true, Actor: c.Actor, Failed: c.Failed})
	}
	return resp, nil
}

// periodAt is the billing period of a tenant that a time is in.
func (s *statementService) periodAt(ctx context.Context, tenant string, at time.Time) (p billing.Period, err error) {
	subscriber, err := s.policy.Subscriber(ctx, tenant)
	if err != nil {
		return p, err
	}
	c, err := s.course(ctx, &subscriber)
	if err != nil {
		return p, err
	}
	return c.at(at.Unix()), nil
}
