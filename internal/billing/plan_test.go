package billing

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A plan that held for two minutes of a slot bills what it admitted, at its own price, whichever way the tenant toggles: the
// scenario by which 60,000 units were admitted under enterprise and billed under free, and its mirror image.
func TestAPlanOfAMinuteBillsWhatItAdmitted(t *testing.T) {
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Unix()
	versions := []Version{{Number: 1, Prices: map[string]*Price{
		"free":       {Currency: "USD", Meters: []MeterPrice{{Meter: "requests", Included: 1000, Tiers: []Tier{{0, decimal(t, "0.001")}}}}},
		"enterprise": {Currency: "USD", Monthly: 720000, Meters: []MeterPrice{{Meter: "requests", Tiers: []Tier{{0, decimal(t, "0.01")}}}}},
	}}}
	slot := begin + 10*86400
	up, down := slot+60, slot+180
	for _, c := range []struct {
		name                string
		usual, meanwhile    string
		unitsUsual, units   int64
		totalUsual, totalOf int64 // cents, the fee's share of two minutes included
	}{
		{"up and down", "free", "enterprise", 40_000, 60_000, 39_00, 600_00 + 33},
		{"down and up", "enterprise", "free", 40_000, 60_000, 7200_00 - 33 + 400_00, 60_00},
	} {
		in := &Input{
			Tenant: "acme", Period: Period{"2026-11", begin, begin + 30*86400}, Versions: versions,
			Subscriptions: []Subscription{{c.usual, begin, up}, {c.meanwhile, up, down}, {c.usual, down, 0}},
			Usage: []Usage{
				{Slot: slot, Version: 1, Plan: c.usual, Units: Units{"requests", c.unitsUsual, 0}},
				{Slot: slot, Version: 1, Plan: c.meanwhile, Units: Units{"requests", c.units, 0}},
			},
		}
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, l := range s.Lines {
			got[l.Plan] += l.Amount
		}
		if got[c.usual] != c.totalUsual || got[c.meanwhile] != c.totalOf {
			t.Errorf("%s: %v, want %s %d and %s %d", c.name, got, c.usual, c.totalUsual, c.meanwhile, c.totalOf)
		}
	}
}

// What somebody was admitted under the default plan before anybody made the tenant costs nothing, as that of a tenant
// that nobody makes; from then on a plan costs what it says, also where an agent that was cut off goes on under it.
func TestUsageOfBeforeATenantWasMade(t *testing.T) {
	price := func(unit string) *Price {
		return &Price{Currency: "USD", Meters: []MeterPrice{{Meter: "a", Tiers: []Tier{{0, decimal(t, unit)}}}}}
	}
	const made = 10*3600 + 700
	for _, c := range []struct {
		plan string
		slot int64
		want int64
	}{
		{"free", 9 * 3600, 0}, {"free", 10 * 3600, 0}, {"free", 10*3600 + 900, 0}, {"free", 11 * 3600, 1_00},
		{"paid", 9 * 3600, 0}, {"paid", 10 * 3600, 2_00}, {"paid", 11 * 3600, 2_00}, {"", 9 * 3600, 0}, {"", 10 * 3600, 2_00},
	} {
		in := &Input{
			Period: Period{"p", 0, 86400}, Subscriptions: []Subscription{{"paid", made, 0}},
			Versions: []Version{{Number: 1, Prices: map[string]*Price{"free": price("1"), "paid": price("2")}}},
			Usage:    []Usage{{Slot: c.slot, Version: 1, Plan: c.plan, Units: Units{"a", 1, 0}}},
		}
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, l := range s.Lines {
			total += l.Amount
		}
		if total != c.want || len(s.Days) != 1 {
			t.Errorf("under %q at %d: %d, want %d", c.plan, c.slot, total, c.want)
		}
	}
}

// Every unit that a plan admitted is in a term of that plan, once, however often the plan changes within a slot.
func TestEveryUnitIsBilledUnderItsPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		type of struct{ plan, meter string }
		want := map[of]int64{}
		line := newTimeline(in)
		for _, u := range in.Usage {
			if in.Period.Has(u.Slot) {
				if u.Plan == "" {
					u.Plan = line.plan(u.Slot)
				}
				want[of{u.Plan, u.Meter}] += u.Admitted
			}
		}
		for _, term := range s.Terms {
			for _, u := range term.Used {
				want[of{term.Plan, u.Meter}] -= u.Admitted
			}
		}
		for k, n := range want {
			if n != 0 {
				t.Fatalf("%d units of %s under plan %q are in no term of it", n, k.meter, k.plan)
			}
		}
	})
}
