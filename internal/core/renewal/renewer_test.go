package renewal

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

const start = int64(1_000_000_000)

// gateway owns a Renewer whose calls wait for the test to answer them.
type gateway struct {
	*Renewer
	t        *testing.T
	registry *agent.Registry
	calls    []*Call // under way
	said     []string
	number   map[*agent.Entry]int64 // of the last renewal
	final    map[*agent.Entry]bool
	unasked  []*agent.Tenant // that the next call of questions takes
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Limits: []limit.Limit{{
		Name: "l", By: []string{"user"}, Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 200,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, registry: agent.NewRegistry(10_000), number: make(map[*agent.Entry]int64), final: make(map[*agent.Entry]bool)}
	g.registry.Adopt(rules)
	g.Renewer = New(Config{
		Registry: g.registry, Owner: g, Timeout: 2 * time.Second, Idle: time.Hour, Chance: func() float64 { return 0.999 }, // the longest waits
	})
	return g
}

func (g *gateway) Send(c *Call) {
	g.calls = append(g.calls, c)
	for i, e := range c.Entries {
		g.number[e], g.final[e] = c.Renewals[i].Number, c.Renewals[i].Final
	}
}

func (g *gateway) Questions(int64) ([]*agent.Tenant, int64) {
	asked := g.unasked
	g.unasked = nil
	return asked, bucket.Never
}
func (g *gateway) Contact(lost bool, _ error)                           { g.said = append(g.said, fmt.Sprint("lost ", lost)) }
func (g *gateway) Granted(*agent.Entry, *bucket.Answered, *lease.Grant) {}
func (g *gateway) Exceeded(*agent.Entry, Excess)                        {}
func (g *gateway) Refused(_ *agent.Entry, why error)                    { g.t.Error(why) }
func (g *gateway) Drop(*agent.Entry) bool                               { return false }

// bucket returns the bucket of a user.
func (g *gateway) bucket(user int) *agent.Entry {
	g.t.Helper()
	set := g.registry.Find("")
	e, err := g.registry.Touch(set, &set.List, 0, []limit.Attribute{{Name: "user", Value: fmt.Sprint(user)}}, start)
	if err != nil {
		g.t.Fatal(err)
	}
	return e
}

// waits has a request wait in a bucket, and returns what becomes of it.
func (g *gateway) waits(e *agent.Entry, now int64) *bucket.Verdict {
	g.t.Helper()
	v := new(bucket.Verdict)
	if !e.Enqueue(&bucket.Waiter{Units: 1, Done: func(got bucket.Verdict) { *v = got }}) || !e.Queue() {
		g.t.Fatal("a request may not wait")
	}
	g.Attend(now, []*agent.Entry{e})
	return v
}

// answer answers the first call with leases of so many tokens.
func (g *gateway) answer(now, tokens int64) {
	c := g.calls[0]
	g.calls = g.calls[1:]
	g.Answered(now, c, 1_000, func(i int) lease.Answer {
		return lease.Answer{Grant: lease.Grant{Number: g.number[c.Entries[i]], Tokens: tokens, TTL: 10_000_000}}
	})
}

func (g *gateway) fail(now int64) {
	c := g.calls[0]
	g.calls = g.calls[1:]
	g.Failed(now, c, 1_000, errors.New("away"))
}

// leased returns buckets with a lease each.
func (g *gateway) leased(n int, now int64) (all []*agent.Entry) {
	g.t.Helper()
	for i := range n {
		all = append(all, g.bucket(i))
		g.waits(all[i], now)
	}
	for done := 0; done < n; {
		g.Step(now)
		done += len(g.calls[0].Entries)
		g.answer(now, 5)
	}
	return all
}

// What is asked of tenants goes in calls of its own, which wait neither for room nor for the answers to renewals. Those
// that come while one is under way go together, about a round trip later.
func TestQuestionsDoNotWaitForRenewals(t *testing.T) {
	g := newGateway(t)
	for i := range 2 * firstWindow {
		g.waits(g.bucket(i), start)
	}
	g.Step(start)
	if len(g.calls) != 1 || len(g.calls[0].Entries) != firstWindow {
		t.Fatalf("%d calls, want one of a window", len(g.calls))
	}
	ask := func(now int64, calls int) (next int64) {
		t.Helper()
		g.unasked = append(g.unasked, new(agent.Tenant))
		next = g.Step(now)
		if len(g.calls) != calls {
			t.Fatalf("%d calls are under way at %d us, want %d", len(g.calls), now-start, calls)
		}
		return next
	}
	ask(start+100, 2)
	if c := g.calls[1]; len(c.Entries) > 0 || len(c.Tenants) != 1 || c.Patience != 2*time.Second {
		t.Errorf("a call has %d renewals and %d tenants and may take %v, want one tenant and 2 s", len(c.Entries), len(c.Tenants), c.Patience)
	}
	ask(start+200, 2)
	if next := ask(start+300, 2); next > start+100+minGather {
		t.Errorf("the next step is %d us after the question, want %d at most", next-start-100, minGather)
	}
	g.Step(start + 100 + minGather)
	if len(g.calls) != 3 || len(g.calls[2].Tenants) != 2 {
		t.Errorf("%d calls, want a third with two tenants", len(g.calls))
	}
	was := g.Window()
	for range 2 { // both are answered: no room is more or less for that
		c := g.calls[1]
		g.calls = slices.Delete(g.calls, 1, 2)
		g.Answered(start+2_000, c, 1_000, nil)
	}
	if g.Window() != was || g.Flying() != 1 {
		t.Errorf("%d calls are under way and a window of %d, want 1 and %d", g.Flying(), g.Window(), was)
	}
}

// While calls fail a request waits for no longer than lostAfter and what one more try takes. Then the server is tried
// again and again, also with nothing to renew, and the first answer says that it is back.
func TestRequestsDoNotWaitForALostServer(t *testing.T) {
	g := newGateway(t)
	v := g.waits(g.bucket(1), start)
	now := start
	var next int64
	for ; v.Outcome == 0; now = next {
		if now > start+lostAfter.Microseconds()*3/2 {
			t.Fatal("a request still waits")
		}
		if next = g.Step(now); len(g.calls) > 0 {
			next = now + 1_000
			g.fail(next)
		}
	}
	if now < start+lostAfter.Microseconds() {
		t.Errorf("the server is given up after %d us", now-start)
	}
	if v := g.waits(g.bucket(2), now); v.Outcome == 0 {
		t.Error("a request waits for a lost server")
	}
	for range 10 {
		next = g.Step(now)
		if len(g.calls) == 0 {
			if wait := next - now; wait > LastRetry.Microseconds() {
				t.Fatalf("a lost server is tried again in %d us", wait)
			}
			now = next
			g.Step(now)
		}
		if g.Step(now); len(g.calls) != 1 {
			t.Fatalf("%d calls try a lost server, want 1", len(g.calls))
		}
		g.fail(now)
	}
	for len(g.calls) == 0 {
		now = g.Step(now)
	}
	if g.answer(now, 5); g.Lost() || !slices.Equal(g.said, []string{"lost true", "lost false"}) {
		t.Errorf("after an answer: lost %v, and the owner was told %q", g.Lost(), g.said)
	}
}

// Of a call with less room than there is to renew, three quarters are buckets that requests wait at, and the others are
// such as are due.
func TestNeitherOfTwoQueuesStarves(t *testing.T) {
	g := newGateway(t)
	due := g.leased(100, start)
	now := start + 1_000_000
	g.RenewWithin(now, 0, due...)
	for i := range 1_000 {
		g.waits(g.bucket(1_000+i), now)
	}
	g.Step(now + 1)
	asked, room := 0, len(g.calls[0].Entries)
	for _, e := range g.calls[0].Entries {
		if !slices.Contains(due, e) {
			asked++
		}
	}
	if asked != room-room/4 {
		t.Errorf("of %d, %d are such as requests wait at, want %d", room, asked, room-room/4)
	}
}

// While a call is under way, the next one gathers what becomes due for as long as a call takes.
func TestCallsGather(t *testing.T) {
	g := newGateway(t)
	g.leased(10, start)
	g.waits(g.bucket(100), start)
	g.Step(start)
	g.waits(g.bucket(101), start)
	next := g.Step(start)
	if len(g.calls) != 1 || next < start+minGather {
		t.Fatalf("%d calls under way, and the next in %d us; want 1 and %d at least", len(g.calls), next-start, minGather)
	}
	g.waits(g.bucket(102), next-1)
	if g.Step(next); len(g.calls) != 2 || len(g.calls[1].Entries) != 2 {
		t.Errorf("%d calls under way, want 2, the second of 2 renewals", len(g.calls))
	}
}

// All leases go back, as many at a time as there is room for. While the server is lost a few are tried, and the others
// lapse: nothing more is spent of them.
func TestLeasesGoBack(t *testing.T) {
	for _, away := range []bool{false, true} {
		g := newGateway(t)
		all := g.leased(300, start)
		now := start
		for away && !g.Lost() {
			g.RenewWithin(now, 0, all[0])
			now += 100_000
			if g.Step(now); len(g.calls) > 0 {
				g.fail(now)
			}
		}
		g.GiveUp(slices.Clone(all))
		for g.Step(now); len(g.calls) > 0; g.Step(now) {
			if now += 100_000; away {
				g.fail(now)
			} else {
				g.answer(now, 0)
			}
		}
		back := 0
		for _, e := range all {
			if g.final[e] {
				back++
			}
			if e.Take(1) {
				t.Fatalf("away %v: a unit of a lease that is over was spent", away)
			}
		}
		if g.Returning() != 0 || (back == len(all)) == away {
			t.Errorf("away %v: %d of %d went back, %d are left", away, back, len(all), g.Returning())
		}
	}
}

// A loss of the lease store is made good once: all leases are renewed within the time that was said.
func TestLossesAreDeclaredOnce(t *testing.T) {
	g := newGateway(t)
	all := g.leased(50, start)
	if n, _ := g.Declare(start, 7); n != 0 {
		t.Errorf("the first loss told was before any lease: %d are renewed", n)
	}
	n, over := g.Declare(start, 8)
	if n != len(all) || over < againOver {
		t.Fatalf("%d leases are renewed within %v, want %d", n, over, len(all))
	}
	g.Step(start + over.Microseconds())
	if len(g.calls) != 1 || len(g.calls[0].Entries) != len(all) {
		t.Errorf("%d calls, want one of all leases", len(g.calls))
	}
	if n, _ := g.Declare(start, 8); n != 0 {
		t.Errorf("the same loss again: %d are renewed", n)
	}
}
