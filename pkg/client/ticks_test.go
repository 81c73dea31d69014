package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
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

// Denied by the last tick, one stays away for no less than the bucket says and a tick more at the most, two milliseconds more where its tokens say
// it, and what there is again is had as soon as by the clock.
func TestDeniedByTicks(t *testing.T) {
	for name, by := range map[string]struct {
		handle bool // which has the tokens at home
		more   time.Duration
	}{
		"a bucket": {true, 0}, "its tokens": {false, 2048 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, plans(1, requests(10, 10)), func(t *testing.T, s *fake) {
				c := dial(t, s)
				admitted, ticked, tokens := 0, 0, 0
				began := time.Now()
				if c.Allow(t.Context(), tenant("a")).Allowed {
					admitted++
				}
				a := attributesOf([]Attribute{tenant("a")})
				set := c.reg.Find("a")
				e := c.reg.Entry(&set.List, 0, a)
				if by.handle {
					e = only(t, c, tenant("a"))
				}
				for time.Since(began) < 10*time.Second {
					_, plain, _ := c.reg.Recall(agent.KeyOf(a), a)
					say := !plain.None() && plain.Shut()
					d := c.Allow(t.Context(), tenant("a"))
					if d.Allowed {
						admitted++
					} else if at := c.ticks.at.Load(); at > 0 {
						ticked++
						if say {
							tokens++
						}
						says := time.Duration(e.RetryAfter(c.now(), 1, false)) * time.Microsecond
						if d.RetryAfter < says || d.RetryAfter > says+tickEvery+by.more {
							t.Fatalf("after %v denied for %v, where the bucket says %v", time.Since(began), d.RetryAfter, says)
						}
					}
					time.Sleep(30 * time.Microsecond)
				}
				if ticked < 200_000 {
					t.Errorf("only %d of some 300,000 were denied while it ticked", ticked)
				}
				if by.handle != (tokens == 0) {
					t.Errorf("of %d denials %d were where the tokens said that there are none", ticked, tokens)
				}
				if least := 10 + 10*10 - 2; admitted < least || admitted > 10+10*10 {
					t.Errorf("admitted %d, want %d to 110", admitted, least)
				}
				shut(t, c)
			})
		})
	}
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

// A ticker that has to wait for a processor is noticed by those who are denied: what is there again is had all the same.
func TestLateTick(t *testing.T) {
	bubble(t, plans(1, requests(10, 10)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		e := only(t, c, tenant("a"))
		for i := 0; ; i++ {
			if _, shut := e.Shut(c.now() + tickMargin); shut {
				break
			}
			if c.Allow(t.Context(), tenant("a")); i > 1000 {
				t.Fatal("the bucket never denies for certain")
			}
		}
		c.ticks.at.Store(c.now()) // and nobody ticks
		time.Sleep(time.Second)
		asked := 1
		for !c.Allow(t.Context(), tenant("a")).Allowed {
			if asked++; asked > tickOf+1 {
				t.Fatalf("%d are denied by a tick of a second ago", asked)
			}
		}
		if asked < 2 {
			t.Error("nothing is denied by a tick that is late: this proves little")
		}
		c.ticks.at.Store(0)
		shut(t, c)
	})
}

// One who was late to want ticks begins none beside those that there are.
func TestOneTicker(t *testing.T) {
	bubble(t, plans(1, requests(10, 10)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		for range 3 {
			c.ticks.wanted.Store(true)
			c.rouse()
			time.Sleep(tickEvery / 4)
		}
		ticks, was := 0, int64(0)
		for range 100 {
			time.Sleep(tickEvery / 8)
			if at := c.ticks.at.Load(); at != was {
				ticks, was = ticks+1, at
			}
		}
		if ticks < 11 || ticks > 14 {
			t.Errorf("%d ticks in 12.5 of their intervals, want as many", ticks)
		}
		time.Sleep(tickFor)
		if c.ticks.at.Load() != 0 {
			t.Error("it ticks for longer than it should")
		}
		shut(t, c)
	})
}
