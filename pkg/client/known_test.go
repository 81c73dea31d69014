package client

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/reqcache"
	"github.com/f4ee788f/quota/internal/core/session"
)

// only returns the one bucket of a request.
func only(t *testing.T, c *Client, a ...Attribute) *agent.Entry {
	t.Helper()
	l, err := c.Limiter(t.Context(), a...)
	if err != nil {
		t.Fatal(err)
	}
	return l.only.Load()
}

// recalled is what a request came to before.
func recalled(c *Client, a []Attribute) (known *agent.Resolution, again bool) {
	known, _, again = c.reg.Recall(reqcache.KeyOf(attributesOf(a)), attributesOf(a))
	return known, again
}

// A request that is known is decided by the buckets that there are: one that was dropped meanwhile is
// made anew, and every unit is billed once.
func TestKnownRequestWhoseBucketWasDropped(t *testing.T) {
	p := plans(1,
		limit.Limit{Name: "per-user", By: []string{"user"}, Rate: perSecond(1000), Burst: 1000},
		limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"},
		limit.Limit{Name: "by-endpoint", By: []string{"endpoint"}})
	bubble(t, p, func(t *testing.T, s *fake) {
		c := dial(t, s, WithReportInterval(time.Hour), WithIdle(time.Second/2))
		admitted := int64(0)
		request := []Attribute{tenant("a"), {"user", "u"}, {"endpoint", "GET /"}}
		for range 5 {
			for range 20 {
				if d := c.Allow(t.Context(), request...); !d.Allowed || d.Limit() == "" {
					t.Fatalf("denied: %+v by %q", d, d.Limit())
				}
				admitted++
			}
			if known, _ := recalled(c, request); known == nil || known.Limits() != 3 || known.Entry(0).Dead() {
				t.Fatal("the request is not known, with the buckets that there are, after 20 of it")
			}
			time.Sleep(time.Minute)
			c.session.Ask((*session.Loop).Collect)
			time.Sleep(time.Second)
			c.session.Ask((*session.Loop).Sweep)
			known, _ := recalled(c, request)
			if known == nil || !known.Entry(0).Dead() || !known.Entry(2).Dead() || c.Stats().Buckets != 0 {
				t.Fatal("want the request known, and its buckets no more")
			}
		}
		shut(t, c)
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted", got, admitted)
		}
		if st := c.Counters(); st.Admitted != 3*admitted || st.Denied != 0 {
			t.Errorf("admitted %d and denied %d by three limits, want %d and none", st.Admitted, st.Denied, 3*admitted)
		}
	})
}

// What limits' lists and reserves say is remembered only where the attributes alone decide it.
func TestKnownRequestsAndLists(t *testing.T) {
	p := plans(1, limit.Limit{
		Name: "requests", Rate: perSecond(1), Burst: 40, Meter: "requests", Reserve: limit.Reserve{LowPPM: 500_000},
		Allow: []limit.Match{{Attribute: "user", Patterns: []string{"root"}}},
		Deny:  []limit.Match{{Attribute: "user", Patterns: []string{"mallory"}}},
	}, limit.Limit{Name: "all", Rate: perSecond(1000), Burst: 1000})
	bubble(t, p, func(t *testing.T, s *fake) {
		c := dial(t, s)
		ask := func(n int, user, priority string) (allowed int, last Decision) {
			for range n {
				last = c.Allow(t.Context(), tenant("a"), User(user), Priority(priority))
				if last.Allowed {
					allowed++
				}
			}
			return allowed, last
		}
		if n, d := ask(5, "mallory", ""); n != 0 || d.Reason != ReasonListed {
			t.Errorf("%d of 5 of the deny list are allowed, %v", n, d.Reason)
		}
		if n, d := ask(10, "u", ""); n != 10 || d.Reason != ReasonLimit {
			t.Errorf("%d of 10 are allowed, %v", n, d.Reason)
		}
		if n, d := ask(30, "v", "low"); n > 10 || d.Reason != ReasonPriority {
			t.Errorf("%d of 30 low ones are allowed where half of 40 is reserved, and 10 are taken, %v", n, d.Reason)
		}
		if n, d := ask(100, "root", ""); n != 100 || d.Limit() != "all" {
			t.Errorf("%d of 100 of the allow list are allowed, by %q", n, d.Limit())
		}
		if n, d := ask(60, "u", ""); n > 30 || d.Reason != ReasonLimit || d.Allowed {
			t.Errorf("%d of 60 more are allowed, %v", n, d.Reason)
		}
		shut(t, c)
	})
}

// heavy are requests of two limits, all's and theirs, which is asked last, for it has a meter.
func heavy(t *testing.T, all, theirs limit.Limit, f func(t *testing.T, c *Client, request []Attribute)) {
	theirs.Name, theirs.Algorithm, theirs.By, theirs.Meter = "heavy", limit.FixedWindow, []string{"user"}, "heavy"
	theirs.Match = []limit.Match{{Attribute: "endpoint", Patterns: []string{"/heavy"}}}
	all.Name, all.By = "all", []string{"tenant"}
	bubble(t, plans(1, all, theirs), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithMaxWait(time.Minute))
		defer shut(t, c)
		f(t, c, []Attribute{tenant("a"), User("u"), Endpoint("/heavy")})
	})
}

// plentyAndFive are limits of which theirs is spent, and the bucket of the other.
func plentyAndFive(t *testing.T, f func(t *testing.T, c *Client, request []Attribute, bucket *agent.Entry)) {
	all := limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1000, Per: time.Hour}, Burst: 2000}
	heavy(t, all, limit.Limit{Rate: limit.Rate{Units: 5, Per: 24 * time.Hour}}, func(t *testing.T, c *Client, request []Attribute) {
		for range 5 {
			if d := c.Allow(t.Context(), request...); !d.Allowed {
				t.Fatalf("what is there is denied: %+v", d)
			}
		}
		f(t, c, request, only(t, c, tenant("a")))
	})
}

// A request that one of its limits denies, and did before, takes nothing of the others, not for a moment, and says what that limit says.
// The wire has milliseconds.
func TestADenialTakesNothingOfOtherLimits(t *testing.T) {
	plentyAndFive(t, func(t *testing.T, c *Client, request []Attribute, bucket *agent.Entry) {
		taken := 0
		for i := range 1000 {
			before := bucket.State(0).Tokens
			d := c.Allow(t.Context(), request...)
			if midnight := 24*time.Hour - time.Duration(time.Now().UnixNano()%int64(24*time.Hour)); d.Allowed || d.Limit() != "heavy" || d.RetryAfter > midnight+time.Millisecond || d.RetryAfter < midnight-time.Second {
				t.Fatalf("denial %d: %s, %v, want by heavy, %v", i, d.Limit(), d.RetryAfter, midnight)
			}
			if bucket.State(0).Tokens != before {
				taken++
			}
		}
		if taken > 4 { // those before it was certain, which put back what they took
			t.Errorf("%d of 1,000 denied requests took of another limit", taken)
		}
		if n := c.Counters().Denied; n != 1000 {
			t.Errorf("%d denials are counted of 1,000", n)
		}
		got := 0
		for range 2000 {
			if c.Allow(t.Context(), tenant("a")).Allowed {
				got++
			}
		}
		if got != 1995 {
			t.Errorf("%d of 1,995 are left of the other limit", got)
		}
	})
}

// So it is of two who are denied at once, and often.
func TestManyDenialsTakeNothingOfOtherLimits(t *testing.T) {
	plentyAndFive(t, func(t *testing.T, c *Client, request []Attribute, bucket *agent.Entry) {
		const each, callers = 50_000, 2
		var wg sync.WaitGroup
		var taken atomic.Int64
		for range callers {
			wg.Go(func() {
				for range each {
					before := bucket.State(0).Tokens
					if c.Allow(t.Context(), request...).Allowed {
						t.Error("allowed beyond the limit")
					}
					if bucket.State(0).Tokens != before {
						taken.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := taken.Load(); n > each*callers/100 {
			t.Errorf("%d of %d denied requests took of another limit", n, each*callers)
		}
		if n := c.Counters().Denied; n != each*callers {
			t.Errorf("%d denials are counted of %d", n, each*callers)
		}
	})
}

// The first of two limits that deny is the one that is told of.
func TestTheFirstLimitThatDeniesIsToldOf(t *testing.T) {
	all := limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 5, Per: 24 * time.Hour}}
	heavy(t, all, limit.Limit{Rate: limit.Rate{Units: 3, Per: time.Hour}}, func(t *testing.T, c *Client, request []Attribute) {
		for range 6 {
			c.Allow(t.Context(), request...)
		}
		if d := c.Allow(t.Context(), request...); d.Allowed || d.Limit() != "heavy" {
			t.Errorf("while the first has some: %s, want denied by heavy", d.Limit())
		}
		for range 6 {
			c.Allow(t.Context(), tenant("a")) // another request of the first
		}
		for range 3 {
			if d := c.Allow(t.Context(), request...); d.Allowed || d.Limit() != "all" || d.RetryAfter < 2*time.Hour {
				t.Errorf("denied by %s for %v, want by all until midnight", d.Limit(), d.RetryAfter)
			}
		}
	})
}
