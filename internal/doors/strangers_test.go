//go:build linux

package doors

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
)

// Who connects and asks nothing shuts nobody out, whatever it says of its protocol; its oldest connection gives way, a line of a turner's too.
func TestStrangersShutNobodyOut(t *testing.T) {
	n, stop := startNode(t)
	defer stop()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := inner.Addr().String()
	door := NewDecide(n, nil, n.metrics)
	lines := NewLines(listen.Bounded(inner, listen.Bounds{Strangers: 8, StrangersOfPeer: 4, Known: 8, KnownOfPeer: 3}), door)
	server := grpc.NewServer(grpc.ForceServerCodecV2(ask.Codec{}))
	rls.RegisterRateLimitServiceServer(server, NewEnvoy(&generous{}, n.metrics, nil))
	go func() { _ = server.Serve(lines) }()
	defer func() {
		door.Close()
		server.Stop()
		lines.Kill()
		lines.Wait()
	}()
	first := rawLineTo(t, addr)
	defer first.Close()
	for range 3 {
		r := rawLineTo(t, addr)
		defer r.Close()
	}
	for range 3 {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			defer conn.Close()
			_, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := first.SetReadDeadline(time.Now().Add(4 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, first.Conn); err != nil {
		t.Errorf("the oldest line that asked nothing is still open: %v", err)
	}
	thin := thinOf(t, addr)
	defer closeThin(t, thin)
	if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
		t.Errorf("beside idle connections a thin client is denied: %+v", d)
	}
	gateway, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := rls.NewRateLimitServiceClient(gateway).ShouldRateLimit(ctx, edge(descriptor("tenant=acme"))); err != nil {
		t.Errorf("beside idle connections a gateway is refused: %v", err)
	}
	// Those who asked stay, and beyond their bound more are refused.
	for i := range 2 {
		r := rawLineTo(t, addr)
		defer r.Close()
		if err := r.ask(1, 1, "acme"); err != nil {
			t.Fatal(err)
		}
		if refused := i == 1; refused {
			if err := r.Recv(new(ask.Frame)); err == nil {
				t.Error("a fourth connection that asks was answered; there may be three")
			}
		} else {
			r.answers(1, false)
		}
	}
	if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
		t.Errorf("beside connections that are refused a thin client is denied: %+v", d)
	}
}

// generous admits everything.
type generous struct{ hesitant }

func (*generous) Decide(context.Context, client.Request) client.Decision {
	return client.Decision{Allowed: true, Reason: client.ReasonUnlimited}
}

// A line of a bounded listener that asks nothing is ended, by word where the client heeds it: at first after half a minute, later after
// five. A client loses no request by it.
func TestIdleLinesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		inner := bufconn.Listen(1 << 20)
		door := NewDecide(n, nil, n.metrics)
		lines := NewLines(listen.Bounded(inner, listen.Bounds{Strangers: 8, StrangersOfPeer: 8, Known: 8, KnownOfPeer: 8}), door)
		defer func() {
			if err := lines.Close(); err != nil {
				t.Error(err)
			}
			door.Close()
			lines.Wait()
		}()
		for asked, want := range map[bool]time.Duration{false: firstWait, true: firstWait + listen.CallWait} {
			conn, err := inner.Dial()
			if err != nil {
				t.Fatal(err)
			}
			l, err := ask.NewLine(conn, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, began := rawLine{conn, l, t}, time.Now()
			if asked {
				if err := r.ask(1, 1, "acme"); err != nil {
					t.Fatal(err)
				}
				r.answers(1, false)
			}
			var f ask.Frame
			var a ask.Answer
			if err := r.Recv(&f); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Next(&a); err != nil || !f.Closing || time.Since(began) != want {
				t.Errorf("asked something: %t: after %s: closing %t: %v; want to be told after %s", asked, time.Since(began), f.Closing, err, want)
			}
			if err := r.Recv(&f); !errors.Is(err, io.EOF) || time.Since(began) > want+sortWait {
				t.Errorf("asked something: %t: after %s: %v; want the end after %s", asked, time.Since(began), err, want+sortWait)
			}
			r.Close()
		}
		thin, err := agentclient.Dial(t.Context(), "agent:1", agentclient.WithDialer(func(context.Context, string) (net.Conn, error) { return inner.Dial() }))
		if err != nil {
			t.Fatal(err)
		}
		defer closeThin(t, thin)
		for range 100 {
			if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
				t.Fatalf("a client that asks now and then is denied: %+v", d)
			}
			time.Sleep(11 * time.Minute / 2)
		}
	})
}
