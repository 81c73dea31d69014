package billing

import (
	"fmt"
	"strings"
)

// Bounds of a price. MaxAmount bounds the amounts when usage is rated.
const (
	MaxUnits      = 1_000_000_000_000 // of an allowance, a tier or a package
	MaxTiers      = 64
	MaxMeters     = 64 // of a price
	maxUnitDigits = 10 // before the point of the price of a unit or package
)

// Mode is how a meter's units are priced.
type Mode uint8

const (
	Graduated Mode = iota // each unit at the price of the tier that it falls into
	Volume                // all units at the price of the tier that their number falls into
	Package               // by packages begun
)

// String is the document's word for the mode.
func (m Mode) String() string { return [...]string{"graduated", "volume", "package"}[m] }

// Tier prices units up to a number, counted from the period's first.
type Tier struct {
	UpTo int64 // 0 for the last tier, which has no end
	Unit Decimal
}

// MeterPrice is the price of one meter's units. A price per unit is one tier.
type MeterPrice struct {
	Meter    string
	Included int64 // units of each period that cost nothing: its first
	Mode     Mode
	Tiers    []Tier  // of Graduated and Volume: ascending, the last without end
	Size     int64   // of a Package, in units
	Package  Decimal // the price of one
	// Overage is the price of a unit above a soft limit. Where Apart is set these units are priced on their own;
	// otherwise they count like all others.
	Overage Decimal
	Apart   bool
}

// Price is the price of a plan: immutable, as its policy version.
type Price struct {
	Currency string
	Monthly  int64        // flat fee of a period, in minor units
	Minimum  int64        // what a period comes to at least, its fee included, in minor units
	Meters   []MeterPrice // by meter
}

// Problem is something wrong with a price: which key of the document, and why.
type Problem struct{ Key, Message string }

// Check reports what is wrong with a price, by the document's keys.
func (p *Price) Check() (all []Problem) {
	bad := func(key, format string, args ...any) {
		all = append(all, Problem{key, fmt.Sprintf(format, args...)})
	}
	if len(p.Meters) > MaxMeters {
		bad("meters", "a price has at most %d meters, not %d", MaxMeters, len(p.Meters))
	}
	for i := range p.Meters {
		m := &p.Meters[i]
		key := "meters." + m.Meter
		for _, d := range m.decimals() {
			if whole, _, _ := strings.Cut(d.String(), "."); len(whole) > maxUnitDigits {
				bad(key, "a price of %s for a unit is too much; at most %d digits before the point are allowed", d, maxUnitDigits)
			}
		}
		if m.Mode == Package {
			continue
		}
		before := int64(0)
		for j, t := range m.Tiers {
			switch {
			case j == len(m.Tiers)-1 && t.UpTo != 0:
				bad(key, "the last tier ends at %d, and units above it would have no price; leave its up_to out", t.UpTo)
			case j < len(m.Tiers)-1 && t.UpTo == 0:
				bad(key, "tier %d has no up_to and is not the last; tiers are in ascending order, and only the last has no end", j+1)
			case t.UpTo != 0 && t.UpTo <= before:
				bad(key, "tier %d is up to %d, and the one before it up to %d; tiers must be in ascending order", j+1, t.UpTo, before)
			case t.UpTo != 0 && t.UpTo <= m.Included:
				bad(key, "tier %d is up to %d, and %d units are included: nobody would ever pay it; up_to counts from the first unit", j+1, t.UpTo, m.Included)
			}
			before = max(before, t.UpTo)
		}
	}
	return all
}

func (m *MeterPrice) decimals() []Decimal {
	all := []Decimal{m.Package, m.Overage}
	for _, t := range m.Tiers {
		all = append(all, t.Unit)
	}
	return all
}

// Meter returns the price of a meter; nil where it has none.
func (p *Price) Meter(name string) *MeterPrice {
	for i := range p.Meters {
		if p.Meters[i].Meter == name {
			return &p.Meters[i]
		}
	}
	return nil
}

// String writes the whole price in a line. Prices are the same exactly if their lines are; a statement distinguishes
// the terms of a period by it. It is empty for no price.
func (p *Price) String() string {
	if p == nil {
		return ""
	}
	var parts []string
	if p.Monthly > 0 {
		parts = append(parts, Money{p.Monthly, p.Currency}.String()+" a month")
	}
	if p.Minimum > 0 {
		parts = append(parts, "at least "+Money{p.Minimum, p.Currency}.String())
	}
	for i := range p.Meters {
		parts = append(parts, p.Meters[i].String())
	}
	if p.Monthly == 0 && p.Minimum == 0 {
		parts = append([]string{"in " + p.Currency}, parts...)
	}
	return strings.Join(parts, "; ")
}

// String writes the price of the meter's units.
func (m *MeterPrice) String() string {
	var parts []string
	if m.Included > 0 {
		parts = append(parts, fmt.Sprintf("%d included", m.Included))
	}
	if m.Mode == Package {
		parts = append(parts, fmt.Sprintf("%s per %d", m.Package, m.Size))
	}
	for i, t := range m.Tiers {
		switch {
		case t.UpTo != 0:
			parts = append(parts, fmt.Sprintf("%s up to %d", t.Unit, t.UpTo))
		case i > 0:
			parts = append(parts, fmt.Sprintf("then %s", t.Unit))
		default:
			parts = append(parts, fmt.Sprintf("%s each", t.Unit))
		}
	}
	if m.Apart {
		parts = append(parts, fmt.Sprintf("overage %s each", m.Overage))
	}
	s := m.Meter + " " + strings.Join(parts, ", ")
	if m.Mode == Volume {
		s += " (volume)"
	}
	return s
}
