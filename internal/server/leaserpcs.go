package server

import (
	"context"

	"github.com/f4ee788f/quota/internal/server/intake"
	"github.com/f4ee788f/quota/internal/server/leasing"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// leaseRPCs is what agents call, by the room that answers.
type leaseRPCs struct {
	quotav1.UnimplementedLeaseServiceServer
	leasing *leasing.Service
	intake  *intake.Service
}

// Renew answers renewals.
func (l *leaseRPCs) Renew(ctx context.Context, req *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	return l.leasing.Renew(ctx, req)
}

// Watch sends what changes.
func (l *leaseRPCs) Watch(req *quotav1.WatchRequest, stream quotav1.LeaseService_WatchServer) error {
	return l.leasing.Watch(req, stream)
}

// Settle takes reports.
func (l *leaseRPCs) Settle(ctx context.Context, req *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	return l.intake.Settle(ctx, req)
}

// Frontiers says how far epochs are settled.
func (l *leaseRPCs) Frontiers(ctx context.Context, req *quotav1.FrontiersRequest) (*quotav1.FrontiersResponse, error) {
	return l.intake.Frontiers(ctx, req)
}
