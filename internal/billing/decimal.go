package billing

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// These bound a decimal, so that its coefficient fits an int64 and no price is finer than anybody could check.
const (
	MaxDecimals = 12 // digits after the point
	maxDigits   = 18 // in all
)

// MaxAmount bounds the amount of a line, in minor units: the largest integer range that a double holds exactly.
const MaxAmount = 1<<53 - 1

// ErrAmount means that an amount of money is beyond MaxAmount.
var ErrAmount = errors.New("billing: the amount is too large")

// Decimal is an exact decimal number that is not negative. Equal numbers compare
// equal, however they were written; the zero value is 0.
type Decimal struct {
	coefficient int64
	scale       uint8 // digits after the point, the last of them not 0
}

// ParseDecimal reads digits with at most one point, such as 0.0005. Signs, exponents
// and separators are refused.
func ParseDecimal(s string) (Decimal, error) {
	whole, frac, dot := strings.Cut(s, ".")
	if whole == "" || dot && frac == "" || strings.Trim(whole+frac, "0123456789") != "" {
		return Decimal{}, fmt.Errorf("%q is not a decimal number; write one such as 0.0005, without sign or exponent", clip(s))
	}
	frac = strings.TrimRight(frac, "0")
	digits := strings.TrimLeft(whole+frac, "0")
	if len(frac) > MaxDecimals || len(digits) > maxDigits {
		return Decimal{}, fmt.Errorf("%s has too many digits; at most %d are allowed, and %d after the point", clip(s), maxDigits, MaxDecimals)
	}
	d := Decimal{scale: uint8(len(frac))}
	for _, c := range digits {
		d.coefficient = 10*d.coefficient + int64(c-'0')
	}
	return d, nil
}

// String writes the number as ParseDecimal reads it, without needless zeros.
func (d Decimal) String() string { return point(d.coefficient, int(d.scale)) }

// rat is the number for arithmetic.
func (d Decimal) rat() *big.Rat {
	return new(big.Rat).SetFrac(big.NewInt(d.coefficient), power(int(d.scale)))
}

// point writes n with its last digits behind a point.
func point(n int64, decimals int) string {
	sign := ""
	u := uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	s := fmt.Sprintf("%0*d", decimals+1, u)
	if decimals == 0 {
		return sign + s
	}
	return sign + s[:len(s)-decimals] + "." + s[len(s)-decimals:]
}

func power(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// round returns the whole number nearest to r; of two equally near, the even one.
func round(r *big.Rat) (int64, error) {
	twice := new(big.Int).Lsh(r.Num(), 1)
	// It is the floor of r + 1/2, less one if that was a tie with an odd result.
	sum := twice.Add(twice, r.Denom())
	n, rest := new(big.Int).DivMod(sum, new(big.Int).Lsh(r.Denom(), 1), new(big.Int))
	if rest.Sign() == 0 && n.Bit(0) == 1 {
		n.Sub(n, big.NewInt(1))
	}
	if !n.IsInt64() || n.Int64() > MaxAmount || n.Int64() < -MaxAmount {
		return 0, ErrAmount
	}
	return n.Int64(), nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
