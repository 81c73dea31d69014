package doors

import (
	"context"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/f4ee788f/quota/pkg/client"
)

// envoy is what Envoy is to the door: a caller of a method by its name, that shares no
// code with the door but the messages.
type envoy struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func newEnvoy(t *testing.T, c EnvoyClient) envoy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, NewEnvoy(c, newMetrics(t), slog.New(slog.DiscardHandler)))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-served
	})
	return envoy{t, conn}
}

func (e envoy) ask(r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return e.askAs(e.t.Context(), r)
}

func (e envoy) askAs(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer := new(rls.RateLimitResponse)
	err := e.conn.Invoke(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", r, answer)
	return answer, err
}

func (e envoy) must(r *rls.RateLimitRequest) *rls.RateLimitResponse {
	e.t.Helper()
	answer, err := e.ask(r)
	if err != nil {
		e.t.Fatal(err)
	}
	if len(answer.GetStatuses()) != len(r.GetDescriptors()) {
		e.t.Fatalf("got %d statuses for %d descriptors", len(answer.GetStatuses()), len(r.GetDescriptors()))
	}
	return answer
}

func edge(descriptors ...*rlcommon.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

// own gives a descriptor an addend of its own.
func own(d *rlcommon.RateLimitDescriptor, hits uint64) *rlcommon.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

const (
	ok   = rls.RateLimitResponse_OK
	over = rls.RateLimitResponse_OVER_LIMIT
)

func TestEnvoyAllowsAndDenies(t *testing.T) {
	e := newEnvoy(t, dial(t))
	acme := edge(descriptor("x-tenant=acme"))
	for i := range 10 {
		answer := e.must(acme)
		s := answer.GetStatuses()[0]
		if answer.GetOverallCode() != ok || s.GetCode() != ok {
			t.Fatalf("request %d of a burst of 10: got %v", i+1, answer)
		}
		l := s.GetCurrentLimit()
		if l.GetName() != "requests" || l.GetRequestsPerUnit() != 10 || l.GetUnit() != rls.RateLimitResponse_RateLimit_HOUR {
			t.Errorf("current_limit: got %v, want requests, 10 an hour", l)
		}
		if s.GetLimitRemaining() > 10 {
			t.Errorf("limit_remaining: got %d of 10", s.GetLimitRemaining())
		}
	}
	answer := e.must(acme)
	s := answer.GetStatuses()[0]
	if answer.GetOverallCode() != over || s.GetCode() != over {
		t.Fatalf("the 11th: got %v, want OVER_LIMIT", answer)
	}
	if s.GetLimitRemaining() != 0 {
		t.Errorf("limit_remaining of a denial: got %d, want 0", s.GetLimitRemaining())
	}
	if d := s.GetDurationUntilReset().AsDuration(); d <= 0 || d > time.Hour {
		t.Errorf("duration_until_reset: got %v", d)
	}
	headers := make(map[string]string)
	for _, h := range answer.GetResponseHeadersToAdd() {
		headers[h.GetKey()] = h.GetValue()
	}
	for _, name := range []string{"ratelimit", "ratelimit-policy", "retry-after"} {
		if headers[name] == "" {
			t.Errorf("response_headers_to_add: no %s in %v", name, headers)
		}
	}
}

func TestEnvoyHits(t *testing.T) {
	e := newEnvoy(t, dial(t))
	for _, step := range []struct {
		name string
		r    *rls.RateLimitRequest
		want rls.RateLimitResponse_Code
	}{
		{"a look at a bucket that was never used spends nothing", edge(own(descriptor("x-tenant=acme"), 0)), ok},
		{"3 of the request", &rls.RateLimitRequest{Domain: "edge", HitsAddend: 3, Descriptors: edge(descriptor("x-tenant=acme")).GetDescriptors()}, ok},
		{"5 of the descriptor, which goes before the request's", &rls.RateLimitRequest{Domain: "edge", HitsAddend: 100, Descriptors: edge(own(descriptor("x-tenant=acme"), 5)).GetDescriptors()}, ok},
		{"3 more than the 2 left", edge(own(descriptor("x-tenant=acme"), 3)), over},
		{"a look", edge(own(descriptor("x-tenant=acme"), 0)), ok},
		{"0 at the request is 1", edge(descriptor("x-tenant=acme")), ok},
		{"the last", edge(own(descriptor("x-tenant=acme"), 1)), ok},
		{"one too many", edge(descriptor("x-tenant=acme")), over},
		{"a look at an empty bucket", edge(own(descriptor("x-tenant=acme"), 0)), over},
	} {
		if got := e.must(step.r).GetOverallCode(); got != step.want {
			t.Fatalf("%s: got %v, want %v", step.name, got, step.want)
		}
	}
}

func TestEnvoyKeepsTheOrderOfDescriptors(t *testing.T) {
	e := newEnvoy(t, dial(t))
	login := func() *rlcommon.RateLimitDescriptor {
		return descriptor("remote_address=10.0.0.1", "path=/login?x=1", "verb=POST")
	}
	// Each is used once, so that its bucket is known here.
	for i, r := range []*rls.RateLimitRequest{edge(login()), edge(login()), edge(descriptor("x-tenant=acme"))} {
		if got := e.must(r).GetOverallCode(); got != ok {
			t.Fatalf("first use %d: got %v", i, got)
		}
	}
	both := edge(descriptor("x-tenant=acme"), descriptor("generic_key=nothing"), login())
	answer := e.must(both)
	if answer.GetOverallCode() != ok || answer.GetStatuses()[1].GetLimitRemaining() != math.MaxUint32 {
		t.Fatalf("the third login: got %v, want OK, and the second status unlimited", answer)
	}
	for i, want := range []string{"requests", "", "login"} {
		if got := answer.GetStatuses()[i].GetCurrentLimit().GetName(); got != want {
			t.Errorf("status %d: got the limit %q, want %q", i, got, want)
		}
	}
	// The fourth login is one too many. What it was denied for costs the tenant nothing.
	for range 20 {
		answer = e.must(both)
		codes := []rls.RateLimitResponse_Code{answer.GetStatuses()[0].GetCode(), answer.GetStatuses()[1].GetCode(), answer.GetStatuses()[2].GetCode()}
		if answer.GetOverallCode() != over || codes[0] != ok || codes[1] != ok || codes[2] != over {
			t.Fatalf("the fourth login: got %v %v, want OVER_LIMIT for OK, OK, OVER_LIMIT", answer.GetOverallCode(), codes)
		}
	}
	for i := range 8 {
		if got := e.must(edge(descriptor("x-tenant=acme"))).GetOverallCode(); got != ok {
			t.Fatalf("request %d of the 8 left after 20 denied ones: got %v", i+1, got)
		}
	}
	if got := e.must(edge(descriptor("x-tenant=acme"))).GetOverallCode(); got != over {
		t.Errorf("the 11th request: got %v, want OVER_LIMIT", got)
	}
}

func TestEnvoyUnlimited(t *testing.T) {
	e := newEnvoy(t, dial(t))
	for name, r := range map[string]*rls.RateLimitRequest{
		"a domain without a gateway":                   {Domain: "elsewhere", Descriptors: []*rlcommon.RateLimitDescriptor{descriptor("x-tenant=acme")}},
		"nothing mapped":                               edge(descriptor("generic_key=x")),
		"no tenant, and no limit without one":          edge(descriptor("remote_address=10.0.0.1")),
		"a descriptor without entries":                 edge(descriptor()),
		"a million hits of what nothing is known":      edge(own(descriptor("generic_key=x"), 1_000_000)),
		"several of them, in one request, in a domain": edge(descriptor("a=b"), descriptor("c=d")),
	} {
		answer := e.must(r)
		for i, s := range answer.GetStatuses() {
			if answer.GetOverallCode() != ok || s.GetCode() != ok || s.GetLimitRemaining() != math.MaxUint32 || s.GetCurrentLimit() != nil {
				t.Errorf("%s: status %d: got %v, want OK with %d left", name, i, s, uint32(math.MaxUint32))
			}
		}
	}
}

func TestEnvoyReadsHeadersFromMetadata(t *testing.T) {
	e := newEnvoy(t, dial(t))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-tenant", "acme")
	answer, err := e.askAs(ctx, edge(descriptor("remote_address=10.0.0.1")))
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.GetStatuses()[0].GetCurrentLimit().GetName(); got != "requests" {
		t.Errorf("got the limit %q, want the tenant's requests: %v", got, answer)
	}
}

func TestEnvoysWordsForRates(t *testing.T) {
	e := newEnvoy(t, dial(t))
	l := e.must(edge(descriptor("x-tenant=odd"))).GetStatuses()[0].GetCurrentLimit()
	if l.GetName() != "odd" || l.GetRequestsPerUnit() != 7 || l.GetUnit() != rls.RateLimitResponse_RateLimit_SECOND || l.GetUnitMultiplier().GetValue() != 90 {
		t.Errorf("7 in 90 s: got %v, want 7 in 90 times a second", l)
	}
	for window, want := range map[time.Duration]int64{12 * time.Hour: 12, 5 * time.Minute: 5, 30 * time.Second: 30, 1500 * time.Millisecond: 1, 0: 1} {
		if u, n := multipleOf(window); n != want || (u == rls.RateLimitResponse_RateLimit_UNKNOWN) != (n == 1) {
			t.Errorf("%s: got %d times %v, want %d", window, n, u, want)
		}
	}
	const day = 24 * time.Hour
	for window, want := range map[time.Duration]rls.RateLimitResponse_RateLimit_Unit{
		time.Second: rls.RateLimitResponse_RateLimit_SECOND, time.Minute: rls.RateLimitResponse_RateLimit_MINUTE,
		time.Hour: rls.RateLimitResponse_RateLimit_HOUR, day: rls.RateLimitResponse_RateLimit_DAY,
		23 * time.Hour: rls.RateLimitResponse_RateLimit_DAY, 7 * day: rls.RateLimitResponse_RateLimit_WEEK,
		28 * day: rls.RateLimitResponse_RateLimit_MONTH, 31*day - time.Hour: rls.RateLimitResponse_RateLimit_MONTH,
		366 * day: rls.RateLimitResponse_RateLimit_YEAR, 2 * time.Second: rls.RateLimitResponse_RateLimit_UNKNOWN,
		0: rls.RateLimitResponse_RateLimit_UNKNOWN, 12 * time.Hour: rls.RateLimitResponse_RateLimit_UNKNOWN,
	} {
		if got := unitOf(window); got != want {
			t.Errorf("%v: got %v, want %v", window, got, want)
		}
	}
}

func TestEnvoyRefusesWhatItCannotUnderstand(t *testing.T) {
	e := newEnvoy(t, dial(t))
	many := &rls.RateLimitRequest{Domain: "edge"}
	for range maxDescriptors + 1 {
		many.Descriptors = append(many.Descriptors, descriptor("x-tenant=acme"))
	}
	for name, r := range map[string]*rls.RateLimitRequest{
		"no domain":            {Descriptors: []*rlcommon.RateLimitDescriptor{descriptor("x-tenant=acme")}},
		"no descriptors":       {Domain: "edge"},
		"too many descriptors": many,
	} {
		if _, err := e.ask(r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: got %v, want INVALID_ARGUMENT", name, err)
		}
	}
	// An error would have Envoy let these pass.
	for _, n := range []uint64{1_000_000_001, math.MaxUint64} {
		if got := e.must(edge(descriptor("x-tenant=acme"), own(descriptor("x-tenant=acme"), n))).GetOverallCode(); got != over {
			t.Errorf("%d hits: got %v, want OVER_LIMIT", n, got)
		}
	}
	if got := e.must(edge(own(descriptor("x-tenant=acme"), 10))).GetOverallCode(); got != ok {
		t.Errorf("the whole burst after refused requests: got %v, want OK", got)
	}
}

// Envoy has a failure mode of its own; the door does not decide for it.
func TestEnvoyWithoutAServer(t *testing.T) {
	e := newEnvoy(t, dialAt(t, "127.0.0.1:1", client.WithFirstWait(0)))
	if _, err := e.ask(edge(descriptor("x-tenant=acme"))); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

// Answers of both doors have OpenAI's headers where that is asked for, of each cost, and else none.
func TestOpenAIHeaders(t *testing.T) {
	c := dialAt(t, startServer(t, "gateways: {envoy: {domain: edge, descriptors: {tenant: tenant}}}"+llm).GRPCAddr(), client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second))
	attributes, err := ParseAttributes(DefaultAttributes())
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{false, true} {
		e := NewEnvoy(c, newMetrics(t), slog.New(slog.DiscardHandler))
		e.OpenAI = on
		answer, err := e.ShouldRateLimit(t.Context(), edge(descriptor("tenant=acme")))
		if err != nil {
			t.Fatal(err)
		}
		envoy := make(http.Header)
		for _, h := range answer.GetResponseHeadersToAdd() {
			envoy.Set(h.GetKey(), h.GetValue())
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/check", nil)
		r.Header.Set("X-Tenant", "acme")
		NewCheck(c, CheckConfig{Attributes: attributes, OpenAI: on}, newMetrics(t)).ServeHTTP(w, r)
		for door, h := range map[string]http.Header{"envoy": envoy, "/check": w.Header()} {
			for name, want := range map[string]string{"limit-requests": "10", "limit-tokens": "5000", "remaining-tokens": "5000", "reset-tokens": "0s"} {
				if !on {
					want = ""
				}
				if got := h.Get("x-ratelimit-" + name); got != want {
					t.Errorf("%s, %v: x-ratelimit-%s is %q, want %q: %v", door, on, name, got, want, h)
				}
			}
			if reset, err := time.ParseDuration(h.Get("x-ratelimit-reset-requests")); on && (err != nil || reset <= 0 || reset > time.Hour) {
				t.Errorf("%s: x-ratelimit-reset-requests: %v, %v", door, reset, err)
			}
		}
	}
}
