package usage

import "testing"

// A record of a known reservation has a total for each cost, each in range.
func TestKnownTotalsFitTheirCosts(t *testing.T) {
	for name, totals := range map[string][]int64{"none": nil, "one of two": {1}, "negative": {1, -5}} {
		k := &Reservation{ReservationID: ReservationID{1, 1}, Costs: []string{"tok"}, Totals: totals, State: Expired}
		r := NewRecovery("a", 1)
		if err := r.Record(k.appendKnown()); err == nil {
			t.Errorf("%s: believed: %+v", name, r.Reservations())
		}
	}
}
