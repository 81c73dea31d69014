package statements

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Service works out what tenants owe. It joins what the ledger has sealed with what the policy store knows, and billing
// does the rest.
type Service struct {
	quotav1.UnimplementedStatementServiceServer
	books  ledger.Books
	policy policystore.Store
	prices *prices
	now    func() time.Time
}

// New returns the service over a ledger's books and the policy store beside them.
func New(books ledger.Books, store policystore.Store, now func() time.Time) *Service {
	return &Service{books: books, policy: store, prices: newPrices(store), now: now}
}

// PreviewStatement works out a period from the newest block.
func (s *Service) PreviewStatement(ctx context.Context, req *quotav1.PreviewStatementRequest) (*quotav1.PreviewStatementResponse, error) {
	d, err := s.draft(ctx, req.Tenant, func(c *course, now int64) (billing.Period, error) {
		if req.Period == "" {
			return c.at(now), nil
		}
		return c.named(req.Period)
	})
	if err != nil {
		return nil, err
	}
	if d.closed != nil {
		return nil, fmt.Errorf("%w: period %s of tenant %s was closed; show its statement", fault.ErrExists, d.closed.Period.Name, req.Tenant)
	}
	out, err := d.toProto()
	return &quotav1.PreviewStatementResponse{Statement: out}, err
}

// CloseStatement keeps the statement of the next period.
func (s *Service) CloseStatement(ctx context.Context, req *quotav1.CloseStatementRequest) (*quotav1.CloseStatementResponse, error) {
	out, err := s.close(ctx, authn.PrincipalOf(ctx).Name, req.Tenant, req.Period, req.ForceReason)
	return &quotav1.CloseStatementResponse{Statement: out}, err
}

// close keeps the statement of a period, empty for the next. force is the reason for closing it although it is not
// complete.
func (s *Service) close(ctx context.Context, actor, tenant, period, force string) (*quotav1.Statement, error) {
	d, err := s.draft(ctx, tenant, func(c *course, _ int64) (billing.Period, error) {
		if period == "" {
			return c.next, nil
		}
		return c.named(period)
	})
	if err != nil {
		return nil, err
	}
	if d.closed != nil {
		kept, err := s.GetStatement(ctx, &quotav1.GetStatementRequest{Tenant: tenant, Period: d.closed.Period.Name})
		return kept.GetStatement(), err
	}
	if err := d.mayClose(s.now(), force); err != nil {
		return nil, err
	}
	kept := terms.Closed{Tenant: d.Tenant, Number: d.number, Period: d.period, Block: d.Block, Complete: d.complete, Billing: d.billing, Plans: d.plans}
	if !d.isComplete() || len(d.withheld) > 0 {
		kept.Forced = force
	}
	document, digest, err := d.Encode()
	if err != nil {
		return nil, err
	}
	kept.Document, kept.Digest = string(document), digest
	if kept, err = s.policy.CloseStatement(ctx, actor, kept, d.Carried(), d.Credits...); err != nil {
		return nil, err
	}
	return closedToProto(&kept)
}

// GetStatement is a statement as it was closed.
func (s *Service) GetStatement(ctx context.Context, req *quotav1.GetStatementRequest) (*quotav1.GetStatementResponse, error) {
	c, err := s.policy.Statement(ctx, req.Tenant, req.Period)
	if err != nil {
		return nil, err
	}
	out, err := closedToProto(&c)
	return &quotav1.GetStatementResponse{Statement: out}, err
}

// ListStatements pages through a tenant's closed statements.
func (s *Service) ListStatements(ctx context.Context, req *quotav1.ListStatementsRequest) (*quotav1.ListStatementsResponse, error) {
	n := rpc.Page(req.PageSize)
	list, err := s.policy.Statements(ctx, req.Tenant, wire.PageNumber(req.PageToken), n)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListStatementsResponse{}
	for i := range list {
		c, err := closedToProto(&list[i])
		if err != nil {
			return nil, err
		}
		resp.Statements = append(resp.Statements, c)
	}
	if len(list) == n {
		resp.NextPageToken = wire.PageToken(list[n-1].Number)
	}
	return resp, nil
}

// toProto encodes the statement; its digest is of these bytes.
func (d *draft) toProto() (*quotav1.Statement, error) {
	document, digest, err := d.Encode()
	if err != nil {
		return nil, err
	}
	out := &quotav1.Statement{
		Tenant: d.Tenant, Period: d.period.Name, FromMs: 1000 * d.period.From, ToMs: 1000 * d.period.To,
		Height: d.Block.Height, BlockHash: d.Block.Hash, Document: string(document), Digest: digest,
		CompleteThroughMs: rpc.Millis(d.complete), Lagging: d.lagging, Lost: rpc.Lost(d.lost), MoreLost: d.lost.More,
	}
	out.Totals = totalsToProto(d.Statement)
	out.QuarantinedRows, out.QuarantinedUnits = quarantinedOf(d.Statement)
	return out, nil
}

// closedToProto is a statement as it was closed; in lists it has no document.
func closedToProto(c *terms.Closed) (*quotav1.Statement, error) {
	out := &quotav1.Statement{
		Tenant: c.Tenant, Period: c.Period.Name, FromMs: 1000 * c.Period.From, ToMs: 1000 * c.Period.To, Height: c.Block.Height, BlockHash: c.Block.Hash,
		Document: c.Document, Digest: c.Digest, CompleteThroughMs: rpc.Millis(c.Complete),
		Number: c.Number, ClosedMs: rpc.Millis(c.At), ClosedBy: c.Actor, Forced: c.Forced,
	}
	if c.Document != "" {
		s, err := billing.Decode([]byte(c.Document), c.Digest)
		if err != nil {
			return nil, fmt.Errorf("statement %d of tenant %s: %w", c.Number, c.Tenant, err)
		}
		out.Totals = totalsToProto(s)
		out.QuarantinedRows, out.QuarantinedUnits = quarantinedOf(s)
	}
	return out, nil
}

func totalsToProto(s *billing.Statement) (all []*quotav1.StatementTotal) {
	for _, t := range s.Totals {
		all = append(all, &quotav1.StatementTotal{
			Currency: t.Currency, Amount: t.Total, Text: billing.Money{Amount: t.Total, Currency: t.Currency}.String(),
		})
	}
	return all
}

func quarantinedOf(s *billing.Statement) (rows, units int64) {
	if q := s.Quarantined; q != nil {
		return q.Rows, q.Units
	}
	return 0, 0
}

// statementError gives billing's errors the names that cross the wire.
func statementError(err error) error {
	if errors.Is(err, billing.ErrPeriod) || errors.Is(err, billing.ErrAmount) {
		return fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	return err
}
