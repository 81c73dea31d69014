package ledgertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// losses: an epoch that ended without its last report is named, with the most that may be missing. That is what it was
// granted and neither settled, gave back nor let expire. It is named once a later start of its agent reports alone, it
// is silent for a day, or it is declared lost. One that was recovered is not named, nor one that comes back.
func losses(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	begun := clock.Now()
	settle := func(g *agent, closed bool, rows ...ledger.Row) {
		t.Helper()
		r := g.report(clock.Now(), rows...)
		r.Closed = closed
		r.Digest = r.Sum()
		if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(g *agent, tenants ...string) {
		t.Helper()
		if err := s.Hold(t.Context(), ledger.Hold{Epoch: ledger.Epoch{Agent: g.id, Epoch: g.epoch}, Tenants: tenants}); err != nil {
			t.Fatal(err)
		}
	}
	record := func(number int64, g *agent, limit string, r ledger.Recorded, said *ledger.Said) {
		t.Helper()
		id := ledger.AccountID{Epoch: ledger.Epoch{Agent: g.id, Epoch: g.epoch}, Limit: limit}
		if err := books.Record(t.Context(), "server", number, []ledger.Account{{ID: id, Recorded: r, Said: said}}); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(l ledger.Losses) string {
		var b strings.Builder
		for _, x := range l.Told {
			fmt.Fprintf(&b, "%s %s since %s", x.Epoch, x.State, x.Since.Format("15:04:05"))
			for _, u := range x.Limits {
				fmt.Fprintf(&b, ", %s %d", u.Limit, u.Most)
				if !u.Known {
					b.WriteString("?")
				}
			}
			fmt.Fprintf(&b, ", %d %v: %s\n", x.Most, x.Known, x.Reason)
		}
		return b.String()
	}
	of := func(q ledger.Query) ledger.Usage {
		t.Helper()
		u, err := s.Usage(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	told := func(when string, want ...string) {
		t.Helper()
		text := strings.Join(want, "")
		if got := lines(of(ledger.Query{Tenant: "acme"}).Lost); got != text {
			t.Errorf("%s: usage tells\n%swant\n%s", when, got, text)
		}
		v, err := books.Verify(t.Context(), nil)
		if err != nil || !v.Sound() {
			t.Errorf("%s: verified %+v, %v", when, v, err)
		}
		if got := lines(v.Lost); got != text {
			t.Errorf("%s: verify tells\n%swant\n%s", when, got, text)
		}
		l, err := books.Losses(t.Context(), begun, 1)
		if err != nil || len(l.Told)+int(l.More) != len(want) {
			t.Errorf("%s: got losses %+v, %v, want %d, one of them told", when, l, err, len(want))
		}
		info, err := books.Breakdown(t.Context(), ledger.BreakdownQuery{Tenant: "acme"}, func(*ledger.BreakdownRow) error { return nil }, nil)
		if err != nil || lines(info.Lost) != text {
			t.Errorf("%s: a breakdown tells %v, %v", when, info.Lost, err)
		}
		sums, err := books.Sealed(t.Context(), ledger.SealedQuery{Tenant: "acme", From: begun.Add(-24 * time.Hour).Unix(), To: begun.AddDate(0, 0, 9).Unix()})
		if err != nil || lines(sums.Lost) != text {
			t.Errorf("%s: a statement tells %v, %v", when, sums.Lost, err)
		}
	}
	first := &agent{id: "a", epoch: 1}
	hold(first, "acme", "umbrella")
	other := row(clock.Now(), "acme", 9)
	other.Limit = "counted"
	settle(first, false, row(clock.Now(), "acme", 50), other)
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10 * time.Second)
	settle(first, false, row(clock.Now(), "acme", 6)) // and is not folded
	// 150 granted, of which 5 did not run and 10 were given back. By its last account 20 had expired; one unit was
	// beyond a lease. The last account is older than the last grant of 30.
	record(1, first, "requests", ledger.Recorded{Granted: 120, Unrun: 5, Returned: 10, Spent: 40},
		&ledger.Said{Number: 1, Granted: 120, Unrun: 5, Returned: 10, Told: 40, Spent: 56, Beyond: 1, Held: 30, Booked: 56})
	record(2, first, "requests", ledger.Recorded{Granted: 30, Spent: 10}, nil)
	record(3, first, "unmetered", ledger.Recorded{Granted: 70}, &ledger.Said{Number: 1, Granted: 70, Spent: 60})
	const counted, most = ", counted 0?", 150 - 5 - 10 - 20 + 1 - 56
	killed := clock.Now()
	clock.Advance(5 * time.Second)
	told("while it may be at work")

	second := &agent{id: "a", epoch: 2}
	hold(second, "acme")
	settle(second, false, row(clock.Now(), "acme", 1))
	clock.Advance(ledger.SucceededAfter - 6*time.Second)
	settle(second, false)
	told("while a process before may still report")
	clock.Advance(time.Second)
	line := func(state, reason string) string {
		return fmt.Sprintf("a/1 %s since %s, counted 0?, requests %d, %d false: %s\n", state, killed.Format("15:04:05"), most, most, reason)
	}
	succeeded := line("lost", "a later start of its agent reports")
	told("as another start reports", succeeded)
	if u := of(ledger.Query{Tenant: "acme"}); !u.Complete.Equal(latest(clock.Now())) || len(u.Lagging) > 0 {
		t.Errorf("without it usage is complete through %v, held back by %v", u.Complete, u.Lagging)
	}
	if u := of(ledger.Query{Tenant: "umbrella"}); len(u.Lost.Told) != 1 {
		t.Errorf("of another tenant that it held: %+v", u.Lost)
	}
	if u := of(ledger.Query{Tenant: "initech"}); len(u.Lost.Told) > 0 {
		t.Errorf("of a tenant that it had nothing of: %+v", u.Lost)
	}
	if u := of(ledger.Query{Tenant: "acme", To: begun}); len(u.Lost.Told) > 0 {
		t.Errorf("of what was settled before: %+v", u.Lost)
	}
	if states, err := s.Agents(t.Context(), "", 9); err != nil || len(states) != 2 || states[1].State != ledger.StateLost || states[0].State != ledger.StateOpen {
		t.Errorf("agents: %+v, %v", states, err)
	}
	if r, err := books.Reconcile(t.Context(), ledger.ReconcileQuery{Agent: "a", Epoch: 1, N: 1}); err != nil || r[0].State != ledger.StateLost {
		t.Errorf("reconciled: %+v, %v", r, err)
	}

	// It was not killed, and nothing is said while it reports. Then it is declared lost, with the reason.
	settle(first, false)
	told("as it reports again")
	killed = clock.Now()
	if _, err := books.DeclareLost(t.Context(), operator, "it burnt", ledger.Epoch{Agent: "a", Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	told("declared lost", line("lost", "it burnt"))
	// Its disk was found: a recovery settles what was missing, and ends it.
	settle(first, true, row(clock.Now(), "acme", 30))
	told("once it is recovered")

	// One with a journal is closed before its next start reports.
	third := &agent{id: "a", epoch: 3}
	hold(third, "acme")
	settle(second, true)
	settle(third, true)
	clock.Advance(time.Hour)
	told("after ends in order")

	// One that settled nothing, and one that is silent.
	at := clock.Now()
	hold(&agent{id: "b", epoch: 1}, "acme")
	record(4, &agent{id: "b", epoch: 1}, "requests", ledger.Recorded{Granted: 12}, nil)
	clock.Advance(time.Second)
	hold(&agent{id: "c", epoch: 1}, "acme")
	clock.Advance(ledger.SilentAfter - time.Second)
	silent := fmt.Sprintf("b/1 lost since %s, requests 12, 12 true: it has been silent for a day\n", latest(at).Format("15:04:05"))
	told("a day later", silent)
	clock.Advance(time.Second)
	told("of whom nothing is recorded", fmt.Sprintf("c/1 lost since %s, 0 false: it has been silent for a day\n", latest(at.Add(time.Second)).Format("15:04:05")), silent)
	if u := of(ledger.Query{Tenant: "acme", From: clock.Now()}); len(u.Lost.Told) > 0 {
		t.Errorf("of a time in which it had been silent for a day: %+v", u.Lost)
	}
}

// lossesOfRuns: an epoch may go on from another, under whose name its leases stay. What may be missing is of both.
// Where the ledger forgot reports that it acknowledged, that much is missing.
func lossesOfRuns(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	g := &agent{id: "a", epoch: 1}
	settle := func(r ledger.Report) {
		t.Helper()
		r.Digest = r.Sum()
		if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	settle(g.report(clock.Now(), row(clock.Now(), "acme", 10)))
	id := ledger.AccountID{Epoch: ledger.Epoch{Agent: "a", Epoch: 1}, Limit: "requests"}
	if err := books.Record(t.Context(), "server", 1, []ledger.Account{{ID: id, Recorded: ledger.Recorded{Granted: 100}}}); err != nil {
		t.Fatal(err)
	}
	for i, from := range []int64{10, 20 + 3, 20} { // three units of the second are forgotten
		next := &agent{id: "a", epoch: int64(i + 2)}
		r := next.report(clock.Now(), row(clock.Now(), "acme", 20))
		r.Origin = ledger.Origin{Epoch: int64(i + 1), Total: from}
		settle(r)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	clock.Advance(ledger.SilentAfter)
	v, err := books.Verify(t.Context(), nil)
	if err != nil || !v.Sound() || len(v.Lost.Told) != 2 {
		t.Fatalf("verified %+v, %v", v, err)
	}
	last, forgot := v.Lost.Told[0], v.Lost.Told[1]
	if last.Epoch.Epoch != 4 {
		last, forgot = forgot, last
	}
	if last.Epoch.Epoch != 4 || last.Most != 100-10-3*20 || !last.Known {
		t.Errorf("the last of the run: %+v", last)
	}
	if forgot.Epoch.Epoch != 2 || forgot.Most != 3 || !forgot.Known {
		t.Errorf("the one that was forgotten in part: %+v", forgot)
	}
}
