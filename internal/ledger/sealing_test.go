package ledger

import (
	"fmt"
	"testing"
)

// TestABlockIsBoundedByNotes: agents that share tenants make few entries, and a note for
// each agent and tenant: a block ends by those too, unless they are known already.
func TestABlockIsBoundedByNotes(t *testing.T) {
	const tenants = 10_000
	rows := make([]Row, tenants)
	for i := range rows {
		rows[i] = Row{Slot: 1_700_000_100, Tenant: fmt.Sprintf("tenant-%06d", i), Limit: "requests", Meter: "requests", Version: 1, Admitted: 1}
	}
	payload := EncodeRows(rows)
	known := NewSeen[Touch](1_000_000)
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
