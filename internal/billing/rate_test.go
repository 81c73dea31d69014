package billing

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The pricer of these tests goes through a period second by second and through usage unit
// by unit, and shares nothing with the one it judges but decimals and rounding.
type bruteTerm struct {
	plan    string
	price   *Price
	seconds int64
	units   map[string]int64
	over    map[string]int64
}

func brute(t *rapid.T, in *Input, p Period, late bool) map[string]int64 {
	sums := map[string]int64{}
	var terms []*bruteTerm
	term := func(plan string, price *Price) *bruteTerm {
		for _, b := range terms {
			if b.plan == plan && b.price.String() == price.String() {
				return b
			}
		}
		b := &bruteTerm{plan: plan, price: price, units: map[string]int64{}, over: map[string]int64{}}
		terms = append(terms, b)
		return b
	}
	// What holds at a time is what the last change at or before it made so.
	planAt := func(at int64) (plan string) {
		for i, s := range in.Subscriptions {
			if i == 0 {
				s.From = s.From / 3600 * 3600
			}
			if s.From <= at && (s.To == 0 || at < s.To) {
				plan = s.Plan
			}
		}
		return plan
	}
	priceAt := func(plan string, at int64) (price *Price) {
		for _, v := range in.Versions {
			if v.From <= at {
				price = v.Prices[plan]
			}
		}
		return price
	}
	for at := p.From; at < p.To; at++ {
		if plan := planAt(at); plan != "" {
			term(plan, priceAt(plan, at)).seconds++
		}
	}
	held := func(plan string, price *Price) bool {
		return slices.ContainsFunc(terms, func(b *bruteTerm) bool { return b.seconds > 0 && b.plan == plan && b.price.String() == price.String() })
	}
	for _, u := range in.Usage {
		if !p.Has(u.Slot) || u.Late && !late {
			continue
		}
		plan, beyond := u.Plan, u.Slot/3600*3600+3600 // the hour's end
		had := in.Subscriptions[0].From/3600*3600+3600 < beyond
		for _, s := range in.Subscriptions {
			had = had || s.Plan == plan && s.From < beyond
		}
		if plan == "" {
			plan, had = planAt(u.Slot), true
		}
		price := priceAt(plan, u.Slot)
		for _, v := range in.Versions {
			if of, has := v.Prices[plan]; has && v.Number == u.Version {
				price = of
			}
		}
		first, last := priceAt(plan, u.Slot), priceAt(plan, u.Slot+Grid-1)
		switch {
		case !had:
			price = nil
		case held(plan, price):
		case u.Plan == "" || held(plan, first):
			price = first
		case held(plan, last):
			price = last
		}
		b := term(plan, price)
		b.units[u.Meter] += u.Admitted
		b.over[u.Meter] += u.Overage
	}
	for _, b := range terms {
		if b.price == nil {
			continue
		}
		share := big.NewRat(b.seconds, p.Length())
		minor := new(big.Rat).SetInt(power(currencies[b.price.Currency]))
		total := roundOr(t, new(big.Rat).Mul(new(big.Rat).SetInt64(b.price.Monthly), share))
		for i := range b.price.Meters {
			m := &b.price.Meters[i]
			units := b.units[m.Meter]
			if m.Apart {
				units -= b.over[m.Meter]
				sum := new(big.Rat)
				for range b.over[m.Meter] {
					sum.Add(sum, m.Overage.rat())
				}
				total += roundOr(t, sum.Mul(sum, minor))
			}
			sum := new(big.Rat)
			for unit := int64(1); unit <= units; unit++ {
				// It is free if all units before it are less than the share of those included.
				if new(big.Rat).SetInt64(unit-1).Cmp(new(big.Rat).Mul(new(big.Rat).SetInt64(m.Included), share)) < 0 {
					continue
				}
				sum.Add(sum, bruteUnit(m, unit, units, share))
			}
			total += roundOr(t, sum.Mul(sum, minor))
		}
		if least := roundOr(t, new(big.Rat).Mul(new(big.Rat).SetInt64(b.price.Minimum), share)); total < least {
			total = least
		}
		sums[b.price.Currency] += total
	}
	return sums
}

// bruteUnit is what one unit of so many costs.
func bruteUnit(m *MeterPrice, unit, units int64, share *big.Rat) *big.Rat {
	position := unit
	switch m.Mode {
	case Volume:
		position = units
	case Package:
		// It begins a package if a whole number of them is full with the paid units before it.
		free := int64(0)
		for new(big.Rat).SetInt64(free).Cmp(new(big.Rat).Mul(new(big.Rat).SetInt64(m.Included), share)) < 0 {
			free++
		}
		if (unit-free-1)%m.Size == 0 {
			return m.Package.rat()
		}
		return new(big.Rat)
	}
	for _, tier := range m.Tiers {
		if tier.UpTo == 0 || position <= tier.UpTo {
			return tier.Unit.rat()
		}
	}
	return new(big.Rat)
}

func roundOr(t *rapid.T, r *big.Rat) int64 {
	n, err := round(r)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func drawDecimal(t *rapid.T) Decimal {
	d, err := ParseDecimal(rapid.SampledFrom([]string{"0", "0.0005", "0.005", "0.333333333333", "1", "1.25", "17.5", "0.000000000001"}).Draw(t, "decimal"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func drawPrice(t *rapid.T) *Price {
	p := &Price{
		Currency: rapid.SampledFrom([]string{"USD", "JPY", "KWD"}).Draw(t, "currency"),
		Monthly:  rapid.SampledFrom([]int64{0, 1, 4900}).Draw(t, "monthly"), Minimum: rapid.SampledFrom([]int64{0, 0, 7000}).Draw(t, "minimum"),
	}
	for _, meter := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(t, "meters")] {
		m := MeterPrice{Meter: meter, Included: rapid.SampledFrom([]int64{0, 1, 10}).Draw(t, "included"), Mode: Mode(rapid.IntRange(0, 2).Draw(t, "mode"))}
		if m.Mode == Package {
			m.Size, m.Package = rapid.Int64Range(1, 9).Draw(t, "size"), drawDecimal(t)
		} else {
			upTo := m.Included
			for range rapid.IntRange(0, 2).Draw(t, "tiers") {
				upTo += rapid.Int64Range(1, 20).Draw(t, "up to")
				m.Tiers = append(m.Tiers, Tier{upTo, drawDecimal(t)})
			}
			m.Tiers = append(m.Tiers, Tier{0, drawDecimal(t)})
		}
		if rapid.Bool().Draw(t, "apart") {
			m.Apart, m.Overage = true, drawDecimal(t)
		}
		p.Meters = append(p.Meters, m)
	}
	if problems := p.Check(); len(problems) > 0 {
		t.Fatalf("a drawn price does not hold: %v", problems)
	}
	return p
}

const (
	testSlots = 24
	testStart = 1_700_000_100 // a multiple of Grid
)

// draw makes two periods in a row, subscriptions and versions that change within them,
// and usage, of which some is late, and some of a version that was not in force.
func draw(t *rapid.T) *Input {
	if testStart%Grid != 0 {
		t.Fatal("periods begin on the grid")
	}
	length := int64(testSlots * Grid)
	first := Period{"first", testStart, testStart + length}
	in := &Input{Tenant: "acme", Period: Period{"second", first.To, first.To + length}, Earlier: []Period{first}, Block: Block{9, "ff"}, Since: 4}
	slot := func(what string) int64 { return first.From + Grid*rapid.Int64Range(0, 2*testSlots-1).Draw(t, what) }
	plans := []string{"free", "paid", "gold"}
	edges := []int64{slot("subscribed")}
	for range rapid.IntRange(0, 3).Draw(t, "changes of plan") {
		edges = append(edges, slot("plan changes"))
	}
	for i := range edges { // within the slot before, or at its end
		edges[i] -= rapid.Int64Range(0, Grid-1).Draw(t, "sooner")
	}
	slices.Sort(edges)
	for i, from := range edges {
		s := Subscription{Plan: rapid.SampledFrom(plans).Draw(t, "plan"), From: from}
		if i+1 < len(edges) {
			s.To = edges[i+1]
		} else if rapid.Bool().Draw(t, "ends") {
			s.To = from + rapid.Int64Range(1, 2*Grid*testSlots).Draw(t, "ends at")
		}
		in.Subscriptions = append(in.Subscriptions, s)
	}
	prices := []*Price{nil, drawPrice(t), drawPrice(t), drawPrice(t)}
	from := first.From - Grid
	for number := range rapid.Int64Range(1, 3).Draw(t, "versions") {
		v := Version{Number: number + 1, From: from, Prices: map[string]*Price{}}
		for _, plan := range plans {
			if rapid.IntRange(0, 3).Draw(t, "has "+plan) > 0 {
				v.Prices[plan] = rapid.SampledFrom(prices).Draw(t, "price of "+plan)
			}
		}
		in.Versions = append(in.Versions, v)
		from += rapid.Int64Range(0, Grid*testSlots).Draw(t, "next version")
	}
	for range rapid.IntRange(0, 12).Draw(t, "usage") {
		u := Usage{Slot: slot("slot"), Version: rapid.Int64Range(1, 4).Draw(t, "version"), Late: rapid.Bool().Draw(t, "late")}
		u.Plan = rapid.SampledFrom(append(plans, "")).Draw(t, "admitted under")
		u.Meter = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "meter")
		u.Admitted = rapid.Int64Range(0, 40).Draw(t, "admitted")
		u.Overage = rapid.Int64Range(0, u.Admitted).Draw(t, "overage")
		in.Usage = append(in.Usage, u)
	}
	return in
}

func sums(lines []Line, period string) map[string]int64 {
	all := map[string]int64{}
	for _, l := range lines {
		if l.Period == period && l.Kind != KindCredit && l.Kind != KindCarried {
			all[l.Currency] += l.Amount
		}
	}
	return all
}

func differ(a, b map[string]int64) bool {
	for _, m := range []map[string]int64{a, b} {
		for k := range m {
			if a[k] != b[k] {
				return true
			}
		}
	}
	return false
}

// Whatever the prices, changes and usage: what a period comes to is what every unit
// costs, added up; and an adjustment is what the late units change of it.
func TestRateUnitByUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := sums(s.Lines, ""), brute(t, in, in.Period, true); differ(got, want) {
			t.Fatalf("charges %v, unit by unit %v\n%+v", got, want, s.Lines)
		}
		before, after := brute(t, in, in.Earlier[0], false), brute(t, in, in.Earlier[0], true)
		want := map[string]int64{}
		for currency := range after {
			want[currency] = after[currency] - before[currency]
		}
		if got := sums(s.Lines, "first"); differ(got, want) {
			t.Fatalf("adjustments %v, want %v less %v\n%+v", got, after, before, s.Lines)
		}
		var lines int64
		for _, l := range s.Lines {
			lines += l.Amount
		}
		for _, total := range s.Totals {
			lines -= total.Total
		}
		if lines != 0 {
			t.Fatalf("the lines and the totals differ by %d", lines)
		}
		var used, entries int64
		for _, term := range s.Terms {
			for _, u := range term.Used {
				used += u.Admitted
			}
		}
		for _, u := range in.Usage {
			if in.Period.Has(u.Slot) {
				entries += u.Admitted
			}
		}
		if used != entries {
			t.Fatalf("the terms have %d units, the entries %d", used, entries)
		}
	})
}

// The order in which a store hands out what a statement depends on is nobody's promise.
func TestRateIsAFunction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		document, digest, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		other := *in
		other.Usage = rapid.Permutation(in.Usage).Draw(t, "order of usage")
		other.Subscriptions = slices.Clone(in.Subscriptions)
		again, err := Rate(&other)
		if err != nil {
			t.Fatal(err)
		}
		if second, d, _ := again.Encode(); d != digest {
			t.Fatalf("in another order:\n%s\n%s", document, second)
		}
		read, err := Decode(document, digest)
		if err != nil {
			t.Fatal(err)
		}
		if third, d, _ := read.Encode(); d != digest {
			t.Fatalf("read and written again:\n%s\n%s", document, third)
		}
	})
}

// Statements of one period at rising heights add up: run n is run n−1 and its adjustments.
func TestAdjustmentsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		heights := make([]int, len(in.Usage))
		for i := range heights {
			heights[i] = rapid.IntRange(0, 3).Draw(t, "height")
		}
		p := in.Earlier[0]
		total := map[string]int64{}
		for height := range 4 {
			run := *in
			run.Usage = nil
			for i, u := range in.Usage {
				if u.Late = heights[i] == height; heights[i] <= height {
					run.Usage = append(run.Usage, u)
				}
			}
			if height == 0 {
				run.Period, run.Earlier = p, nil
			}
			s, err := Rate(&run)
			if err != nil {
				t.Fatal(err)
			}
			period := "first"
			if height == 0 {
				period = ""
			}
			for currency, n := range sums(s.Lines, period) {
				total[currency] += n
			}
		}
		if want := brute(t, in, p, true); differ(total, want) {
			t.Fatalf("the runs add up to %v, all at once comes to %v", total, want)
		}
	})
}

// Tenants that another pays for come to what they would by themselves in its periods, late usage included, each on lines of its own;
// a member has its plans, versions and usage, and of all else what the payer has.
func TestMembersComeToWhatTheyWouldAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		var terms []Term
		var lines []Line
		totals := map[string]int64{}
		days := map[string]int64{}
		alone := func(of *Input, tenant string) {
			s, err := Rate(of)
			if err != nil {
				t.Fatal(err)
			}
			for _, term := range s.Terms {
				term.Tenant = tenant
				terms = append(terms, term)
			}
			for _, l := range s.Lines {
				if l.Kind == KindCarried {
					continue // what is below zero is the payer's, all taken together
				}
				l.Tenant = tenant
				lines = append(lines, l)
				totals[l.Currency] += l.Amount
			}
			for _, d := range s.Days {
				days[d.Date+" "+d.Meter] += d.Admitted
			}
		}
		alone(in, "")
		for _, tenant := range []string{"acme/a", "acme/b"} {
			m := draw(t)
			m.Tenant = tenant
			alone(m, tenant)
			in.Members = append(in.Members, Input{Tenant: tenant, Subscriptions: m.Subscriptions, Versions: m.Versions, Usage: m.Usage})
		}
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		s.Lines = slices.DeleteFunc(s.Lines, func(l Line) bool {
			if l.Kind == KindCarried {
				totals[l.Currency] += l.Amount
			}
			return l.Kind == KindCarried
		})
		if !slices.Equal(s.Lines, lines) || fmt.Sprintf("%+v", s.Terms) != fmt.Sprintf("%+v", terms) {
			t.Fatalf("together\n%+v\n%+v\nalone\n%+v\n%+v", s.Lines, s.Terms, lines, terms)
		}
		for _, total := range s.Totals {
			if total.Total != totals[total.Currency] {
				t.Fatalf("totals %+v, alone %v", s.Totals, totals)
			}
		}
		for _, d := range s.Days {
			if d.Admitted != days[d.Date+" "+d.Meter] {
				t.Fatalf("%+v, alone %v", d, days)
			}
		}
	})
}

func TestDecodeChecksTheDigest(t *testing.T) {
	s, err := Rate(&Input{Tenant: "a", Period: Period{"p", 0, Grid}})
	if err != nil {
		t.Fatal(err)
	}
	document, digest, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(append(document, ' '), digest); err == nil {
		t.Error("a statement that was changed is read")
	}
}

func TestRateRefuses(t *testing.T) {
	price := &Price{Currency: "USD", Meters: []MeterPrice{{Meter: "a", Tiers: []Tier{{Unit: decimal(t, "9999999999")}}}}}
	in := &Input{
		Period: Period{"p", 0, Grid}, Subscriptions: []Subscription{{Plan: "x"}}, Versions: []Version{{Number: 1, Prices: map[string]*Price{"x": price}}},
		Usage: []Usage{{Version: 1, Units: Units{Meter: "a", Admitted: 10_000}}},
	}
	if _, err := Rate(in); !errors.Is(err, ErrAmount) {
		t.Errorf("a line of 10^16 cents: %v, want %v", err, ErrAmount)
	}
	// Each of two tenants comes to less, and both on one statement to more.
	in.Usage[0].Admitted = 6_000
	in.Members = []Input{{Tenant: "below", Subscriptions: in.Subscriptions, Versions: in.Versions, Usage: in.Usage}}
	if _, err := Rate(in); !errors.Is(err, ErrAmount) {
		t.Errorf("a total of 10^16 cents and more: %v, want %v", err, ErrAmount)
	}
	in.Members = nil
	in.Usage = []Usage{{Version: 1, Units: Units{Meter: "c", Admitted: 1 << 59}}, {Version: 1, Units: Units{Meter: "c", Admitted: 1 << 62}}}
	if _, err := Rate(in); !errors.Is(err, ErrAmount) {
		t.Errorf("units beyond any count: %v, want %v", err, ErrAmount)
	}
	in.Period.To = 0
	if _, err := Rate(in); !errors.Is(err, ErrPeriod) {
		t.Errorf("a period without length: %v, want %v", err, ErrPeriod)
	}
}

// A correction may take away more than a term has; money is not made of it.
func TestUnitsBelowZero(t *testing.T) {
	price := &Price{Currency: "USD", Meters: []MeterPrice{{Meter: "a", Tiers: []Tier{{Unit: decimal(t, "1")}}}}}
	s, err := Rate(&Input{
		Period: Period{"p", 0, Grid}, Subscriptions: []Subscription{{Plan: "x"}}, Versions: []Version{{Number: 1, Prices: map[string]*Price{"x": price}}},
		Usage: []Usage{{Version: 1, Units: Units{Meter: "a", Admitted: -5}}},
	})
	if err != nil || len(s.Lines) != 0 || fmt.Sprint(s.Terms[0].Used) != "[{a -5 0}]" {
		t.Errorf("%+v, %v; want no line, and the units as they are", s, err)
	}
}

// A later version replaces an earlier one even where the clock of the server that took it was behind.
func TestVersionsGoByNumber(t *testing.T) {
	typo, fix := &Price{Currency: "USD", Monthly: 490000}, &Price{Currency: "USD", Monthly: 5900}
	line := newTimeline(&Input{Versions: []Version{
		{Number: 6, From: 2 * Grid, Prices: map[string]*Price{"paid": fix}},
		{Number: 5, From: 4 * Grid, Prices: map[string]*Price{"paid": typo}},
	}})
	if got := line.price("paid", 0, 9*Grid); got != fix {
		t.Errorf("in force: %v, want %v", got, fix)
	}
	if got := line.price("paid", 0, 3*Grid); got != nil {
		t.Errorf("before both: %v", got)
	}
}

// A statement is the same, to the byte, whether usage is given by slot or, but in the
// hours that something divides, by hour.
func TestUsageByHourIsTheSameStatement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		// Each day begins elsewhere in the hour; in Lord Howe clocks turn by half an hour, in
		// St. John's they turned a minute after midnight, over it.
		at := rapid.SampledFrom([]struct {
			zone string
			from string
		}{{"UTC", "2026-03-09T20:55:00Z"}, {"Asia/Kolkata", "2026-03-09T17:25:00Z"}, {"Asia/Kathmandu", "2026-03-09T17:10:00Z"}, {"Australia/Lord_Howe", "2026-04-05T12:35:00Z"}, {"America/St_Johns", "2010-11-07T01:40:00Z"}}).Draw(t, "zone")
		zone, err := time.LoadLocation(at.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse(time.RFC3339, at.from)
		if err != nil {
			t.Fatal(err)
		}
		in.Cycle.Zone = zone
		in.move(from.Unix() - in.Period.From)
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		document, digest, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		hourly, divided := *in, in.Divided()
		hourly.Usage = slices.Clone(in.Usage)
		for i := range hourly.Usage {
			u := &hourly.Usage[i]
			if hour := floor(u.Slot, 3600); in.Period.Has(u.Slot) && !slices.Contains(divided, hour) {
				u.Slot, u.Late = hour, false
			}
		}
		if s, err = Rate(&hourly); err != nil {
			t.Fatal(err)
		}
		if again, d, _ := s.Encode(); d != digest {
			t.Fatalf("by slot\n%s\nby hour, but for %v\n%s", document, divided, again)
		}
	})
}

// In St. John's clocks were put back over midnight, at a minute after it: within one hour a slot was of the next day, and
// that hour's first and last second were not.
func TestAnHourWithAnotherDayInIt(t *testing.T) {
	at := func(clock string) int64 {
		when, err := time.Parse(time.RFC3339, "2010-11-07T"+clock+":00Z")
		if err != nil {
			t.Fatal(err)
		}
		return when.Unix()
	}
	in := &Input{Cycle: Cycle{Zone: zone(t, "America/St_Johns"), Day: 1}, Period: Period{"p", at("00:00"), at("06:00")}}
	in.Usage = []Usage{{Slot: at("02:00"), Units: Units{"a", 1, 0}}, {Slot: at("02:30"), Units: Units{"a", 10, 0}}, {Slot: at("02:35"), Units: Units{"a", 100, 0}}}
	s, err := Rate(in)
	if got, want := fmt.Sprint(s.Days), "[{2010-11-06 a 101 0} {2010-11-07 a 10 0}]"; err != nil || got != want {
		t.Errorf("days %s, %v, want %s", got, err, want)
	}
	if got, want := in.Divided(), []int64{at("02:00"), at("03:00")}; !slices.Equal(got, want) {
		t.Errorf("divided %v, want %v", got, want)
	}
}

// What has the share of a period that it held for has it by the second: a month is as long as it is, in the tenant's zone.
func TestSharesOfAMonth(t *testing.T) {
	for _, c := range []struct {
		zone, name    string
		day           int
		change        string // of plan, local time
		first, second int64  // tenths of hours that the plans have
	}{
		{"UTC", "2026-04", 1, "2026-04-16 00:00", 3600, 3600},
		{"UTC", "2026-05", 1, "2026-05-16 00:00", 3600, 3840},
		{"UTC", "2027-02", 1, "2027-02-15 00:00", 3360, 3360},
		{"UTC", "2028-02", 1, "2028-02-15 00:00", 3360, 3600},          // a leap year
		{"UTC", "2028-01", 31, "2028-02-15 00:00", 3600, 3360},         // to the 29th
		{"UTC", "2027-01", 31, "2027-02-15 00:00", 3600, 3120},         // to the 28th
		{"Europe/Berlin", "2026-03", 1, "2026-03-29 12:00", 6830, 600}, // an hour less before the change
		{"Europe/Berlin", "2026-03", 1, "2026-03-28 12:00", 6600, 830}, // and after it
		{"Europe/Berlin", "2026-10", 1, "2026-10-25 12:00", 5890, 1560},
		{"Australia/Lord_Howe", "2026-04", 1, "2026-04-05 12:00", 1085, 6120}, // half an hour more
		{"Asia/Kolkata", "2026-11", 1, "2026-11-11 00:00", 2400, 4800},
		{"Asia/Kathmandu", "2026-11", 1, "2026-11-11 00:00", 2400, 4800},
		{"America/St_Johns", "2026-03", 1, "2026-03-08 12:00", 1790, 5640},
	} {
		z := zone(t, c.zone)
		cycle := Cycle{z, c.day}
		p, err := cycle.Named(c.name)
		if err != nil {
			t.Fatal(err)
		}
		change, err := time.ParseInLocation("2006-01-02 15:04", c.change, z)
		if err != nil {
			t.Fatal(err)
		}
		// At a cent for each tenth of an hour that the month has.
		price := &Price{Currency: "USD", Monthly: c.first + c.second, Minimum: 2 * (c.first + c.second)}
		s, err := Rate(&Input{
			Cycle: cycle, Period: p, Subscriptions: []Subscription{{"first", p.From, change.Unix()}, {"second", change.Unix(), 0}},
			Versions: []Version{{Number: 1, From: p.From, Prices: map[string]*Price{"first": price, "second": price}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, l := range s.Lines {
			got += fmt.Sprintf("%s %s %d, ", l.Plan, l.Kind, l.Amount)
		}
		if want := fmt.Sprintf("first fee %d, first minimum %[1]d, second fee %d, second minimum %[2]d, ", c.first, c.second); got != want {
			t.Errorf("%s, %s: %s want %s", c.zone, c.change, got, want)
		}
	}
}

// A policy version that leaves a price as it was divides nothing: its terms are as long as if it had not come.
func TestAVersionWithoutAChangeDividesNothing(t *testing.T) {
	price := &Price{Currency: "USD", Monthly: 100}
	in := &Input{Period: Period{"p", 0, 4 * Grid}, Subscriptions: []Subscription{{Plan: "x"}}}
	in.Versions = []Version{{Number: 1, Prices: map[string]*Price{"x": price}}, {Number: 2, From: Grid, Prices: map[string]*Price{"x": price}}}
	s, err := Rate(in)
	if err != nil || len(s.Terms) != 1 || !slices.Equal(s.Terms[0].Ranges, []Range{{0, 4 * Grid}}) || len(s.Lines) != 1 {
		t.Errorf("%+v, %v; want one term of one range", s, err)
	}
}

// Adjustments are in the order of the periods that they are of, whatever order these are given in.
func TestAdjustmentsAreInOrder(t *testing.T) {
	price := &Price{Currency: "USD", Meters: []MeterPrice{{Meter: "a", Tiers: []Tier{{Unit: decimal(t, "1")}}}}}
	earlier := []Period{{"first", 0, Grid}, {"second", Grid, 2 * Grid}, {"third", 2 * Grid, 3 * Grid}}
	in := &Input{Period: Period{"fourth", 3 * Grid, 4 * Grid}, Subscriptions: []Subscription{{Plan: "x"}}, Versions: []Version{{Number: 1, Prices: map[string]*Price{"x": price}}}}
	for i := range int64(4) {
		in.Usage = append(in.Usage, Usage{Slot: i * Grid, Version: 1, Units: Units{"a", i + 1, 0}, Late: true})
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		in.Earlier = nil
		for _, i := range order {
			in.Earlier = append(in.Earlier, earlier[i])
		}
		s, err := Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, l := range s.Lines {
			got += fmt.Sprintf("%s %d, ", l.Period, l.Amount)
		}
		if want := " 400, first 100, second 200, third 300, "; got != want {
			t.Errorf("in the order %v: %q, want %q", order, got, want)
		}
	}
}

// move moves all times of an input.
func (in *Input) move(by int64) {
	move := func(times ...*int64) {
		for _, at := range times {
			if *at != 0 {
				*at += by
			}
		}
	}
	move(&in.Period.From, &in.Period.To)
	for i := range in.Earlier {
		move(&in.Earlier[i].From, &in.Earlier[i].To)
	}
	for i := range in.Subscriptions {
		move(&in.Subscriptions[i].From, &in.Subscriptions[i].To)
	}
	for i := range in.Versions {
		move(&in.Versions[i].From)
	}
	for i := range in.Usage {
		move(&in.Usage[i].Slot)
	}
}
