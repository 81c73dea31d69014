package ledgertest

import (
	"errors"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// declaredLost: an operator ends an epoch that will report no more. From then on it holds back nothing. It is
// audited once, and comes back with its next report.
func declaredLost(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	a, b, c := agent{id: "a"}, agent{id: "b"}, agent{id: "c", epoch: 3}
	closing := c.report(clock.Now())
	closing.Closed = true
	closing.Digest = closing.Sum()
	for _, r := range []ledger.Report{a.report(clock.Now(), row(clock.Now(), "acme", 5)), closing} {
		if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	silent := clock.Now()
	clock.Advance(time.Hour)
	if err := wantStatus(t.Context(), s, b.report(clock.Now(), row(clock.Now(), "acme", 1)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	complete := func(want time.Time, lagging int) {
		t.Helper()
		u, err := s.Usage(t.Context(), ledger.Query{Tenant: "acme"})
		if err != nil || !u.Complete.Equal(want) || len(u.Lagging) != lagging {
			t.Errorf("complete through %s, held back by %v, %v, want %s and %d", u.Complete, u.Lagging, err, want, lagging)
		}
	}
	complete(silent, 1)
	epoch := ledger.Epoch{Agent: "a"}
	for range 2 {
		state, err := books.DeclareLost(t.Context(), operator, "its machine is gone", epoch)
		if err != nil || state.State != ledger.StateLost || state.Seq != 1 || state.Total != 5 || !state.Through.Equal(silent) {
			t.Fatalf("lost: got %+v, %v", state, err)
		}
	}
	complete(latest(clock.Now()), 0)
	if got, want := audited(t, e), "1 k-operator agent.lost a/0\n"; got != want {
		t.Errorf("audited: got %s, want %s", got, want)
	}
	verify(t, s)
	for epoch, want := range map[ledger.Epoch]error{{Agent: "c", Epoch: 3}: ledger.ErrTaken, {Agent: "a", Epoch: 9}: ledger.ErrNotFound} {
		if _, err := books.DeclareLost(t.Context(), operator, "r", epoch); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", epoch, err, want)
		}
	}
	// A fenced epoch holds back what its agent may still hold, until it is declared lost;
	// it takes no report either way.
	d := agent{id: "d"}
	for _, status := range []ledger.Status{ledger.Settled, ledger.Fenced} {
		twin := d
		if err := wantStatus(t.Context(), s, d.report(clock.Now(), row(clock.Now(), "acme", int64(status))), status); err != nil {
			t.Fatal(err)
		}
		d = twin
	}
	held := clock.Now()
	clock.Advance(time.Hour)
	if err := wantStatus(t.Context(), s, b.report(clock.Now()), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	complete(held, 1)
	for range 2 {
		state, err := books.DeclareLost(t.Context(), operator, "its disk is gone", ledger.Epoch{Agent: "d"})
		if err != nil || state.State != ledger.StateGone || state.Seq != 1 {
			t.Fatalf("a fenced one lost: got %+v, %v", state, err)
		}
	}
	complete(latest(clock.Now()), 0)
	d.report(clock.Now())
	if err := wantStatus(t.Context(), s, d.report(clock.Now(), row(clock.Now(), "acme", 9)), ledger.Fenced); err != nil {
		t.Error(err)
	}
	complete(latest(clock.Now()), 0)
	verify(t, s)
	// It was not gone: nothing that it sends is refused, and it counts again.
	clock.Advance(time.Hour)
	if err := wantStatus(t.Context(), s, a.report(clock.Now().Add(-30*time.Minute), row(clock.Now(), "acme", 7)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	states, err := s.Agents(t.Context(), "", 1)
	if err != nil || states[0].State != ledger.StateOpen {
		t.Errorf("after its report: got %+v, %v, want it open", states, err)
	}
	if err := wantTotal(t.Context(), s, "acme", 13+int64(ledger.Settled)); err != nil {
		t.Error(err)
	}
	verify(t, s)
}
