package doors

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// hourly refills so slowly that a test sees bursts and nothing else.
const hourly = `
gateways:
  envoy: {domain: edge, descriptors: {ip: ip, user: user, tenant: tenant}}
limits:
  - {name: per-ip, by: [ip], match: {ip: 10.0.0.0/8}, rate: 1/hour, burst: 20}
default_plan: free
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 1/hour, burst: 30, meter: requests}
      - {name: per-user, by: [tenant, user], match: {user: "u*"}, rate: 1/hour, burst: 10}
`

// node is a server, and an agent of it with Envoy in front.
type envoyNode struct {
	envoy
	server *boot.Server
	client *client.Client
}

func newEnvoyNode(t *testing.T, document string) *envoyNode {
	t.Helper()
	n := &envoyNode{server: startServer(t, document)}
	c, err := client.Dial(t.Context(), n.server.GRPCAddr(), client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	n.client, n.envoy = c, newEnvoy(t, c)
	return n
}

// end ends the agent, which settles, and returns what the ledger has of a tenant's usage by limit: admitted and denied.
func (n *envoyNode) end(tenants ...string) []map[string][2]int64 {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.client.Close(ctx); err != nil {
		n.t.Fatal(err)
	}
	conn, err := grpc.NewClient(n.server.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	var all []map[string][2]int64
	for _, tenant := range tenants {
		answer, err := quotav1.NewUsageServiceClient(conn).GetUsage(ctx, &quotav1.GetUsageRequest{Tenant: tenant, By: quotav1.GetUsageRequest_BY_LIMIT})
		if err != nil {
			n.t.Fatal(err)
		}
		rows := make(map[string][2]int64)
		for _, r := range answer.GetRows() {
			rows[r.GetLimit()] = [2]int64{r.GetAdmitted(), r.GetDenied()}
		}
		all = append(all, rows)
	}
	return all
}

func (n *envoyNode) want(name string, overall rls.RateLimitResponse_Code, r *rls.RateLimitRequest, codes ...rls.RateLimitResponse_Code) {
	n.t.Helper()
	answer := n.must(r)
	if got := codesOf(answer); answer.GetOverallCode() != overall || fmt.Sprint(got) != fmt.Sprint(codes) {
		n.t.Errorf("%s: got %v for %v, want %v for %v", name, answer.GetOverallCode(), got, overall, codes)
	}
}

func codesOf(answer *rls.RateLimitResponse) (codes []rls.RateLimitResponse_Code) {
	for _, s := range answer.GetStatuses() {
		codes = append(codes, s.GetCode())
	}
	return codes
}

func hits(n uint32, r *rls.RateLimitRequest) *rls.RateLimitRequest {
	r.HitsAddend = n
	return r
}

// All descriptors of a call are one decision: where one is denied nothing is taken of any limit, and nothing is billed. A denial
// counts once, at the limit that denied.
func TestEnvoyDecidesAllDescriptorsOrNone(t *testing.T) {
	n := newEnvoyNode(t, hourly)
	acme, ip := func() *rlcommon.RateLimitDescriptor { return descriptor("tenant=acme") }, func() *rlcommon.RateLimitDescriptor { return descriptor("ip=10.0.0.1") }
	n.want("19 of the address's 20", ok, hits(19, edge(ip())), ok)
	for range 5 {
		n.want("2 of each, where the address has one", over, hits(2, edge(acme(), ip())), ok, over)
		n.want("in the other order", over, hits(2, edge(ip(), acme())), over, ok)
	}
	n.want("29 of the tenant's 30", ok, hits(29, edge(acme())), ok)
	for range 5 {
		n.want("twice the bucket that has one unit", over, edge(acme(), acme()), ok, over)
	}
	n.want("a check beside the last unit", ok, edge(acme(), own(acme(), 0), ip()), ok, ok, ok)
	n.want("checks alone", over, edge(own(acme(), 0), own(ip(), 0), own(descriptor("tenant=other"), 0)), over, over, ok)
	n.want("a denied check beside what there is", over, edge(descriptor("tenant=other"), own(acme(), 0)), ok, over)
	n.want("what no check has taken", ok, hits(30, edge(descriptor("tenant=other"))), ok)
	got := n.end("acme", "other")
	if want := [2]int64{30, 5}; got[0]["requests"] != want {
		t.Errorf("the ledger has %v admitted and denied for acme, want %v", got[0]["requests"], want)
	}
	if want := [2]int64{30, 0}; got[1]["requests"] != want {
		t.Errorf("the ledger has %v admitted and denied for other, want %v", got[1]["requests"], want)
	}
}

// A cold bucket is waited for in a call of several descriptors too, once for all of them; a denial that the server makes takes back what
// the others had.
func TestEnvoyWaitsForAllDescriptorsTogether(t *testing.T) {
	n := newEnvoyNode(t, hourly)
	n.want("of nothing but cold buckets", over, hits(15, edge(descriptor("tenant=acme"), descriptor("tenant=acme"), descriptor("ip=10.0.0.2"), descriptor("tenant=acme"))), ok, ok, ok, over)
	n.want("all of the same", ok, hits(15, edge(descriptor("tenant=acme"), descriptor("tenant=acme"), descriptor("ip=10.0.0.2"))), ok, ok, ok)
	if got, want := n.end("acme")[0]["requests"], ([2]int64{30, 15}); got != want {
		t.Errorf("the ledger has %v admitted and denied, want %v", got, want)
	}
}

// script is a random course of Envoy's calls.
type script struct{ *rand.Rand }

var scriptTenants = []string{"a", "b", "c"}

func (s script) request() *rls.RateLimitRequest {
	r := edge()
	for range 1 + s.IntN(4) {
		var d *rlcommon.RateLimitDescriptor
		switch s.IntN(4) {
		case 0:
			d = descriptor("ip=10.0.0." + fmt.Sprint(s.IntN(4)))
		case 1:
			d = descriptor("tenant="+scriptTenants[s.IntN(3)], fmt.Sprintf("user=u%d", s.IntN(2)))
		case 2:
			d = descriptor("tenant="+scriptTenants[s.IntN(3)], "ip=10.0.0."+fmt.Sprint(s.IntN(4)))
		default:
			d = descriptor("tenant=" + scriptTenants[s.IntN(3)])
		}
		if s.IntN(3) == 0 {
			d = own(d, uint64(s.IntN(4)))
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	if s.IntN(8) == 0 {
		r.Descriptors = append(r.Descriptors, descriptor("unmapped=x"))
	}
	r.HitsAddend = uint32(s.IntN(4))
	return r
}

// model is one central counter for each bucket.
type model struct {
	left   map[string]int64
	billed map[string]int64 // by tenant
}

func newModel() *model { return &model{make(map[string]int64), make(map[string]int64)} }

// buckets are what a descriptor meets, and its hits.
func (m *model) buckets(r *rls.RateLimitRequest, d *rlcommon.RateLimitDescriptor) (keys []string, tenant string, hits int64) {
	hits = max(int64(r.GetHitsAddend()), 1)
	if d.GetHitsAddend() != nil {
		hits = int64(d.GetHitsAddend().GetValue())
	}
	add := func(key string, burst int64) {
		if _, ok := m.left[key]; !ok {
			m.left[key] = burst
		}
		keys = append(keys, key)
	}
	user := ""
	for _, e := range d.GetEntries() {
		switch e.GetKey() {
		case "ip":
			add("ip "+e.GetValue(), 20)
		case "tenant":
			tenant = e.GetValue()
			add("tenant "+tenant, 30)
		case "user":
			user = e.GetValue()
		}
	}
	if user != "" {
		add("user "+tenant+" "+user, 10)
	}
	return keys, tenant, hits
}

// decide is what Envoy is to be answered, and spends that if it was.
func (m *model) decide(r *rls.RateLimitRequest, was bool) (overall rls.RateLimitResponse_Code, codes []rls.RateLimitResponse_Code) {
	taken, bill := make(map[string]int64), make(map[string]int64)
	overall = ok
	for _, d := range r.GetDescriptors() {
		keys, tenant, hits := m.buckets(r, d)
		code := ok
		for _, k := range keys {
			if hits == 0 && m.left[k] < 1 || hits > 0 && m.left[k] < taken[k]+hits {
				code, overall = over, over
			}
		}
		codes = append(codes, code)
		if code == ok {
			for _, k := range keys {
				taken[k] += hits
			}
			bill[tenant] += hits
		}
	}
	if was && overall == ok {
		m.spend(taken, bill)
	}
	return overall, codes
}

func (m *model) spend(taken, bill map[string]int64) {
	for k, n := range taken {
		m.left[k] -= n
	}
	for t, n := range bill {
		m.billed[t] += n
	}
}

// Random calls, one after the other, are answered OK where one counter for each bucket has all that they ask, and nothing of a denied one
// is ever missing from the ledger or in it. A unit that a call had in hand while the server was told of it as spent may be denied to a later one.
func TestEnvoyAnswersAsOneCounterWould(t *testing.T) {
	n := newEnvoyNode(t, hourly)
	seed := rand.Uint64()
	s, m := script{rand.New(rand.NewPCG(seed, 0))}, newModel()
	const calls, few = 300, 15
	short := 0
	for range calls {
		r := s.request()
		answer := n.must(r)
		overall, codes := m.decide(r, answer.GetOverallCode() == ok)
		switch got := codesOf(answer); {
		case answer.GetOverallCode() != overall && overall == over:
			t.Fatalf("seed %d: %v: got %v, want %v for %v", seed, r, got, overall, codes)
		case answer.GetOverallCode() != overall:
			short++
		}
		if denied := slices.Contains(codesOf(answer), over); denied != (answer.GetOverallCode() == over) {
			t.Fatalf("seed %d: %v for %v", seed, answer.GetOverallCode(), codesOf(answer))
		}
	}
	if short > few {
		t.Errorf("seed %d: %d of %d calls were denied what there was, want at most %d", seed, short, calls, few)
	}
	m.ledgered(n, seed)
}

func (m *model) ledgered(n *envoyNode, seed uint64) {
	n.t.Helper()
	for i, rows := range n.end(scriptTenants...) {
		if got, want := rows["requests"][0], m.billed[scriptTenants[i]]; got != want {
			n.t.Errorf("seed %d: the ledger has %d units of %s, want %d", seed, got, scriptTenants[i], want)
		}
	}
}

// Whatever comes at once, the ledger has the hits of the calls that were answered OK, to the unit, and no bucket gives more than it has.
func TestEnvoyBillsWhatItAllows(t *testing.T) {
	n := newEnvoyNode(t, hourly)
	seed := rand.Uint64()
	m := newModel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 16 {
		s := script{rand.New(rand.NewPCG(seed, uint64(i)))}
		all.Go(func() {
			for range 50 {
				r := s.request()
				answer, err := n.ask(r)
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
					return
				}
				if answer.GetOverallCode() != ok {
					continue
				}
				mu.Lock()
				taken, bill := make(map[string]int64), make(map[string]int64)
				for _, d := range r.GetDescriptors() {
					keys, tenant, hits := m.buckets(r, d)
					for _, k := range keys {
						taken[k] += hits
					}
					bill[tenant] += hits
				}
				m.spend(taken, bill)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for k, left := range m.left {
		if left < 0 {
			t.Errorf("seed %d: bucket %s gave %d more than it has", seed, k, -left)
		}
	}
	m.ledgered(n, seed)
}
