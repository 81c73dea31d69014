package billing

import (
	"math/big"
)

// Kinds of lines.
const (
	KindFee     = "fee"     // a period's flat fee
	KindUsage   = "usage"   // a meter's units
	KindOverage = "overage" // a meter's units above a soft limit, where they are priced apart
	KindMinimum = "minimum" // what is missing to the minimum
	KindCredit  = "credit"  // what a credit pays
	KindCarried = "carried" // what is below zero, and becomes a credit of the statements after
)

// Units are a meter's count.
type Units struct {
	Meter    string `json:"meter"`
	Admitted int64  `json:"admitted"` // overage included
	Overage  int64  `json:"overage"`
}

// Line is one amount of a statement. Lines add up to its totals.
type Line struct {
	Kind     string `json:"kind"`
	Plan     string `json:"plan,omitempty"`
	Price    string `json:"price,omitempty"` // of the term, or of the meter
	Meter    string `json:"meter,omitempty"`
	Units    int64  `json:"units"`    // counted
	Included int64  `json:"included"` // of these at no cost
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"` // minor units
	// Period is the service period of an adjustment: the earlier period whose amounts late usage changed. It is empty
	// for lines of the statement's own period.
	Period string `json:"period,omitempty"`
	Credit string `json:"credit,omitempty"` // the credit that pays, or that is made
	// Tenant is the tenant below for which this one pays; empty for the payer's own line.
	Tenant string `json:"tenant,omitempty"`

	term string // Term.Price: two terms of a plan may share the price of a line
}

// charge returns the lines of a term that holds for a share of a period: one for each part of the price, rounded once.
// The fee, the minimum and the included units are those of a period. So they are divided by share, included units
// rounded up to a whole unit. Tiers and packages count from the term's first unit and are not divided.
func charge(plan string, p *Price, share *big.Rat, used []Units) ([]Line, error) {
	if p == nil {
		return nil, nil
	}
	var lines []Line
	total := int64(0)
	add := func(l Line, amount *big.Rat) (err error) {
		l.Plan, l.Currency, l.term = plan, p.Currency, p.String()
		if l.Amount, err = round(amount); err != nil {
			return err
		}
		if total += l.Amount; total > MaxAmount {
			return ErrAmount
		}
		lines = append(lines, l)
		return nil
	}
	part := func(n int64) *big.Rat { return new(big.Rat).Mul(new(big.Rat).SetInt64(n), share) }
	minor := new(big.Rat).SetInt(power(currencies[p.Currency]))
	if p.Monthly > 0 && share.Sign() > 0 {
		if err := add(Line{Kind: KindFee, Price: Money{p.Monthly, p.Currency}.String()}, part(p.Monthly)); err != nil {
			return nil, err
		}
	}
	for _, u := range used {
		m := p.Meter(u.Meter)
		if m == nil {
			continue
		}
		units, apart := u.Admitted, int64(0)
		if m.Apart {
			units, apart = u.Admitted-u.Overage, u.Overage
		}
		units, apart = max(0, units), max(0, apart) // corrections may take away more than there was
		free := min(units, roundUp(part(m.Included)))
		if units > 0 {
			amount := new(big.Rat).Mul(m.cost(free, units), minor)
			if err := add(Line{Kind: KindUsage, Price: m.String(), Meter: m.Meter, Units: units, Included: free}, amount); err != nil {
				return nil, err
			}
		}
		if apart > 0 {
			amount := new(big.Rat).Mul(times(apart, m.Overage), minor)
			if err := add(Line{Kind: KindOverage, Price: m.Overage.String() + " each", Meter: m.Meter, Units: apart}, amount); err != nil {
				return nil, err
			}
		}
	}
	if p.Minimum > 0 {
		least, err := round(part(p.Minimum))
		if err != nil {
			return nil, err
		}
		if missing := least - total; missing > 0 {
			if err := add(Line{Kind: KindMinimum, Price: "at least " + Money{p.Minimum, p.Currency}.String()}, new(big.Rat).SetInt64(missing)); err != nil {
				return nil, err
			}
		}
	}
	return lines, nil
}

// cost is the cost of the units after the first free ones, in the currency's major unit.
func (m *MeterPrice) cost(free, units int64) *big.Rat {
	switch m.Mode {
	case Package:
		begun := (units - free) / m.Size
		if (units-free)%m.Size > 0 {
			begun++
		}
		return times(begun, m.Package)
	case Volume:
		for _, t := range m.Tiers {
			if t.UpTo == 0 || units <= t.UpTo {
				return times(units-free, t.Unit)
			}
		}
	case Graduated:
		sum, from := new(big.Rat), free
		for _, t := range m.Tiers {
			to := units
			if t.UpTo != 0 {
				to = min(units, t.UpTo)
			}
			if to > from {
				sum.Add(sum, times(to-from, t.Unit))
				from = to
			}
		}
		return sum
	}
	return new(big.Rat)
}

func times(n int64, d Decimal) *big.Rat {
	return new(big.Rat).Mul(new(big.Rat).SetInt64(n), d.rat())
}

// roundUp is r rounded up to a whole number. r must not be negative, and must be small enough.
func roundUp(r *big.Rat) int64 {
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	return n.Int64()
}
