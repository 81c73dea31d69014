package agentclient

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/pkg/client"
)

// allowAll is an agent's end of a line: it allows all that it is asked, until ctx ends. If so told it says with its first answer that
// it is closing, and nothing any more.
func allowAll(ctx context.Context, conn net.Conn, closing bool) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	l, err := ask.NewLine(conn, nil)
	var in, out ask.Frame
	for err == nil {
		if err = l.Recv(&in); err != nil {
			break
		}
		out.Reset()
		for q := (ask.Question{}); ; out.Answer(&ask.Answer{ID: q.ID, Allowed: true}) {
			if ok, _ := in.Question(&q); !ok {
				break
			}
		}
		out.End(true, closing)
		if err = l.Send(&out); closing {
			break
		}
	}
	<-ctx.Done()
}

// A line whose agent said that it is closing, and then nothing any more, is left as one that is silent.
func TestALineWhoseAgentNeverClosesIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, dialing := bufconn.Listen(1<<20), bubbled.NewDialing()
		var lines atomic.Int64
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go allowAll(t.Context(), conn, lines.Add(1) == 1)
			}
		}()
		thin, err := Dial(t.Context(), "agent:1", WithMaxWait(200*time.Millisecond), WithDialer(dialing.To(listener)))
		if err != nil {
			t.Fatal(err)
		}
		if d := thin.Allow(t.Context(), client.Tenant("a")); !d.Allowed {
			t.Errorf("before: %+v", d)
		}
		time.Sleep(time.Second)
		if d := thin.Allow(t.Context(), client.Tenant("a")); !d.Allowed || thin.Stats().Away {
			t.Errorf("a second after the agent said that it is closing: %+v, %+v, %d lines; want another line", d, thin.Stats(), lines.Load())
		}
		if err := thin.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = listener.Close()
	})
}

// What cannot be an agent's address is refused.
func TestDialRefusesBadAddresses(t *testing.T) {
	for _, addr := range []string{"", " ", "http://127.0.0.1:7600", "https://quota.internal", "grpc://a:7600", "a", ":7600", "a:0", "a:b", "a: 7600", "a:1,", "a:1,http://b:2", "a:1,dns:b:2", "unix:", "passthrough:a"} {
		if c, err := Dial(t.Context(), addr, WithFirstWait(0)); !errors.Is(err, client.ErrOption) {
			t.Errorf("Dial %q: %v, want ErrOption", addr, err)
			if err == nil {
				_ = c.Close(t.Context())
			}
		}
	}
}

// No logger is the default one, as of a full client.
func TestNoLogger(t *testing.T) {
	c, err := Dial(t.Context(), "unix:"+t.TempDir()+"/none.sock", WithLogger(nil), WithFirstWait(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// No more requests wait than may: the next is denied at once.
func TestTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		c, err := Dial(t.Context(), "agent:1", WithFirstWait(0), WithMaxWaiting(1), WithDialer(hangs))
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan client.Decision)
		go func() { first <- c.Allow(t.Context(), client.Tenant("a")) }()
		synctest.Wait()
		if d := c.Allow(t.Context(), client.Tenant("a")); d.Reason != client.ReasonOverloaded || c.Stats().Overloaded != 1 {
			t.Errorf("a second request: %+v, want it overloaded", d)
		}
		if d := <-first; d.Reason != client.ReasonDeadline {
			t.Errorf("the first: %+v, want it to have waited", d)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
