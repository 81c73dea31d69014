package billing

import "testing"

// decimal reads a number that is one.
func decimal(t *testing.T, s string) Decimal {
	t.Helper()
	d, err := ParseDecimal(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPriceIsItsText(t *testing.T) {
	var none *Price
	if none.String() != "" {
		t.Errorf("no price is %q", none)
	}
	p := &Price{Currency: "USD", Monthly: 4900, Meters: []MeterPrice{{Meter: "a", Included: 5, Tiers: []Tier{{Unit: decimal(t, "0.5")}}}}}
	if got, want := p.String(), "49.00 USD a month; a 5 included, 0.5 each"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if p.Meter("a") != &p.Meters[0] || p.Meter("b") != nil {
		t.Error("meters are not found by name")
	}
}

func TestPriceHasSoManyMeters(t *testing.T) {
	p := &Price{Currency: "USD", Meters: make([]MeterPrice, MaxMeters)}
	for i := range p.Meters {
		p.Meters[i] = MeterPrice{Meter: string(rune('a' + i)), Tiers: []Tier{{}}}
	}
	if all := p.Check(); len(all) != 0 {
		t.Errorf("%d meters: %v", MaxMeters, all)
	}
	p.Meters = append(p.Meters, MeterPrice{Meter: "one more", Tiers: []Tier{{}}})
	if all := p.Check(); len(all) != 1 || all[0].Key != "meters" {
		t.Errorf("one more: %v, want a problem", all)
	}
}
