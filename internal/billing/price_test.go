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
