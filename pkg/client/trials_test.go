package client

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Trials that wait for answers are bounded as requests are: a server that does not know the limit on trial answers none.
// Those beyond the bound count nothing, and none is left when the client has closed.
func TestTrialsThatWaitAreBounded(t *testing.T) {
	tried := limit.Limit{Name: "tried", By: []string{"user"}, Rate: perSecond(1), Burst: 10, Shadow: true}
	bubble(t, plans(1, requests(1, 100), tried), func(t *testing.T, s *fake) {
		s.chunk = 100
		c := dial(t, s, WithMaxWaiting(5))
		if !c.Allow(t.Context(), tenant("a")).Allowed {
			t.Fatal("denied")
		}
		s.set(func(s *fake) { s.answers = quotav1.Grant_STATUS_UNKNOWN })
		for i := range 20 {
			if d := c.Allow(t.Context(), tenant("a"), User(fmt.Sprint(i))); !d.Allowed {
				t.Fatalf("request %d: %v", i, d.Reason)
			}
		}
		synctest.Wait()
		if n := c.trying.Load(); n != 5 {
			t.Errorf("%d trials wait, want 5", n)
		}
		s.set(func(s *fake) { s.answers = 0 })
		shut(t, c)
		if n := c.trying.Load(); n != 0 {
			t.Errorf("%d trials wait after Close", n)
		}
	})
}

// A request that begins to wait as the client ends is told so: nobody serves its bucket any more.
func TestNobodyWaitsForAClosedClient(t *testing.T) {
	bubble(t, plans(1, requests(1, 100)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		c.Allow(t.Context(), tenant("a"))
		attributes := attributesOf([]Attribute{tenant("a")})
		r := c.request(1, nil, attributes)
		r.set = c.reg.Find("a")
		e := c.reg.Entry(&r.set.List, 0, attributes)
		shut(t, c)
		r.room(1)
		h := claim{item: &r.set.Items[0], entry: e, waiter: r.waiter()}
		h.waiter.Units = 1
		if !e.Enqueue(h.waiter) {
			t.Fatal("the bucket has no room for one that waits")
		}
		r.claims, r.waiting = append(r.claims, h), 1
		begun := time.Now()
		if s := r.wait(t.Context(), time.After(time.Hour), ReasonDeadline); s != decided || r.decision.Reason != ReasonClosed || time.Since(begun) > time.Second {
			t.Errorf("after %v: step %v, reason %v; want decided at once, for the client is closed", time.Since(begun), s, r.decision.Reason)
		}
	})
}

// A cold soft bucket at which as many wait as may sends the next request to its overage.
func TestTheOverageTakesWhoFindsNoRoomToWait(t *testing.T) {
	soft := limit.Limit{Name: "requests", Rate: perSecond(1), Burst: 10, Meter: "requests", Enforcement: limit.Soft, OveragePPM: 1_000_000}
	bubble(t, plans(1, soft), func(t *testing.T, s *fake) {
		c := dial(t, s, WithMaxWaiting(10_000), WithMaxWait(time.Minute))
		s.set(func(s *fake) { s.delay = 200 * time.Millisecond })
		for range 1_024 {
			go c.Allow(t.Context(), tenant("a"))
		}
		synctest.Wait()
		r := c.request(1, nil, attributesOf([]Attribute{tenant("a")}))
		for r.set = nil; r.set == nil; time.Sleep(10 * time.Millisecond) {
			r.set = c.reg.Find("a")
		}
		e := c.reg.Entry(&r.set.List, 0, r.attrs)
		for i := 0; e == nil || !e.Urgent(); i++ {
			if i > 100 {
				t.Fatal("nobody waits")
			}
			time.Sleep(time.Millisecond)
			e = c.reg.Entry(&r.set.List, 0, r.attrs)
		}
		for e.Enqueue(&bucket.Waiter{Units: 1, Done: func(bucket.Verdict) {}}) { // whoever still looks
		}
		r.room(1)
		if s := r.ask(t.Context()); s != onward || r.waiting != 1 || !r.claims[0].entry.Overage() {
			t.Errorf("step %v, %d answers to come; want one, of the overage", s, r.waiting)
		}
		r.giveBack(false)
		r.end()
		shut(t, c)
	})
}
