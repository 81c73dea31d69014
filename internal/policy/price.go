package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Price returns what a plan costs; nil for a plan without a price.
func (d *Document) Price(plan string) *billing.Price { return d.prices[plan] }

// priceReader reads the price of one plan.
type priceReader struct {
	f     *faults
	what  string         // names the price in messages
	lines map[string]int // of keys as billing.Problem names them
	price billing.Price
}

// price reads what a plan costs; nil where nothing of it can be used. The meters it
// may name are those that limits of the plan or of the top level feed.
func (p *parser) price(fd field, plan string, limits []limit.Limit) *billing.Price {
	r := &priceReader{f: p.f, what: "the price of plan " + plan, lines: map[string]int{"": fd.line}}
	if isNull(fd.node) {
		p.f.add(fd.line, "%s says nothing; leave it out, or give it monthly or meters", r.what)
		return nil
	}
	meters := make(map[string]bool)
	for _, l := range slices.Concat(limits, p.doc.policy.Limits) {
		meters[l.Meter] = l.Meter != ""
	}
	faults := len(p.f.list)
	for _, k := range mapping(p.f, fd.node, r.what) {
		r.lines[k.name] = k.line
		switch k.name {
		case "currency":
			if s, ok := r.word(k); ok {
				if err := billing.CheckCurrency(s); err != nil {
					p.f.add(k.line, "currency of %s: %v", r.what, err)
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
			unknown(p.f, k, r.what, "currency", "monthly", "minimum", "meters")
		}
	}
	if len(p.f.list) > faults {
		return nil
	}
	if r.price.Monthly == 0 && r.price.Minimum == 0 && len(r.price.Meters) == 0 {
		p.f.add(fd.line, "%s prices nothing; give it monthly or meters, or leave it out", r.what)
		return nil
	}
	if r.price.Currency == "" {
		p.f.add(fd.line, "%s has no currency; write one such as currency: USD, or with an amount such as monthly: 49.00 USD", r.what)
		return nil
	}
	slices.SortFunc(r.price.Meters, func(a, b billing.MeterPrice) int { return strings.Compare(a.Meter, b.Meter) })
	for _, problem := range r.price.Check() {
		p.f.add(r.lines[problem.Key], "%s: %s", r.name(problem.Key), problem.Message)
	}
	if len(p.f.list) > faults {
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

func (r *priceReader) word(k field) (string, bool) {
	var s string
	word(r.f, k, r.what, &s)
	return s, s != ""
}

// currency notes the currency that a key names: a price has one.
func (r *priceReader) currency(k field, code string) {
	if was := r.price.Currency; was != "" && was != code {
		r.f.add(k.line, "%s of %s is in %s, and the price is in %s already; a price has one currency", k.name, r.what, code, was)
		return
	}
	r.price.Currency = code
}

func (r *priceReader) money(k field) int64 {
	s, ok := r.word(k)
	if !ok {
		return 0
	}
	m, err := billing.ParseMoney(s)
	if err != nil {
		r.f.add(k.line, "%s of %s: %v", k.name, r.what, err)
		return 0
	}
	r.currency(k, m.Currency)
	return m.Amount
}

func (r *priceReader) meters(fd field, known map[string]bool) {
	for _, k := range mapping(r.f, fd.node, "meters of "+r.what) {
		r.lines["meters."+k.name] = k.line
		if !known[k.name] {
			r.f.add(k.line, "%s: no limit of the plan or of the top level feeds meter %s, so it would never be charged; %s",
				r.what, limit.Quote(k.name), metersAre(known))
			continue
		}
		if m, ok := r.meter(k); ok {
			r.price.Meters = append(r.price.Meters, m)
		}
	}
}

func metersAre(known map[string]bool) string {
	var all []string
	for _, name := range sortedKeys(known) {
		if known[name] {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return "no limit has a meter"
	}
	return "the meters are " + strings.Join(all, ", ")
}

// meter reads what the units of one meter cost.
func (r *priceReader) meter(fd field) (m billing.MeterPrice, ok bool) {
	f, what := r.f, r.name("meters."+fd.name)
	m.Meter = fd.name
	if isNull(fd.node) {
		f.add(fd.line, "%s says nothing; give it unit, tiers or package", what)
		return m, false
	}
	faults, ways := len(f.list), []string{}
	for _, k := range mapping(f, fd.node, what) {
		switch k.name {
		case "included":
			if n := number(f, k, what, "units", 0, billing.MaxUnits); n != nil {
				m.Included = *n
			}
		case "unit":
			ways = append(ways, k.name)
			m.Tiers = []billing.Tier{{Unit: decimal(f, k, what)}}
		case "tiers":
			ways = append(ways, k.name)
			m.Tiers = r.tiers(k, what)
		case "package":
			ways = append(ways, k.name)
			m.Mode = billing.Package
			r.pack(k, what, &m)
		case "overage":
			m.Apart, m.Overage = true, decimal(f, k, what)
		case "mode":
		default:
			unknown(f, k, what, "included", "unit", "tiers", "mode", "package", "overage")
		}
	}
	if len(ways) != 1 && len(f.list) == faults {
		said := "none"
		if len(ways) > 0 {
			said = strings.Join(ways, " and ")
		}
		f.add(fd.line, "%s needs one of unit, tiers and package, and has %s", what, said)
	}
	for _, k := range mapping(f, fd.node, what) {
		if k.name != "mode" {
			continue
		}
		var s string
		word(f, k, what, &s)
		switch {
		case s == "":
		case s != billing.Graduated.String() && s != billing.Volume.String():
			f.add(k.line, "mode of %s is %s; allowed are graduated and volume", what, limit.Quote(s))
		case len(ways) != 1 || ways[0] != "tiers":
			f.add(k.line, "mode of %s goes with tiers: it says which tier's price a unit has", what)
		case s == billing.Volume.String():
			m.Mode = billing.Volume
		}
	}
	return m, len(f.list) == faults
}

func (r *priceReader) tiers(fd field, what string) (tiers []billing.Tier) {
	list := items(r.f, fd.node, "tiers of "+what, billing.MaxTiers)
	if len(list) == 0 {
		r.f.add(fd.line, "tiers of %s is empty; give it one tier or more, such as tiers: [{up_to: 1000000, unit: 0.0005}, {unit: 0.0003}]", what)
	}
	for i, n := range list {
		tier, which, priced := billing.Tier{}, fmt.Sprintf("tier %d of %s", i+1, what), false
		if isNull(n) {
			r.f.add(n.Line, "%s must be a mapping of keys to values, not nothing", which)
		}
		for _, k := range mapping(r.f, n, which) {
			switch k.name {
			case "up_to":
				if most := number(r.f, k, which, "units", 1, billing.MaxUnits); most != nil {
					tier.UpTo = *most
				}
			case "unit":
				tier.Unit, priced = decimal(r.f, k, which), true
			default:
				unknown(r.f, k, which, "up_to", "unit")
			}
		}
		if !priced {
			r.f.add(n.Line, "%s has no unit; give it the price of one unit", which)
		}
		tiers = append(tiers, tier)
	}
	return tiers
}

func (r *priceReader) pack(fd field, what string, m *billing.MeterPrice) {
	what = "package of " + what
	given := map[string]bool{}
	for _, k := range mapping(r.f, fd.node, what) {
		given[k.name] = true
		switch k.name {
		case "size":
			if n := number(r.f, k, what, "units", 1, billing.MaxUnits); n != nil {
				m.Size = *n
			}
		case "price":
			m.Package = decimal(r.f, k, what)
		default:
			unknown(r.f, k, what, "size", "price")
		}
	}
	if !given["size"] || !given["price"] {
		r.f.add(fd.line, "%s needs a size and a price, such as package: {size: 1000, price: 0.40}", what)
	}
}

// decimal reads a price of one unit or package.
func decimal(f *faults, k field, what string) billing.Decimal {
	var s string
	if word(f, k, what, &s); s == "" {
		return billing.Decimal{}
	}
	d, err := billing.ParseDecimal(s)
	if err != nil {
		f.add(k.line, "%s of %s: %v", k.name, what, err)
	}
	return d
}
