package lease

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// How long a lease lasts. Short terms let what one holder does not use reach the others soon; each
// term costs a renewal. So the first term is as long as what is there is sure to last, and terms grow while demand is what it was: to some
// seconds where the bucket is pressed, by how much the holder asks for in them, and to minutes where there is plenty. A holder whose
// demand changes does not wait for its term: it renews early.

const (
	// LongestTerm is a lease's where there is plenty and demand is steady, of agents that are not strained.
	LongestTerm = 120_000_000
	// worth is the trickle that is worth leasing whatever the term, in micro-tokens a second: two tokens in a short one.
	worth = 2 * limit.Micro * 1_000_000 / ShortTerm
	// noise is the most that may pile up of a trickle that is worth less: room for the noise of a holder's arrivals.
	noise = 2 * limit.Micro
	// seldom is the demand for a whole bucket, in thousandths of a unit a second, up to which each request may ask
	// the store: what is so small is to be exact.
	seldom = 10_000
	// sample is how many units of a demand tell it from another, about.
	sample = 8
	// faint is a demand, in thousandths of a unit a second, of which nothing is known but that it is less.
	faint = 100
	// few is how many units more or less tell nothing.
	few = 2
	// pressedUnits is how many units a holder is to ask for in a term of a pressed bucket, about.
	pressedUnits = 32
	// MaxStrain is the most that a holder may say of its strain.
	MaxStrain = 16
	// ampleFor is how long what is there has to last to be ample, in microseconds: some terms.
	ampleFor = 32_000_000
	// oneOf so many renewals for single tokens begins a trickle in a dry bucket.
	oneOf = 128
)

// term is how long the lease is to last.
func (x *step) term(mine, all, trickle int64) int64 {
	term := x.usualTerm(mine, all, trickle)
	if last := x.lastTerm(); last > 0 && x.steady && x.ample(all) {
		// Should the holder be lost, what is there makes up for its trickle until the lease's end and the time that it is kept for it.
		kept := (lasts(max(x.Level, 0), float64(trickle)) - 2*SlotLen) / 16 * 7
		term = max(term, min(x.dryIn()/8, kept, 4*last, LongTerm*x.strain, x.longest()))
	}
	return term
}

// lastTerm is how long the last lease did, as far as it was in use: one that was renewed at once tells nothing. 0 is for not known.
func (x *step) lastTerm() int64 {
	if x.rec == nil || x.rec.Fresh {
		return 0
	}
	return min(x.rec.Grant.TTL, max(x.t-x.rec.Start, ShortTerm))
}

// usualTerm is how long the lease is to last whether or not what is there is ample.
func (x *step) usualTerm(mine, all, trickle int64) int64 {
	rec, next := x.rec, x.next
	pressed := x.rate > 0 && (mulDiv(x.Out.Trickle+next.Lease.Trickle, 100, x.rate) > 85 || x.Level < x.burst/4)
	last := x.lastTerm()
	known := last > 0
	switch {
	case next.Fresh && x.rate > 0 && x.Level > x.burst/2:
		return max(2*ShortTerm, x.lasting()) // a wrong guess costs little here, and a crowd of new buckets much
	case next.Fresh:
		return FirstTerm
	case pressed && trickle > 0:
		term := int64(ShortTerm)
		if trickle < worth {
			term = x.pressedTerm(mine) / 2
		}
		// Full, and all that is wanted is within the rate: what one agent has too much is missed by none.
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

// strainOf is how many times as long as otherwise a lease is to last: a server that is asked for more renewals than it can answer, or an agent for which
// they cost more than what is decided by them, is worth more error than one more request that waits. Where the holder's share of the burst is small and
// about as much is asked for as the rate brings, tokens that lie elsewhere would be denied to those for whom there are enough: only heavy strain is worth that.
func (x *step) strainOf(mine, all int64) int64 {
	if !x.grows() || !Heavy(x.r.Strain) && mulDiv(x.burst, mine, all) < sparse*limit.Micro && 10*all >= x.rate/1000*7 && !x.exceeds(all) {
		return 1
	}
	return max(x.r.Strain, 1)
}

// Heavy reports whether strain is so large that the server cannot answer what it is asked, rather than that it costs much.
func Heavy(strain int64) bool { return strain >= MaxStrain/2 }

// lasting is how long what is there lasts whatever is asked for, about: were it five times the rate. A wrong guess is
// missed by nobody before that. It is 0 where a guess may be missed at once.
func (x *step) lasting() int64 {
	if !x.grows() || x.Level <= x.burst/2 {
		return 0
	}
	return min(mulDiv(x.Level, 250_000*x.strain, x.rate), LongestTerm/4*x.strain, x.longest())
}

// longest is the longest term: that of four times as long at full strain.
func (x *step) longest() int64 { return LongestTerm * max(x.strain*4/MaxStrain, 1) }

// guesses reports whether the lease is a newcomer's and lasts long all the same.
func (x *step) guesses() bool { return x.next.Fresh && x.lasting() > 2*ShortTerm }

// abides reports whether a newcomer's lease lasts for so long that its guess has to leave others something.
func (x *step) abides() bool { return x.next.Fresh && x.lasting() > 2*LongTerm }

// pressedTerm is the longest term of a holder's lease of a pressed bucket.
func (x *step) pressedTerm(mine int64) int64 {
	return min(max(mulDiv(pressedUnits, 1e9, mine), 2*ShortTerm), LongTerm)
}

// strained is the term of a lease of a pressed bucket as long as strain makes it. What a holder does not use of its trickle comes back when it renews: the
// burst is to have room for what all do not use in a term, a part of the rate, or it would be lost. Heavy strain is worth that.
func (x *step) strained(term int64) int64 {
	long := term * x.strain
	if Heavy(x.strain) {
		return long
	}
	return max(term, min(long, mulDiv(x.burst, 2_500_000, x.rate)))
}

// overloaded reports whether so much more is asked for than the rate that what one holder does not use is missed by
// none for long: near the rate every token left lying counts, but less than what a strained holder's renewals cost.
func (x *step) overloaded(all int64) bool {
	if x.strain > 1 {
		return all >= x.rate/1000
	}
	return x.exceeds(all)
}

// exceeds reports whether two fifths more are asked for than the rate brings.
func (x *step) exceeds(all int64) bool { return 5*all >= x.rate/1000*7 }

// idle reports whether a part of the rate is leased to nobody, with the trickle, and half of the burst is there.
func (x *step) idle(trickle int64) bool {
	return mulDiv(x.Out.Trickle+trickle, 100, x.rate) <= 85 && x.Level > x.burst/2
}

// grows reports whether terms may grow beyond what every limit has: not of strict ones, nor while a store that
// forgot finds out what is out.
func (x *step) grows() bool {
	return x.Algorithm == limit.TokenBucket && x.r.Spec.EpsilonPPM > 0 && x.t >= x.Suspect && x.r.Spec.Lockout == 0
}

// within reports whether what the holder asked for is its demand as it was, but for noise.
func (x *step) within(asked, elapsed int64) bool {
	expected := float64(float64(x.rec.Lease.Demand)*float64(elapsed)) / 1e9
	off := math.Abs(float64(asked) - expected)
	x.steady = off <= expected/4+float64(2*math.Sqrt(expected))+few
	return x.steady && (asked > 0 || expected < 3)
}

// mayTrickle reports whether a trickle of less than is worth it otherwise may be leased: for a demand that is known, where
// so much is asked for that each request should not ask the store, and while more is there than lies with holders. In a
// bucket that is nearly dry it would leave a token or two with each holder, and those that ask for each request are
// as few as there are tokens (pace).
func (x *step) mayTrickle(trickle, mine, all int64) bool {
	return x.grows() && (all > seldom || x.strain > 1) && (x.rec != nil && !x.next.Fresh || x.abides()) && x.next.Largest <= 1 &&
		(x.idle(trickle) || x.ample(all) || x.strain > 1 && !x.dry() || x.overloaded(all) && (x.Level > x.burst/8+x.Out.Stock+x.Out.Pile || x.settles(mine, all))) &&
		x.roomy(mine, all, 2*noise) && mulDiv(trickle, LongTerm*x.strain, 1e6) >= limit.Micro
}

// roomy reports whether the holder's share of the burst is at least so much, for tokens lie with it. Of a strained holder half of the burst may, where more is
// asked for than there is: what lies with one is missed by none for long, and a renewal for each token is dear.
func (x *step) roomy(mine, all, least int64) bool {
	if x.strain > 1 && x.exceeds(all) {
		least = noise
	}
	return mulDiv(x.burst, mine, all) >= least
}

// dryIn is how long what is there lasts, in microseconds, were an eighth more asked for than the rate brings.
func (x *step) dryIn() int64 {
	if x.rate == 0 {
		return 0
	}
	return lasts(max(x.Level, 0), float64(x.rate/8))
}

// meets reports whether the rate brings all that is asked for.
func (x *step) meets(all int64) bool { return all <= x.rate/1000 }

// ample reports whether no more is asked for than the rate brings, and were it more, what is there would last until what lies with holders is
// back. Then nobody presses, though all of the rate may be leased and the burst be far from full. Of what is asked for so seldom that each request may
// ask the store nothing is ample: what lies with others is missed by one that comes with many.
func (x *step) ample(all int64) bool {
	return x.grows() && (all > seldom || x.strain > 1) && x.meets(all) && x.dryIn() >= ampleFor
}

// settles reports whether the holder is to live on a trickle in a bucket that is dry, though it is small: where the holder has one, or
// with one of so many renewals. A token lies with each that does, half of the time; were they to begin all at once, that
// would be missed in those seconds.
func (x *step) settles(mine, all int64) bool {
	return x.dry() && x.roomy(mine, all, 16*noise/x.strain) && (x.rec.Lease.Trickle > 0 || x.r.Number%(oneOf/x.strain) == 0)
}

// dry reports whether there is next to nothing.
func (x *step) dry() bool { return x.Level < x.burst/64 }

// leftFor is how long what is there is to be left to renewals at their time, for it is so little: the holder's share is less than a token, and
// the bucket is far from full.
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

// abstains is how long a holder that is heavily strained lives on what it has where more is asked for than the rate brings: it has had its
// share of what is left, and what a renewal before its time would bring is less. What nobody leases in that time is missed until terms end, so it
// is a part of the term. It is 0 for others, and for large requests: these get no share that they could live on.
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

// pace is how long a holder that asks for each request denies after one, while nothing is left: so that all
// together ask a little more often than there are tokens, whatever the demand. Should they ask less often, something is
// left, and nobody denies.
func (x *step) pace(mine, all int64) int64 {
	enough := x.rate / 1000 * 115 / 100
	if !x.grows() || x.next.Fresh || all <= max(seldom, enough) || x.next.Largest > 1 {
		return 0
	}
	return min(mulDiv(mulDiv(1e9, all-enough, enough), 1, mine), 4*ShortTerm)
}
