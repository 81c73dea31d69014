package prices

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

// priceReader reads the price of one plan.
type priceReader struct {
	f     *strict.Collector
	what  string         // names the price in messages
	lines map[string]int // of keys as billing.Problem names them
	price billing.Price
}

// Read reads a plan's price; nil if nothing of it is usable. It may name the meters that its limits and those of the
// top level feed.
func Read(f *strict.Collector, fd strict.Field, plan string, limits []limit.Limit) *billing.Price {
	r := &priceReader{f: f, what: "the price of plan " + plan, lines: map[string]int{"": fd.Line}}
	if strict.IsNull(fd.Node) {
		f.Add(fd.Line, "%s says nothing; leave it out, or give it monthly or meters", r.what)
		return nil
	}
	meters := make(map[string]bool)
	for _, l := range limits {
		meters[l.Meter] = l.Meter != ""
	}
	faults := len(f.List)
	for _, k := range strict.Mapping(f, fd.Node, r.what) {
		r.lines[k.Name] = k.Line
		switch k.Name {
		case "currency":
			if s, ok := r.word(k); ok {
				if err := billing.CheckCurrency(s); err != nil {
					f.Add(k.Line, "currency of %s: %v", r.what, err)
					continue
				}
				r.currency(k, s)
			}
		case "monthly":
			r.price.Monthly = r.money(k)
		case "minimum":
			r.price.Minimum = r.money(k)
		case "meters":
			r.meters(k, meters)
		default:
			strict.Unknown(f, k, r.what, "currency", "monthly", "minimum", "meters")
		}
	}
	if len(f.List) > faults {
		return nil
	}
	if r.price.Monthly == 0 && r.price.Minimum == 0 && len(r.price.Meters) == 0 {
		f.Add(fd.Line, "%s prices nothing; give it monthly or meters, or leave it out", r.what)
		return nil
	}
	if r.price.Currency == "" {
		f.Add(fd.Line, "%s has no currency; write one such as currency: USD, or with an amount such as monthly: 49.00 USD", r.what)
		return nil
	}
	slices.SortFunc(r.price.Meters, func(a, b billing.MeterPrice) int { return strings.Compare(a.Meter, b.Meter) })
	for _, problem := range r.price.Check() {
		f.Add(r.lines[problem.Key], "%s: %s", r.name(problem.Key), problem.Message)
	}
	if len(f.List) > faults {
		return nil
	}
	return &r.price
}

// name is how messages name what a key of the price is about.
func (r *priceReader) name(key string) string {
	if meter, ok := strings.CutPrefix(key, "meters."); ok {
		return "meter " + meter + " in " + r.what
	}
	return r.what
}

func (r *priceReader) word(k strict.Field) (string, bool) {
	var s string
	strict.Word(r.f, k, r.what, &s)
	return s, s != ""
}

// currency notes the currency that a key names: a price has one.
func (r *priceReader) currency(k strict.Field, code string) {
	if was := r.price.Currency; was != "" && was != code {
		r.f.Add(k.Line, "%s of %s is in %s, and the price is in %s already; a price has one currency", k.Name, r.what, code, was)
		return
	}
	r.price.Currency = code
}

func (r *priceReader) money(k strict.Field) int64 {
	s, ok := r.word(k)
	if !ok {
		return 0
	}
	m, err := billing.ParseMoney(s)
	if err != nil {
		r.f.Add(k.Line, "%s of %s: %v", k.Name, r.what, err)
		return 0
	}
	r.currency(k, m.Currency)
	return m.Amount
}

func (r *priceReader) meters(fd strict.Field, known map[string]bool) {
	for _, k := range strict.Mapping(r.f, fd.Node, "meters of "+r.what) {
		r.lines["meters."+k.Name] = k.Line
		if !known[k.Name] {
			r.f.Add(k.Line, "%s: no limit of the plan or of the top level feeds meter %s, so it would never be charged; %s",
				r.what, limit.Quote(k.Name), metersAre(known))
			continue
		}
		if m, ok := r.meter(k); ok {
			r.price.Meters = append(r.price.Meters, m)
		}
	}
}

func metersAre(known map[string]bool) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if known[name] {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return "no limit has a meter"
	}
	return "the meters are " + strings.Join(all, ", ")
}

// meter reads the price of one meter's units.
func (r *priceReader) meter(fd strict.Field) (m billing.MeterPrice, ok bool) {
	f, what := r.f, r.name("meters."+fd.Name)
	m.Meter = fd.Name
	if strict.IsNull(fd.Node) {
		f.Add(fd.Line, "%s says nothing; give it unit, tiers or package", what)
		return m, false
	}
	faults, ways := len(f.List), []string{}
	for _, k := range strict.Mapping(f, fd.Node, what) {
		switch k.Name {
		case "included":
			if n := strict.Number(f, k, what, "units", 0, billing.MaxUnits); n != nil {
				m.Included = *n
			}
		case "unit":
			ways = append(ways, k.Name)
			m.Tiers = []billing.Tier{{Unit: decimal(f, k, what)}}
		case "tiers":
			ways = append(ways, k.Name)
			m.Tiers = r.tiers(k, what)
		case "package":
			ways = append(ways, k.Name)
			m.Mode = billing.Package
			r.pack(k, what, &m)
		case "overage":
			m.Apart, m.Overage = true, decimal(f, k, what)
		case "mode":
		default:
			strict.Unknown(f, k, what, "included", "unit", "tiers", "mode", "package", "overage")
		}
	}
	if len(ways) != 1 && len(f.List) == faults {
		said := "none"
		if len(ways) > 0 {
			said = strings.Join(ways, " and ")
		}
		f.Add(fd.Line, "%s needs one of unit, tiers and package, and has %s", what, said)
	}
	for _, k := range strict.Mapping(f, fd.Node, what) {
		if k.Name != "mode" {
			continue
		}
		var s string
		strict.Word(f, k, what, &s)
		switch {
		case s == "":
		case s != billing.Graduated.String() && s != billing.Volume.String():
			f.Add(k.Line, "mode of %s is %s; allowed are graduated and volume", what, limit.Quote(s))
		case len(ways) != 1 || ways[0] != "tiers":
			f.Add(k.Line, "mode of %s goes with tiers: it says which tier's price a unit has", what)
		case s == billing.Volume.String():
			m.Mode = billing.Volume
		}
	}
	return m, len(f.List) == faults
}

func (r *priceReader) tiers(fd strict.Field, what string) (tiers []billing.Tier) {
	list := strict.Items(r.f, fd.Node, "tiers of "+what, billing.MaxTiers)
	if len(list) == 0 {
		r.f.Add(fd.Line, "tiers of %s is empty; give it one tier or more, such as tiers: [{up_to: 1000000, unit: 0.0005}, {unit: 0.0003}]", what)
	}
	for i, n := range list {
		tier, which, priced := billing.Tier{}, fmt.Sprintf("tier %d of %s", i+1, what), false
		if strict.IsNull(n) {
			r.f.Add(n.Line, "%s must be a mapping of keys to values, not nothing", which)
		}
		for _, k := range strict.Mapping(r.f, n, which) {
			switch k.Name {
			case "up_to":
				if most := strict.Number(r.f, k, which, "units", 1, billing.MaxUnits); most != nil {
					tier.UpTo = *most
				}
			case "unit":
				tier.Unit, priced = decimal(r.f, k, which), true
			default:
				strict.Unknown(r.f, k, which, "up_to", "unit")
			}
		}
		if !priced {
			r.f.Add(n.Line, "%s has no unit; give it the price of one unit", which)
		}
		tiers = append(tiers, tier)
	}
	return tiers
}

func (r *priceReader) pack(fd strict.Field, what string, m *billing.MeterPrice) {
	what = "package of " + what
	given := map[string]bool{}
	for _, k := range strict.Mapping(r.f, fd.Node, what) {
		given[k.Name] = true
		switch k.Name {
		case "size":
			if n := strict.Number(r.f, k, what, "units", 1, billing.MaxUnits); n != nil {
				m.Size = *n
			}
		case "price":
			m.Package = decimal(r.f, k, what)
		default:
			strict.Unknown(r.f, k, what, "size", "price")
		}
	}
	if !given["size"] || !given["price"] {
		r.f.Add(fd.Line, "%s needs a size and a price, such as package: {size: 1000, price: 0.40}", what)
	}
}

// decimal reads a price of one unit or package.
func decimal(f *strict.Collector, k strict.Field, what string) billing.Decimal {
	var s string
	if strict.Word(f, k, what, &s); s == "" {
		return billing.Decimal{}
	}
	d, err := billing.ParseDecimal(s)
	if err != nil {
		f.Add(k.Line, "%s of %s: %v", k.Name, what, err)
	}
	return d
}
