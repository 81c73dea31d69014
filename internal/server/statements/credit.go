package statements

import (
	"context"
	"fmt"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// GiveCredit gives a tenant a credit.
func (s *Service) GiveCredit(ctx context.Context, req *quotav1.GiveCreditRequest) (*quotav1.GiveCreditResponse, error) {
	amount, err := billing.ParseMoney(req.Amount)
	if err != nil {
		return nil, fmt.Errorf("%w: amount: %w", fault.ErrInvalid, err)
	}
	c := terms.Credit{ID: req.Id, Tenant: req.Tenant, Currency: amount.Currency, Amount: amount.Amount, Priority: req.Priority, Expires: req.ExpiresMs / 1000, Rollover: -1, Note: req.Note}
	if req.Rollover != "" {
		rollover, err := billing.ParseMoney(req.Rollover)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: rollover: %w", fault.ErrInvalid, err)
		case rollover.Currency != amount.Currency || rollover.Amount < 0:
			return nil, fmt.Errorf("%w: rollover is %s; it must be some of %s", fault.ErrInvalid, rollover, amount)
		}
		c.Rollover = rollover.Amount
	}
	if err := s.wouldUse(ctx, &c); err != nil {
		return nil, err
	}
	if c, err = s.policy.GiveCredit(ctx, authn.PrincipalOf(ctx).Name, c); err != nil {
		return nil, err
	}
	return &quotav1.GiveCreditResponse{Credit: creditToProto(&c)}, nil
}

// VoidCredit ends a credit.
func (s *Service) VoidCredit(ctx context.Context, req *quotav1.VoidCreditRequest) (*quotav1.VoidCreditResponse, error) {
	c, err := s.policy.VoidCredit(ctx, authn.PrincipalOf(ctx).Name, req.Id, req.Reason)
	if err != nil {
		return nil, err
	}
	return &quotav1.VoidCreditResponse{Credit: creditToProto(&c)}, nil
}

// ListCredits returns a tenant's credits.
func (s *Service) ListCredits(ctx context.Context, req *quotav1.ListCreditsRequest) (*quotav1.ListCreditsResponse, error) {
	all, err := s.policy.Credits(ctx, req.Tenant)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListCreditsResponse{}
	for i := range all {
		resp.Credits = append(resp.Credits, creditToProto(&all[i]))
	}
	return resp, nil
}

func creditToProto(c *terms.Credit) *quotav1.Credit {
	money := func(n int64) string { return billing.Money{Amount: n, Currency: c.Currency}.String() }
	out := &quotav1.Credit{
		Id: c.ID, Tenant: c.Tenant, Amount: money(c.Amount), Left: money(c.Left), Priority: c.Priority, GivenMs: rpc.Millis(c.Given), GivenBy: c.Actor,
		ExpiresMs: 1000 * c.Expires, Note: c.Note, VoidedMs: rpc.Millis(c.Voided), VoidReason: c.Why, CarriedFrom: c.Carried,
	}
	if c.Rollover >= 0 {
		out.Rollover = money(c.Rollover)
	}
	return out
}
