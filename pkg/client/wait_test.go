package client

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

func slots(n, queue int64, wait time.Duration) limit.Limit {
	return limit.Limit{Name: "inflight", Algorithm: limit.Concurrency, Slots: n, Queue: queue, Wait: wait, Meter: "starts"}
}

// Two gateways share the slots: never more requests run than there are, everyone in the queue
// has a turn, and every start is billed once.
func TestSlotsOverTwoGateways(t *testing.T) {
	bubble(t, plans(1, slots(5, 100, 0)), func(t *testing.T, s *fake) {
		s.chunk = 1
		gateways := []*Client{dial(t, s)}
		time.Sleep(time.Millisecond) // the fake tells epochs apart, not agents
		gateways = append(gateways, dial(t, s, WithAgent("gw-2")))
		var running, most, started atomic.Int64
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				d := gateways[i%2].Allow(context.Background(), tenant("a"))
				if !d.Allowed {
					t.Errorf("request %d: %v, want its turn", i, d.Reason)
					return
				}
				started.Add(1)
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(30 * time.Millisecond)
				running.Add(-1)
				d.Done()
				d.Done() // once is enough, and twice is once
			})
		}
		wg.Wait()
		if most.Load() != 5 {
			t.Errorf("%d requests ran at once, want 5", most.Load())
		}
		for _, c := range gateways {
			shut(t, c)
		}
		if got := s.billed(nil); got != started.Load() {
			t.Errorf("the ledger has %d starts, want %d", got, started.Load())
		}
	})
}

// A full queue denies at once with 429, and one whose turn does not come in time gets 504.
func TestSlotsQueueBounds(t *testing.T) {
	bubble(t, plans(1, slots(1, 1, 2*time.Second)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		release := make(chan bool)
		get := func() int {
			d := c.Allow(t.Context(), tenant("a"))
			if d.Allowed {
				<-release
				d.Done()
			}
			return headers.Status(headers.Answer{Allowed: d.Allowed, Reason: d.Reason.String()})
		}
		codes := make(chan int, 2)
		go func() { codes <- get() }()
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		before := time.Now()
		go func() { codes <- get() }()
		synctest.Wait()
		if code := get(); code != 429 {
			t.Errorf("with the queue full: %d, want 429", code)
		}
		if took := time.Since(before); took > 0 {
			t.Errorf("it was denied after %v, want at once", took)
		}
		if code, took := <-codes, time.Since(before); code != 504 || took != 2*time.Second {
			t.Errorf("its turn did not come: %d after %v, want 504 after 2s", code, took)
		}
		release <- true
		if code := <-codes; code != 200 {
			t.Errorf("the one that ran: %d, want 200", code)
		}
		go func() { codes <- get() }()
		release <- true
		if code := <-codes; code != 200 {
			t.Errorf("after it ended: %d, want 200", code)
		}
		shut(t, c)
		if st := c.Counters(); st.Admitted != 2 || st.Denied != 2 {
			t.Errorf("%d starts and %d denied, want 2 and 2", st.Admitted, st.Denied)
		}
	})
}

// Requests that need slots of two limits take them in one order, and none waits for ever.
func TestSlotsOfSeveralLimits(t *testing.T) {
	all := slots(3, 100, 0)
	mine := slots(2, 100, 0)
	all.Name, mine.Name, mine.Meter, mine.By = "all", "mine", "", []string{"user"}
	bubble(t, plans(1, all, mine, requests(10_000, 10_000)), func(t *testing.T, s *fake) {
		s.chunk = 0
		c := dial(t, s)
		var wg sync.WaitGroup
		var ran atomic.Int64
		for i := range 100 {
			wg.Go(func() {
				d := c.Allow(context.Background(), tenant("a"), Attribute{"user", string(rune('a' + i%3))})
				if d.Allowed {
					ran.Add(1)
					time.Sleep(5 * time.Millisecond)
					d.Done()
				}
			})
		}
		wg.Wait()
		if ran.Load() != 100 {
			t.Errorf("%d of 100 ran", ran.Load())
		}
		shut(t, c)
	})
}

// A handle takes slots, and its decision gives them back.
func TestLimiterAndSlots(t *testing.T) {
	bubble(t, plans(1, slots(1, 0, 0), requests(100, 100)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		l, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil {
			t.Fatal(err)
		}
		d := l.Allow(t.Context())
		if !d.Allowed {
			t.Fatalf("the first: %v, want allowed", d.Reason)
		}
		if again := l.Allow(t.Context()); again.Allowed || again.Limit() != "inflight" {
			t.Errorf("while the slot is in use: %+v by %q, want denied by inflight", again, again.Limit())
		}
		d.Done()
		if d = l.Allow(t.Context()); !d.Allowed {
			t.Error("after its end: denied, want allowed")
		}
		d.Done()
		shut(t, c)
	})
}

// Requests that would rather wait come at the limit's pace, in the order in which they came, and count once.
func TestWaitPaces(t *testing.T) {
	for name, l := range map[string]limit.Limit{
		"leaky_bucket": {Name: "paced", Algorithm: limit.LeakyBucket, Rate: perSecond(10), Burst: 1, Queue: 30},
		"token_bucket": {Name: "paced", Algorithm: limit.TokenBucket, Rate: perSecond(10), Burst: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, plans(1, l), func(t *testing.T, s *fake) {
				s.chunk = 0
				c := dial(t, s)
				begin := time.Now()
				var wg sync.WaitGroup
				var mu sync.Mutex
				var order []int
				for i := range 20 {
					time.Sleep(time.Millisecond)
					wg.Go(func() {
						if d := c.Wait(context.Background(), tenant("a")); !d.Allowed {
							t.Errorf("request %d: %v, want allowed", i, d.Reason)
						}
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					})
				}
				wg.Wait()
				if took := time.Since(begin); took < 1900*time.Millisecond || took > 2500*time.Millisecond {
					t.Errorf("20 requests at 10 a second took %v, want 1.9 s", took)
				}
				for i := range order {
					if order[i] != i {
						t.Errorf("they were served in the order %v, want that in which they came", order)
						break
					}
				}
				if st := c.Counters(); st.Admitted != 20 || st.Denied != 0 {
					t.Errorf("%d admitted and %d denied, want 20 and 0", st.Admitted, st.Denied)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				if d := c.Wait(ctx, tenant("a")); d.Allowed || d.Reason != ReasonDeadline {
					t.Errorf("with 10 ms: %+v, want denied for the deadline", d)
				}
				if d := c.WaitN(t.Context(), 2, tenant("a")); d.Allowed || d.Reason != ReasonTooLarge {
					t.Errorf("for more than there ever is: %+v, want denied for being too large", d)
				}
				shut(t, c)
			})
		})
	}
}

// A client that cannot tell when requests end leaves concurrency limits out.
func TestWithoutSlots(t *testing.T) {
	bubble(t, plans(1, slots(1, 0, 0), requests(100, 100)), func(t *testing.T, s *fake) {
		c := dial(t, s, WithoutSlots())
		for range 3 {
			if d := c.Allow(t.Context(), tenant("a")); !d.Allowed || d.Limit() != "requests" {
				t.Errorf("%+v by %q, want allowed by requests", d, d.Limit())
			}
		}
		shut(t, c)
	})
}

// An operator's switch decides those who wait, too: at once, and without a denial counted.
func TestSwitchReleasesWhoWaits(t *testing.T) {
	bubble(t, plans(1, slots(1, 10, 0)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		first := c.Allow(t.Context(), tenant("a"))
		decided := make(chan Decision)
		go func() { decided <- c.Allow(context.Background(), tenant("a")) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s.flip(limit.Switches{Mode: limit.ModeAllowAll})
		before := time.Now()
		d := <-decided
		if !d.Allowed || d.Reason != ReasonSwitch || time.Since(before) > time.Second {
			t.Errorf("%+v after %v, want allowed by the switch at once", d, time.Since(before))
		}
		d.Done()
		first.Done()
		s.flip(limit.Switches{})
		time.Sleep(time.Second)
		a := c.Allow(t.Context(), tenant("a"))
		if !a.Allowed {
			t.Errorf("%+v, want the slot that both gave back", a)
		}
		go func() { decided <- c.Allow(context.Background(), tenant("a")) }()
		time.Sleep(10 * time.Second)
		s.flip(limit.Switches{Denied: []string{"a"}})
		if d := <-decided; d.Allowed || d.Reason != ReasonSwitch {
			t.Errorf("%+v, want denied by the switch", d)
		}
		a.Done()
		shut(t, c)
		if st := c.Counters(); st.Admitted != 3 || st.Denied != 0 {
			t.Errorf("%d starts and %d denied, want 3 and 0", st.Admitted, st.Denied)
		}
	})
}

// Wait waits nowhere where Allow would be admitted: at a soft limit it has the overage at once, and its turn at the
// limit when that is used up too. Nothing of it counts as denied, but who gave up.
func TestWaitAtASoftLimit(t *testing.T) {
	soft := requests(10, 10)
	soft.Enforcement, soft.OveragePPM = limit.Soft, 500_000
	other := limit.Limit{Name: "other", Rate: perSecond(1000), Burst: 1000, Meter: "other"}
	bubble(t, plans(1, soft, other), func(t *testing.T, s *fake) {
		c := dial(t, s)
		began := time.Now()
		reasons := make(map[Reason]int)
		for range 15 {
			reasons[c.Wait(t.Context(), tenant("a")).Reason]++
		}
		if took := time.Since(began); took > 50*time.Millisecond || reasons[ReasonLimit] != 10 || reasons[ReasonOverage] != 5 {
			t.Errorf("%v within %v, want 10 within the limit and 5 above it at once", reasons, took)
		}
		var overage atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				switch d := c.Wait(t.Context(), tenant("a")); {
				case !d.Allowed:
					t.Errorf("%+v, want its turn", d)
				case d.Reason == ReasonOverage:
					overage.Add(1)
				}
			})
		}
		all.Wait()
		// 10 and 5 a second come.
		if took := time.Since(began); took < 1200*time.Millisecond || took > 2500*time.Millisecond {
			t.Errorf("20 more took %v, want about 2 s", took)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		gone := 0
		for range 5 {
			if d := c.Wait(brief, tenant("a")); !d.Allowed {
				gone++
			} else if d.Reason == ReasonOverage {
				overage.Add(1)
			}
		}
		shut(t, c)
		for _, r := range s.allRows() {
			if r.Limit == "requests" && (r.Admitted != int64(40-gone) || r.Overage != 5+overage.Load() || r.Denied != int64(gone)) {
				t.Errorf("row %+v, want %d admitted, %d of them above the limit, and %d denied", r, 40-gone, 5+overage.Load(), gone)
			}
		}
	})
}

// A handle waits for no more units than a request may cost, also of a limit that only counts, where any number is there.
func TestALimiterWaitsForNoMoreThanMayBeAsked(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "counted", Meter: "calls"}), func(t *testing.T, s *fake) {
		c := dial(t, s)
		l, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil {
			t.Fatal(err)
		}
		if d := l.WaitN(t.Context(), 1); !d.Allowed {
			t.Fatalf("one unit: %v, want allowed", d.Reason)
		}
		for _, n := range []int64{-1, limit.MaxUnits + 1, 1 << 31, 1<<32 + 1, 1<<48 + 1, math.MaxInt64} {
			if d := l.WaitN(t.Context(), n); d.Allowed || d.Reason != ReasonInvalid {
				t.Errorf("%d units: %+v, want denied as invalid", n, d)
			}
		}
		shut(t, c)
	})
}

// A request that waits its turn at one limit gives up, and what it had of another is had at once by one that was denied there for certain.
func TestUnitOfOneThatGaveUpIsHad(t *testing.T) {
	first := limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, By: []string{"tenant"}, Rate: limit.Rate{Units: 10, Per: time.Hour}, Burst: 8}
	second := limit.Limit{
		Name: "heavy", Algorithm: limit.TokenBucket, By: []string{"tenant"}, Rate: limit.Rate{Units: 20, Per: time.Hour}, Burst: 2,
		Match: []limit.Match{{Attribute: "endpoint", Patterns: []string{"/heavy"}}},
	}
	bubble(t, plans(1, first, second), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithMaxWait(time.Minute), WithReportInterval(time.Minute))
		defer shut(t, c)
		heavy := []Attribute{tenant("a"), {Name: "endpoint", Value: "/heavy"}}
		ask := func() Decision { return c.Allow(t.Context(), tenant("a")) }
		for range 2 {
			if !c.Wait(t.Context(), heavy...).Allowed || !ask().Allowed {
				t.Error("what is there is denied")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan Decision)
		go func() { done <- c.Wait(ctx, heavy...) }()
		time.Sleep(time.Second)
		got := 0
		for range 20 {
			if ask().Allowed {
				got++
			}
		}
		if got != 3 {
			t.Errorf("%d of three are had", got)
		}
		cancel()
		<-done
		if !ask().Allowed {
			t.Error("the unit that came back is denied")
		}
	})
}
