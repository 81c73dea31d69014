package billing

import (
	"testing"
	"time"
)

// Units are priced by the version that they were admitted under, where that has the plan: at nothing if it has no price.
// Otherwise they are priced by the version in force in their slot.
func TestVersionsWithoutAPrice(t *testing.T) {
	day := func(month time.Month, n int) int64 { return time.Date(2026, month, n, 0, 0, 0, 0, time.UTC).Unix() }
	each := func(price string) *Price {
		return &Price{Currency: "USD", Meters: []MeterPrice{{Meter: "requests", Tiers: []Tier{{0, decimal(t, price)}}}}}
	}
	versions := []Version{
		{Number: 1, From: day(10, 1), Prices: map[string]*Price{}}, // has no such plan yet
		{Number: 2, From: day(11, 1), Prices: map[string]*Price{"paid": each("1")}},
		{Number: 3, From: day(11, 10), Prices: map[string]*Price{"paid": nil}}, // has it, and it costs nothing
		{Number: 4, From: day(11, 15), Prices: map[string]*Price{"paid": each("2")}},
	}
	for _, c := range []struct {
		name    string
		slot    int64
		version int64
		want    int64 // minor units of 100 units
	}{
		{"by the version in force", day(11, 20), 4, 20_000},
		{"by an earlier one", day(11, 20), 2, 10_000},
		{"by one that has the plan without a price", day(11, 20), 3, 0},
		{"by one that does not have the plan", day(11, 20), 1, 20_000},
		{"by one that there is not", day(11, 20), 9, 20_000},
		{"while the plan costs nothing, by that version", day(11, 12), 3, 0},
		{"while the plan costs nothing, by an earlier one", day(11, 12), 2, 10_000},
		{"while the plan costs nothing, by one that does not have it", day(11, 12), 1, 0},
		// A version that held for none of the period prices nothing of it, whether it has a price or not.
		{"by one without a price that held for none of the period", day(12, 5), 3, 20_000},
		{"by one with a price that held for none of the period", day(12, 5), 2, 20_000},
	} {
		cycle := Cycle{Day: 1}
		in := &Input{
			Tenant: "acme", Cycle: cycle, Period: cycle.At(c.slot), Subscriptions: []Subscription{{Plan: "paid", From: day(11, 1)}}, Versions: versions,
			Usage: []Usage{{Slot: c.slot, Version: c.version, Units: Units{Meter: "requests", Admitted: 100}}},
		}
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		got := int64(0)
		for _, total := range s.Totals {
			got += total.Total
		}
		if got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
		used := int64(0)
		for _, term := range s.Terms {
			for _, u := range term.Used {
				used += u.Admitted
			}
		}
		if used != 100 {
			t.Errorf("%s: terms list %d units, want 100", c.name, used)
		}
	}
}
