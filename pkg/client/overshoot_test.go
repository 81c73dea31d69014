package client

import (
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
)

// on is a limit of one endpoint.
func on(path, name string) limit.Limit {
	return limit.Limit{Name: name, Rate: perSecond(100), Burst: 1000, Match: []limit.Match{{Attribute: "endpoint", Patterns: []string{path}}}}
}

func to(path string) []Attribute { return []Attribute{tenant("a"), Endpoint(path)} }

// While the process stands still, leases end and the store lets go of them; what is spent of them all the same, before they
// are emptied, is counted by limit. What is spent of a lease in time is not, nor what a shadow limit says.
func TestLateSpends(t *testing.T) {
	tried := on("/reads", "tried")
	tried.Shadow = true
	bubble(t, plans(1, on("/reads", "reads"), on("/writes", "writes"), on("/quiet", "quiet"), tried), func(t *testing.T, s *fake) {
		s.chunk = 100
		s.tenants["a"] = limit.Tenant{ID: "a", Exists: true, Plan: "p", Revision: 1, Overrides: plans(1, on("/own", "own")).Plans[0].Limits}
		c := dial(t, s)
		paths := []string{"/reads", "/writes", "/own"}
		for _, path := range paths {
			drive(c, 1, 1, to(path)...) // has 100 leased
		}
		time.Sleep(10 * time.Millisecond)
		for _, path := range paths {
			drive(c, 1, 3, to(path)...)
		}
		if got := c.Stats().Overshoot; len(got) != 5 || slices.ContainsFunc(got, func(x Overshoot) bool { return x.LateSpends != 0 }) {
			t.Errorf("in time: %+v, want each limit with nothing", got)
		}
		goOn := make(chan struct{})
		go c.session.Ask(func(*session.Loop) { <-goOn })
		time.Sleep(5 * time.Second)
		for i, path := range paths {
			if n := int64(10 * (i + 1)); drive(c, 1, int(n), to(path)...) != n {
				t.Fatalf("%s: denied, though nobody emptied the cell", path)
			}
		}
		close(goOn)
		time.Sleep(time.Second)
		st := c.Stats()
		// What was spent in time since the last answer cannot be told from that: 4 of each.
		want := []Overshoot{{Limit: "(override)", LateSpends: 34}, {Limit: "quiet"}, {Limit: "reads", LateSpends: 14}, {Limit: "tried"}, {Limit: "writes", LateSpends: 24}}
		if !slices.Equal(st.Overshoot, want) || st.LateSpends != 72 || st.OutageUnits != 0 {
			t.Errorf("%d spent late, %d out of contact, by limit %+v; want 72, 0, %+v", st.LateSpends, st.OutageUnits, st.Overshoot, want)
		}
		shut(t, c)
	})
}

// Slots that on_outage gives out without a lease are counted by limit as well: each start once, whether or not the request has ended
// when there is contact again. Those of a lease that goes on are not.
func TestOutageUnitsOfSlots(t *testing.T) {
	slots := func(path, name string) limit.Limit {
		return limit.Limit{Name: name, Algorithm: limit.Concurrency, Slots: 20, OnOutage: limit.OutageOpen, Match: []limit.Match{{Attribute: "endpoint", Patterns: []string{path}}}}
	}
	bubble(t, plans(1, slots("/open", "open"), slots("/leased", "leased")), func(t *testing.T, s *fake) {
		c := dial(t, s)
		held := c.Allow(t.Context(), to("/leased")...) // it goes on with what it has spare
		s.set(func(f *fake) { f.down = true })
		time.Sleep(3 * time.Second)
		var all []Decision
		for i := range 30 {
			d := c.Allow(t.Context(), to("/open")...)
			if !d.Allowed {
				t.Fatalf("request %d is denied, and nothing is leased", i)
			}
			if i%3 == 0 {
				d.Done()
			} else {
				all = append(all, d)
			}
		}
		for range 5 {
			d := c.Allow(t.Context(), to("/leased")...)
			if !d.Allowed {
				t.Fatal("denied with spare slots")
			}
			d.Done()
		}
		s.set(func(f *fake) { f.down = false })
		time.Sleep(3 * time.Second)
		want := []Overshoot{{Limit: "(override)"}, {Limit: "leased"}, {Limit: "open", OutageUnits: 30}}
		if st := c.Stats(); !slices.Equal(st.Overshoot, want) || st.OutageUnits != 30 {
			t.Errorf("%d admitted out of contact, by limit %+v; want %+v", st.OutageUnits, st.Overshoot, want)
		}
		for _, d := range append(all, held) {
			d.Done()
		}
		time.Sleep(3 * time.Second)
		if st := c.Stats(); st.OutageUnits != 30 {
			t.Errorf("%d when the requests have ended, want 30 still", st.OutageUnits)
		}
		shut(t, c)
	})
}

// What leases admitted after their end, and on_outage without any, out of contact, is counted by limit with the next answer.
// The store is told of it as soon as there is contact, whether or not another request comes.
func TestOutageUnitsByLimit(t *testing.T) {
	open, closed, leased := on("/open", "open"), on("/closed", "closed"), on("/leased", "leased")
	open.OnOutage, closed.OnOutage, leased.OnOutage = limit.OutageOpen, limit.OutageClosed, limit.OutageOpen
	bubble(t, plans(1, open, closed, leased), func(t *testing.T, s *fake) {
		c := dial(t, s)
		for _, path := range []string{"/closed", "/leased"} {
			drive(c, 1, 1, to(path)...) // has 10 leased, and no trickle
		}
		s.set(func(f *fake) { f.down = true })
		time.Sleep(3 * time.Second)
		got := make(map[string]int64)
		for range 100 {
			for _, path := range []string{"/open", "/closed", "/leased"} {
				got[path] += drive(c, 1, 1, to(path)...)
			}
			time.Sleep(10 * time.Millisecond)
		}
		s.set(func(f *fake) { f.down = false })
		time.Sleep(3 * time.Second)
		if got["/open"] != 100 || got["/closed"] != 10 || got["/leased"] != 100 {
			t.Errorf("admitted %v; want all by open, with nothing to go on with, and 10 by closed", got)
		}
		want := []Overshoot{{Limit: "(override)"}, {Limit: "closed", OutageUnits: 11}, {Limit: "leased", OutageUnits: 101}, {Limit: "open", OutageUnits: 100}}
		if st := c.Stats(); !slices.Equal(st.Overshoot, want) || st.OutageUnits != 212 {
			t.Errorf("%d admitted out of contact, by limit %+v; want %+v", st.OutageUnits, st.Overshoot, want)
		}
		for name, want := range map[string]int64{"open": 100, "leased": 101} {
			if told := s.buckets[name+"|a|"].spent["gw-1"]; told != want {
				t.Errorf("%s: the store was told of %d, want %d", name, told, want)
			}
		}
		shut(t, c)
	})
}
