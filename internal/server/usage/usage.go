package usage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Service reads the ledger.
type Service struct {
	quotav1.UnimplementedUsageServiceServer
	ledger ledger.Store
	policy policystore.Store // knows which versions were only tried
	books  ledger.Books      // nil for none
	// stopping is closed when streams have to end.
	stopping <-chan struct{}
	exports  atomic.Int32 // how many go on
}

// New returns the service; books are nil for none.
func New(l ledger.Store, p policystore.Store, books ledger.Books, stopping <-chan struct{}) *Service {
	return &Service{ledger: l, policy: p, books: books, stopping: stopping}
}

// GetUsage sums settled usage.
func (s *Service) GetUsage(ctx context.Context, req *quotav1.GetUsageRequest) (*quotav1.GetUsageResponse, error) {
	q := ledger.Query{
		Tenant: req.Tenant, From: rpc.Moment(req.FromMs), To: rpc.Moment(req.ToMs), By: wire.EnumFromProto[ledger.By](req.By),
		Limit: int(req.PageSize), Page: req.PageToken, Version: req.ShadowVersion,
	}
	shadows, err := s.policy.Shadows(ctx)
	if err != nil {
		return nil, err
	}
	if q.Version != 0 && !slices.Contains(shadows, q.Version) {
		return nil, fmt.Errorf("%w: version %d was not tried as a shadow", fault.ErrNotFound, q.Version)
	}
	if q.Version == 0 {
		q.Except = shadows
	}
	if q.Limit == 0 {
		q.Limit = wire.DefaultUsage
	}
	if req.Zone != "" {
		zone, err := limit.LoadZone(req.Zone)
		if err != nil {
			return nil, err
		}
		q.Zone = zone
	}
	u, err := s.ledger.Usage(ctx, q)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	resp := &quotav1.GetUsageResponse{CompleteThroughMs: rpc.Millis(u.Complete), Lagging: u.Lagging, NextPageToken: u.NextPage, Lost: rpc.Lost(u.Lost), MoreLost: u.Lost.More}
	for _, r := range u.Rows {
		row := &quotav1.UsageRow{
			StartMs: rpc.Millis(r.Start), Tenant: r.Tenant, Limit: r.Limit, Meter: r.Meter,
			Admitted: r.Admitted, Overage: r.Overage, Denied: r.Denied,
		}
		if r.Attributes != "" {
			row.Attributes = strings.Split(r.Attributes, ledger.AttributeSep)
		}
		resp.Rows = append(resp.Rows, row)
	}
	return resp, nil
}
