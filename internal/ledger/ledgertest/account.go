package ledgertest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// accounts: servers' records of leases add up, each record once. Of what an agent says the last holds,
// whichever server writes it, and whenever. The settled units stand beside it, folded or not, in quarantine or
// not.
func accounts(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	a := agent{id: "a", epoch: 2}
	settle := func(rows ...ledger.Row) {
		t.Helper()
		if err := wantStatus(t.Context(), s, a.report(clock.Now(), rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	future := row(clock.Now(), "acme", 4)
	future.Slot += 86_400 // goes to quarantine
	other := row(clock.Now(), "acme", 9)
	other.Limit = "other"
	settle(row(clock.Now(), "acme", 50), other, future)
	backlog := func(want ledger.Backlog) {
		t.Helper()
		if got, err := books.Backlog(t.Context()); err != nil || got != want {
			t.Errorf("backlog: got %+v, %v, want %+v", got, err, want)
		}
	}
	stored := clock.Now()
	clock.Advance(time.Minute)
	settle(row(clock.Now(), "acme", 0))
	backlog(ledger.Backlog{Reports: 2, Rows: 4, Oldest: stored, Quarantined: 1})
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	backlog(ledger.Backlog{Quarantined: 1})
	if err := books.Discard(t.Context(), operator, "r", []int64{1}); err != nil {
		t.Fatal(err)
	}
	backlog(ledger.Backlog{})
	settle(row(clock.Now(), "zeta", 1))

	id := ledger.AccountID{Epoch: ledger.Epoch{Agent: "a", Epoch: 2}, Limit: "requests"}
	record := func(server string, number int64, r ledger.Recorded, said *ledger.Said) {
		t.Helper()
		if err := books.Record(t.Context(), server, number, []ledger.Account{{ID: id, Recorded: r, Said: said}}); err != nil {
			t.Fatal(err)
		}
	}
	said := ledger.Said{Number: 7, Granted: 120, Unrun: 3, Returned: 8, Told: 50, Spent: 55, Beyond: 1, Held: 40, Booked: 55}
	record("one", 1, ledger.Recorded{Granted: 100, Unrun: 1, Returned: 5, Spent: 40}, &ledger.Said{Number: 6, Granted: 100})
	record("one", 1, ledger.Recorded{Granted: 100, Unrun: 1, Returned: 5, Spent: 40}, nil) // its answer was lost
	record("two", 1, ledger.Recorded{Granted: 20, Unrun: 2, Returned: 3, Spent: 10}, &said)
	record("one", 2, ledger.Recorded{}, &ledger.Said{Number: 5, Granted: 1}) // said to this server before

	all := func(q ledger.ReconcileQuery) []ledger.Reconciled {
		t.Helper()
		q.N = 1
		var found []ledger.Reconciled
		for {
			page, err := books.Reconcile(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return found
			}
			found = append(found, page...)
			q.After = page[len(page)-1].ID
		}
	}
	for _, q := range []ledger.ReconcileQuery{{}, {Agent: "a"}, {Agent: "a", Epoch: 2}, {Since: clock.Now().UnixMilli()}} {
		found := all(q)
		if len(found) != 2 || found[1].ID != id || found[0].ID.Limit != "other" {
			t.Fatalf("%+v: got %+v, want other and requests of epoch a/2", q, found)
		}
		if r := found[0]; r.Settled != 9 || r.Said != nil || r.Recorded != (ledger.Recorded{}) {
			t.Errorf("other: got %+v, want 9 units settled, of no lease", r)
		}
		r := found[1]
		want := ledger.Recorded{Granted: 120, Unrun: 3, Returned: 8, Spent: 50}
		if r.Recorded != want || r.Said == nil || *r.Said != said || r.Settled != 55 || r.State != ledger.StateOpen {
			t.Errorf("requests: got %+v, said %+v, want %+v, said %+v, 55 settled, open", r, r.Said, want, said)
		}
		if got, want := r.Differences(), []ledger.Difference{{Name: ledger.Beyond, Of: "spent", Units: 1}}; !slices.Equal(got, want) {
			t.Errorf("differences: got %+v, want %+v", got, want)
		}
	}
	for _, q := range []ledger.ReconcileQuery{{Agent: "b"}, {Agent: "a", Epoch: 3}, {Since: clock.Now().UnixMilli() + 1}} {
		if found := all(q); len(found) > 0 {
			t.Errorf("%+v: got %+v, want none", q, found)
		}
	}
	verify(t, s)
}

// hostileAccounts: an agent that says it gave back more than can be counted is kept at the most. All others
// beside it are kept as they are. A limit's name that only an agent gives makes no account. Servers' grants are
// kept by its name.
func hostileAccounts(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	books := booksOf(e.Open(t, ledger.Options{Now: clock.Now}))
	of := func(agent, limit string) ledger.AccountID {
		return ledger.AccountID{Epoch: ledger.Epoch{Agent: agent, Epoch: 1}, Limit: limit}
	}
	const most = ledger.MaxSum
	for number, r := range []ledger.Recorded{{Granted: 1, Returned: most - 1, Spent: most}, {Granted: 1, Returned: 3, Spent: most}, {Spent: -1}} {
		if err := books.Record(t.Context(), "one", int64(number)+1, []ledger.Account{
			{ID: of("a", "requests"), Recorded: r}, {ID: of("b", "requests"), Recorded: ledger.Recorded{Granted: 5}},
		}); err != nil {
			t.Fatalf("record %d: %v", number+1, err)
		}
	}
	said := &ledger.Said{Number: 1, Spent: 9}
	if err := books.Record(t.Context(), "one", 4, []ledger.Account{
		{ID: of("a", "made up"), Said: said, Claimed: true}, {ID: of("a", "requests"), Said: said, Claimed: true}, {ID: of("a", "unlimited"), Said: said},
		{ID: of("b", "override"), Recorded: ledger.Recorded{Granted: 1}, Said: said, Claimed: true},
	}); err != nil {
		t.Fatal(err)
	}
	found, err := books.Reconcile(t.Context(), ledger.ReconcileQuery{N: 10})
	if err != nil {
		t.Fatal(err)
	}
	got := map[ledger.AccountID]ledger.Recorded{}
	for _, r := range found {
		got[r.ID] = r.Recorded
		if says := r.Said != nil; says != (r.ID != of("b", "requests")) || says && *r.Said != *said {
			t.Errorf("%+v: it said %+v", r.ID, r.Said)
		}
	}
	if want := map[ledger.AccountID]ledger.Recorded{
		of("a", "requests"): {Granted: 2, Returned: most, Spent: most - 1}, of("a", "unlimited"): {},
		of("b", "requests"): {Granted: 15}, of("b", "override"): {Granted: 1},
	}; !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
