package doors

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// slowness is how long the lease server takes to answer for the tenant "slow".
const slowness = 100 * time.Millisecond

// leases is a quota server with plenty for every tenant but "poor".
type leases struct {
	quotav1.UnimplementedLeaseServiceServer
}

func (leases) Renew(_ context.Context, r *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	answer := &quotav1.RenewResponse{PolicyVersion: 1}
	slow := false
	for _, n := range r.Renewals {
		g := &quotav1.Grant{Status: quotav1.Grant_STATUS_GRANTED, Number: n.Number, Tokens: 1 << 30, Remaining: 1 << 30, TtlMs: 600_000, PolicyVersion: 1}
		if n.Tenant == "poor" {
			g.Tokens, g.Remaining, g.DenyForMs = 0, 0, g.TtlMs
		}
		slow = slow || n.Tenant == "slow"
		answer.Grants = append(answer.Grants, g)
	}
	for _, id := range r.Tenants {
		slow = slow || id == "slow"
		answer.Tenants = append(answer.Tenants, &quotav1.Tenant{Id: id, Exists: true, Plan: "free", Revision: 1})
	}
	if slow {
		time.Sleep(slowness) // of a bubble
	}
	return answer, nil
}

func (leases) Watch(_ *quotav1.WatchRequest, s quotav1.LeaseService_WatchServer) error {
	p := &quotav1.Policy{Version: 1, SlotSeconds: 300, Plans: []*quotav1.Plan{{Name: "free", Limits: []*quotav1.Limit{{
		Name: "requests", Algorithm: quotav1.Limit_ALGORITHM_TOKEN_BUCKET, EpsilonPpm: 50_000, Meter: "requests",
		Rate: &quotav1.Rate{Units: 1000, PeriodUs: 60_000_000}, Burst: 1 << 29,
	}}}}}
	if err := s.Send(&quotav1.WatchResponse{Policy: p}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (leases) Settle(_ context.Context, r *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	answer := &quotav1.SettleResponse{}
	for _, r := range r.Reports {
		answer.Receipts = append(answer.Receipts, &quotav1.Receipt{Status: quotav1.Receipt_STATUS_SETTLED, NextSeq: r.Seq + 1, Total: r.TotalAfter})
	}
	return answer, nil
}

// node is a quota-agent's gRPC door, that can end and begin again, and what it asks.
type node struct {
	t        *testing.T
	client   *client.Client
	metrics  *Metrics
	registry *prometheus.Registry
	dialing  bubbled.Dialing

	mu     sync.Mutex
	listen *bufconn.Listener // nil while it is away
	lines  *Lines
	door   *Decide
	server *grpc.Server
	frozen chan struct{}    // what decisions wait for; nil
	told   *client.Decision // what is decided; nil where the client does
}

// startNode runs in a bubble, and ends with stop.
func startNode(t *testing.T, opts ...client.Option) (n *node, stop func()) {
	t.Helper()
	l, dialing := bufconn.Listen(1<<20), bubbled.NewDialing()
	s := grpc.NewServer()
	quotav1.RegisterLeaseServiceServer(s, leases{})
	go func() { _ = s.Serve(l) }()
	c, err := client.Dial(t.Context(), "passthrough:server", append(opts, client.WithoutSlots(), client.WithDialer(dialing.To(l)))...)
	if err != nil {
		t.Fatal(err)
	}
	n = &node{t: t, client: c, registry: prometheus.NewRegistry(), dialing: dialing}
	if n.metrics, err = NewMetrics(n.registry); err != nil {
		t.Fatal(err)
	}
	n.begin()
	return n, func() {
		n.end()
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		s.Stop()
	}
}

func (n *node) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listen, n.door = bufconn.Listen(1<<20), NewDecide(n, nil, n.metrics)
	n.server = grpc.NewServer(grpc.ForceServerCodecV2(ask.Codec{}), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
	quotav1.RegisterDecisionServiceServer(n.server, n.door)
	n.lines = NewLines(n.listen, n.door)
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(n.server, n.lines)
}

// end ends the door as quota-agent does.
func (n *node) end() {
	n.mu.Lock()
	server, door, lines := n.server, n.door, n.lines
	n.listen, n.server = nil, nil
	n.mu.Unlock()
	if server != nil {
		door.Close()
		server.GracefulStop()
		lines.Wait()
	}
}

func (n *node) dial(opts ...agentclient.Option) *agentclient.Client {
	n.t.Helper()
	c, err := agentclient.Dial(n.t.Context(), "agent:1", append(opts, agentclient.WithDialer(n.connect))...)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// connect connects to the door, if it is there.
func (n *node) connect(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listen
	n.mu.Unlock()
	if l == nil {
		return nil, net.ErrClosed
	}
	return n.dialing.Dial(ctx, l)
}

// freeze lets decisions hang, as in an agent that is stopped, until thaw.
func (n *node) freeze() {
	n.mu.Lock()
	n.frozen = make(chan struct{})
	n.mu.Unlock()
}

func (n *node) thaw() {
	n.mu.Lock()
	close(n.frozen)
	n.frozen = nil
	n.mu.Unlock()
}

func (n *node) Decide(ctx context.Context, q client.Request) client.Decision {
	n.thawed()
	if n.told != nil {
		return *n.told
	}
	return n.client.Decide(ctx, q)
}

func (n *node) thawed() {
	n.mu.Lock()
	frozen := n.frozen
	n.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func of(tenant string) client.Attribute {
	return client.Tenant(tenant)
}

func closeThin(t *testing.T, c *agentclient.Client) {
	t.Helper()
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// A thin client is told what the agent's own client decides, all of it.
func TestThinClientIsToldAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		thin := n.dial()
		defer closeThin(t, thin)
		for _, test := range []struct {
			units  int64
			tenant string
		}{{1, "acme"}, {5, "acme"}, {0, "acme"}, {1, "poor"}, {0, "poor"}, {1, ""}, {1, "no such\x00"}, {2_000_000_000, "acme"}, {-1, "acme"}} {
			got := thin.AllowN(t.Context(), test.units, of(test.tenant))
			want := n.client.AllowN(t.Context(), test.units, of(test.tenant))
			g, w := got.Details(), want.Details()
			if got.Allowed && test.units > 0 {
				g.Remaining -= test.units // which the second request took
			}
			if got.Allowed != want.Allowed || got.Reason != want.Reason || (got.RetryAfter-want.RetryAfter).Abs() > time.Millisecond ||
				g.Limit != w.Limit || g.Quota != w.Quota || g.Window != w.Window || g.Remaining != w.Remaining || (g.Reset-w.Reset).Abs() > time.Minute {
				t.Errorf("%d units of %q: got %+v %+v, want %+v %+v", test.units, test.tenant, got, g, want, w)
			}
			if httpquota.Status(got) != httpquota.Status(want) {
				t.Errorf("%d units of %q: status %d, want %d", test.units, test.tenant, httpquota.Status(got), httpquota.Status(want))
			}
		}
		families, err := n.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "quota_agent_answers_total" && m.GetLabel()[0].GetValue() == doorDecide {
					counts[m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		if counts[resultOK] != 3 || counts[resultOverLimit] < 2 {
			t.Errorf("metrics: %v, want 3 allowed", counts)
		}
	})
}

// A question that waits for the server holds up no other, on the same stream or in the same message, and is answered
// when the server has; one whose time is over is denied then.
func TestWaitingHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		thin := n.dial()
		defer closeThin(t, thin)
		thin.Allow(t.Context(), of("acme"))
		began := time.Now()
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if d := thin.Allow(t.Context(), of("slow")); !d.Allowed || time.Since(began) < slowness {
					t.Errorf("slow: %+v after %s", d, time.Since(began))
				}
			})
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), slowness/4)
				defer cancel()
				if d := thin.Allow(ctx, of("slow")); d.Allowed || d.Reason != client.ReasonDeadline && d.Reason != client.ReasonUnknown || time.Since(began) > slowness/2 {
					t.Errorf("with a deadline: %+v after %s", d, time.Since(began))
				}
			})
			group.Go(func() {
				if d := thin.Allow(t.Context(), of("acme")); !d.Allowed || time.Since(began) > slowness/2 {
					t.Errorf("acme: %+v after %s", d, time.Since(began))
				}
			})
		}
		group.Wait()
	})
}

// What is asked while a message is under way goes in the next one.
func TestQuestionsShareMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		thin := n.dial(agentclient.WithMaxWaiting(100))
		defer closeThin(t, thin)
		thin.Allow(t.Context(), of("acme"))
		before := thin.Stats()
		n.freeze()
		var group sync.WaitGroup
		one := func() {
			if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
				t.Errorf("got %+v", d)
			}
		}
		group.Go(one)
		synctest.Wait() // it is at the agent
		for range 99 {
			group.Go(one)
		}
		synctest.Wait()
		if d := thin.Allow(t.Context(), of("acme")); d.Allowed || d.Reason != client.ReasonOverloaded {
			t.Errorf("beyond the bound: got %+v", d)
		}
		n.thaw()
		group.Wait()
		after := thin.Stats()
		if messages := after.Messages - before.Messages; messages != 2 || after.Overloaded != 1 {
			t.Errorf("%d messages for 1 and 99 questions, want 2; %d overloaded, want 1", messages, after.Overloaded)
		}
	})
}

// Away means that WithFailureMode decides, at once; and back means back.
func TestAgentAwayAndBack(t *testing.T) {
	for _, unknown := range []client.FailureMode{client.FailClosed, client.FailOpen} {
		synctest.Test(t, func(t *testing.T) {
			n, stop := startNode(t)
			defer stop()
			thin := n.dial(agentclient.WithFailureMode(unknown))
			defer closeThin(t, thin)
			if d := thin.Allow(t.Context(), of("acme")); !d.Allowed || d.Reason != client.ReasonLimit {
				t.Errorf("before: %+v", d)
			}
			n.end()
			time.Sleep(2 * time.Second)
			began := time.Now()
			if d := thin.AllowN(t.Context(), 3, of("acme")); d.Allowed != (unknown == client.FailOpen) || d.Reason != client.ReasonUnknown || time.Since(began) > 0 {
				t.Errorf("away: %+v after %s", d, time.Since(began))
			}
			if s := thin.Stats(); !s.Away || s.Unknown != 1 || s.Unaccounted != 3*int64(unknown) {
				t.Errorf("away: %+v", s)
			}
			n.begin()
			time.Sleep(5 * time.Second)
			if d := thin.Allow(t.Context(), of("acme")); !d.Allowed || d.Reason != client.ReasonLimit {
				t.Errorf("after: %+v", d)
			}
			if thin.Stats().Away {
				t.Error("it is back, and counts as away")
			}
		})
	}
}

// An agent that does not answer is as good as away, until it does.
func TestSilentAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		thin := n.dial()
		defer closeThin(t, thin)
		thin.Allow(t.Context(), of("acme"))
		n.freeze()
		began := time.Now()
		if d := thin.Allow(t.Context(), of("acme")); d.Allowed || d.Reason != client.ReasonDeadline || time.Since(began) > 1500*time.Millisecond {
			t.Errorf("at a silent agent: %+v after %s", d, time.Since(began))
		}
		time.Sleep(time.Second / 2)
		began = time.Now()
		if d := thin.Allow(t.Context(), of("acme")); d.Reason != client.ReasonUnknown || time.Since(began) > 0 {
			t.Errorf("then: %+v after %s", d, time.Since(began))
		}
		n.thaw()
		synctest.Wait()
		if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
			t.Errorf("after: %+v", d)
		}
	})
}

// deaf is a connection that leads to nobody any more once it is cut: what is written goes nowhere,
// nothing is read, and neither fails.
type deaf struct {
	net.Conn
	cut, closed chan struct{}
	once        sync.Once
}

func (d *deaf) Write(b []byte) (int, error) {
	select {
	case <-d.cut:
		return len(b), nil
	default:
		return d.Conn.Write(b)
	}
}

func (d *deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	select {
	case <-d.cut:
		<-d.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// A connection that has gone silent is left for a new one, after twice the longest wait.
func TestSilentConnectionIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		cut := make(chan struct{})
		var dials atomic.Int64
		thin, err := agentclient.Dial(t.Context(), "agent:1", agentclient.WithMaxWait(200*time.Millisecond), agentclient.WithDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := n.connect(ctx, addr)
			if dials.Add(1) > 1 || err != nil {
				return conn, err
			}
			return &deaf{Conn: conn, cut: cut, closed: make(chan struct{})}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer closeThin(t, thin)
		if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
			t.Errorf("before: %+v", d)
		}
		close(cut)
		if d := thin.Allow(t.Context(), of("acme")); d.Reason != client.ReasonDeadline {
			t.Errorf("at a silent connection: %+v", d)
		}
		if d := thin.Allow(t.Context(), of("acme")); d.Reason != client.ReasonUnknown {
			t.Errorf("then: %+v", d)
		}
		time.Sleep(500 * time.Millisecond)
		if d := thin.Allow(t.Context(), of("acme")); !d.Allowed || thin.Stats().Away {
			t.Errorf("after: %+v, %+v, %d connections", d, thin.Stats(), dials.Load())
		}
	})
}

// An agent that is silent on every connection is asked again and again, with pauses that grow.
func TestSilentAgentIsRedialledWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		var dials atomic.Int64
		thin, err := agentclient.Dial(t.Context(), "agent:1", agentclient.WithMaxWait(8*time.Millisecond), agentclient.WithDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dials.Add(1)
			return n.connect(ctx, addr)
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer closeThin(t, thin)
		n.freeze()
		for range 60_000 / 5 {
			thin.Allow(t.Context(), of("acme"))
			time.Sleep(5 * time.Millisecond)
		}
		// Each is silent for some 20 ms, and after ten of them the pauses are half a second to a second.
		if got := dials.Load(); got < 30 || got > 160 {
			t.Errorf("%d connections within a minute", got)
		}
		n.thaw()
		time.Sleep(2 * time.Second)
		if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
			t.Errorf("after: %+v", d)
		}
	})
}

// An agent that ends in order answers all that it was asked, and nobody is denied for it who asks the next one.
func TestAgentEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		thin := n.dial()
		defer closeThin(t, thin)
		thin.Allow(t.Context(), of("acme"))
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if d := thin.Allow(t.Context(), of("slow")); !d.Allowed {
				t.Errorf("asked before the end: %+v", d)
			}
		})
		time.Sleep(slowness / 2)
		began := time.Now()
		n.end()
		if took := time.Since(began); took > 3*slowness { // the tenant and then its bucket
			t.Errorf("the agent took %s to end", took)
		}
		waiting.Wait()
		n.begin()
		time.Sleep(3 * time.Second)
		if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
			t.Errorf("of the next one: %+v", d)
		}
		if s := thin.Stats(); s.Unknown != 0 {
			t.Errorf("%d requests without an answer", s.Unknown)
		}
	})
}

// Close answers what was asked, and denies what comes after.
func TestThinCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		thin := n.dial()
		thin.Allow(t.Context(), of("acme"))
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if d := thin.Allow(t.Context(), of("slow")); !d.Allowed {
				t.Errorf("asked before: %+v", d)
			}
		})
		time.Sleep(slowness / 2)
		closeThin(t, thin)
		waiting.Wait()
		if d := thin.Allow(t.Context(), of("acme")); d.Reason != client.ReasonClosed {
			t.Errorf("asked after: %+v", d)
		}
		closeThin(t, n.dial()) // one that asked nothing
	})
}

// Any language's gRPC can ask: the messages are those of the definitions.
func TestGeneratedCodeAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		conn, err := grpc.NewClient("passthrough:agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(n.connect))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := quotav1.NewDecisionServiceClient(conn).Decide(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		request := &quotav1.DecideRequest{}
		for id, tenant := range []string{"acme", "poor"} {
			request.Questions = append(request.Questions, &quotav1.Question{Id: uint64(id), Attributes: []*quotav1.Attribute{{Name: "tenant", Value: tenant}}})
		}
		said := map[uint64]string{}
		for range 2 { // the first finds tenants and buckets unknown, and is answered later than done
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
			clear(said)
			for done := false; !done || len(said) < 2; {
				answer, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				done = done || answer.Done
				for _, a := range answer.Answers {
					said[a.Id] = fmt.Sprintln(a.Allowed, a.Reason, a.Limit, a.Quota, a.WindowUs)
				}
			}
		}
		if want := "true REASON_LIMIT requests 1000 60000000\nfalse REASON_LIMIT requests 1000 60000000\n"; said[0]+said[1] != want {
			t.Errorf("got %s, want %s", said[0]+said[1], want)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err == nil {
			t.Error("the agent goes on after the end")
		}
	})
}

// A long message is answered question by question, each once, wherever in it some wait or cannot be asked.
func TestMessageOfManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		conn, err := grpc.NewClient("passthrough:agent", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(n.connect))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := quotav1.NewDecisionServiceClient(conn).Decide(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for round := range 40 {
			request, want := &quotav1.DecideRequest{}, map[uint64]string{}
			for id := range uint64(rng.IntN(48) + 1) {
				q := &quotav1.Question{Id: id}
				tenant := "acme"
				switch want[id] = "true REASON_LIMIT"; rng.IntN(8) {
				case 0:
					tenant, want[id] = "poor", "false REASON_LIMIT"
				case 1:
					q.Units, want[id] = proto.Int64(-1), "false REASON_INVALID"
				case 2: // nobody has asked of it, and so it waits
					tenant = fmt.Sprintf("new-%d-%d", round, id)
				case 3:
					want[id] = "false REASON_NO_TENANT"
					request.Questions = append(request.Questions, q)
					continue
				}
				q.Attributes = []*quotav1.Attribute{{Name: "tenant", Value: tenant}}
				request.Questions = append(request.Questions, q)
			}
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
			got := map[uint64]string{}
			for done := false; !done || len(got) < len(want); {
				answer, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				done = done || answer.Done
				for _, a := range answer.Answers {
					if was, twice := got[a.Id]; twice {
						t.Fatalf("round %d: question %d is answered %q, and again %v", round, a.Id, was, a)
					}
					got[a.Id] = fmt.Sprint(a.Allowed, " ", a.Reason)
					if (a.Limit == "requests") != strings.HasSuffix(want[a.Id], "LIMIT") {
						t.Errorf("round %d: question %d is told of limit %q", round, a.Id, a.Limit)
					}
				}
			}
			if !maps.Equal(got, want) {
				t.Fatalf("round %d: got %v, want %v", round, got, want)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
	})
}

// Every reason is a word of the protocol, under the number that follows its own: the protocol's 0 is UNSPECIFIED.
func TestReasonsAreTheProtocols(t *testing.T) {
	for number, name := range quotav1.Answer_Reason_name {
		if number == 0 {
			continue // UNSPECIFIED
		}
		if got, want := client.Reason(number-1).String(), wordOf(name); got != want {
			t.Errorf("%d: %s here, %s in the protocol", number, got, want)
		}
	}
	if s := client.Reason(len(quotav1.Answer_Reason_name) - 1).String(); s != "reason" {
		t.Errorf("the protocol lacks %q", s)
	}
}

func wordOf(name string) string {
	b := []byte(strings.TrimPrefix(name, "REASON_"))
	for i, c := range b {
		if c == '_' {
			b[i] = '-'
		} else {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// A thin client is told all that the agent's decision says of its limit, and so are those who read its headers.
func TestThinClientsKnowTheCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		want := client.Details{Limit: "output", Quota: 90_000, Cost: "tokens_out", Window: time.Minute, Remaining: 7, Reset: time.Second}
		d := client.Decided(true, client.ReasonLimit, 0, want)
		n.told = &d
		thin := n.dial()
		defer closeThin(t, thin)
		got := thin.Allow(t.Context(), of("acme"))
		if got.Details() != want {
			t.Errorf("got %+v, want %+v", got.Details(), want)
		}
		h := make(http.Header)
		httpquota.Headers(got, h.Set)
		if policy := h.Get("RateLimit-Policy"); policy != `"output";q=90000;qu="tokens_out";w=60` {
			t.Errorf("RateLimit-Policy: %s", policy)
		}
	})
}
