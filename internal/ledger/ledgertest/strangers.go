package ledgertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// strangers: an epoch holds back the usage of tenants that it settled usage of or holds leases of, and no
// other. Whatever it says, it holds nothing back for longer than a silent one. The number of an agent's epochs
// that hold back is bounded.
func strangers(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	complete := func(when, tenant string, want time.Time) {
		t.Helper()
		for _, books := range []bool{false, true} {
			var got time.Time
			if u, err := s.Usage(t.Context(), ledger.Query{Tenant: tenant}); err != nil {
				t.Fatal(err)
			} else if got = u.Complete; books && tenant != "" {
				if _, err := drain(t.Context(), s, clock.Now()); err != nil {
					t.Fatal(err)
				}
				sealed, err := booksOf(s).Sealed(t.Context(), ledger.SealedQuery{Tenant: tenant, To: 1 << 40})
				if err != nil {
					t.Fatal(err)
				}
				got = sealed.Complete
			}
			if !got.Equal(want) {
				t.Errorf("%s: %q is complete through %v, want %v (in blocks: %t)", when, tenant, got, want, books)
			}
		}
	}
	settle := func(g *agent, through time.Time, rows ...ledger.Row) {
		t.Helper()
		if err := wantStatus(t.Context(), s, g.report(through, rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(id string, epoch int64, tenants ...string) {
		t.Helper()
		if err := s.Hold(t.Context(), ledger.Hold{Epoch: ledger.Epoch{Agent: id, Epoch: epoch}, Tenants: tenants}); err != nil {
			t.Fatal(err)
		}
	}
	good, evil := agent{id: "good"}, agent{id: "evil"}
	settle(&good, clock.Now(), row(clock.Now(), "acme", 1))
	settle(&evil, time.UnixMilli(0))
	complete("a heartbeat of one that never served it", "acme", latest(clock.Now()))
	complete("a heartbeat of one that never served any", "", latest(clock.Now()))

	// It holds another tenant, and says nothing of when.
	hold("evil", 0, "umbrella")
	began := clock.Now()
	settle(&evil, began.Add(-time.Minute))
	complete("one that holds another tenant", "acme", latest(clock.Now()))
	complete("one that holds it", "umbrella", began.Add(-time.Minute))
	complete("one that holds some tenant", "", began.Add(-time.Minute))
	for range 25 {
		clock.Advance(time.Hour)
		settle(&evil, time.UnixMilli(0))
		settle(&good, clock.Now())
	}
	complete("one that says the same for a day", "umbrella", latest(clock.Now()))
	complete("one that says the same for a day", "acme", latest(clock.Now()))
	settle(&evil, clock.Now().Add(time.Hour)) // what is still to come counts as now
	settle(&evil, clock.Now().Add(-time.Hour))
	complete("one that goes back", "umbrella", latest(clock.Now()))

	// An agent that starts over and over.
	first := clock.Now()
	for i := range ledger.OpenEpochs {
		clock.Advance(time.Second)
		hold("loop", int64(i+1), "acme")
	}
	settle(&good, clock.Now())
	complete("as many epochs as count", "acme", latest(first.Add(time.Second)))
	for i := range 5 {
		clock.Advance(time.Second)
		hold("loop", int64(ledger.OpenEpochs+i+1), "acme")
	}
	settle(&good, clock.Now())
	complete("five more", "acme", latest(first.Add(6*time.Second)))

	// An agent whose epoch was fenced goes on under a later one, and its leases are of the first.
	hold("turned", 1)
	hold("turned", 2)
	hold("turned", 1, "initech")
	if rows := e.Query(t, "SELECT epoch FROM touched WHERE agent = 'turned' ORDER BY epoch"); fmt.Sprint(rows) != "[[1] [2]]" {
		t.Errorf("its leases are noted of epochs %v, want 1 and 2", rows)
	}
}
