package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// SetTenantPlan changes a tenant's plan, now or when its time comes.
func (s *Service) SetTenantPlan(ctx context.Context, req *quotav1.SetTenantPlanRequest) (*quotav1.SetTenantPlanResponse, error) {
	actor := authn.PrincipalOf(ctx).Name
	at := rpc.Moment(req.AtMs)
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
		out, err := s.tenant(ctx, t, err)
		return &quotav1.SetTenantPlanResponse{Tenant: out}, err
	}
	t, err := s.store.SchedulePlan(ctx, actor, req.Id, req.Plan, at)
	out, err := s.tenant(ctx, t, err)
	return &quotav1.SetTenantPlanResponse{Tenant: out}, err
}

// CancelPlanChange takes back a change that has not come yet.
func (s *Service) CancelPlanChange(ctx context.Context, req *quotav1.CancelPlanChangeRequest) (*quotav1.CancelPlanChangeResponse, error) {
	t, err := s.store.UnschedulePlan(ctx, authn.PrincipalOf(ctx).Name, req.Id, time.UnixMilli(req.AtMs))
	out, err := s.tenant(ctx, t, err)
	return &quotav1.CancelPlanChangeResponse{Tenant: out}, err
}

// ListPlanChanges tells which plan a tenant had when, and will have.
func (s *Service) ListPlanChanges(ctx context.Context, req *quotav1.ListPlanChangesRequest) (*quotav1.ListPlanChangesResponse, error) {
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

// ListPayers tells who pays for a tenant, and when.
func (s *Service) ListPayers(ctx context.Context, req *quotav1.ListPayersRequest) (*quotav1.ListPayersResponse, error) {
	if _, err := s.store.Subscriber(ctx, req.Tenant); err != nil { // there is none
		return nil, err
	}
	payers, err := s.store.Payers(ctx, req.Tenant)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListPayersResponse{}
	for _, part := range payers.Of(req.Tenant) {
		resp.Payers = append(resp.Payers, &quotav1.Payer{Payer: part.Payer, FromMs: 1000 * part.From, Scheduled: part.From > s.now().Unix()})
	}
	return resp, nil
}
