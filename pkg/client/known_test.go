package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/limit"
)

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
			if known, _, _ := recalled(c, request); known == nil || known.Limits() != 3 || known.Entry(0).Dead() {
				t.Fatal("the request is not known, with the buckets that there are, after 20 of it")
			}
			time.Sleep(time.Minute)
			c.ask(func(l *loop) { l.collect() })
			time.Sleep(time.Second)
			c.ask(func(l *loop) { l.sweep(l.collect()) })
			known, _, _ := recalled(c, request)
			if known == nil || !known.Entry(0).Dead() || !known.Entry(2).Dead() || c.Stats().Buckets != 0 {
				t.Fatal("want the request known, and its buckets no more")
			}
		}
		shut(t, c)
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted", got, admitted)
		}
		if st := c.Stats(); st.Admitted != 3*admitted || st.Denied != 0 {
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
				last = c.Allow(t.Context(), tenant("a"), Attribute{AttrUser, user}, Attribute{AttrPriority, priority})
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
