package lease

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// How long a lease lasts. A short term lets other holders soon have what one does not use; each term costs a
// renewal. So the first term is as long as the level is sure to last, and terms grow while demand stays the
// same. They grow to some seconds where the bucket is pressed, by the holder's demand, and to minutes where
// there is plenty. A holder whose demand changes does not wait for its term: it renews early. docs/leases.md has the
// rule on one page.

const (
	// LongestTerm is the longest lease of agents that are not strained: where there is plenty, and demand is
	// steady. PlentyTerm is for those who ask for little.
	LongestTerm = 120_000_000
	// worth is the smallest trickle worth leasing for any term, in micro-tokens a second: two tokens in a short
	// term.
	worth = 2 * limit.Micro * 1_000_000 / ShortTerm
	// noise is the largest pile of a smaller trickle: room for the noise of a holder's arrivals.
	noise = 2 * limit.Micro
	// seldom is the largest demand for a whole bucket, in thousandths of a unit a second, whose requests may
	// each ask the store. Buckets with so little demand are to be exact.
	seldom = 10_000
	// sample is about how many units tell one demand from another.
	sample = 8
	// faint is the demand, in thousandths of a unit a second, below which nothing else is known of it.
	faint = 100
	// few is how many units of difference tell nothing.
	few = 2
	// pressedUnits is about how many units a holder of a pressed bucket asks for in a term.
	pressedUnits = 32
	// MaxStrain is the most strain that a holder may report.
	MaxStrain = 16
	// ampleFor is how long the level has to last to be ample, in microseconds: some terms.
	ampleFor = 32_000_000
	// oneOf is the number of renewals for single tokens of which one begins a trickle in a dry bucket.
	oneOf = 128
)

// Prompt is how soon shares are to follow demand that moved, in microseconds. It is a quarter of the time in
// which the rate fills the burst: for so long the burst bridges what others miss. It is at least some round
// trips.
func Prompt(fills int64) int64 { return min(max(fills/4, ShortTerm/20), FirstTerm/2) }

// prompt is the bucket's Prompt. Only token buckets have a burst that bridges anything.
func (x *step) prompt() int64 {
	if x.Algorithm != limit.TokenBucket {
		return FirstTerm / 2
	}
	return Prompt(lasts(x.burst, x.flow))
}

// term is how long the lease is to last.
func (x *step) term(mine, all, trickle int64) int64 {
	term := x.usualTerm(mine, all, trickle)
	if x.lots {
		return max(term, x.lotTerm(mine))
	}
	if last := x.lastTerm(); last > 0 && x.steady && x.ample(all) {
		// If the holder is lost, the level makes up for its trickle: until the lease ends, and while it is kept
		// for the holder.
		kept := (lasts(max(x.Level, 0), float64(trickle)) - 2*SlotLen) / 16 * 7
		term = max(term, min(x.dryIn()/8, kept, 4*last, LongTerm*x.strain, x.longest()))
	}
	return term
}

// lastTerm is how long the last lease lasted, as far as it was in use. A lease renewed at once tells nothing.
// It is 0 if not known.
func (x *step) lastTerm() int64 {
	if x.rec == nil || x.rec.Fresh {
		return 0
	}
	return min(x.rec.Grant.TTL, max(x.t-x.rec.Start, ShortTerm))
}

// usualTerm is the lease's term without regard to an ample level.
func (x *step) usualTerm(mine, all, trickle int64) int64 {
	rec, next := x.rec, x.next
	pressed := x.rate > 0 && (mulDiv(x.Out.Trickle+next.Lease.Trickle, 100, x.rate) > 85 || x.Level < x.burst/4)
	last := x.lastTerm()
	known := last > 0
	switch {
	case next.Fresh && x.rate > 0 && x.Level > x.burst/2:
		// A wrong guess costs little here, and renewals of many new buckets cost much.
		return max(2*ShortTerm, x.lasting())
	case next.Fresh:
		return FirstTerm
	case pressed && trickle > 0:
		term := int64(ShortTerm)
		if trickle < worth {
			term = x.pressedTerm(mine) / 2
		}
		// Full, and demand is within the rate: nobody misses what one agent has too much.
		if x.Level+x.Out.Stock+next.Lease.Stock > x.burst/2 && all < x.rate/950 && known {
			term = max(term, min(2*last, 4*ShortTerm))
		}
		if known && x.grows() && x.steady && x.overloaded(all) && 16*trickle >= 15*mulDiv(x.rate, mine, all) {
			term = max(term, min(2*last, x.pressedTerm(mine)))
		}
		return min(x.strained(term), LongestTerm)
	case rec != nil && rec.Fresh:
		return max(4*FirstTerm, min(x.lasting(), x.lasting()*x.strain/4))
	case !known:
		return ShortTerm * x.strain
	case x.grows() && x.steady && trickle > 0 && x.idle(trickle):
		return min(x.longest(), max(4*last, x.lasting()))
	}
	return min(LongTerm*x.strain, x.longest(), max(4*last*x.strain, x.lasting()))
}

// strainOf is the factor by which strain lengthens a lease. A server may be asked for more renewals than it can
// answer, or renewals may cost an agent more than they decide. Then more error is better than one more request
// that waits. But if the holder's share of the burst is small and demand is near the rate, idle tokens
// elsewhere would cause wrong denials. Only heavy strain is worth that.
func (x *step) strainOf(mine, all int64) int64 {
	if !x.grows() || !Heavy(x.r.Strain) && mulDiv(x.burst, mine, all) < sparse*limit.Micro && 10*all >= x.rate/1000*7 && !x.exceeds(all) {
		return 1
	}
	return max(x.r.Strain, 1)
}

// Heavy reports whether strain is so large that the server cannot answer. Lighter strain says that renewals
// cost much.
func Heavy(strain int64) bool { return strain >= MaxStrain/2 }

// lasting is about how long the level lasts, even at five times the rate. Nobody misses a wrong guess before
// that. It is 0 where a guess may be missed at once.
func (x *step) lasting() int64 {
	if !x.grows() || x.Level <= x.burst/2 {
		return 0
	}
	return min(mulDiv(x.Level, 250_000*x.strain, x.rate), LongestTerm/4*x.strain, x.longest())
}

// longest is the longest term: at full strain, four times LongestTerm.
func (x *step) longest() int64 { return LongestTerm * max(x.strain*4/MaxStrain, 1) }

// guesses reports whether the lease is a newcomer's and still lasts long.
func (x *step) guesses() bool { return x.next.Fresh && x.lasting() > 2*ShortTerm }

// abides reports whether a newcomer's lease lasts so long that its guess must leave others something.
func (x *step) abides() bool { return x.next.Fresh && x.lasting() > 2*LongTerm }

// pressedTerm is the longest term of a holder's lease of a pressed bucket.
func (x *step) pressedTerm(mine int64) int64 {
	return min(max(mulDiv(pressedUnits, 1e9, mine), 2*ShortTerm), LongTerm)
}

// strained is the term of a pressed bucket's lease, lengthened by strain. Trickle that a holder does not use
// comes back when it renews. The burst must have room for what all holders do not use in a term, a part of the
// rate. Else it would be lost. Heavy strain is worth that.
func (x *step) strained(term int64) int64 {
	long := term * x.strain
	if Heavy(x.strain) {
		return long
	}
	return max(term, min(long, mulDiv(x.burst, 2_500_000, x.rate)))
}

// overloaded reports whether demand exceeds the rate so far that nobody misses for long what one holder does
// not use. Near the rate every idle token counts, but less than the cost of a strained holder's renewals.
func (x *step) overloaded(all int64) bool {
	if x.strain > 1 {
		return all >= x.rate/1000
	}
	return x.exceeds(all)
}

// exceeds reports whether demand is at least two fifths above the rate.
func (x *step) exceeds(all int64) bool { return 5*all >= x.rate/1000*7 }

// idle reports whether a part of the rate is not leased, even with the trickle, and half of the burst is left.
func (x *step) idle(trickle int64) bool {
	return mulDiv(x.Out.Trickle+trickle, 100, x.rate) <= 85 && x.Level > x.burst/2
}

// grows reports whether terms may grow beyond those of every limit. They may not for strict limits, nor while a
// store that forgot finds out what is out.
func (x *step) grows() bool {
	return x.Algorithm == limit.TokenBucket && x.r.Spec.EpsilonPPM > 0 && x.t >= x.Suspect && x.r.Spec.Lockout == 0
}

// within reports whether the holder's demand is as before, but for noise.
func (x *step) within(asked, elapsed int64) bool {
	expected := float64(float64(x.rec.Lease.Demand)*float64(elapsed)) / 1e9
	off := math.Abs(float64(asked) - expected)
	x.steady = off <= expected/4+float64(2*math.Sqrt(expected))+few
	return x.steady && (asked > 0 || expected < 3)
}

// mayTrickle reports whether a trickle smaller than worth may be leased. It may for a known demand, if the
// bucket's demand is too much for each request to ask the store. More must be left than lies with holders. In a
// nearly dry bucket it would leave a token or two with each holder. There, holders that ask for each request
// are as few as the tokens (pace).
func (x *step) mayTrickle(trickle, mine, all int64) bool {
	return x.grows() && (all > seldom || x.strain > 1) && (x.rec != nil && !x.next.Fresh || x.abides()) && x.next.Largest <= 1 &&
		(x.idle(trickle) || x.ample(all) || x.strain > 1 && !x.dry() || x.overloaded(all) && (x.Level > x.burst/8+x.Out.Stock+x.Out.Pile || x.settles(mine, all))) &&
		x.roomy(mine, all, 2*noise) && mulDiv(trickle, LongTerm*x.strain, 1e6) >= limit.Micro
}

// roomy reports whether the holder's share of the burst has least tokens or more, for tokens lie with the
// holder. Under strain, half of the burst may lie with holders if demand exceeds the rate. Nobody misses for
// long what lies with one, and a renewal for each token is dear.
func (x *step) roomy(mine, all, least int64) bool {
	if x.strain > 1 && x.exceeds(all) {
		least = noise
	}
	return mulDiv(x.burst, mine, all) >= least
}

// dryIn is how long the level lasts, in microseconds, if demand exceeds the rate by an eighth.
func (x *step) dryIn() int64 {
	if x.rate == 0 {
		return 0
	}
	return lasts(max(x.Level, 0), float64(x.rate/8))
}

// meets reports whether demand is within the rate.
func (x *step) meets(all int64) bool { return all <= x.rate/1000 }

// ample reports whether demand is within the rate, and the level would outlast a larger one until leases are
// back. Then nobody presses, even if all of the rate is leased and the burst is far from full. Where demand is
// so small that each request may ask the store, nothing is ample: one request for many tokens misses what lies
// with others.
func (x *step) ample(all int64) bool {
	return x.grows() && (all > seldom || x.strain > 1) && x.meets(all) && x.dryIn() >= ampleFor
}

// settles reports whether the holder is to live on a small trickle in a dry bucket. It does if it has one
// already, and begins one in one of oneOf renewals. A token lies with each such holder half of the time. If all
// began at once, those tokens would be missed in those seconds.
func (x *step) settles(mine, all int64) bool {
	return x.dry() && x.roomy(mine, all, 16*noise/x.strain) && (x.rec.Lease.Trickle > 0 || x.r.Number%(oneOf/x.strain) == 0)
}

// dry reports whether next to nothing is left.
func (x *step) dry() bool { return x.Level < x.burst/64 }

// leftFor is how long the level is left to renewals at their time, for it is so low. The holder's share is less
// than a token, and the bucket is far from full.
func (x *step) leftFor(mine, all, trickle, term int64) int64 {
	if !x.grows() || !x.overloaded(all) || x.Level >= x.burst/4 {
		return 0
	}
	if abstains := x.abstains(all, trickle, term); abstains > 0 {
		return abstains
	}
	switch share := mulDiv(x.Level, mine, all); {
	case trickle == 0:
	case trickle >= worth:
		if term > ShortTerm && x.Level < x.rate/16 {
			return min(term/2, 4*ShortTerm)
		}
	case share < limit.Micro:
		return term
	case share < 2*limit.Micro:
		return term / 4
	}
	return 0
}

// abstains is how long a heavily strained holder lives on what it has, where demand exceeds the rate. It has
// had its share of the level, and an early renewal would bring less. It is only a part of the term: rate that
// nobody leases meanwhile is missed until terms end. It is 0 for others, and for large requests, which get no
// share to live on.
func (x *step) abstains(all, trickle, term int64) int64 {
	switch {
	case !Heavy(x.strain) || all <= seldom || x.next.Largest > 1 || !x.overloaded(all):
		return 0
	case trickle >= worth:
		return term / 2
	case trickle > 0:
		return term / 4 * 3
	case x.next.Lease.Stock > 0:
		return min(term/4, LongTerm) // it has nothing else
	}
	return 0
}

// pace is how long a holder that asks for each request denies after one, while nothing is left. So all holders
// together ask a little more often than there are tokens, whatever the demand. If they ask less often, tokens
// are left, and nobody denies.
func (x *step) pace(mine, all int64) int64 {
	enough := x.rate / 1000 * 115 / 100
	if !x.grows() || x.next.Fresh || all <= max(seldom, enough) || x.next.Largest > 1 {
		return 0
	}
	return min(mulDiv(mulDiv(1e9, all-enough, enough), 1, mine), 4*ShortTerm)
}
