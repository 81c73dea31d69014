package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func requests(rate, burst int64) limit.Limit {
	return limit.Limit{Name: "requests", Rate: perSecond(rate), Burst: burst, Meter: "requests"}
}

// drive asks n times from several goroutines and returns how many were allowed.
func drive(c *Client, goroutines, n int, attrs ...Attribute) int64 {
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range n {
				if c.Allow(context.Background(), attrs...).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return allowed.Load()
}

// Replies to renewals and to settlements are lost, and settlements come twice:
// no unit is admitted without the bucket, none is billed twice, none is missing.
func TestLostAndRepeatedReplies(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		s.twice = true
		var admitted int64
		for range 40 {
			s.set(func(f *fake) { f.loseRenew, f.loseTell = 1, 1 })
			admitted += drive(c, 4, 20, tenant("a"))
			time.Sleep(700 * time.Millisecond)
		}
		s.set(func(f *fake) { f.loseRenew, f.loseTell = 0, 1 })
		shut(t, c)
		if admitted < 500 {
			t.Errorf("admitted %d of 3200, want 500 at least: a lost reply is a delay, no denial", admitted)
		}
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted", got, admitted)
		}
		if got := s.spent("requests|a|"); got < admitted {
			t.Errorf("the bucket handed out %d, fewer than the %d admitted", got, admitted)
		}
	})
}

func TestServerNeverReached(t *testing.T) {
	for _, unknown := range []FailureMode{FailClosed, FailOpen} {
		bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
			s.set(func(f *fake) { f.down = true })
			before := time.Now()
			c := dial(t, s, WithFailureMode(unknown))
			if took := time.Since(before); took != DefaultFirstWait {
				t.Errorf("Dial took %v, want the first wait of %v", took, DefaultFirstWait)
			}
			before = time.Now()
			d := c.AllowN(t.Context(), 3, tenant("a"))
			if d.Allowed != (unknown == FailOpen) || d.Reason != ReasonUnknown || time.Since(before) > 0 {
				t.Errorf("%+v after %v, want unknown at once, allowed only if so told", d, time.Since(before))
			}
			if got, want := c.Stats().Unaccounted, int64(unknown)*3; got != want {
				t.Errorf("%d units unaccounted, want %d", got, want)
			}
			// The server appears; no restart is needed.
			s.set(func(f *fake) { f.down = false })
			time.Sleep(3 * time.Second)
			if d := c.Allow(t.Context(), tenant("a")); !d.Allowed || d.Reason != ReasonLimit {
				t.Errorf("with the server there: %+v, want allowed by the limit", d)
			}
			shut(t, c)
			if got := s.billed(nil); got != 1 {
				t.Errorf("the ledger has %d units, want 1", got)
			}
		})
	}
}

func TestDialRefusesBadOptions(t *testing.T) {
	for name, o := range map[string]Option{
		"agent": WithAgent("a b"), "wait": WithMaxWait(0), "buckets": WithMaxBuckets(0), "share": WithTenantShare(0), "share above all": WithTenantShare(101), "key": WithKey("a\nb"),
		"interval": WithReportInterval(-1), "first": WithFirstWait(-1), "unknown": WithFailureMode(7),
	} {
		if _, err := Dial(t.Context(), "passthrough:x", o); !errors.Is(err, ErrOption) {
			t.Errorf("%s: %v, want ErrOption", name, err)
		}
	}
	for _, target := range []string{"quota", "a:7600,b", "a:7600;b:7600,c"} {
		if _, err := Dial(t.Context(), target); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "write HOST:PORT") {
			t.Errorf("target %q: got %v, want ErrOption that says how to write it", target, err)
		}
	}
	if _, err := Dial(t.Context(), ""); !errors.Is(err, ErrOption) {
		t.Errorf("no target: %v, want ErrOption", err)
	}
}

// The server goes away under load, for a long time, and comes back: what is
// leased goes on until it is spent, then the limit's on_outage decides; all of it is
// billed once.
func TestServerAwayAndBack(t *testing.T) {
	open := requests(100, 1000)
	open.Name, open.OnOutage, open.Match = "open", limit.OutageOpen, []limit.Match{{Attribute: "endpoint", Patterns: []string{"/open"}}}
	shutl := requests(100, 1000)
	shutl.Match = []limit.Match{{Attribute: "endpoint", Patterns: []string{"/shut"}}}
	bubble(t, plans(1, shutl, open), func(t *testing.T, s *fake) {
		c := dial(t, s)
		to := func(path string) []Attribute { return []Attribute{tenant("a"), Endpoint(path)} }
		admitted := drive(c, 2, 50, to("/shut")...) + drive(c, 2, 50, to("/open")...)
		if admitted != 200 {
			t.Fatalf("admitted %d of 200 with the server there", admitted)
		}
		s.set(func(f *fake) { f.down = true })
		// Leases run out; a request meanwhile waits, but no longer than it may.
		for range 40 {
			before := time.Now()
			admitted += drive(c, 1, 1, to("/shut")...)
			if took := time.Since(before); took > DefaultMaxWait {
				t.Fatalf("a decision took %v while the server was away", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !c.Stats().Lost {
			t.Error("contact is not lost after 4 s without a server")
		}
		d := c.Allow(t.Context(), to("/shut")...)
		if d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("%+v, want denied with a time", d)
		}
		// A bucket never leased is decided by on_outage.
		d = c.Allow(t.Context(), to("/open")...)
		for range 20 {
			d = c.Allow(t.Context(), to("/open")...)
			if d.Allowed {
				admitted++
			}
		}
		time.Sleep(5 * time.Minute)
		s.restart()
		s.set(func(f *fake) { f.down = false })
		time.Sleep(3 * time.Second)
		if c.Stats().Lost {
			t.Error("contact is still lost 3 s after the server came back")
		}
		got := drive(c, 2, 50, to("/shut")...)
		if got != 100 {
			t.Errorf("admitted %d of 100 after the server came back", got)
		}
		admitted += got
		shut(t, c)
		st := c.Stats()
		if got := s.billed(nil); got != c.Counters().Billed || st.UnitsPending != 0 {
			t.Errorf("the ledger has %d units, the client admitted %d, %d pending", got, c.Counters().Billed, st.UnitsPending)
		}
		_ = admitted
	})
}

// The lease store is away while the server answers: as good as no server for
// leases, while usage goes on being settled.
func TestStoreAway(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		s.dark = true
		c := dial(t, s)
		d := c.Allow(t.Context(), tenant("a"))
		if d.Allowed || d.Reason != ReasonOutage {
			t.Errorf("%+v, want denied by outage", d)
		}
		s.set(func(f *fake) { f.dark = false })
		time.Sleep(2 * time.Second)
		if d := c.Allow(t.Context(), tenant("a")); !d.Allowed {
			t.Errorf("%+v with the store back, want allowed", d)
		}
		shut(t, c)
	})
}

// A server that answers for a bucket, if only that it does not know it, or that the renewal is an older one, is not away:
// requests wait for what it says next, and are not decided as in an outage, and least of all for ever.
func TestABucketThatIsAnsweredIsInContact(t *testing.T) {
	for _, status := range []quotav1.Grant_Status{quotav1.Grant_STATUS_UNKNOWN, quotav1.Grant_STATUS_STALE} {
		for _, onOutage := range []limit.Outage{limit.OutageFallback, limit.OutageOpen} {
			t.Run(fmt.Sprintf("%v, %v", status, onOutage), func(t *testing.T) {
				l := requests(100, 1000)
				l.OnOutage = onOutage
				bubble(t, plans(1, l), func(t *testing.T, s *fake) {
					s.dark = true
					c := dial(t, s)
					drive(c, 1, 2, tenant("a"))
					if d := c.Allow(t.Context(), tenant("a")); d.Allowed != (onOutage == limit.OutageOpen) {
						t.Fatalf("%+v with the store away, want what on_outage says", d)
					}
					s.set(func(f *fake) { f.dark, f.answers = false, status })
					time.Sleep(3 * time.Second)
					if d := c.Allow(t.Context(), tenant("a")); d.Reason != ReasonDeadline {
						t.Errorf("%+v with the store back, want it to wait for a lease", d)
					}
					s.set(func(f *fake) { f.answers = 0 })
					if d := c.Allow(t.Context(), tenant("a")); !d.Allowed || s.spent("requests|a|") == 0 {
						t.Errorf("%+v, want it allowed by a lease", d)
					}
					shut(t, c)
				})
			})
		}
	}
}

// How long a bucket is not answered counts from its last answer, whatever that was: one call that the store does not
// answer is no outage.
func TestOneCallUnansweredAfterAnAnswerIsNoOutage(t *testing.T) {
	for _, status := range []quotav1.Grant_Status{quotav1.Grant_STATUS_UNKNOWN, quotav1.Grant_STATUS_STALE} {
		t.Run(status.String(), func(t *testing.T) {
			bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
				s.answers = status
				c := dial(t, s, WithMaxWait(20*time.Second))
				said := make(chan Decision)
				go func() { said <- c.Allow(context.Background(), tenant("a")) }()
				time.Sleep(5 * time.Second)
				s.set(func(f *fake) { f.answers, f.darkOnce = 0, true })
				if d := <-said; !d.Allowed {
					t.Errorf("%+v after one call that the store did not answer, want allowed by the next", d)
				}
				shut(t, c)
			})
		})
	}
}

func TestCloseSaysWhatIsUnsettled(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		if got := drive(c, 1, 7, tenant("a")); got != 7 {
			t.Fatalf("admitted %d of 7", got)
		}
		s.set(func(f *fake) { f.down = true })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		before := time.Now()
		err := c.Close(ctx)
		if !errors.Is(err, ErrUnsettled) || !strings.Contains(err.Error(), "7 units") {
			t.Errorf("Close: %v, want 7 units unsettled", err)
		}
		if took := time.Since(before); took > 6*time.Second {
			t.Errorf("Close took %v with a context of 5 s", took)
		}
		if again := c.Close(context.Background()); !errors.Is(again, ErrUnsettled) {
			t.Errorf("a second Close: %v, want what the first said", again)
		}
	})
}

// Requests wait for a slow server when the client closes: none hangs, and what
// was admitted is what is billed.
func TestCloseUnderLoad(t *testing.T) {
	bubble(t, plans(1, requests(1000, 1000)), func(t *testing.T, s *fake) {
		s.chunk, s.delay = 0, 20*time.Millisecond
		c := dial(t, s)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for {
					switch d := c.Allow(context.Background(), tenant("a")); {
					case d.Allowed:
						allowed.Add(1)
					case d.Reason == ReasonClosed:
						return
					}
				}
			})
		}
		time.Sleep(500*time.Millisecond + time.Microsecond)
		shut(t, c)
		wg.Wait()
		if got := s.billed(nil); got != allowed.Load() || got == 0 {
			t.Errorf("the ledger has %d units, %d were admitted", got, allowed.Load())
		}
	})
}

// The ledger is away for an hour: reports wait, merged beyond a number, and
// everything arrives once, in the slots where it was admitted.
func TestLedgerAway(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		s.set(func(f *fake) { f.ledgerOff = true })
		var admitted int64
		for range 60 {
			admitted += drive(c, 1, 5, tenant("a"))
			time.Sleep(time.Minute)
		}
		if st := c.Stats(); st.ReportsPending > 64 || st.UnitsPending != admitted {
			t.Errorf("%d reports and %d units pending, want 64 at most, and %d", st.ReportsPending, st.UnitsPending, admitted)
		}
		s.set(func(f *fake) { f.ledgerOff = false })
		time.Sleep(time.Minute)
		if st := c.Stats(); st.ReportsPending != 0 || st.UnitsSettled != admitted || time.Since(st.Through) > 30*time.Second {
			t.Errorf("%d reports pending, %d units settled, through %v ago; want none, %d, half a minute", st.ReportsPending, st.UnitsSettled, time.Since(st.Through), admitted)
		}
		shut(t, c)
		slots := make(map[int64]bool)
		for _, r := range s.allRows() {
			slots[r.Slot] = true
			if r.Slot%300 != 0 {
				t.Errorf("slot %d is not of 5 minutes", r.Slot)
			}
		}
		if got := s.billed(nil); got != admitted || len(slots) < 12 {
			t.Errorf("the ledger has %d units in %d slots, want %d in 12", got, len(slots), admitted)
		}
	})
}

// A ledger that is full, or away, is asked less and less by an agent: a few times in the first second, and every few seconds
// after a while. It is so where the call fails, and where each report is answered so.
func TestAFullLedgerIsAskedLessAndLess(t *testing.T) {
	for name, fault := range map[string]func(f *fake, on bool){
		"call":   func(f *fake, on bool) { f.ledgerOff = on },
		"report": func(f *fake, on bool) { f.verdict = map[bool]ledger.Status{true: ledger.Unavailable}[on] },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, metered(), func(t *testing.T, s *fake) {
				c := dial(t, s)
				admitted := drive(c, 1, 5, tenant("a"))
				s.set(func(f *fake) { fault(f, true) })
				time.Sleep(30 * time.Second) // it has something to settle since a while
				before := c.Stats().SettleCalls
				time.Sleep(10 * time.Minute)
				calls := c.Stats().SettleCalls - before
				const settleRetry = 5 * time.Second
				if least, most := int64(10*time.Minute/settleRetry), int64(2*10*time.Minute/settleRetry); calls < least || calls > most {
					t.Errorf("%d calls in ten minutes, want %d to %d", calls, least, most)
				}
				s.set(func(f *fake) { fault(f, false) })
				time.Sleep(6 * time.Second)
				wantBilled(t, s, admitted, "once there is room")
				shut(t, c)
			})
		})
	}
}

// Heartbeats say through when all usage is in, without any traffic.
func TestHeartbeats(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		for range 10 {
			time.Sleep(time.Minute)
			s.mu.Lock()
			upto := time.UnixMilli(s.upto)
			s.mu.Unlock()
			if age := time.Since(upto); age > 12*time.Second {
				t.Errorf("complete through %v ago, want 12 s at most", age)
			}
		}
		shut(t, c)
	})
}

func TestEpochsEnd(t *testing.T) {
	for _, c := range []struct {
		verdict ledger.Status
		lost    int64 // units of the first report that the ledger must not have
		aside   int64
	}{
		{ledger.Fenced, 5, 5},   // a twin may have settled them
		{ledger.Rejected, 5, 5}, // the ledger keeps the report itself
	} {
		bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
			cl := dial(t, s)
			time.Sleep(20 * time.Second)
			drive(cl, 1, 5, tenant("a"))
			s.set(func(f *fake) { f.verdict = c.verdict })
			time.Sleep(30 * time.Second)
			got := drive(cl, 1, 3, tenant("a"))
			if got != 3 {
				t.Fatalf("admitted %d of 3", got)
			}
			time.Sleep(30 * time.Second)
			if st := cl.Stats(); st.UnitsAside != c.aside || st.ReportsAside != 1 || st.UnitsSettled != 3 {
				t.Errorf("status %d: %d units aside in %d reports, %d settled; want %d in 1, 3", c.verdict, st.UnitsAside, st.ReportsAside, st.UnitsSettled, c.aside)
			}
			err := cl.Close(context.Background())
			if !errors.Is(err, ErrUnsettled) {
				t.Errorf("Close: %v, want ErrUnsettled for what is aside", err)
			}
			if got := s.billed(nil); got != 3 {
				t.Errorf("the ledger has %d units, want the 3 of the new epoch", got)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.seq) != 2 {
				t.Errorf("%d epochs settled, want 2", len(s.seq))
			}
		})
	}
}

func TestWaitIsBounded(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s, WithMaxWait(300*time.Millisecond), WithMaxWaiting(5))
		drive(c, 1, 1, tenant("a"))
		s.tenants["b"] = limit.Tenant{ID: "b", Exists: true, Plan: "p"}
		s.set(func(f *fake) { f.delay = 1500 * time.Millisecond; f.chunk = 0 })
		time.Sleep(5 * time.Second)
		var wg sync.WaitGroup
		var deadline, overloaded, other atomic.Int64
		for range 9 {
			wg.Go(func() {
				switch d := c.Allow(context.Background(), tenant("a")); d.Reason {
				case ReasonDeadline:
					deadline.Add(1)
				case ReasonOverloaded:
					overloaded.Add(1)
				default:
					other.Add(1)
				}
			})
		}
		synctest.Wait()
		before := time.Now()
		wg.Wait()
		if took := time.Since(before); took != 300*time.Millisecond {
			t.Errorf("waited %v, want 300 ms", took)
		}
		if deadline.Load() != 5 || overloaded.Load() != 4 || other.Load() != 0 {
			t.Errorf("%d over time, %d overloaded out, %d otherwise; want 5, 4, 0", deadline.Load(), overloaded.Load(), other.Load())
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		before = time.Now()
		if d := c.Allow(ctx, tenant("a")); d.Reason != ReasonDeadline || time.Since(before) != 100*time.Millisecond {
			t.Errorf("%v after %v, want deadline after the context's 100 ms", d.Reason, time.Since(before))
		}
		s.set(func(f *fake) { f.delay = 0 })
		shut(t, c)
		if got := s.billed(nil); got != 1 {
			t.Errorf("the ledger has %d units, want 1: nothing that was denied", got)
		}
	})
}

// The server comes back with an empty store: its policy counts from 1 again, and
// is believed after a while, its tenants too.
func TestServerBeginsAnew(t *testing.T) {
	bubble(t, plans(7, requests(1, 10)), func(t *testing.T, s *fake) {
		s.tenants["a"] = limit.Tenant{ID: "a", Exists: true, Plan: "p", Revision: 40}
		c := dial(t, s)
		if got := drive(c, 1, 20, tenant("a")); got != 10 {
			t.Fatalf("admitted %d, want 10", got)
		}
		p := plans(1, requests(1, 50))
		p.Plans[0].Name = "other"
		s.set(func(f *fake) {
			f.policy, f.buckets = p, make(map[string]*central)
			f.tenants["a"] = limit.Tenant{ID: "a", Exists: true, Plan: "other", Revision: 1}
		})
		s.restart()
		time.Sleep(2 * time.Second)
		if v := c.PolicyVersion(); v != 7 {
			t.Errorf("version %d in force 2 s later, want 7 still: the server may lag", v)
		}
		time.Sleep(10 * time.Second)
		if v := c.PolicyVersion(); v != 1 {
			t.Errorf("version %d in force 12 s later, want 1", v)
		}
		if got := drive(c, 1, 80, tenant("a")); got < 50 || got > 61 {
			t.Errorf("admitted %d under the new policy, want 50 and some", got)
		}
		shut(t, c)
	})
}

// While the ledger takes no reports the log says why: what the call failed with, or what was said of the first report.
func TestWhyUsageWaitsIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(f *fake, on bool)
		says string
	}{
		"the ledger is away": {func(f *fake, on bool) { f.ledgerOff = on }, "Unavailable"},
		"a report waits": {func(f *fake, on bool) {
			f.verdict = map[bool]ledger.Status{true: ledger.Unavailable}[on]
			f.said = "its rows could not be checked"
		}, "unavailable: its rows could not be checked"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, plans(1, requests(1, 10)), func(t *testing.T, s *fake) {
				var log bytes.Buffer
				client := dial(t, s, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				if d := client.Allow(t.Context(), tenant("a")); !d.Allowed {
					t.Fatalf("%+v", d)
				}
				s.set(func(f *fake) { c.set(f, true) })
				time.Sleep(time.Minute)
				s.set(func(f *fake) { c.set(f, false) })
				shut(t, client)
				line := ""
				for l := range strings.Lines(log.String()) {
					if strings.Contains(l, "usage waits to be settled") {
						line += l
					}
				}
				if strings.Count(line, "\n") != 1 || !strings.Contains(line, c.says) || strings.Contains(line, "<nil>") {
					t.Errorf("the log says %q, want one line that says %q", line, c.says)
				}
			})
		})
	}
}
