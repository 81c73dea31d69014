package bench

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// plenty is a quota server that never runs dry: what is measured is the decision.
type plenty struct {
	quotav1.UnimplementedLeaseServiceServer
}

func (plenty) Renew(_ context.Context, req *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	resp := &quotav1.RenewResponse{PolicyVersion: 1}
	for _, r := range req.Renewals {
		resp.Grants = append(resp.Grants, &quotav1.Grant{
			Status: quotav1.Grant_GRANTED, Number: r.Number, Tokens: 1 << 50, TtlMs: 600_000, PolicyVersion: 1,
		})
	}
	for _, id := range req.Tenants {
		resp.Tenants = append(resp.Tenants, &quotav1.Tenant{Id: id, Exists: true, Plan: plan(id), Revision: 1})
	}
	return resp, nil
}

// plan puts one tenant under a limit by user, all others under a limit of their own.
func plan(id string) string {
	if id == "users" {
		return "users"
	}
	return "one"
}

func (plenty) Watch(_ *quotav1.WatchRequest, s quotav1.LeaseService_WatchServer) error {
	per := &quotav1.Rate{Units: 1_000_000_000, Micros: 1_000_000}
	one := &quotav1.Limit{Name: "requests", Algorithm: quotav1.Limit_TOKEN_BUCKET, Rate: per, Burst: 1_000_000_000, Meter: "requests", EpsilonPpm: 50_000}
	user := &quotav1.Limit{Name: "per-user", Algorithm: quotav1.Limit_TOKEN_BUCKET, Rate: per, Burst: 1_000_000_000, By: []string{"user"}, EpsilonPpm: 50_000}
	err := s.Send(&quotav1.WatchResponse{Policy: &quotav1.Policy{Version: 1, SlotSeconds: 300, Plans: []*quotav1.Plan{
		{Name: "one", Limits: []*quotav1.Limit{one}}, {Name: "users", Limits: []*quotav1.Limit{user}},
	}}})
	if err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func (plenty) Settle(_ context.Context, req *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	resp := &quotav1.SettleResponse{}
	for _, r := range req.Reports {
		resp.Receipts = append(resp.Receipts, &quotav1.Receipt{Status: quotav1.Receipt_SETTLED, NextSeq: r.Seq + 1, Total: r.TotalAfter})
	}
	return resp, nil
}

// open returns a client of a plentiful server, for the length of a test.
func open(tb testing.TB) *client.Client {
	lis := bufconn.Listen(1 << 20)
	srv := grpc.NewServer()
	quotav1.RegisterLeaseServiceServer(srv, plenty{})
	go func() { _ = srv.Serve(lis) }()
	c, err := client.Dial(context.Background(), "passthrough:bench",
		client.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		client.WithReportInterval(time.Hour))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			tb.Error(err)
		}
		srv.Stop()
	})
	return c
}

const live = 100_000 // buckets

// names returns distinct keys of the length of common ids.
func names(kind string) []string {
	s := make([]string, live)
	for i := range s {
		s[i] = fmt.Sprintf("%s-%08x-%04x", kind, uint32(i)*2654435761, i&0xffff)
	}
	return s
}

// order is a walk over keys that no prefetcher guesses, each goroutine's its own.
type order struct{ state uint32 }

var walks atomic.Uint32

func walk() order { return order{walks.Add(1) * 7919} }

func (o *order) next() uint32 {
	o.state = o.state*1664525 + 1013904223
	return o.state >> 4 % live
}

func endless() *rate.Limiter { return rate.NewLimiter(rate.Limit(1e15), 1<<50) }
