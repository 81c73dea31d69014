//go:build linux

package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// event is one of n units of a tenant.
func event(id string, n int64, of string) Event {
	return Event{Source: "gateway", ID: id, Request: Request{Units: n, Attributes: []Attribute{tenant(of)}}}
}

// mustBook books events, of which so many are not known.
func mustBook(t *testing.T, c *Client, want int, events ...Event) {
	t.Helper()
	if got, err := c.BookEvents(t.Context(), events...); got != want || err != nil {
		t.Errorf("booked %d of %d events, %v; want %d", got, len(events), err, want)
	}
}

// An event is booked whatever the limit has, once, and later requests pay for it.
func TestEventsAreBookedOnce(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 100)), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithJournal(t.TempDir()), WithReportInterval(50*time.Millisecond))
		mustBook(t, c, 2, event("1", 70, "a"), event("2", 50, "a"))
		mustBook(t, c, 0, event("1", 70, "a"))
		mustBook(t, c, 0, event("2", 51, "a")) // it is known by its name, whatever else it says
		mustBook(t, c, 1, event("3", 1, "a"), event("3", 1, "a"), event("2", 50, "a"))
		other := event("1", 5, "a")
		other.Source = "another"
		mustBook(t, c, 1, other)
		mustBook(t, c, 0)
		mustBook(t, c, 1, event("nothing", 0, "a"))
		more := event("4", 1, "a")
		more.Costs = []Cost{{"of no policy", 7}}
		mustBook(t, c, 1, more)
		time.Sleep(time.Second)
		if d := c.Allow(t.Context(), tenant("a")); d.Allowed {
			t.Error("a request was admitted above what was booked")
		}
		if st := c.Stats(); st.EventsKnown != 6 || st.EventsBooked != 6 || st.EventsAgain != 4 {
			t.Errorf("%d events known, %d booked and %d again, want 6, 6 and 4", st.EventsKnown, st.EventsBooked, st.EventsAgain)
		}
		shut(t, c)
		if got := s.billed(nil); got != 127 {
			t.Errorf("the ledger has %d units, want 127", got)
		}
	})
}

// Events that come from many callers at once, each several times, are booked once. None is answered before it is.
func TestEventsOfManyCallersAreBookedOnce(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 10_000)), func(t *testing.T, s *fake) {
		c := dial(t, s, WithJournal(t.TempDir()))
		var booked atomic.Int64
		var all sync.WaitGroup
		for caller := range 16 {
			all.Go(func() {
				for i := range 200 {
					id := (i*7 + caller) % 100
					n, err := c.BookEvents(t.Context(), event(fmt.Sprint(id), 3, "a"), event(fmt.Sprint(id+1), 3, "a"))
					if err != nil {
						t.Error(err)
					}
					booked.Add(int64(n))
					if !c.events.knows(usage.EventID("a", "gateway", fmt.Sprint(id))) {
						t.Errorf("%d is answered, and not known", id)
					}
				}
			})
		}
		all.Wait()
		shut(t, c)
		if got := s.billed(nil); got != 303 || booked.Load() != 101 {
			t.Errorf("the ledger has %d units of %d events, want 303 of 101", got, booked.Load())
		}
	})
}

// Where one event cannot be booked none is, and the error says which. Afterwards the others can be.
func TestEventsAreBookedAllOrNone(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s, WithJournal(t.TempDir()))
		good := []Event{event("1", 7, "a"), event("2", 7, "a")}
		long := event(strings.Repeat("x", 257), 7, "a")
		longer := event("3", 7, "a")
		longer.Source = strings.Repeat("x", 257)
		for what, bad := range map[string]Event{
			"no-plan": event("3", 7, "nobody"), "invalid": event("3", -1, "a"), "too much": event("3", limit.MaxUnits+1, "a"),
			"no id": event("", 7, "a"), "a long id": long, "a long source": longer,
		} {
			_, err := c.BookEvents(t.Context(), append(slices.Clone(good), bad)...)
			var which *EventError
			if !errors.As(err, &which) || which.Index != 2 || !strings.Contains(err.Error(), "event 2: ") {
				t.Errorf("%s: %v, want one of event 2", what, err)
			}
		}
		time.Sleep(15 * time.Second)
		wantBilled(t, s, 0, "of refused events")
		mustBook(t, c, 2, good...)
		shut(t, c)
		wantBilled(t, s, 14, "afterwards")
		if _, err := c.BookEvents(t.Context(), event("9", 1, "a")); err == nil {
			t.Error("a closed client books")
		}
	})
}

// Without a journal, or one that can keep it, nothing is booked unless that was asked for.
func TestEventsNeedAJournal(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		if n, err := c.BookEvents(t.Context(), event("1", 7, "a")); n != 0 || !errors.Is(err, ErrUnjournalled) {
			t.Errorf("booked %d, %v", n, err)
		}
		shut(t, c)
		wantBilled(t, s, 0, "without a journal")
		c = dial(t, s, WithoutEventJournal())
		mustBook(t, c, 1, event("1", 7, "a"))
		mustBook(t, c, 0, event("1", 7, "a"))
		shut(t, c)
		wantBilled(t, s, 7, "without one, as asked for")
	})
}

// A process is killed between any two steps of booking two events. The next start knows each of them and has billed it,
// or neither. The same call again makes both billed once, also of a tenant below another, and after another kill.
func TestEventsOutliveAKillBetweenAnySteps(t *testing.T) {
	events := []Event{event("1", 7, "a/b"), event("2", 30, "a"), event("3", 0, "a")}
	steps := 0
	for last := false; !last; steps++ {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			bubble(t, plans(1, hourly("requests", 20)), func(t *testing.T, s *fake) {
				s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
				of := func(id string) int64 { return s.billed(func(r ledger.Row) bool { return r.Tenant == id }) }
				dir := t.TempDir()
				c := dial(t, s, WithJournal(dir))
				s.set(func(f *fake) { f.ledgerOff = true })
				killed, step := "", 0
				c.events.step = func() {
					if step == steps {
						killed = taken(t, dir)
					}
					step++
				}
				mustBook(t, c, 3, events...)
				if killed == "" { // right after the answer
					killed, last = taken(t, dir), true
				}
				end(t, c)
				s.set(func(f *fake) { f.ledgerOff = false })
				c = reopened(t, s, killed)
				time.Sleep(time.Second)
				known := 0
				for i, e := range events {
					is := c.events.knows(usage.EventID(match.Lookup(attributesOf(e.Attributes), limit.AttrTenant), e.Source, e.ID))
					if is {
						known++
					}
					want := int64(0)
					if is {
						want = e.Units
					}
					if id := []string{"a/b", "a", ""}[i]; id != "" && of(id) != want {
						t.Errorf("%s has %d units of event %d, known %v", id, of(id), i, is)
					}
				}
				if last && known != 3 {
					t.Errorf("%d of 3 answered events are known", known)
				}
				s.set(func(f *fake) { f.ledgerOff = true })
				mustBook(t, c, 3-known, events...)
				again := taken(t, killed)
				end(t, c)
				s.set(func(f *fake) { f.ledgerOff = false })
				c = reopened(t, s, again)
				mustBook(t, c, 0, events...)
				shut(t, c)
				if a, b := of("a"), of("a/b"); a != 30 || b != 7 {
					t.Errorf("a has %d units, and a/b %d; want 30 and 7", a, b)
				}
			})
		})
	}
	if steps < 12 {
		t.Errorf("there were %d steps", steps)
	}
}

// A start that is killed before it has written down what it knows takes nothing from the next one.
func TestAStartThatIsKilledForgetsNoEvents(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir), WithJournalKept(0, 0))
		mustBook(t, c, 1, event("1", 7, "a"))
		shut(t, c)
		killed := taken(t, dir)
		c = dial(t, s, WithJournal(dir))
		log := fmt.Sprint(c.session.Epoch(), ".log")
		text, err := os.ReadFile(filepath.Join(dir, log))
		if err != nil {
			t.Fatal(err)
		}
		cells, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(c.session.Epoch(), ".cells.0")))
		if err != nil {
			t.Fatal(err)
		}
		shut(t, c)
		header := 8 + binary.LittleEndian.Uint32(text) // is all that it wrote
		for name, b := range map[string][]byte{log: text[:header], strings.Replace(log, "log", "cells.0", 1): make([]byte, len(cells))} {
			if err := os.WriteFile(filepath.Join(killed, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c = dial(t, s, WithJournal(killed), WithJournalKept(0, 0))
		mustBook(t, c, 0, event("1", 7, "a"))
		shut(t, c)
	})
}

// An event is known for a day, over starts, and no longer.
func TestEventsAreKnownForADay(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir))
		again := func(after time.Duration) {
			shut(t, c)
			time.Sleep(after) // nothing runs
			c = dial(t, s, WithJournal(dir))
		}
		mustBook(t, c, 1, event("1", 7, "a"))
		again(EventsKnown / 2)
		mustBook(t, c, 0, event("1", 7, "a"))
		again(EventsKnown/2 - time.Minute)
		mustBook(t, c, 0, event("1", 7, "a"))
		time.Sleep(2 * time.Minute)
		mustBook(t, c, 1, event("1", 7, "a"))
		again(EventsKnown)
		if n := c.events.all.Len(); n != 0 {
			t.Errorf("%d events are known", n)
		}
		shut(t, c)
		wantBilled(t, s, 14, "after a day")
	})
}

// A tenant with many events forgets its own, and none of another; so it is after a start with less room.
func TestNoTenantPushesOutTheEventsOfAnother(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		s.tenants["b"] = limit.Tenant{ID: "b", Exists: true, Plan: "p", Revision: 1}
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir), WithEventsKnown(10))
		of := func(id string) (events []Event) {
			for i := range 5 {
				events = append(events, event(id+fmt.Sprint(i), 1, id))
			}
			return events
		}
		for _, e := range of("b") {
			mustBook(t, c, 1, e)
			time.Sleep(time.Millisecond)
		}
		for i := range 100 {
			time.Sleep(time.Millisecond)
			mustBook(t, c, 1, event(fmt.Sprint(i), 1, "a"))
		}
		mustBook(t, c, 0, of("b")...)
		mustBook(t, c, 0, event("95", 1, "a"))
		shut(t, c)
		c = dial(t, s, WithJournal(dir), WithEventsKnown(6))
		mustBook(t, c, 0, of("b")[2:]...)
		mustBook(t, c, 0, event("97", 1, "a"))
		mustBook(t, c, 1, of("b")[0])
		if n, tenants := c.events.all.Len(), len(c.events.tenants); n != 6 || tenants != 2 || len(c.events.byID) != 6 || len(c.events.most) != 2 {
			t.Errorf("%d events of %d tenants are known", n, tenants)
		}
		shut(t, c)
	})
}

// Each tenant's events have names of their own: nobody's usage is taken for another's.
func TestEventsOfTwoTenantsMayBeNamedAlike(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		s.tenants["b"] = limit.Tenant{ID: "b", Exists: true, Plan: "p", Revision: 1}
		c := dial(t, s, WithReportInterval(50*time.Millisecond), WithoutEventJournal())
		for _, id := range []string{"b", "a"} {
			mustBook(t, c, 1, event("1", 1, id))
		}
		shut(t, c)
		if got := s.billed(nil); got != 2 {
			t.Errorf("the ledger has %d units, want 2", got)
		}
	})
}

// An event of a model without weights, or of too much of a limit, is booked at the other limits. One that names a cost
// twice is not.
func TestEventsAreBookedWhereTheyCanBeWeighed(t *testing.T) {
	bubble(t, byModel(tokens(1, "tok", limit.Micro), "small", 15*limit.Micro), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(50*time.Millisecond), WithoutEventJournal())
		of := func(id, name string, costs ...Cost) Event {
			return Event{ID: id, Request: Request{Units: 1, Costs: costs, Attributes: []Attribute{tenant("a"), model(name)}}}
		}
		mustBook(t, c, 3, of("1", "new", Cost{"tok", 7}), of("2", "small", Cost{"tok", 200_000_000}), of("3", "new", Cost{"bytes", 1}))
		var why *NotBookedError
		if _, err := c.BookEvents(t.Context(), of("4", "new", Cost{"tok", 1}, Cost{"tok", 1})); !errors.As(err, &why) || why.Reason != ReasonInvalid {
			t.Errorf("one cost twice: %v, want invalid", err)
		}
		shut(t, c)
		wantMeters(t, s, map[string]int64{"requests": 3, "tokens": 200_000_007, "model": limit.MaxUnits})
	})
}
