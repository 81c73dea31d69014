package policy

import (
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// renderPrice writes a price with every value spelled out.
func renderPrice(p *billing.Price) map[string]any {
	money := func(n int64) string { return billing.Money{Amount: n, Currency: p.Currency}.String() }
	meters := map[string]any{}
	for _, m := range p.Meters {
		out := map[string]any{"included": m.Included}
		if m.Apart {
			out["overage"] = m.Overage.String()
		}
		if m.Mode == billing.Package {
			out["package"] = map[string]any{"size": m.Size, "price": m.Package.String()}
		} else {
			tiers := []any{}
			for _, t := range m.Tiers {
				tier := map[string]any{"unit": t.Unit.String()}
				if t.UpTo > 0 {
					tier["up_to"] = t.UpTo
				}
				tiers = append(tiers, tier)
			}
			out["tiers"], out["mode"] = tiers, m.Mode.String()
		}
		meters[m.Meter] = out
	}
	return map[string]any{"currency": p.Currency, "monthly": money(p.Monthly), "minimum": money(p.Minimum), "meters": meters}
}

// priced is a document with one plan, whose price is on lines 5 and after.
func priced(price string) string {
	return "limits: [{name: all, by: [tenant], meter: egress}]\nplans:\n  p:\n    limits: [{name: requests, rate: 1/s, meter: requests}]\n    price: " + price + "\n"
}

func TestPrice(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{monthly: 49.00 USD}", "49.00 USD a month"},
		{"{currency: EUR, meters: {requests: {unit: 0.0010}}}", "in EUR; requests 0.001 each"},
		{
			"{monthly: 49.00 USD, meters: {requests: {included: 500000, tiers: [{up_to: 1000000, unit: 0.0005}, {unit: 0.0003}]}}}",
			"49.00 USD a month; requests 500000 included, 0.0005 up to 1000000, then 0.0003",
		},
		{
			"{minimum: 5 JPY, meters: {requests: {mode: volume, tiers: [{up_to: 10, unit: 2}, {unit: 1}], overage: 3}, egress: {package: {size: 1000, price: 0.40}}}}",
			"at least 5 JPY; egress 0.4 per 1000; requests 2 up to 10, then 1, overage 3 each (volume)",
		},
	} {
		d := mustParse(t, priced(c.text))
		if got := d.Price("p").String(); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.text, got, c.want)
		}
		if d.Price("q") != nil {
			t.Error("a plan that is not there has a price")
		}
		if again := mustParse(t, render(d)); again.Price("p").String() != c.want {
			t.Errorf("written anew: %s, want %s", again.Price("p"), c.want)
		}
	}
}

func TestPriceFaults(t *testing.T) {
	for _, c := range []struct{ price, says string }{
		{"", "says nothing"},
		{"[]", "must be a mapping"},
		{"{fee: 1 USD}", `unknown key "fee" in the price of plan p; allowed are currency, meters, minimum, monthly`},
		{"{currency: USD}", "prices nothing"},
		{"{currency: usd, monthly: 1 USD}", `"usd" is not a currency`},
		{"{monthly: 49.00 XXX}", `"XXX" is not a currency`},
		{"{monthly: 49.00}", "is not an amount of money"},
		{"{monthly: 49.001 USD}", "finer than a currency's minor unit: USD has 2"},
		{"{monthly: 0.5 JPY}", "finer than a currency's minor unit: JPY has 0"},
		{"{monthly: 100000000000000000 USD}", "is too much"},
		{"{monthly: -1 USD}", "without sign"},
		{"{monthly: 1 USD, minimum: 1 EUR}", "a price has one currency"},
		{"{monthly: 1 USD, currency: EUR}", "a price has one currency"},
		{"{meters: {requests: {unit: 1}}}", "has no currency"},
		{"{currency: USD, meters: {reqests: {unit: 1}}}", `feeds meter "reqests", so it would never be charged; the meters are egress, requests`},
		{"{currency: USD, meters: {requests: }}", "says nothing"},
		{"{currency: USD, meters: {requests: {}}}", "needs one of unit, tiers and package, and has none"},
		{"{currency: USD, meters: {requests: {unit: 1, tiers: [{unit: 1}]}}}", "and has unit and tiers"},
		{"{currency: USD, meters: {requests: {unit: 1e-3}}}", "without sign or exponent"},
		{"{currency: USD, meters: {requests: {unit: 0.0000000000001}}}", "too many digits"},
		{"{currency: USD, meters: {requests: {unit: 10000000000}}}", "is too much; at most 10 digits"},
		{"{currency: USD, meters: {requests: {included: 1000000000001, unit: 1}}}", "0 to 1000000000000"},
		{"{currency: USD, meters: {requests: {unit: 1, mode: volume}}}", "goes with tiers"},
		{"{currency: USD, meters: {requests: {tiers: [{unit: 1}], mode: steps}}}", "allowed are graduated and volume"},
		{"{currency: USD, meters: {requests: {tiers: []}}}", "is empty"},
		{"{currency: USD, meters: {requests: {tiers: [{up_to: 5}]}}}", "has no unit"},
		{"{currency: USD, meters: {requests: {tiers: [{up_to: 5, unit: 1}]}}}", "the last tier ends at 5"},
		{"{currency: USD, meters: {requests: {tiers: [{unit: 1}, {unit: 2}]}}}", "tier 1 has no up_to and is not the last"},
		{"{currency: USD, meters: {requests: {tiers: [{up_to: 9, unit: 1}, {up_to: 9, unit: 2}, {unit: 3}]}}}", "tiers must be in ascending order"},
		{"{currency: USD, meters: {requests: {included: 9, tiers: [{up_to: 9, unit: 1}, {unit: 2}]}}}", "nobody would ever pay it"},
		{"{currency: USD, meters: {requests: {package: {size: 5}}}}", "needs a size and a price"},
		{"{currency: USD, meters: {requests: {package: {size: 0, price: 1}}}}", "1 to 1000000000000"},
	} {
		got := faultsOf(t, priced(c.price))
		if !strings.Contains(got, c.says) || !strings.HasPrefix(got, "5: ") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got\n%swant one fault on line 5 that says %q", c.price, got, c.says)
		}
	}
}

func TestBilling(t *testing.T) {
	tenant := func(billing string) string {
		return "plans: {p: {}}\ntenants:\n  - {id: acme, plan: p, billing: " + billing + "}\n"
	}
	for text, want := range map[string]terms.Billing{
		"{}": {}, "{zone: UTC}": {}, "{period: calendar}": {}, "{zone: Asia/Kolkata}": {Zone: "Asia/Kolkata"},
		"{zone: Europe/Berlin, period: anniversary}": {Zone: "Europe/Berlin", Anniversary: true},
		"{pays: self, from: 2026-12-01}":             {From: 1796083200000},
	} {
		got := mustParse(t, tenant(text)).TenantSpecs()[0].Billing
		if again, err := terms.ParseBilling(got.Text()); got != want || again != want || err != nil {
			t.Errorf("%s is %+v, and kept %+v, %v; want %+v", text, got, again, err, want)
		}
	}
	for text, says := range map[string]string{
		"": "says nothing", "[]": "must be a mapping", "{zone: Local}": "not an IANA time zone", "{period: weekly}": "allowed are calendar and anniversary",
		"{day: 3}": "allowed are from, pays, period, zone", "{from: 2026-12-01}": "from says since when pays holds", "{pays: self, from: soon}": "write a date",
	} {
		if got := faultsOf(t, tenant(text)); !strings.HasPrefix(got, "3: ") || !strings.Contains(got, says) {
			t.Errorf("%s: got %swant %q on line 3", text, got, says)
		}
	}
	older, newer := mustParse(t, tenant("{}")), mustParse(t, tenant("{zone: Asia/Tokyo, period: anniversary}"))
	if got := strings.Join(Diff(older, newer), "\n"); got != "tenant acme: billed by calendar months in UTC → months from its anniversary in Asia/Tokyo" {
		t.Error(got)
	}
}

// A price is part of its version: a change of it is one of the plan.
func TestPriceDiff(t *testing.T) {
	older, newer := mustParse(t, priced("{monthly: 49.00 USD}")), mustParse(t, priced("{monthly: 59 USD}"))
	if got := strings.Join(Diff(older, newer), "\n"); got != "plan p: price 49.00 USD a month → 59.00 USD a month" {
		t.Error(got)
	}
	if got := Diff(older, mustParse(t, priced("{monthly: 49.0 USD, currency: USD}"))); got != nil {
		t.Errorf("the same price, written otherwise: %q", got)
	}
}
