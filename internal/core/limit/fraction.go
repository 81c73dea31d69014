package limit

import "math/bits"

// Fraction is how much of something is left when a limit changes. The zero Fraction, and more than all, is all.
type Fraction struct{ part, whole int64 }

// Nothing is left.
var Nothing = Fraction{0, 1}

// FractionOf is a part of a whole.
func FractionOf(part, whole int64) Fraction { return Fraction{part, whole} }

// Ratio is a to b, rounded down.
func Ratio(a, b float64) Fraction {
	const grain = 1 << 40
	if a >= b {
		return Fraction{}
	}
	return Fraction{int64(a / b * grain), grain}
}

// Of is the fraction of n, rounded down; n is not negative.
func (f Fraction) Of(n int64) int64 {
	if f.part >= f.whole {
		return n
	}
	high, low := bits.Mul64(uint64(n), uint64(f.part))
	q, _ := bits.Div64(high, low, uint64(f.whole)) // it fits: the part is less than the whole
	return int64(q)
}

// And is both fractions, one after the other.
func (f Fraction) And(o Fraction) Fraction {
	switch {
	case f.part >= f.whole:
		return o
	case o.part >= o.whole:
		return f
	}
	return Ratio(float64(f.part)*float64(o.part), float64(f.whole)*float64(o.whole))
}
