package bench

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// plenty is a quota server that never runs dry, because the decision is measured. Only the limit Denied has nothing,
// and Scarce has less than the largest request.
type plenty struct {
	quotav1.UnimplementedLeaseServiceServer
	policy *quotav1.Policy
	plan   func(tenant string) string
}

// Denied is a limit that plenty denies, for the longest time that a lease may state.
const Denied = "denied"

// Scarce is a limit that has too little for a request of 1,000,000,000 units.
const Scarce = "scarce"

func (p plenty) Renew(_ context.Context, req *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	resp := &quotav1.RenewResponse{PolicyVersion: 1}
	for _, r := range req.Renewals {
		g := &quotav1.Grant{Status: quotav1.Grant_STATUS_GRANTED, Number: r.Number, Tokens: 1 << 50, TtlMs: 600_000, PolicyVersion: 1}
		switch r.Limit {
		case Denied:
			g.Tokens, g.DenyForMs = 0, g.TtlMs
		case Scarce:
			g.Tokens = 900_000_000
		}
		resp.Grants = append(resp.Grants, g)
	}
	for _, id := range req.Tenants {
		resp.Tenants = append(resp.Tenants, &quotav1.Tenant{Id: id, Exists: true, Plan: p.plan(id), Revision: 1})
	}
	return resp, nil
}

func (p plenty) Watch(_ *quotav1.WatchRequest, s quotav1.LeaseService_WatchServer) error {
	if err := s.Send(&quotav1.WatchResponse{Policy: p.policy}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func (plenty) Settle(_ context.Context, req *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	resp := &quotav1.SettleResponse{}
	for _, r := range req.Reports {
		resp.Receipts = append(resp.Receipts, &quotav1.Receipt{Status: quotav1.Receipt_STATUS_SETTLED, NextSeq: r.Seq + 1, Total: r.TotalAfter})
	}
	return resp, nil
}

// Limit is a token bucket that a measurement does not empty.
func Limit(name, meter string, by ...string) *quotav1.Limit {
	return &quotav1.Limit{
		Name: name, Algorithm: quotav1.Limit_ALGORITHM_TOKEN_BUCKET, By: by, Meter: meter, EpsilonPpm: 50_000,
		Rate: &quotav1.Rate{Units: 1_000_000_000, PeriodUs: 1_000_000}, Burst: 1_000_000_000,
	}
}

// Open returns a client of a plentiful server with a policy, and a function that closes both.
func Open(policy *quotav1.Policy, plan func(tenant string) string, opts ...client.Option) (*client.Client, func() error, error) {
	lis := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	policy.Version, policy.SlotSeconds = 1, 300
	quotav1.RegisterLeaseServiceServer(srv, plenty{policy: policy, plan: plan})
	go func() { _ = srv.Serve(lis) }()
	c, err := client.Dial(context.Background(), "passthrough:bench", append([]client.Option{
		client.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		client.WithReportInterval(time.Hour), client.WithMaxBuckets(2_000_000), client.WithMaxWait(time.Minute), client.WithCloseWait(time.Minute),
	}, opts...)...)
	if err != nil {
		srv.Stop()
		return nil, nil, err
	}
	return c, func() error {
		err := c.Close(context.Background())
		srv.Stop()
		return err
	}, nil
}
