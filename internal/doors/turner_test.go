//go:build linux

package doors

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
)

// socketsOf runs a door for thin clients on real sockets, which turners serve, and what it asks.
func socketsOf(t *testing.T, test func(t *testing.T, lines *Lines, addr string)) {
	for _, addr := range []string{"unix:" + filepath.Join(t.TempDir(), "s"), "127.0.0.1:0"} {
		network, _, _ := strings.Cut(addr, ":")
		t.Run(network, func(t *testing.T) {
			n, stop := startNode(t)
			defer stop()
			l, err := Listen(addr)
			if err != nil {
				t.Fatal(err)
			}
			if network != "unix" {
				addr = l.Addr().String()
			}
			door := NewDecide(n, nil, n.metrics)
			lines := NewLines(l, door)
			test(t, lines, addr)
			if err := lines.Close(); err != nil {
				t.Error(err)
			}
			door.Close()
			lines.Wait()
		})
	}
}

func thinOf(t *testing.T, addr string) *agentclient.Client {
	t.Helper()
	c, err := agentclient.Dial(t.Context(), addr, agentclient.WithFirstWait(10*time.Second), agentclient.WithMaxWait(20*time.Second), agentclient.WithMaxWaiting(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A thin client's questions may have costs, which are decided as the client beside the limits would.
func TestThinClientsAskWithCosts(t *testing.T) {
	n := newEnvoyNode(t, llm)
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	door := NewDecide(n.client, nil, newMetrics(t))
	lines := NewLines(inner, door)
	thin := thinOf(t, "unix:"+inner.Addr().String())
	for _, c := range []struct {
		costs []client.Cost
		want  client.Reason
		ok    bool
	}{
		{[]client.Cost{{Name: "tokens_in", Units: 1000}, {Name: "tokens_out", Units: 2000}}, client.ReasonLimit, true},
		{[]client.Cost{{Name: "tokens_in", Units: 1}}, client.ReasonLimit, false},
		{[]client.Cost{{Name: "gold", Units: 1}}, client.ReasonInvalid, false},
		{[]client.Cost{{Name: "tokens_in", Units: -1}}, client.ReasonInvalid, false},
		{nil, client.ReasonLimit, true},
	} {
		d := thin.Decide(t.Context(), client.Request{Units: 1, Costs: c.costs, Attributes: []client.Attribute{of("acme")}})
		if d.Allowed != c.ok || d.Reason != c.want {
			t.Errorf("%v: got %+v", c.costs, d)
		}
	}
	closeThin(t, thin)
	door.Close()
	if err := lines.Close(); err != nil {
		t.Error(err)
	}
	lines.Wait()
	if got := n.end("acme")[0]; got["requests"][0] != 2 || got["tokens"][0] != 5000 {
		t.Errorf("the ledger has %v", got)
	}
}

// Many lines are led in turn: all is answered, and what waits holds up nobody.
func TestManyLines(t *testing.T) {
	socketsOf(t, func(t *testing.T, _ *Lines, addr string) {
		var group sync.WaitGroup
		for c := range 12 {
			thin := thinOf(t, addr)
			defer closeThin(t, thin)
			for k := range 4 {
				group.Go(func() {
					for i := range 300 {
						tenant, allowed := "acme", true
						switch (i + k) % 17 {
						case 3:
							tenant, allowed = "poor", false
						case 7:
							tenant = fmt.Sprintf("new-%d-%d-%d", c, k, i)
						case 11:
							if i < 50 {
								tenant = "slow"
							}
						}
						if d := thin.Allow(t.Context(), of(tenant)); d.Allowed != allowed || d.Reason != client.ReasonLimit || d.Limit() != "requests" {
							t.Errorf("%s: %+v by %q", tenant, d, d.Limit())
							return
						}
					}
				})
			}
		}
		group.Wait()
	})
}

// rawLine is a thin client whose frames are the test's own.
type rawLine struct {
	net.Conn
	*ask.Line
	t *testing.T
}

func (r rawLine) Close() error { return r.Conn.Close() }

func rawLineTo(t *testing.T, addr string) rawLine {
	t.Helper()
	network, path := "tcp", addr
	if p, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, path = "unix", p
	}
	conn, err := net.Dial(network, path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ask.NewLine(conn, nil)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(60 * time.Second))
	}
	if err != nil {
		t.Fatal(err)
	}
	return rawLine{conn, l, t}
}

// ask sends a frame of so many questions about a tenant, the ids from first on.
func (r rawLine) ask(first, n int, tenant string) error {
	var f ask.Frame
	for id := range n {
		f.Ask(&ask.Question{ID: uint64(first + id), Units: 1, Attributes: []limit.Attribute{{Name: limit.AttrTenant, Value: tenant}}})
	}
	return r.Send(&f)
}

// answers reads until so many questions are answered, each once; of those that wait for one bucket some may be denied.
func (r rawLine) answers(n int, mayWait bool) {
	r.t.Helper()
	seen := make(map[uint64]bool, n)
	for len(seen) < n {
		var f ask.Frame
		if err := r.Recv(&f); err != nil {
			r.t.Fatalf("after %d of %d answers: %v", len(seen), n, err)
		}
		var a ask.Answer
		for {
			ok, err := f.Next(&a)
			if err != nil {
				r.t.Fatal(err)
			}
			if !ok {
				break
			}
			if seen[a.ID] || !a.Allowed && !mayWait {
				r.t.Fatalf("answer %+v, of a question that was answered: %t", a, seen[a.ID])
			}
			seen[a.ID] = true
		}
	}
}

// Who does not read what it is answered, or asks more than may wait, holds up nobody but itself, and is answered all in the end.
func TestOneLineHoldsUpNoOther(t *testing.T) {
	for what, how := range map[string]struct {
		tenant        string
		frames, asked int
	}{
		"does not read":        {"acme", 600, 100},
		"more than may wait":   {"slow", 6, ask.MaxQuestions},
		"a question at a time": {"acme", 4000, 1},
		"waits and reads late": {"slow", 2000, 2},
	} {
		t.Run(what, func(t *testing.T) {
			socketsOf(t, func(t *testing.T, _ *Lines, addr string) {
				other := thinOf(t, addr)
				defer closeThin(t, other)
				other.Allow(t.Context(), of("acme"))
				r := rawLineTo(t, addr)
				defer r.Close()
				sending := make(chan struct{})
				go func() {
					defer close(sending)
					for i := range how.frames {
						if err := r.ask(i*how.asked, how.asked, how.tenant); err != nil {
							t.Error(err)
							return
						}
					}
				}()
				time.Sleep(50 * time.Millisecond)
				for range 20 {
					began := time.Now()
					if d := other.Allow(t.Context(), of("acme")); !d.Allowed || time.Since(began) > 5*time.Second {
						t.Errorf("the other line: %+v after %s", d, time.Since(began))
					}
				}
				r.answers(how.frames*how.asked, how.tenant == "slow")
				<-sending
			})
		})
	}
}

// Who does not read takes no thread.
func TestThoseWhoDoNotReadTakeNoThread(t *testing.T) {
	threads := func() int {
		d, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	socketsOf(t, func(t *testing.T, _ *Lines, addr string) {
		if !strings.HasPrefix(addr, "unix:") {
			return // a kernel takes seconds to fill what it has for TCP
		}
		before := threads()
		var group sync.WaitGroup
		for range 60 {
			r := rawLineTo(t, addr)
			defer r.Close()
			if err := r.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			group.Go(func() {
				for i := 0; r.ask(i*100, 100, "acme") == nil; i++ { // until the agent reads no more, for it cannot write
				}
			})
		}
		group.Wait()
		if after := threads(); after > before+20 {
			t.Errorf("%d threads, %d before", after, before)
		}
		thin := thinOf(t, addr)
		defer closeThin(t, thin)
		if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
			t.Errorf("another line: %+v", d)
		}
	})
}

// A line that ends in the midst of a frame, at once, or by what is no frame, ends; the door goes on.
func TestLinesThatBreak(t *testing.T) {
	socketsOf(t, func(t *testing.T, _ *Lines, addr string) {
		for what, ends := range map[string]struct {
			asked int
			bytes []byte
		}{
			"nothing": {}, "half a length": {0, []byte{0, 0}}, "half a frame": {0, []byte{0, 0, 0, 40, 0x0a, 30, 1}},
			"a frame and half": {20, []byte{0, 0, 0, 40, 0x0a, 30, 1}}, "no frame": {0, []byte{0, 0, 0, 2, 0x0a, 0xff}},
			"a frame and none": {20, []byte{0, 0, 0, 2, 0x0a, 0xff}}, "too long": {0, []byte{0xff, 0xff, 0xff, 0xff}},
		} {
			r := rawLineTo(t, addr)
			if ends.asked > 0 {
				if err := r.ask(0, ends.asked, "acme"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.Write(ends.bytes); err != nil {
				t.Fatal(err)
			}
			if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
				if err := c.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.Copy(io.Discard, r.Conn); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%s: %v", what, err)
			}
			r.Close()
		}
		thin := thinOf(t, addr)
		defer closeThin(t, thin)
		if d := thin.Allow(t.Context(), of("acme")); !d.Allowed {
			t.Errorf("after all that: %+v", d)
		}
	})
}

// Killed lines end though their clients do nothing, and what waits is given up.
func TestLinesAreKilled(t *testing.T) {
	socketsOf(t, func(t *testing.T, lines *Lines, addr string) {
		var group sync.WaitGroup
		for range 4 {
			r := rawLineTo(t, addr)
			defer r.Close()
			if err := r.ask(0, 100, "slow"); err != nil {
				t.Fatal(err)
			}
			group.Go(func() { _, _ = io.Copy(io.Discard, r.Conn) })
		}
		time.Sleep(20 * time.Millisecond)
		lines.Kill()
		ended := make(chan struct{})
		go func() {
			group.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("a line lives on")
		}
	})
}
