package doors

import (
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// A thin client reserves, extends and commits at the agent as others do in process. While the agent is away the failure mode decides, and
// a commit is not taken for one that came through.
func TestThinClientsReserve(t *testing.T) {
	quota := dialAt(t, startServer(t, llm).GRPCAddr(), client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second))
	reservations := NewReservations(quota, RandomIDKey(), "")
	defer reservations.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	door := NewDecide(quota, reservations, newMetrics(t))
	server := grpc.NewServer(grpc.ForceServerCodecV2(ask.Codec{}), grpc.WaitForHandlers(true))
	quotav1.RegisterDecisionServiceServer(server, door)
	lines, served := NewLines(l, door), make(chan error, 1)
	go func() { served <- server.Serve(lines) }()
	stop := func() {
		door.Close()
		server.Stop()
		<-served
		lines.Wait()
	}
	dial := func(opts ...agentclient.Option) *agentclient.Client {
		thin, err := agentclient.Dial(t.Context(), l.Addr().String(), append(opts, agentclient.WithFirstWait(30*time.Second), agentclient.WithMaxWait(30*time.Second))...)
		if err != nil {
			t.Fatal(err)
		}
		return thin
	}
	thin, open := dial(), dial(agentclient.WithFailureMode(client.FailOpen))
	defer closeThin(t, thin)
	defer closeThin(t, open)
	out := func(n int64) client.Cost { return client.Cost{Name: "tokens_out", Units: n} }
	reserve := func(of *agentclient.Client, n int64) (*agentclient.Reservation, client.Decision) {
		return of.Reserve(t.Context(), client.Request{Units: 1, Costs: []client.Cost{out(n)}, Attributes: []client.Attribute{client.Tenant("acme")}})
	}

	r, d := reserve(thin, 1000)
	if r == nil || !d.Allowed || d.Details().Limit == "" {
		t.Fatalf("1000 of 2500: %+v", d)
	}
	if r, d := reserve(thin, 2000); r != nil || d.Allowed || d.Limit() != "tokens" || d.RetryAfter <= 0 {
		t.Errorf("2000 of 1500: %+v by %s", d, d.Limit())
	}
	if d := r.Extend(t.Context(), 0, out(500)); !d.Allowed {
		t.Errorf("500 of 1500: %+v", d)
	}
	if d := r.Extend(t.Context(), 0, out(1200)); d.Allowed || d.Limit() != "tokens" {
		t.Errorf("1200 of 1000: %+v", d)
	}
	if out, n := r.Reserved("tokens_out"), r.Reserved("requests"); out != 1500 || n != 1 {
		t.Errorf("%d tokens of %d requests are reserved, want 1500 of 1", out, n)
	}
	if err := r.Commit(t.Context(), 1, client.Cost{Name: "bytes", Units: 1}); !errors.Is(err, client.ErrCost) {
		t.Errorf("an unknown cost: %v", err)
	}
	for range 2 {
		if err := r.Commit(t.Context(), 1, out(1200)); err != nil || r.Late() {
			t.Errorf("Commit: %v, late %t", err, r.Late())
		}
	}
	if err := r.Cancel(t.Context()); !errors.Is(err, client.ErrReservationEnded) {
		t.Errorf("Cancel after Commit: %v", err)
	}
	if d := r.Extend(t.Context(), 1); d.Allowed || d.Reason != client.ReasonInvalid {
		t.Errorf("Extend after Commit: %+v", d)
	}
	var none *agentclient.Reservation
	if err := none.Commit(t.Context(), 1); !errors.Is(err, client.ErrReservationEnded) || none.Extend(t.Context(), 1).Allowed || none.Late() {
		t.Errorf("of a denied request: %v", err)
	}
	none.Use(1)
	r, _ = reserve(thin, 1300) // what the commit put back is there again
	if r == nil {
		t.Fatal("1300 of 1300 are denied")
	}
	if err := r.Cancel(t.Context()); err != nil {
		t.Errorf("Cancel: %v", err)
	}
	if r, d := reserve(thin, -1); r != nil || d.Reason != client.ReasonInvalid {
		t.Errorf("-1: %+v", d)
	}
	r, _ = reserve(thin, 10)
	r.Use(1, out(3))
	if got := quota.Counters().Billed; got != 1+2400 {
		t.Errorf("%d units are billed, want a request and 2400", got)
	}

	stop()
	if r, d := reserve(thin, 1); r != nil || d.Reason != client.ReasonUnknown {
		t.Errorf("without an agent: %+v %s", d, d.Reason)
	}
	if err := r.Commit(t.Context(), 1, out(3)); !errors.Is(err, agentclient.ErrUnanswered) {
		t.Errorf("Commit without an agent: %v", err)
	}
	blind, d := reserve(open, 1)
	if blind == nil || !d.Allowed || d.Reason != client.ReasonUnknown || !blind.Extend(t.Context(), 1).Allowed || blind.Commit(t.Context(), 1) != nil {
		t.Errorf("fail open: %+v", d)
	}
}
