package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A soft limit with a cap admits its burst, then the cap's part of it as overage, and
// then denies: each unit is counted once, whichever bucket decided it.
func TestSoftWithCap(t *testing.T) {
	l := requests(1, 100)
	l.Enforcement, l.OveragePPM = limit.Soft, 200_000
	bubble(t, plans(1, l), func(t *testing.T, s *fake) {
		c := dial(t, s)
		h, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil {
			t.Fatal(err)
		}
		reasons := make(map[Reason]int64)
		for i := range 200 {
			decide := func() Decision { return c.Allow(t.Context(), tenant("a")) }
			if i%2 == 1 {
				decide = func() Decision { return h.AllowN(t.Context(), 1) }
			}
			d := decide()
			if d.Limit() != "requests" || d.Allowed == (d.RetryAfter > 0) {
				t.Fatalf("%+v by %q, want by requests, with a time to stay away exactly if denied", d, d.Limit())
			}
			if !d.Allowed {
				reasons[255]++
				continue
			}
			reasons[d.Reason]++
		}
		if reasons[ReasonLimit] != 100 || reasons[ReasonOverage] != 20 || reasons[255] != 80 {
			t.Errorf("%v, want 100 within the limit, 20 above it, 80 denied", reasons)
		}
		if st := c.Counters(); st.Admitted != 120 || st.Overage != 20 || st.Denied != 80 || st.Billed != 120 {
			t.Errorf("stats %+v, want 120 admitted and billed, 20 of them overage, 80 denied", st)
		}
		shut(t, c)
		rows := s.allRows()
		if len(rows) != 1 || rows[0].Admitted != 120 || rows[0].Overage != 20 || rows[0].Denied != 80 {
			t.Errorf("rows %+v, want one with 120 admitted, 20 overage, 80 denied", rows)
		}
		if got := s.spent("requests|a|"); got != 100 {
			t.Errorf("the limit's bucket handed out %d for good, want 100: overage is not taken of it", got)
		}
		if got := s.spent("requests+overage|a|"); got != 20 {
			t.Errorf("the overage's bucket handed out %d for good, want 20", got)
		}
	})
}

// Without a cap nothing is denied, and what is above the limit needs no lease. The
// server is told of all demand.
func TestSoftWithoutCap(t *testing.T) {
	l := requests(1, 50)
	l.Enforcement = limit.Soft
	bubble(t, plans(1, l), func(t *testing.T, s *fake) {
		c := dial(t, s)
		if got := drive(c, 2, 100, tenant("a")); got != 200 {
			t.Errorf("admitted %d of 200, want all", got)
		}
		s.set(func(f *fake) {
			if b := f.buckets["requests|a|"]; len(f.buckets) != 1 || b == nil {
				t.Errorf("leased from %v, want from the limit's bucket alone", f.buckets)
			}
		})
		shut(t, c)
		rows := s.allRows()
		if len(rows) != 1 || rows[0].Admitted != 200 || rows[0].Overage != 150 || rows[0].Denied != 0 {
			t.Errorf("rows %+v, want one with 200 admitted, 150 overage, none denied", rows)
		}
	})
}

// What a later limit denies goes back to the bucket that it was taken of, overage too.
func TestOverageIsPutBack(t *testing.T) {
	soft := requests(1, 10)
	soft.Enforcement, soft.OveragePPM = limit.Soft, limit.Micro
	// Asked after it, for it is metered and faster.
	hard := limit.Limit{Name: "writes", Rate: perSecond(2), Burst: 15, Meter: "writes"}
	bubble(t, plans(1, soft, hard), func(t *testing.T, s *fake) {
		c := dial(t, s)
		var wg sync.WaitGroup
		var got atomic.Int64
		for range 4 {
			wg.Go(func() { got.Add(drive(c, 1, 20, tenant("a"))) })
		}
		wg.Wait()
		if got.Load() != 15 {
			t.Errorf("admitted %d, want 15: the other limit's", got.Load())
		}
		shut(t, c)
		// What another has in hand and puts back has one go above the limit that would not have had to, or deny.
		const inHand = 3
		var above int64
		for _, r := range s.allRows() {
			if r.Admitted != 15 || r.Limit == "requests" && (r.Overage < 5 || r.Overage > 5+inHand || r.Denied > inHand) {
				t.Errorf("row %+v, want 15 admitted by each limit, 5 of requests above it, and none denied by it, but for those in hand", r)
			}
			above += r.Overage
		}
		for key, want := range map[string]int64{"requests|a|": 15 - above, "requests+overage|a|": above, "writes|a|": 15} {
			if got := s.spent(key); got < want || got > want+inHand {
				t.Errorf("%s handed out %d for good, want %d, or what was in hand more", key, got, want)
			}
		}
	})
}

// A shadow limit never denies, never makes a request wait, bills nothing, and says what
// it would have denied.
func TestShadowLimit(t *testing.T) {
	shadow := limit.Limit{Name: "tried", Rate: perSecond(1), Burst: 10, Meter: "tried", Shadow: true}
	bubble(t, plans(1, requests(1000, 1000), shadow), func(t *testing.T, s *fake) {
		s.chunk, s.delay = 100, 5*time.Millisecond
		c := dial(t, s)
		h, _ := c.Limiter(t.Context(), tenant("a"))
		c.Allow(t.Context(), tenant("a")) // has requests leased
		time.Sleep(100 * time.Millisecond)
		before := time.Now()
		for i := range 59 {
			if i%2 == 0 && !h.Allow(t.Context()).Allowed || i%2 == 1 && !c.Allow(t.Context(), tenant("a")).Allowed {
				t.Fatal("denied")
			}
		}
		if waited := time.Since(before); waited > 0 {
			t.Errorf("waited %v, want not at all", waited)
		}
		if d := c.Allow(t.Context(), tenant("a")); d.Limit() != "requests" {
			t.Errorf("allowed by %q, want by requests", d.Limit())
		}
		time.Sleep(time.Second)
		st := c.Counters()
		if len(st.Trials) != 1 || st.Trials[0] != (Trial{Limit: "tried", Admitted: 10, WouldDeny: 51}) {
			t.Errorf("trials %+v, want 10 admitted by tried and 51 it would have denied", st.Trials)
		}
		if st.Admitted != 61 || st.Denied != 0 || st.Billed != 61 {
			t.Errorf("stats %+v, want 61 admitted and billed, none denied", st)
		}
		shut(t, c)
		for _, r := range s.allRows() {
			if r.Limit == "tried" && (r.Admitted != 0 || r.Meter != "" || r.Denied != 51 || r.Attributes != ledger.WouldDeny) {
				t.Errorf("row %+v, want 51 denials of a trial, without a meter", r)
			}
		}
		if got := s.spent("tried|a|"); got != 10 {
			t.Errorf("the tried limit's bucket handed out %d for good, want 10", got)
		}
	})
}

// A shadow limit of the policy that is tried would deny nothing, and takes nothing of its other limits away.
func TestShadowLimitOfAShadowVersion(t *testing.T) {
	bubble(t, plans(1, requests(1, 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		s.try(plans(7, limit.Limit{Name: "extra", Rate: perSecond(1), Burst: 5, Shadow: true}, requests(1, 30)))
		time.Sleep(time.Second)
		for range 100 {
			drive(c, 1, 1, tenant("a"))
			time.Sleep(time.Microsecond) // the shadow's buckets are answered
		}
		time.Sleep(100 * time.Millisecond)
		for _, tr := range c.Counters().Trials {
			if tr.Limit == "requests" && (tr.Admitted != 30 || tr.WouldDeny != 70) {
				t.Errorf("requests: %+v, want 30 admitted and 70 denied, whatever the shadow limit has", tr)
			}
			if tr.Limit == "extra" && tr.Admitted != 5 {
				t.Errorf("extra: %+v, want 5 admitted", tr)
			}
		}
		if n := len(c.Counters().Trials); n != 2 {
			t.Errorf("%d limits on trial, want 2", n)
		}
		shut(t, c)
	})
}

// A shadow version decides beside the one in force: each of its limits counts, all or
// none of them take, and its denials are booked under its own version.
func TestShadowVersion(t *testing.T) {
	bubble(t, plans(1, requests(1, 20)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		tried := plans(7, requests(1, 50), limit.Limit{Name: "extra", Rate: perSecond(2), Burst: 30, Meter: "extra"})
		s.try(tried)
		time.Sleep(time.Second)
		var got int64
		for range 100 {
			got += drive(c, 1, 1, tenant("a"))
			time.Sleep(time.Microsecond) // the shadow's buckets are answered
		}
		if got != 20 {
			t.Errorf("admitted %d, want 20 as the policy in force has it", got)
		}
		time.Sleep(100 * time.Millisecond)
		trials := make(map[string]Trial)
		for _, tr := range c.Counters().Trials {
			trials[fmt.Sprint(tr.Limit, tr.Version)] = tr
		}
		if tr := trials["extratrue"]; tr.Admitted != 30 || tr.WouldDeny < 60 {
			t.Errorf("extra: %+v, want 30 admitted and the rest denied", tr)
		}
		if tr := trials["requeststrue"]; tr.Admitted != 30 || tr.WouldDeny != 0 {
			t.Errorf("requests: %+v, want 30 admitted: what the other would have denied took nothing of it", tr)
		}
		s.try(nil)
		time.Sleep(time.Second)
		drive(c, 1, 10, tenant("a"))
		time.Sleep(30 * time.Second)
		if b := c.Stats().Buckets; b != 1 {
			t.Errorf("%d buckets after the trial, want 1", b)
		}
		shut(t, c)
		var denied int64
		for _, r := range s.allRows() {
			if r.Version == 7 {
				denied += r.Denied
				if r.Admitted != 0 || r.Meter != "" {
					t.Errorf("row %+v of the shadow version, want denials without a meter", r)
				}
			} else if r.Version != 1 || r.Admitted < 20 {
				t.Errorf("row %+v, want what the policy in force admitted", r)
			}
		}
		if denied != trials["extratrue"].WouldDeny {
			t.Errorf("%d denials booked under the shadow version, want %d", denied, trials["extratrue"].WouldDeny)
		}
	})
}

// A deny list denies outright, an allow list passes the limit by and goes before it; other limits still hold the request.
func TestLists(t *testing.T) {
	l := requests(1, 10)
	l.Allow = []limit.Match{{Attribute: "user", Patterns: []string{"probe*"}}, {Attribute: "ip", Patterns: []string{"10.0.0.0/8"}}}
	l.Deny = []limit.Match{{Attribute: "ip", Patterns: []string{"192.0.2.0/24"}}, {Attribute: "user", Patterns: []string{"evil"}}}
	other := limit.Limit{Name: "all", Rate: perSecond(1000), Burst: 1000, Meter: "all"}
	bubble(t, plans(1, l, other), func(t *testing.T, s *fake) {
		c := dial(t, s)
		user := func(name string) Attribute { return User(name) }
		ip := func(a string) Attribute { return IP(a) }
		for range 30 {
			if d := c.Allow(t.Context(), tenant("a"), user("probe-1"), ip("192.0.2.6")); !d.Allowed || d.Limit() != "all" {
				t.Fatalf("of the allow list: %+v by %q, want allowed by the other limit", d, d.Limit())
			}
		}
		for _, a := range [][]Attribute{{ip("192.0.2.6")}, {user("evil")}, {ip("192.0.2.6"), user("evil")}} {
			if d := c.Allow(t.Context(), append(a, tenant("a"))...); d.Allowed || d.Reason != ReasonListed || d.Limit() != "requests" {
				t.Errorf("%v of the deny list: %+v by %q, want denied as listed", a, d, d.Limit())
			}
		}
		if got := drive(c, 1, 20, tenant("a"), user("someone")); got != 10 {
			t.Errorf("of no list: %d admitted, want 10", got)
		}
		h, _ := c.Limiter(t.Context(), tenant("a"), user("evil"))
		if h.Allow(t.Context()).Allowed {
			t.Error("a handle of the deny list is allowed")
		}
		shut(t, c)
		for _, r := range s.allRows() {
			want := map[string][2]int64{"requests": {10, 14}, "all": {40, 0}}[r.Limit]
			if r.Admitted != want[0] || r.Denied != want[1] {
				t.Errorf("row %+v, want %v admitted and denied", r, want)
			}
		}
	})
}

// However an address is written, it has one bucket, and one row in the ledger; also once what
// requests came to is remembered.
func TestAddressesHaveOneBucket(t *testing.T) {
	l := limit.Limit{Name: "per-address", Rate: limit.Rate{Units: 1, Per: time.Hour}, Burst: 20, By: []string{"ip"}, Meter: "requests"}
	bubble(t, plans(1, l), func(t *testing.T, s *fake) {
		c := dial(t, s)
		got := make(map[string]int64)
		spellings := map[string]string{
			"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "::FFFF:A01:203": "10.1.2.3",
			"2001:db8::1": "2001:db8::1", "2001:DB8:0::1": "2001:db8::1", "2001:db8::1%eth0": "2001:db8::1",
			"unknown": "unknown", "10.1.2.3:80": "10.1.2.3:80",
		}
		for range 30 {
			for written, is := range spellings {
				got[is] += drive(c, 1, 1, tenant("a"), IP(written))
				time.Sleep(time.Millisecond)
			}
		}
		for is, n := range got {
			if n != 20 {
				t.Errorf("%s: %d admitted, want 20", is, n)
			}
		}
		if b := c.Stats().Buckets; b != 4 {
			t.Errorf("%d buckets, want 4", b)
		}
		shut(t, c)
		for _, r := range s.allRows() {
			if is := strings.TrimPrefix(r.Attributes, "ip="); r.Admitted != got[is] {
				t.Errorf("row %+v, want %d of %s", r, got[is], is)
			}
		}
	})
}

// Low priority may not spend the last 40 %, ordinary not the last 10 %, high all of it.
func TestPriorityReserve(t *testing.T) {
	l := limit.Limit{
		Name: "requests", Rate: limit.Rate{Units: 1, Per: time.Hour, Calendar: limit.Hour}, Burst: 1000,
		Meter: "requests", Reserve: limit.Reserve{LowPPM: 400_000, NormalPPM: 100_000},
	}
	for _, agents := range []int{1, 3} {
		bubble(t, plans(1, l), func(t *testing.T, s *fake) {
			var clients []*Client
			for i := range agents {
				clients = append(clients, dial(t, s, WithAgent(fmt.Sprint("gw-", i))))
				time.Sleep(time.Millisecond) // epochs of their own
			}
			spend := func(priority string) (got int64) {
				for i := range 2000 {
					attrs := []Attribute{tenant("a"), Priority(priority)}
					d := clients[i%agents].Allow(context.Background(), attrs...)
					if d.Allowed {
						got++
					} else if priority != "high" && d.Reason != ReasonPriority {
						t.Fatalf("%s: %+v, want denied for the priority", priority, d)
					}
					time.Sleep(time.Millisecond)
				}
				return got
			}
			// What others spend is known when a lease is renewed: here every 10 units and half second.
			slack := int64(60 * (agents - 1))
			low, normal, high := spend("low"), spend("normal"), spend("high")
			if low < 600 || low > 600+slack {
				t.Errorf("%d agents: low admitted %d, want 600, and at most %d more", agents, low, slack)
			}
			if n := low + normal; n < 900 || n > 900+slack {
				t.Errorf("%d agents: low and ordinary admitted %d, want 900, and at most %d more", agents, n, slack)
			}
			if n := low + normal + high; n != 1000 {
				t.Errorf("%d agents: admitted %d in all, want 1000", agents, n)
			}
			for _, c := range clients {
				shut(t, c)
			}
			if got := s.billed(nil); got != low+normal+high {
				t.Errorf("the ledger has %d units, %d were admitted", got, low+normal+high)
			}
		})
	}
}

// Limits that only tenants name share one name in the counts: a thousand tenants may have a thousand.
func TestTrialsOfOverridesShareAName(t *testing.T) {
	tried := func(name string) limit.Limit {
		return limit.Limit{Name: name, Algorithm: limit.TokenBucket, Rate: perSecond(1), Burst: 10, Shadow: true, EpsilonPPM: limit.DefaultEpsilonPPM}
	}
	bubble(t, plans(1, requests(1000, 1000), tried("tried")), func(t *testing.T, s *fake) {
		s.tenant(limit.Tenant{ID: "a", Plan: "p", Overrides: []limit.Limit{tried("one")}})
		s.tenant(limit.Tenant{ID: "b", Plan: "p", Overrides: []limit.Limit{tried("two")}})
		c := dial(t, s)
		for _, id := range []string{"a", "b"} {
			c.Allow(t.Context(), tenant(id))
		}
		time.Sleep(time.Second)
		want := []Trial{{Limit: "(override)", Admitted: 2}, {Limit: "tried", Admitted: 2}}
		if got := c.Counters().Trials; !slices.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if n := c.reg.Named(); len(n) != 2 || !n["tried"] || !n["requests"] {
			t.Errorf("named are %v, want requests and tried", n)
		}
		shut(t, c)
	})
}

// A soft limit on trial denies what is above its cap and no sooner, in a shadow version as beside the others: what it
// would have admitted above itself is no denial, and takes nothing of the other limits when one of them would deny.
func TestSoftLimitsOnTrial(t *testing.T) {
	soft := requests(1, 20)
	soft.Enforcement, soft.OveragePPM = limit.Soft, 500_000
	endless := limit.Limit{Name: "endless", Rate: perSecond(1), Burst: 5, Enforcement: limit.Soft, Meter: "endless"}
	shadow := limit.Limit{Name: "tried", Rate: perSecond(1), Burst: 10, Enforcement: limit.Soft, OveragePPM: 1_000_000, Shadow: true}
	bubble(t, plans(1, requests(1, 1000), shadow), func(t *testing.T, s *fake) {
		c := dial(t, s)
		s.try(plans(7, soft, endless, limit.Limit{Name: "extra", Rate: perSecond(1), Burst: 40}))
		time.Sleep(time.Second)
		for range 60 {
			drive(c, 1, 1, tenant("a"))
			time.Sleep(time.Microsecond) // the shadow's buckets are answered
		}
		time.Sleep(100 * time.Millisecond)
		want := map[string]Trial{
			"tried":    {Limit: "tried", Admitted: 20, WouldDeny: 40},
			"requests": {Limit: "requests", Version: true, Admitted: 30, WouldDeny: 30},
			"endless":  {Limit: "endless", Version: true, Admitted: 30},
			"extra":    {Limit: "extra", Version: true, Admitted: 30},
		}
		for _, tr := range c.Counters().Trials {
			if tr != want[tr.Limit] {
				t.Errorf("%+v, want %+v", tr, want[tr.Limit])
			}
			delete(want, tr.Limit)
		}
		if len(want) > 0 {
			t.Errorf("not tried: %v", want)
		}
		shut(t, c)
		for _, r := range s.allRows() {
			if r.Version == 7 && (r.Admitted != 0 || r.Overage != 0 || r.Limit != "requests" || r.Denied != 30) {
				t.Errorf("row %+v of the shadow version, want the 30 that the cap would have denied", r)
			}
		}
	})
}

// A limit that becomes one of slots has all of them: what was spent before never ends, and is not in use.
func TestALimitOfTokensBecomesOneOfSlots(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: perSecond(1), Burst: 100}), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		drive(c, 1, 80, tenant("a"))
		for i, l := range []limit.Limit{
			{Name: "l", Algorithm: limit.Concurrency, Slots: 10},
			{Name: "l", Algorithm: limit.TokenBucket, Rate: perSecond(10), Burst: 10},
			{Name: "l", Algorithm: limit.Concurrency, Slots: 10},
		} {
			s.apply(plans(int64(i)+2, l))
			time.Sleep(time.Minute)
			var got []Decision
			for range 20 {
				if d := c.Allow(t.Context(), tenant("a")); d.Allowed {
					got = append(got, d)
				}
			}
			if len(got) != 10 {
				t.Errorf("%v: admitted %d of 10", l.Algorithm, len(got))
			}
			for _, d := range got {
				d.Done()
			}
		}
		shut(t, c)
	})
}

// A denial above a soft limit says when the limit itself has something, if what it admits above has it later or never.
func TestSoftLimitsDenyUntilTheySufficeThemselves(t *testing.T) {
	l := limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Minute, Calendar: limit.Minute}, Burst: 10, Enforcement: limit.Soft, OveragePPM: 200_000}
	bubble(t, plans(1, l), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		h, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			if d := c.Allow(t.Context(), tenant("a")); !d.Allowed {
				t.Fatalf("%+v, want 10 and 2 above them", d)
			}
		}
		for name, decide := range map[string]func(n int64) Decision{
			"by attributes": func(n int64) Decision { return c.AllowN(t.Context(), n, tenant("a")) },
			"by a handle":   func(n int64) Decision { return h.AllowN(t.Context(), n) },
		} {
			for n, want := range map[int64]time.Duration{1: 6 * time.Second, 5: 30 * time.Second, 11: 0} {
				if d := decide(n); d.Allowed || d.RetryAfter != want {
					t.Errorf("%s, %d units: %+v, want denied for %v", name, n, d, want)
				}
			}
		}
		shut(t, c)
	})
}

// A question about no units is answered as one unit would be decided, by lists, priorities, what is above a soft limit, lockouts and
// switches, and takes nothing.
func TestAQuestionIsAnsweredAsARequestIsDecided(t *testing.T) {
	on := func(endpoint string, l limit.Limit) limit.Limit {
		l.Name, l.Match, l.Meter = endpoint, []limit.Match{{Attribute: "endpoint", Patterns: []string{endpoint}}}, endpoint
		return l
	}
	hour := limit.Rate{Units: 2, Per: time.Hour, Calendar: limit.Hour}
	of := func(user string) []limit.Match { return []limit.Match{{Attribute: "user", Patterns: []string{user}}} }
	p := plans(1,
		on("hard", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 2}),
		on("deny", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 2, Deny: of("bad")}),
		on("allow", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 2, Allow: of("good")}),
		on("soft", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 2, Enforcement: limit.Soft, OveragePPM: limit.Micro}),
		on("boundless", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 2, Enforcement: limit.Soft}),
		on("lock", limit.Limit{Algorithm: limit.TokenBucket, Rate: perSecond(2), Burst: 2, Lockout: time.Hour}),
		on("prior", limit.Limit{Algorithm: limit.FixedWindow, Rate: hour, Reserve: limit.Reserve{LowPPM: 500_000}}),
		on("paced", limit.Limit{Algorithm: limit.LeakyBucket, Rate: perSecond(10), Burst: 1}),
		on("window", limit.Limit{Algorithm: limit.FixedWindow, Rate: hour}),
		on("quick", limit.Limit{Algorithm: limit.TokenBucket, Rate: perSecond(100), Burst: 100}),
	)
	bubble(t, p, func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		at := func(endpoint, user string) []Attribute {
			return []Attribute{tenant("a"), {"endpoint", endpoint}, {"user", user}, Priority("low")}
		}
		for _, endpoint := range []string{"hard", "deny", "allow", "soft", "boundless", "lock", "prior", "paced", "window", "quick"} {
			for _, user := range []string{"u", "bad", "good"} {
				for range 120 {
					asked := c.AllowN(t.Context(), 0, at(endpoint, user)...)
					if again := c.AllowN(t.Context(), 0, at(endpoint, user)...); again.Allowed != asked.Allowed || again.Reason != asked.Reason {
						t.Errorf("%s, %s: %+v, and asked again %+v", endpoint, user, asked, again)
					}
					d := c.Allow(t.Context(), at(endpoint, user)...)
					// What only the server knows, the first denial tells.
					if asked.Allowed != d.Allowed && (!asked.Allowed || d.RetryAfter == 0 || c.AllowN(t.Context(), 0, at(endpoint, user)...).Allowed) {
						t.Errorf("%s, %s: foreseen %+v, decided %+v by %q", endpoint, user, asked, d, d.Limit())
						break
					}
				}
			}
		}
		time.Sleep(5 * time.Second)
		if d := c.AllowN(t.Context(), 0, at("lock", "u")...); d.Allowed || d.RetryAfter < 59*time.Minute {
			t.Errorf("locked, though full: %+v, want denied for the rest of the hour", d)
		}
		if d := c.AllowN(t.Context(), 0, at("quick", "u")...); !d.Allowed {
			t.Errorf("full again: %+v, want allowed", d)
		}
		s.flip(limit.Switches{Mode: limit.ModeAllowAll})
		time.Sleep(time.Second)
		if d := c.AllowN(t.Context(), 0, at("hard", "u")...); !d.Allowed || d.Reason != ReasonSwitch {
			t.Errorf("all are let in: %+v, want allowed by the switch", d)
		}
		shut(t, c)
	})
}

// Nor is a question answered otherwise than a request is decided where no limit holds it, by a handle without limits of slots, and
// while the server is away.
func TestAQuestionIsAnsweredAsARequestIsDecidedElsewhere(t *testing.T) {
	on := func(endpoint string, l limit.Limit) limit.Limit {
		l.Name, l.Match, l.By = endpoint, []limit.Match{{Attribute: "endpoint", Patterns: []string{endpoint}}}, []string{"user"}
		return l
	}
	hour := limit.Rate{Units: 100, Per: time.Hour, Calendar: limit.Hour}
	p := plans(1,
		on("slots", limit.Limit{Algorithm: limit.Concurrency, Slots: 1}),
		on("window", limit.Limit{Algorithm: limit.FixedWindow, Rate: hour}),
		on("second", limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 1000, Per: time.Second, Calendar: limit.Second}}),
		on("bucket", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 100}),
		on("open", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 100, OnOutage: limit.OutageOpen}),
		on("closed", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 100, OnOutage: limit.OutageClosed}),
		on("soft", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 100, Enforcement: limit.Soft, OveragePPM: limit.Micro}),
		on("boundless", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 100, Enforcement: limit.Soft}),
		on("boundless-closed", limit.Limit{Algorithm: limit.TokenBucket, Rate: hour, Burst: 100, Enforcement: limit.Soft, OnOutage: limit.OutageClosed}),
	)
	bubble(t, p, func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		at := func(endpoint, user string) []Attribute {
			return []Attribute{tenant("a"), {"endpoint", endpoint}, {"user", user}}
		}
		alike := func(a ...Attribute) {
			t.Helper()
			asked := c.AllowN(t.Context(), 0, a...)
			d := c.Allow(t.Context(), a...)
			if asked.Allowed != d.Allowed || asked.Reason != d.Reason && d.Reason != ReasonOverage || asked.RetryAfter != d.RetryAfter {
				t.Errorf("%v: foreseen %+v, decided %+v", a, asked, d)
			}
		}
		c.Allow(t.Context(), tenant("a"))
		alike(tenant("a"))
		alike(Attribute{"user", "u"})
		d := c.Allow(t.Context(), at("slots", "u")...)
		h, err := c.Limiter(t.Context(), at("slots", "u")...)
		if err != nil {
			t.Fatal(err)
		}
		if again := c.Allow(t.Context(), at("slots", "u")...); again.Allowed {
			t.Errorf("a second slot of one: %+v", again)
		}
		if asked, got := h.AllowN(t.Context(), 0).Allowed, h.AllowN(t.Context(), 1).Allowed; asked != got {
			t.Errorf("a handle of slots: foreseen %v, decided %v", asked, got)
		}
		d.Done()
		endpoints := []string{"window", "second", "bucket", "open", "closed", "soft", "boundless", "boundless-closed"}
		for _, endpoint := range endpoints {
			for range 3 {
				c.Allow(t.Context(), at(endpoint, "known")...)
			}
		}
		s.set(func(f *fake) { f.down = true })
		time.Sleep(3 * time.Second)
		for _, endpoint := range endpoints {
			alike(at(endpoint, "new")...)
		}
		for range 4 {
			for _, endpoint := range endpoints {
				for range 120 {
					alike(at(endpoint, "known")...)
				}
			}
			time.Sleep(10 * time.Minute)
		}
		s.flip(limit.Switches{Mode: limit.ModeShadowAll})
		s.set(func(f *fake) { f.down = false })
		time.Sleep(3 * time.Second)
		alike(tenant("a"))
		alike(at("window", "new")...)
		shut(t, c)
	})
}

// A denial while the server is away says when it makes sense to come again, soft limit or not; and a soft limit that is closed then
// denies, whether or not the request was known before.
func TestDenialsWhileTheServerIsAway(t *testing.T) {
	on := func(endpoint string, l limit.Limit) limit.Limit {
		l.Name, l.Match = endpoint, []limit.Match{{Attribute: "endpoint", Patterns: []string{endpoint}}}
		l.Rate, l.Burst = limit.Rate{Units: 100, Per: time.Hour, Calendar: limit.Hour}, 100
		return l
	}
	p := plans(1, on("hard", limit.Limit{}), on("soft", limit.Limit{Enforcement: limit.Soft, OveragePPM: limit.Micro}),
		on("closed", limit.Limit{Enforcement: limit.Soft, OnOutage: limit.OutageClosed}))
	bubble(t, p, func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s)
		at := func(endpoint string) []Attribute { return []Attribute{tenant("a"), {"endpoint", endpoint}} }
		handles := make(map[string]*Limiter)
		for _, endpoint := range []string{"hard", "soft", "closed"} {
			for range 3 {
				c.Allow(t.Context(), at(endpoint)...)
			}
			h, err := c.Limiter(t.Context(), at(endpoint)...)
			if err != nil {
				t.Fatal(err)
			}
			handles[endpoint] = h
		}
		s.set(func(f *fake) { f.down = true })
		for _, after := range []time.Duration{3 * time.Second, time.Hour} {
			time.Sleep(after)
			for endpoint, h := range handles {
				for range 120 {
					c.Allow(t.Context(), at(endpoint)...)
				}
				for _, d := range []Decision{c.Allow(t.Context(), at(endpoint)...), h.AllowN(t.Context(), 1)} {
					if open := endpoint == "closed" && after < time.Hour; d.Allowed != open || !open && d.RetryAfter != time.Second {
						t.Errorf("%s, %v later: %+v, want allowed %v, or denied for a second", endpoint, after, d, open)
					}
				}
			}
		}
		s.set(func(f *fake) { f.down = false })
		time.Sleep(3 * time.Second)
		shut(t, c)
	})
}

// A limit on trial goes on counting after its bucket was dropped for want of use, while its tenant stays in use.
func TestATrialOutlivesItsBucket(t *testing.T) {
	shadow := limit.Limit{Name: "tried", Rate: perSecond(1), Burst: 10, Meter: "tried", Shadow: true, Match: []limit.Match{{Attribute: "endpoint", Patterns: []string{"rare"}}}}
	bubble(t, plans(1, requests(1000, 1000), shadow), func(t *testing.T, s *fake) {
		c := dial(t, s)
		rarely := func() {
			for range 5 {
				c.Allow(t.Context(), tenant("a"), Endpoint("rare"))
			}
		}
		rarely()
		for range 60 {
			time.Sleep(10 * time.Second)
			c.Allow(t.Context(), tenant("a"))
		}
		rarely()
		time.Sleep(time.Second)
		var counted int64
		for _, trial := range c.Counters().Trials {
			counted += trial.Admitted + trial.WouldDeny
		}
		if counted != 10 {
			t.Errorf("the limit on trial has counted %d units, want 10", counted)
		}
		shut(t, c)
	})
}
