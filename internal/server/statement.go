package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/fault"
	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// statementService works out what tenants owe: it brings together what the ledger has
// sealed and what the policy store knows, and billing does the rest.
type statementService struct {
	quotav1.UnimplementedStatementServiceServer
	books  ledger.Books
	policy policy.Store
	prices *prices
	now    func() time.Time
}

// PreviewStatement works out a period from the newest block.
func (s *statementService) PreviewStatement(ctx context.Context, req *quotav1.PreviewStatementRequest) (*quotav1.Statement, error) {
	d, err := s.draft(ctx, req.Tenant, req.Period)
	if err != nil {
		return nil, err
	}
	return d.toProto()
}

// draft is a statement as of the newest block, and how far it can be trusted.
type draft struct {
	*billing.Statement
	period   billing.Period
	complete time.Time
	lagging  []string
}

func (s *statementService) draft(ctx context.Context, tenant, name string) (*draft, error) {
	subscriber, err := s.policy.Subscriber(ctx, tenant)
	if err != nil {
		return nil, err
	}
	in := &billing.Input{Tenant: tenant, Subscriptions: subscriber.Subscriptions}
	if in.Cycle, err = subscriber.Cycle(); err != nil {
		return nil, err
	}
	now := s.now()
	in.Period = in.Cycle.At(now.Unix())
	if name != "" {
		if in.Period, err = in.Cycle.Named(name); err != nil {
			return nil, statementError(err)
		}
	}
	if in.Period.From > now.Unix() {
		return nil, fmt.Errorf("%w: period %s of tenant %s has not begun; it will at %s", fault.ErrInvalid, in.Period.Name, tenant,
			time.Unix(in.Period.From, 0).In(in.Cycle.Zone).Format(time.RFC3339))
	}
	sums, err := s.usage(ctx, in)
	if err != nil {
		return nil, err
	}
	d := &draft{period: in.Period, complete: sums.Complete, lagging: sums.Lagging}
	if d.Statement, err = billing.Rate(in); err != nil {
		return nil, statementError(err)
	}
	return d, nil
}

// usage reads what the statement is made of at the newest block, and the prices of it.
func (s *statementService) usage(ctx context.Context, in *billing.Input) (ledger.SealedSums, error) {
	shadows, err := s.policy.Shadows(ctx)
	if err != nil {
		return ledger.SealedSums{}, err
	}
	sums, err := s.books.Sealed(ctx, ledger.SealedQuery{
		Tenant: in.Tenant, Since: in.Since, From: in.Period.From, To: in.Period.To, Except: shadows,
	})
	if err != nil {
		return sums, ledgerError(err)
	}
	in.Block.Height = sums.Block.Height
	if in.Block.Height > 0 {
		in.Block.Hash = hex.EncodeToString(sums.Block.Hash[:])
	}
	var versions []int64
	for _, u := range sums.Usage {
		in.Usage = append(in.Usage, billing.Usage{
			Slot: u.Slot, Version: u.Version, Late: u.Late, Units: billing.Units{Meter: u.Meter, Admitted: u.Admitted, Overage: u.Overage},
		})
		if !slices.Contains(versions, u.Version) {
			versions = append(versions, u.Version)
		}
	}
	in.Versions, err = s.prices.during(ctx, append(slices.Clone(in.Earlier), in.Period), versions)
	return sums, err
}

// toProto encodes the statement: these bytes are what its digest is of.
func (d *draft) toProto() (*quotav1.Statement, error) {
	document, digest, err := d.Encode()
	if err != nil {
		return nil, err
	}
	out := &quotav1.Statement{
		Tenant: d.Tenant, Period: d.period.Name, FromMs: 1000 * d.period.From, ToMs: 1000 * d.period.To,
		Height: d.Block.Height, BlockHash: d.Block.Hash, Document: string(document), Digest: digest,
		CompleteThroughMs: millis(d.complete), Lagging: d.lagging,
	}
	for _, t := range d.Totals {
		out.Totals = append(out.Totals, &quotav1.StatementTotal{
			Currency: t.Currency, Amount: t.Total, Text: billing.Money{Amount: t.Total, Currency: t.Currency}.String(),
		})
	}
	return out, nil
}

// statementError gives billing's errors the names that cross the wire.
func statementError(err error) error {
	if errors.Is(err, billing.ErrPeriod) || errors.Is(err, billing.ErrAmount) {
		return fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	return err
}
