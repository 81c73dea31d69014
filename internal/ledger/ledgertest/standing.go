package ledgertest

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// standing: each server of a ledger says how far epochs are settled, in the order in which it is asked. That
// includes epochs that nobody has heard of. It also says which ledger it is, within MaxLedger bytes.
func standing(t *testing.T, fresh func(t testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	a, b := agent{id: "a", epoch: 7}, agent{id: "b", epoch: 7}
	var last ledger.Report
	for range 3 {
		last = a.report(clock.Now(), row(clock.Now(), "acme", 5))
		if err := wantStatus(t.Context(), s, last, ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	other := b.report(clock.Now())
	if err := wantStatus(t.Context(), s, other, ledger.Settled); err != nil {
		t.Fatal(err)
	}
	asked := []ledger.Epoch{{Agent: "b", Epoch: 7}, {Agent: "a", Epoch: 8}, {Agent: "a", Epoch: 7}}
	st, err := s.Standing(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(st.Ledger); n == 0 || n > ledger.MaxLedger {
		t.Errorf("the ledger names itself %q", st.Ledger)
	}
	want := []ledger.Frontier{{Seq: 1, Digest: other.Digest}, {}, {Seq: 3, Total: 15, Digest: last.Digest}}
	if len(st.Frontiers) != len(asked) {
		t.Fatalf("got %d frontiers, want %d", len(st.Frontiers), len(asked))
	}
	for i, f := range st.Frontiers {
		if w := want[i]; f.Epoch != asked[i] || f.Seq != w.Seq || f.Total != w.Total || f.Digest != w.Digest {
			t.Errorf("%v: got %+v, want %+v", asked[i], f, w)
		}
	}
	again, err := s.Standing(t.Context(), nil)
	if err != nil || again.Ledger != st.Ledger || len(again.Frontiers) != 0 {
		t.Errorf("asked for nothing: got %+v, %v, want the same ledger %s", again, err, st.Ledger)
	}
}
