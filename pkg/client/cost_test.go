package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// plenty is a server that keeps nothing and grants all that is asked for, in the same process and without a connection:
// what is measured beside it is the client's. Messages are written and read as a connection does.
type plenty struct {
	quotav1.LeaseServiceClient
	policy *quotav1.Policy
	tenant func(id string) limit.Tenant
	takes  time.Duration // to answer a renewal
	ttl    time.Duration // of leases
	tokens int64         // beyond those waited for
}

// over sends a message as a connection does.
func over[M proto.Message](from, to M) M {
	b, err := proto.Marshal(from)
	if err == nil {
		err = proto.Unmarshal(b, to)
	}
	if err != nil {
		panic(err) // of messages made here
	}
	return to
}

func (p *plenty) Renew(_ context.Context, req *quotav1.RenewRequest, _ ...grpc.CallOption) (*quotav1.RenewResponse, error) {
	if _, err := proto.Marshal(req); err != nil {
		return nil, err
	}
	time.Sleep(p.takes)
	resp := &quotav1.RenewResponse{PolicyVersion: 1}
	grants := make([]quotav1.Grant, len(req.Renewals))
	for i, r := range req.Renewals {
		g := &grants[i]
		g.Status, g.Number, g.PolicyVersion, g.Generation = quotav1.Grant_STATUS_GRANTED, r.Number, 1, 1
		if !r.Final {
			g.Tokens, g.TrickleMicrosPerS, g.Pile, g.TtlMs, g.Remaining, g.ResetMs = r.Waiting+p.tokens, 5_000_000, 10, p.ttl.Milliseconds(), 1000, 3000
		}
		resp.Grants = append(resp.Grants, g)
	}
	for _, id := range req.Tenants {
		resp.Tenants = append(resp.Tenants, wire.TenantToProto(p.tenant(id)))
	}
	return over(resp, new(quotav1.RenewResponse)), nil
}

func (p *plenty) Settle(_ context.Context, req *quotav1.SettleRequest, _ ...grpc.CallOption) (*quotav1.SettleResponse, error) {
	resp := &quotav1.SettleResponse{}
	for _, r := range req.Reports {
		resp.Receipts = append(resp.Receipts, &quotav1.Receipt{Status: quotav1.Receipt_STATUS_SETTLED, NextSeq: r.Seq + 1, Total: r.TotalAfter})
	}
	return resp, nil
}

func (p *plenty) Watch(ctx context.Context, _ *quotav1.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[quotav1.WatchResponse], error) {
	return &policyStream{ctx: ctx, policy: p.policy}, nil
}

func (p *plenty) Frontiers(context.Context, *quotav1.FrontiersRequest, ...grpc.CallOption) (*quotav1.FrontiersResponse, error) {
	return nil, errors.New("not asked")
}

// policyStream tells of one policy.
type policyStream struct {
	grpc.ClientStream
	ctx    context.Context
	policy *quotav1.Policy
}

func (s *policyStream) Recv() (*quotav1.WatchResponse, error) {
	if s.policy == nil {
		<-s.ctx.Done()
		return nil, s.ctx.Err()
	}
	m := over(&quotav1.WatchResponse{Policy: s.policy, TenantChange: 1}, new(quotav1.WatchResponse))
	s.policy = nil
	return m, nil
}

// newPlenty has tenants on three plans, each with a limit of its own in place of the plan's, as a load's have.
func newPlenty() *plenty {
	p := &limit.Policy{Version: 1, Slot: 5 * time.Minute}
	names := [...]string{"free", "paid", "enterprise"}
	each := limit.Limit{Name: "requests", By: []string{"tenant"}, Algorithm: limit.TokenBucket, Rate: perSecond(1000), Burst: 100_000, Meter: "requests", EpsilonPPM: limit.DefaultEpsilonPPM}
	for _, name := range names {
		p.Plans = append(p.Plans, limit.Plan{Name: name, Limits: []limit.Limit{each}})
	}
	return &plenty{policy: wire.PolicyToProto(p), ttl: 10 * time.Second, tokens: 20, tenant: func(id string) limit.Tenant {
		own, n := each, 0
		for _, b := range []byte(id) {
			n = 31*n + int(b)
		}
		n &= 0xffff
		own.Rate.Units, own.Burst = int64(100+n), int64(200+2*n)
		return limit.Tenant{ID: id, Exists: true, Plan: names[n%3], Overrides: []limit.Limit{own}, Revision: 1}
	}}
}

func (p *plenty) dial(t testing.TB, i int) *Client {
	t.Helper()
	c, err := Dial(t.Context(), "passthrough:plenty", WithAgent(fmt.Sprintf("gw-%d", i)), WithMaxWait(time.Minute), WithReportInterval(1000*time.Hour),
		WithMaxBuckets(1<<20), WithDialer(func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }), func(c *config) { c.session.API = p })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// touch asks once for each tenant, with some requests under way at a time.
func touch(t testing.TB, c *Client, tenants [][]Attribute, atOnce int) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tenants) {
					return
				}
				if d := c.Allow(context.Background(), tenants[i]...); !d.Allowed {
					t.Errorf("%v was denied: %v", tenants[i], d.Reason)
				}
			}
		})
	}
	group.Wait()
}

func manyTenants(n int) [][]Attribute {
	all := make([][]Attribute, n)
	for i := range all {
		all[i] = []Attribute{tenant(fmt.Sprintf("tenant-%06d", i))}
	}
	return all
}

// userTime is what the process has taken of the processor.
func userTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What a bucket's first lease costs the client: the tenant is not known either, and a request waits for both.
func BenchmarkFirstLease(b *testing.B) {
	p := newPlenty()
	p.takes = 2 * time.Millisecond
	c := p.dial(b, 0)
	tenants := manyTenants(b.N)
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	before := userTime()
	touch(b, c, tenants, 128)
	b.ReportMetric(float64(userTime()-before)/float64(b.N), "cpu-ns/op")
	b.StopTimer()
	s := c.Stats()
	b.ReportMetric(float64(b.N)/float64(s.RenewCalls), "buckets/call")
}

// What a renewal of a bucket costs the client, by how many go together.
func BenchmarkRenewals(b *testing.B) {
	for _, batch := range []int{50, 1000} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			c := newPlenty().dial(b, 0)
			tenants := manyTenants(batch)
			touch(b, c, tenants, 128)
			c.session.Ask(func(l *session.Loop) {
				var all []*agent.Entry
				c.reg.Each(func(e *agent.Entry) { all = append(all, e) })
				var took time.Duration
				var renewals int64
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; n += batch {
					b.StopTimer()
					for _, e := range all {
						e.Take(1)
					}
					before := userTime()
					b.StartTimer()
					renewals += l.Renew(9990 * time.Millisecond) // a term
					took += userTime() - before
				}
				b.ReportMetric(float64(took)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(renewals)/float64((b.N+batch-1)/batch), "renewed/batch")
			})
		})
	}
}
