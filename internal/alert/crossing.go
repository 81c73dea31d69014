package alert

import (
	"math/bits"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// crossed are the thresholds that used has reached as a part of of. Thresholds are parts per million, ascending.
func crossed(used, of int64, at []int64) (all []int64) {
	if used <= 0 || of <= 0 {
		return nil
	}
	for _, ppm := range at {
		if reached(used, limit.Micro, of, ppm) {
			all = append(all, ppm)
		}
	}
	return all
}

// reached reports whether a × b ≥ c × d, of numbers that are not negative.
func reached(a, b, c, d int64) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	high2, low2 := bits.Mul64(uint64(c), uint64(d))
	return high > high2 || high == high2 && low >= low2
}

// leastShare is the least that a past share counts as. Without a floor, one denied request after a quiet past would be
// an endless rise.
const leastShare = limit.Micro / 100

// denials are the units that a limit denied, and those admitted beside them.
type denials struct{ denied, admitted int64 }

// share is the denied part in parts per million; 0 of nothing.
func (d denials) share() int64 {
	denied, all := max(0, d.denied), max(0, d.denied)+max(0, d.admitted)
	if all == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(denied), limit.Micro)
	ppm, _ := bits.Div64(high, low, uint64(all)) // at most limit.Micro
	return int64(ppm)
}

// risen are the thresholds that today's share reached as a part of the past's. There are none if fewer than least were
// denied.
func risen(now, past denials, least int64, at []int64) []int64 {
	if now.denied < least {
		return nil
	}
	return crossed(now.share(), max(past.share(), leastShare), at)
}
