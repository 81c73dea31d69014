package ledgertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// holds: an epoch that has not settled since its first lease of a tenant holds the tenant's usage back. That
// usage is complete through ledger.NotedWithin before the note and no further, however long that takes.
func holds(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	first := clock.Now()
	complete := func(when, tenant string, want time.Time) {
		t.Helper()
		u, err := s.Usage(t.Context(), ledger.Query{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		if !u.Complete.Equal(want) {
			t.Errorf("%s %q is complete through %v, want %v", when, tenant, u.Complete, want)
		}
	}
	hold := func(epoch int64, tenants ...string) {
		t.Helper()
		if err := s.Hold(t.Context(), ledger.Hold{Epoch: ledger.Epoch{Agent: "a", Epoch: epoch}, Tenants: tenants}); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(g *agent, closed bool, rows ...ledger.Row) {
		t.Helper()
		r := g.report(clock.Now(), rows...)
		r.Closed = closed
		r.Digest = r.Sum()
		if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	hold(1, "acme")
	complete("before anything was settled", "acme", time.Time{})
	settle(&agent{id: "gone"}, true, row(clock.Now(), "acme", 1))

	clock.Advance(3 * time.Second)
	complete("while its first report may be under way", "acme", latest(first))
	complete("of a tenant that it may not have usage of", "umbrella", latest(clock.Now()))
	hold(1, "umbrella", "acme", "umbrella") // by another server, to which it is new
	clock.Advance(20 * time.Minute)
	complete("of an agent that is silent", "acme", latest(first))
	complete("of an agent that is silent", "umbrella", latest(first)) // before its first report it is complete until its first lease
	complete("of an agent that holds nothing of it", "initech", latest(clock.Now()))

	g := agent{id: "a", epoch: 1}
	settle(&g, false)
	clock.Advance(time.Hour)
	complete("of what it settled", "acme", clock.Now().Add(-time.Hour))
	settle(&g, true)
	complete("of a closed epoch", "acme", latest(clock.Now()))
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	hold(1, "acme")
	if rows := e.Query(t, "SELECT tenant FROM touched"); len(rows) > 0 {
		t.Errorf("of closed epochs it is noted what they hold: %v", rows)
	}

	hold(2, "acme")
	lost := clock.Now()
	clock.Advance(time.Hour)
	complete("of an agent that is gone", "acme", latest(lost))
	if _, err := booksOf(s).DeclareLost(t.Context(), "ann", "it burnt", ledger.Epoch{Agent: "a", Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	complete("of one that is declared lost", "acme", latest(clock.Now()))
	hold(3, "acme")
	clock.Advance(ledger.SilentAfter)
	complete("of one that is silent for so long", "acme", latest(clock.Now()))
}

// lateHolds: usage is never called complete past the time from which an epoch may have some of it. Servers note the
// epoch as late as NotedWithin after that.
func lateHolds(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	settle := func(g *agent, rows ...ledger.Row) {
		t.Helper()
		if err := wantStatus(t.Context(), s, g.report(clock.Now(), rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	complete := func(tenant string) time.Time {
		t.Helper()
		u, err := s.Usage(t.Context(), ledger.Query{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		return u.Complete
	}
	settle(&agent{id: "other"})
	for _, reported := range []bool{false, true} { // whether the epoch has settled usage of another tenant
		for late := time.Duration(0); late <= ledger.NotedWithin; late += ledger.NotedWithin / 5 {
			tenant := fmt.Sprintf("%t-%v", reported, late)
			g := agent{id: tenant, epoch: 1}
			if reported {
				settle(&g, row(clock.Now(), "umbrella", 1))
			}
			clock.Advance(time.Minute)
			granted := clock.Now() // it may have usage from then on
			for range 20 {
				if clock.Now().Equal(granted.Add(late)) {
					if err := s.Hold(t.Context(), ledger.Hold{Epoch: ledger.Epoch{Agent: g.id, Epoch: g.epoch}, Tenants: []string{tenant}}); err != nil {
						t.Fatal(err)
					}
				}
				if got := complete(tenant); got.After(granted) {
					t.Fatalf("%s: %v after the lease usage is complete through %v, want at most %v", tenant, clock.Now().Sub(granted), got, granted)
				}
				clock.Advance(ledger.NotedWithin / 10)
			}
			settle(&g, row(granted, tenant, 1))
			told := clock.Now()
			clock.Advance(time.Minute)
			if got := complete(tenant); !got.Equal(told) {
				t.Errorf("%s: after a report usage is complete through %v, want %v", tenant, got, told)
			}
		}
	}
}
