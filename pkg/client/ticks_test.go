package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/limit"
)

// only returns the one bucket of a request.
func only(t *testing.T, c *Client, a ...Attribute) *agent.Entry {
	t.Helper()
	l, err := c.Limiter(t.Context(), a...)
	if err != nil {
		t.Fatal(err)
	}
	return l.entry.Load().Entry
}

// Denied by the last tick, one stays away for no less than the bucket says and a tick more at the most, and what there is again is had
// as soon as by the clock.
func TestDeniedByTicks(t *testing.T) {
	bubble(t, plans(1, requests(10, 10)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		e := only(t, c, tenant("a"))
		admitted, ticked := 0, 0
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			d := c.Allow(t.Context(), tenant("a"))
			if d.Allowed {
				admitted++
			} else if at := c.ticks.at.Load(); at > 0 {
				ticked++
				says := time.Duration(e.RetryAfter(c.now(), 1, false)) * time.Microsecond
				if d.RetryAfter < says || d.RetryAfter > says+tickEvery {
					t.Fatalf("after %v denied for %v, where the bucket says %v", time.Since(began), d.RetryAfter, says)
				}
			}
			time.Sleep(30 * time.Microsecond)
		}
		if ticked < 200_000 {
			t.Errorf("only %d of some 300,000 were denied while it ticked", ticked)
		}
		if least := 10 + 10*10 - 2; admitted < least || admitted > 10+10*10 {
			t.Errorf("admitted %d, want %d to 110", admitted, least)
		}
		shut(t, c)
	})
}

// It ticks for a while where denials are many, and not where they are few, nor once the client is closed.
func TestTicksWhereDenialsAreMany(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, By: []string{"tenant"}, Rate: limit.Rate{Units: 1, Per: time.Hour}}), func(t *testing.T, s *fake) {
		c := dial(t, s)
		ask := func(n int, apart time.Duration) (ticked bool) {
			for range n {
				if d := c.Allow(t.Context(), tenant("a")); d.Allowed {
					t.Error("admitted beyond the limit")
				}
				ticked = ticked || c.ticks.at.Load() > 0
				time.Sleep(apart)
			}
			return ticked
		}
		c.Allow(t.Context(), tenant("a"))
		if ask(5000, 300*time.Microsecond) {
			t.Error("it ticks for three thousand denials a second, which ticks would cost more than")
		}
		if !ask(1000, 10*time.Microsecond) {
			t.Error("it does not tick for a hundred thousand a second")
		}
		time.Sleep(tickFor + tickEvery)
		if c.ticks.at.Load() != 0 {
			t.Error("it ticks though nobody is denied")
		}
		if !ask(1000, 10*time.Microsecond) {
			t.Error("it does not tick again")
		}
		before := c.Stats().Denied
		ask(1000, 10*time.Microsecond)
		if got := c.Stats().Denied - before; got != 1000 {
			t.Errorf("%d of 1,000 denials by ticks were counted", got)
		}
		shut(t, c) // the bubble sees to it that nothing goes on
	})
}
