package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

func perSecond(n int64) limit.Rate {
	return limit.Rate{Units: n, Per: time.Second, Calendar: limit.Second}
}

// plans is a policy of one plan, p, that unknown tenants are not under.
func plans(version int64, limits ...limit.Limit) *limit.Policy {
	for i := range limits {
		if limits[i].Algorithm == 0 {
			limits[i].Algorithm = limit.TokenBucket
		}
		limits[i].EpsilonPPM = limit.DefaultEpsilonPPM
	}
	return &limit.Policy{Version: version, Plans: []limit.Plan{{Name: "p", Limits: limits}}, Slot: 5 * time.Minute}
}

// bubble runs f with a fake server in a synctest bubble: time is virtual there,
// and a goroutine left behind fails the test.
func bubble(t *testing.T, p *limit.Policy, f func(t *testing.T, s *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, p)
		s.tenants["a"] = limit.Tenant{ID: "a", Exists: true, Plan: "p", Revision: 1}
		f(t, s)
		s.stop()
	})
}

func dial(t *testing.T, s *fake, opts ...Option) *Client {
	t.Helper()
	c, err := Dial(t.Context(), "passthrough:fake", append([]Option{WithDialer(s.dial), WithAgent("gw-1")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func shut(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func tenant(id string) Attribute { return Tenant(id) }

func TestAdmitsTheBurstAndBillsIt(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1), Burst: 25, Meter: "requests"}), func(t *testing.T, s *fake) {
		c := dial(t, s)
		admitted := int64(0)
		for range 60 {
			if d := c.Allow(t.Context(), tenant("a")); d.Allowed {
				admitted++
			} else if d.Limit() != "requests" || d.Reason != ReasonLimit || d.RetryAfter <= 0 {
				t.Fatalf("denied by %q, %v, retry after %v; want by requests, limit, and a time", d.Limit(), d.Reason, d.RetryAfter)
			}
		}
		if admitted != 25 {
			t.Errorf("admitted %d, want 25", admitted)
		}
		shut(t, c)
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted: %+v", got, admitted, s.allRows())
		}
		if got := s.spent("requests|a|"); got != admitted {
			t.Errorf("the bucket handed out %d for good, %d were admitted", got, admitted)
		}
		if d := c.Allow(context.Background(), tenant("a")); d.Allowed || d.Reason != ReasonClosed {
			t.Errorf("after Close: %+v, want denied as closed", d)
		}
		if st := c.Stats(); st.UnitsSettled != 25 || c.Counters().Admitted != 25 || c.Counters().Denied != 35 {
			t.Errorf("stats %+v, want 25 settled, 25 admitted, 35 denied", st)
		}
	})
}
