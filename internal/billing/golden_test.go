package billing

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// One file for each way to price: every change of plan, with and without late usage
// and credits. Amounts are for a reviewer to check by hand; the digests say that not a
// byte of a statement may change while Format is the same.
func TestGolden(t *testing.T) {
	unit := func(s string) []Tier { return []Tier{{0, decimal(t, s)}} }
	tiers := []Tier{{1000, decimal(t, "0.05")}, {0, decimal(t, "0.03")}}
	for name, p := range map[string]Price{
		"flat":      {Currency: "USD", Monthly: 4900},
		"per-unit":  {Currency: "USD", Meters: []MeterPrice{{Meter: "requests", Tiers: unit("0.0125")}}},
		"graduated": {Currency: "USD", Meters: []MeterPrice{{Meter: "requests", Tiers: tiers}}},
		"volume":    {Currency: "USD", Meters: []MeterPrice{{Meter: "requests", Mode: Volume, Tiers: tiers}}},
		"package":   {Currency: "USD", Meters: []MeterPrice{{Meter: "requests", Mode: Package, Size: 300, Package: decimal(t, "2.5")}}},
		"included":  {Currency: "USD", Monthly: 1000, Meters: []MeterPrice{{Meter: "requests", Included: 500, Tiers: tiers}}},
		"overage":   {Currency: "USD", Meters: []MeterPrice{{Meter: "requests", Tiers: unit("0.01"), Apart: true, Overage: decimal(t, "0.02")}}},
		"minimum":   {Currency: "USD", Minimum: 6000, Meters: []MeterPrice{{Meter: "requests", Tiers: unit("0.03")}}},
		"several":   {Currency: "KWD", Monthly: 1500, Meters: []MeterPrice{{Meter: "egress", Tiers: unit("0.000333")}, {Meter: "requests", Tiers: tiers}}},
		// The plan and the price that it changes to are in another currency.
		"currencies": {Currency: "EUR", Monthly: 3000, Minimum: 4000, Meters: []MeterPrice{{Meter: "requests", Included: 100, Tiers: tiers, Apart: true, Overage: decimal(t, "0.5")}}},
	} {
		t.Run(name, func(t *testing.T) {
			if problems := p.Check(); len(problems) > 0 {
				t.Fatal(problems)
			}
			var out strings.Builder
			fmt.Fprintf(&out, "%s\n", p.String())
			for _, change := range []string{"no change", "to another plan", "to another price", "away and back", "away and back within a slot"} {
				for _, late := range []bool{false, true} {
					for _, credit := range []bool{false, true} {
						fmt.Fprintf(&out, "\n%s, late usage %t, credit %t\n", change, late, credit)
						golden(t, &out, &p, change, late, credit)
					}
				}
			}
			wantGolden(t, name, out.String())
		})
	}
}

// What is in quarantine when a statement is made is on none of its lines, whatever else is on it, and the statement says so.
func TestGoldenQuarantine(t *testing.T) {
	p := Price{Currency: "USD", Monthly: 1000, Meters: []MeterPrice{{Meter: "requests", Tiers: []Tier{{1000, decimal(t, "0.05")}, {0, decimal(t, "0.03")}}}}}
	var out strings.Builder
	for _, late := range []bool{false, true} {
		for _, withheld := range []*Quarantined{nil, {Rows: 3, Units: 1200}, {Rows: 1}} {
			fmt.Fprintf(&out, "late usage %t, in quarantine %+v\n", late, withheld)
			golden(t, &out, &p, "no change", late, true, func(in *Input) { in.Quarantined = withheld })
		}
	}
	wantGolden(t, "quarantine", out.String())
}

// Trees that change within a period, payers that begin late, months below zero, and credits that are given after a close. A month costs
// 30.00 and includes 300 units, each one more costs 0.10; the totals are worked out by hand.
func TestGoldenTrees(t *testing.T) {
	p := &Price{Currency: "USD", Monthly: 3000, Meters: []MeterPrice{{Meter: "requests", Included: 300, Tiers: []Tier{{0, decimal(t, "0.10")}}}}}
	cycle := Cycle{Zone: time.UTC, Day: 1}
	var months []Period
	for _, name := range []string{"2026-10", "2026-11", "2026-12", "2027-01"} {
		month, err := cycle.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		months = append(months, month)
	}
	october, november := months[0], months[1]
	day := func(n int64) int64 { return november.From + (n-1)*86400 }
	// month is a tenant's statement of a month, after those of the months before it.
	month := func(tenant, plan string, n int, usage ...Usage) *Input {
		return &Input{
			Tenant: tenant, Cycle: cycle, Period: months[n], Earlier: months[:n], Block: Block{120, strings.Repeat("ab", 32)}, Since: 100,
			Subscriptions: []Subscription{{Plan: plan, From: october.From}}, Usage: usage,
			Versions: []Version{{Number: 1, From: october.From, Prices: map[string]*Price{"paid": p, "free": nil}}},
		}
	}
	used := func(slot, units int64, late bool) Usage {
		return Usage{Slot: slot, Version: 1, Plan: "paid", Units: Units{"requests", units, 0}, Late: late}
	}
	var out strings.Builder
	say := func(what string, in *Input, want int64) *Statement {
		fmt.Fprintf(&out, "%s\n", what)
		s := rated(t, &out, in)
		total := int64(0)
		for _, of := range s.Totals {
			total += of.Total
		}
		if total != want {
			t.Errorf("%s: it comes to %d, want %d", what, total, want)
		}
		return s
	}
	// above is the statement of org, which costs nothing itself, with that of its member on it.
	above := func(member *Input) *Input {
		in := month("org", "free", 1)
		in.Members = []Input{*member}
		return in
	}

	// 100 units in the first ten days, 250 in the other twenty: in one hand, 30.00 and 50 more than are included.
	shop := month("shop", "paid", 1, used(day(5), 100, true), used(day(20), 250, true))
	say("shop pays for itself all month", shop, 3500)
	// Ten days are 10.00 and include 100 units; twenty are 20.00 and include 200, so that 50 cost 5.00.
	shop.Elsewhere = []Range{{day(11), november.To}}
	say("shop pays for ten days, and then its parent does", shop, 1000)
	say("shop leaves its parent's statement after ten days", above(shop), 1000)
	shop.Elsewhere = []Range{{november.From, day(11)}}
	say("shop begins to pay after ten days", shop, 2500)
	say("shop joins its parent's statement after ten days", above(shop), 2500)
	// It comes back for the last ten: twice ten days are 20.00 and include 200 units of 100.
	shop.Elsewhere = []Range{{day(11), day(21)}}
	say("shop leaves after ten days and comes back for ten", above(shop), 2000)
	// October was paid for by another: what came late of it is not here.
	shop.Elsewhere, shop.Usage = []Range{{october.From, november.From}}, append(shop.Usage, used(november.From-300, 500, true))
	say("shop joins with the month, and its usage of before comes late", above(shop), 3500)

	// October was 30.00 and 70.00 for 700 of 1000 units. 900 are taken back: 70.00 less. November is 30.00, so 40.00 are carried: 30.00
	// pay December, 10.00 are left for January.
	negative := month("acme", "paid", 1, used(october.From, 1000, false), used(october.From, -900, true))
	carried := say("a month below zero", negative, 0).Carried()
	if len(carried) != 1 || carried[0].Amount != 4000 {
		t.Fatalf("carried %+v, want 40.00", carried)
	}
	credits := []Credit{{ID: carried[0].Credit, Currency: "USD", Left: 4000, Given: november.To, Rollover: -1}}
	for i, want := range []int64{0, 2000} {
		in := month("acme", "paid", 2+i)
		in.Credits = credits
		credits[0].Left = say(fmt.Sprintf("month %d after it", i+1), in, want).Credits[0].After
	}

	// October is 30.00 whenever it is looked at: a credit of after its end does not pay it. November has its own 30.00, and 10.00
	// for 100 late units of October: the credit pays both, and 10.00 of 50.00 are left.
	gift := []Credit{{ID: "gift", Currency: "USD", Left: 5000, Given: day(5), Rollover: -1}}
	closed := month("acme", "paid", 0, used(october.From, 300, false))
	closed.Credits = gift
	say("a month that ended before a credit was given", closed, 3000)
	open := month("acme", "paid", 1, used(october.From, 300, false), used(october.From, 100, true))
	open.Credits = gift
	if s := say("the month after it", open, 0); len(s.Credits) != 1 || s.Credits[0].After != 1000 {
		t.Errorf("credits %+v, want 10.00 left", s.Credits)
	}
	wantGolden(t, "trees", out.String())
}

func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s says otherwise:\n%s", file, got)
	}
}

// golden is November 2026 in India, ten days into which something changes, after an
// October that was closed.
func golden(t *testing.T, out *strings.Builder, p *Price, change string, late, credit bool, more ...func(*Input)) {
	t.Helper()
	cycle := Cycle{Zone: zone(t, "Asia/Kolkata"), Day: 1}
	october, _ := cycle.Named("2026-10")
	november, _ := cycle.Named("2026-11")
	at := func(day, hour int) int64 { return time.Date(2026, 11, day, hour, 0, 0, 0, cycle.Zone).Unix() }
	dearer := *p
	dearer.Monthly = 2*p.Monthly + 100
	if p.Currency == "EUR" {
		dearer.Currency = "JPY"
	}
	in := &Input{
		Tenant: "acme", Cycle: cycle, Period: november, Earlier: []Period{october}, Block: Block{120, strings.Repeat("ab", 32)}, Since: 100,
		Subscriptions: []Subscription{{Plan: "paid", From: october.From - 86400}},
		Versions:      []Version{{Number: 1, From: october.From - 2*86400, Prices: map[string]*Price{"paid": p, "gold": &dearer}}},
	}
	switch change {
	case "to another plan":
		in.Subscriptions = []Subscription{{"paid", october.From, at(11, 0)}, {"gold", at(11, 0), 0}}
	case "to another price":
		in.Versions = append(in.Versions, Version{Number: 2, From: at(11, 0), Prices: map[string]*Price{"paid": &dearer, "gold": p}})
	case "away and back":
		// A change within a slot counts from the next one on.
		in.Subscriptions = []Subscription{{"paid", october.From, at(11, 0) - 299}, {"gold", at(11, 0) - 299, at(16, 0)}, {"paid", at(16, 0), 0}}
	}
	plan, within := "", change == "away and back within a slot"
	if within { // for a minute and a half, of which no slot begins in any
		in.Subscriptions = []Subscription{{"paid", october.From, at(12, 9) + 100}, {"gold", at(12, 9) + 100, at(12, 9) + 190}, {"paid", at(12, 9) + 190, 0}}
		plan = "paid"
	}
	use := func(slot, version, admitted, overage int64, late bool) {
		for _, meter := range []string{"requests", "egress"} {
			in.Usage = append(in.Usage, Usage{Slot: slot, Version: version, Plan: plan, Units: Units{meter, admitted, overage}, Late: late})
		}
	}
	use(october.To-300, 1, 950, 20, false)
	use(november.From, 1, 700, 10, true)
	use(at(12, 9), 2, 301, 7, true)
	use(at(12, 9), 1, 40, 0, true) // an agent that the change had not reached
	use(at(20, 9), 2, 600, 0, true)
	if plan = "gold"; within {
		use(at(12, 9), 1, 6000, 0, true)
		use(at(12, 10), 1, 11, 0, true) // an agent that the way back had not reached
	}
	if plan = ""; within {
		plan = "paid"
	}
	if late {
		use(october.To-600, 1, 151, 5, true)
	}
	if credit {
		in.Credits = []Credit{
			{ID: "gift", Currency: p.Currency, Left: 500, Given: october.From, Expires: at(15, 0), Rollover: -1},
			{ID: "prepaid", Currency: p.Currency, Left: 100000, Given: october.From, Rollover: 90000},
		}
	}
	for _, set := range more {
		set(in)
	}
	rated(t, out, in)
}

// rated makes a statement and writes what is on it.
func rated(t *testing.T, out *strings.Builder, in *Input) *Statement {
	t.Helper()
	s, err := Rate(in)
	if err != nil {
		t.Fatal(err)
	}
	_, digest, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range s.Lines {
		of := ""
		if l.Tenant != "" {
			of = " of " + l.Tenant
		}
		fmt.Fprintf(out, "  %-8s %-5s %-9s units %-6d included %-5d %14s  %s%s%s\n", l.Kind, l.Plan, l.Meter, l.Units, l.Included, Money{l.Amount, l.Currency}, l.Period, l.Credit, of)
	}
	for _, b := range s.Credits {
		fmt.Fprintf(out, "  %s: %d paid, %d lapsed, %d left\n", b.Credit, b.Paid, b.Lapsed, b.After)
	}
	for _, total := range s.Totals {
		fmt.Fprintf(out, "  total %s\n", Money{total.Total, total.Currency})
	}
	if q := s.Quarantined; q != nil {
		fmt.Fprintf(out, "  in quarantine: %d rows with %d units\n", q.Rows, q.Units)
	}
	fmt.Fprintf(out, "  %s\n", digest)
	return s
}

// At the edge of a tier: its last unit still has its price, and the next one has not.
func TestTierEdges(t *testing.T) {
	tiers := []Tier{{10, decimal(t, "2")}, {20, decimal(t, "1")}, {0, decimal(t, "0.5")}}
	for _, c := range []struct {
		mode        Mode
		free, units int64
		want        string
	}{
		{Graduated, 0, 0, "0"}, {Graduated, 0, 10, "20"}, {Graduated, 0, 11, "21"}, {Graduated, 0, 20, "30"}, {Graduated, 0, 22, "31"},
		{Graduated, 5, 10, "10"}, {Graduated, 15, 22, "6"}, {Graduated, 22, 22, "0"},
		{Volume, 0, 10, "20"}, {Volume, 0, 11, "11"}, {Volume, 0, 20, "20"}, {Volume, 0, 21, "10.5"}, {Volume, 5, 10, "10"}, {Volume, 5, 21, "8"},
	} {
		m := MeterPrice{Mode: c.mode, Tiers: tiers}
		if got := m.cost(c.free, c.units).FloatString(1); strings.TrimSuffix(got, ".0") != c.want {
			t.Errorf("%s, %d units of which %d are free: %s, want %s", c.mode, c.units, c.free, got, c.want)
		}
	}
	m := MeterPrice{Mode: Package, Size: 10, Package: decimal(t, "3")}
	for units, want := range map[int64]string{0: "0", 1: "3", 10: "3", 11: "6", 1 << 62: "1383505805528216373"} {
		if got := m.cost(0, units).RatString(); got != want {
			t.Errorf("%d units in packages of 10: %s, want %s", units, got, want)
		}
	}
}
