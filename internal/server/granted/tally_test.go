package granted

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// written is a ledger that keeps records, each number once.
type written struct {
	ledger.Books
	fail, lose bool // the writing; only its answer
	refuse     bool // what is written, whenever it is
	number     int64
	sum        ledger.Recorded
	said       ledger.Said
	accounts   []ledger.Account // of the last record
	found      []ledger.Reconciled
}

// Reconcile pages through what was found.
func (w *written) Reconcile(_ context.Context, q ledger.ReconcileQuery) ([]ledger.Reconciled, error) {
	first := 0
	for first < len(w.found) && q.After != (ledger.AccountID{}) && w.found[first].ID != q.After {
		first++
	}
	if q.After != (ledger.AccountID{}) {
		first++
	}
	return w.found[first:min(first+q.N, len(w.found))], nil
}

func (w *written) Record(_ context.Context, _ string, number int64, accounts []ledger.Account) error {
	if w.fail {
		return ledger.ErrUnavailable
	}
	if w.refuse {
		return errors.New("bigint out of range")
	}
	w.accounts = accounts
	if number > w.number {
		w.number = number
		for _, a := range accounts {
			w.sum.Add(a.Recorded)
			if a.Said != nil {
				w.said = *a.Said
			}
		}
	}
	if w.lose {
		return ledger.ErrUnavailable
	}
	return nil
}

// What a server grants is written once, whatever becomes of the ledger's answers; slots
// and what is on trial are left out, and so is what was not granted.
func TestTally(t *testing.T) {
	w := &written{}
	tally, err := NewTally(w, func(string) bool { return true }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	note := func() {
		p := &quotav1.Renewal{Limit: "requests"}
		requests := []*quotav1.Renewal{{Limit: "gone"}, p, p, {Limit: "requests", Shadow: true}, {Limit: "slots"}}
		r := lease.Renewal{Admitted: 30, Told: 10, Held: 4, Trickle: 5_000_000, ExpiresIn: 400_900}
		g := lease.Answer{Grant: lease.Grant{Tokens: 10, Next: 5, Trickle: 2_000_000, TTL: 1_500_000}}
		slots := r
		slots.Spec.Algorithm = limit.Concurrency
		tally.Answered("a", 1, requests, []int{1, 2, 3, 4}, []lease.Renewal{r, r, r, slots},
			[]lease.Answer{g, {Err: lease.ErrUnavailable}, g, g})
	}
	want := ledger.Recorded{Granted: 18, Unrun: 2, Returned: 4, Spent: 20}
	id := ledger.AccountID{Epoch: ledger.Epoch{Agent: "a", Epoch: 1}, Limit: "requests"}
	note()
	tally.Say(map[ledger.AccountID]ledger.Said{id: {Number: 2, Spent: 7}})
	tally.Say(map[ledger.AccountID]ledger.Said{id: {Number: 1, Spent: 3}}) // overtaken
	for _, c := range []struct {
		fail, lose bool
		times      int64
	}{{true, false, 0}, {false, true, 1}, {false, false, 2}, {false, false, 2}} {
		w.fail, w.lose = c.fail, c.lose
		err := tally.Flush(t.Context())
		if (c.fail || c.lose) != errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("%+v: flush ended with %v", c, err)
		}
		times := ledger.Recorded{Granted: c.times * want.Granted, Unrun: c.times * want.Unrun, Returned: c.times * want.Returned, Spent: c.times * want.Spent}
		if w.sum != times {
			t.Errorf("%+v: written %+v, want %+v", c, w.sum, times)
		}
		if c.lose {
			note() // while what is under way is not known to be written
		}
	}
	if w.said.Spent != 7 {
		t.Errorf("said: got %+v, want the latest", w.said)
	}
}

// What the ledger refuses for what it holds would be refused for ever: it is left out, counted, and keeps nobody
// else's accounts from being written.
func TestTallyLeavesOutWhatIsRefused(t *testing.T) {
	w, registry := &written{}, prometheus.NewRegistry()
	tally, err := NewTally(w, func(string) bool { return true }, slog.New(slog.DiscardHandler), registry)
	if err != nil {
		t.Fatal(err)
	}
	note := func() {
		tally.Answered("a", 1, []*quotav1.Renewal{{Limit: "l"}, {Limit: "m"}}, []int{0, 1}, []lease.Renewal{{Held: 4}, {Held: 4}}, make([]lease.Answer, 2))
	}
	note()
	w.refuse = true
	if err := tally.Flush(t.Context()); err != nil {
		t.Errorf("flush of what is refused: %v", err)
	}
	w.refuse = false
	note()
	if err := tally.Flush(t.Context()); err != nil {
		t.Errorf("flush: %v", err)
	}
	if w.sum.Returned != 8 {
		t.Errorf("got %d units written, want the 8 that came after", w.sum.Returned)
	}
	if got := servertest.Gathered(t, registry, "quota_server_refused_accounts_total")[""]; got != 2 {
		t.Errorf("counted: got %v accounts, want 2", got)
	}
}

// Names of limits that the policy has make accounts; of others that an agent says only what servers granted by them.
func TestTallyTellsClaimsApart(t *testing.T) {
	w := &written{}
	tally, err := NewTally(w, func(string) bool { return true }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	tally.named = func(limit string) bool { return limit == "named" }
	said := map[ledger.AccountID]ledger.Said{}
	for _, name := range []string{"named", "granted", "made up"} {
		said[ledger.AccountID{Epoch: ledger.Epoch{Agent: "a", Epoch: 1}, Limit: name}] = ledger.Said{Number: 1, Spent: 7}
	}
	tally.Say(said)
	tally.Answered("a", 1, []*quotav1.Renewal{{Limit: "granted"}}, []int{0}, []lease.Renewal{{Held: 4}}, make([]lease.Answer, 1))
	if err := tally.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	claimed := map[string]bool{}
	for _, a := range w.accounts {
		claimed[a.ID.Limit] = a.Claimed
	}
	if want := map[string]bool{"named": false, "granted": false, "made up": true}; !maps.Equal(claimed, want) {
		t.Errorf("claimed: got %v, want %v", claimed, want)
	}
}

// Accounts that wait are bounded: what is beyond is left out and counted.
func TestTallyIsBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	tally, err := NewTally(&written{fail: true}, func(string) bool { return true }, slog.New(slog.DiscardHandler), registry)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(maxTally + 3) {
		tally.Answered("a", i, []*quotav1.Renewal{{Limit: "l"}}, []int{0}, []lease.Renewal{{}}, []lease.Answer{{}})
	}
	if n := len(tally.noted); n != maxTally {
		t.Errorf("got %d accounts, want %d", n, maxTally)
	}
	if got := servertest.Gathered(t, registry, "quota_server_unrecorded_renewals_total")[""]; got != 3 {
		t.Errorf("left out: got %v, want 3", got)
	}
}

// The metric has every name of a difference, with the units of all pages, and what agrees again is none.
func TestDifferencesAreMeasured(t *testing.T) {
	w, r := &written{}, prometheus.NewRegistry()
	tally, err := NewTally(w, func(string) bool { return true }, slog.New(slog.DiscardHandler), r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		id := ledger.AccountID{Epoch: ledger.Epoch{Agent: "a", Epoch: int64(i + 1)}, Limit: "requests"}
		said := ledger.Said{Granted: 10, Spent: 10, Told: 10, Booked: 10}
		w.found = append(w.found, ledger.Reconciled{ID: id, State: ledger.StateClosed, Recorded: ledger.Recorded{Granted: 10, Spent: 10}, Said: &said, Settled: 8})
	}
	for _, want := range []float64{3000, 0} {
		tally.measure(t.Context())
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if f.GetName() == "quota_server_reconciliation_units" {
				for _, m := range f.Metric {
					got[m.Label[0].GetValue()] = m.Gauge.GetValue()
				}
			}
		}
		for _, name := range ledger.DifferenceNames {
			expect := 0.0
			if name == ledger.Missing {
				expect = want
			}
			if n, ok := got[name]; !ok || n != expect {
				t.Errorf("%q: got %v, want %v", name, got, expect)
			}
		}
		w.found = nil
	}
}
