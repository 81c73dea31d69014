package ledger

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

// TestABlockIsBoundedByNotes: agents that share tenants make few entries, but a note for each agent and tenant.
// New notes end a block, too.
func TestABlockIsBoundedByNotes(t *testing.T) {
	unraced.Only(t)
	const tenants = 10_000
	rows := make([]Row, tenants)
	for i := range rows {
		rows[i] = Row{Slot: 1_700_000_100, Tenant: fmt.Sprintf("tenant-%06d", i), Limit: "requests", Meter: "requests", Version: 1, Admitted: 1}
	}
	payload := EncodeRows(rows)
	known := NewNotes(1_000_000)
	fill := func() (reports int) {
		for s := NewSealing(known); ; reports++ {
			if s.Full(0) || reports == 100 {
				for touch := range s.touched {
					known.Add(touch)
				}
				return reports
			}
			p := Pending{ID: ReportID{Epoch{fmt.Sprintf("agent-%d", reports), 1}, 1}, Payload: payload}
			if err := s.Add(&p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := fill(), MaxBlockTouches/tenants; got != want {
		t.Errorf("of agents that are new a block took %d reports, want %d", got, want)
	}
	// Those of the first are known now.
	if got, want := fill(), 2*MaxBlockTouches/tenants; got != want {
		t.Errorf("with half of them known a block took %d reports, want %d", got, want)
	}
}

// Notes of an epoch are known until the epoch is forgotten. That may happen when the notes are full, and only
// with all notes of the epoch.
func TestNotesForgetEpochs(t *testing.T) {
	a, b, c := Epoch{"a", 1}, Epoch{"b", 1}, Epoch{"c", 1}
	n := NewNotes(4)
	for range 2 { // noted again it changes nothing
		for _, tenant := range []string{"x", "y"} {
			n.Add(NewTouch(a, tenant))
			n.Add(NewTouch(b, tenant))
		}
	}
	for _, e := range []Epoch{a, b} {
		if !n.Of(e).Has("x") || !n.Of(e).Has("y") || n.Of(e).Has("z") {
			t.Errorf("noted of %v: got %v, want x and y", e, n.Of(e))
		}
	}
	n.Add(NewTouch(c, "x"))
	if left := len(n.Of(a)) + len(n.Of(b)); left != 2 || len(n.Of(c)) != 1 || n.n != 3 {
		t.Errorf("beyond four: got %d of a and b, %d of c, %d in all, want 2, 1, 3", left, len(n.Of(c)), n.n)
	}
	n.Forget(c)
	n.Forget(c)
	if n.Of(c).Has("x") || n.n != 2 {
		t.Errorf("forgotten: got %v and %d in all, want none and 2", n.Of(c), n.n)
	}
	n = NewNotes(1)
	n.Add(NewTouch(a, "x"))
	n.Add(NewTouch(a, "y"))
	if got := n.Of(a); got.Has("x") || !got.Has("y") || n.n != 1 {
		t.Errorf("an epoch beyond all that is remembered: got %v, %d in all, want y alone", got, n.n)
	}
}

// A row of agents that share 10,000 tenants, all of which are noted.
func BenchmarkSealingNoted(b *testing.B) {
	const agents, tenants = 100, 10_000
	rows := make([]Row, tenants)
	for i := range rows {
		rows[i] = Row{Slot: 1_700_000_100, Tenant: fmt.Sprintf("tenant-%06d", i), Limit: "requests", Meter: "requests", Version: 1, Admitted: 1}
	}
	payload := EncodeRows(rows)
	report := func(n int) *Pending {
		return &Pending{ID: ReportID{Epoch{fmt.Sprintf("agent-%d", n), 1}, 1}, Payload: payload}
	}
	known := NewNotes(agents * tenants)
	for n := range agents {
		for i := range rows {
			known.Add(NewTouch(report(n).ID.Epoch, rows[i].Tenant))
		}
	}
	for b.Loop() {
		s := NewSealing(known)
		for n := range agents {
			if err := s.Add(report(n)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/agents/tenants, "ns/row")
}
