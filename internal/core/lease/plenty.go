package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// Where all holders together ask for far less than the limit, nobody misses what lies with one of them. There each
// holder has a copy of the bucket, scaled to its part of the demand, for a long term. Requests find tokens there.

const (
	// lots is one over the part of the burst that holders of known demand have together.
	lots = 8
	// least is the fewest tokens of a lot, for the noise of arrivals, while holders have a part of the burst or less.
	least = 4 * limit.Micro
	// perTerm is about how many units a holder asks for in a term while there is plenty.
	perTerm = 128
	// PlentyTerm is the longest term of all, and newTerm the least of a newcomer.
	PlentyTerm = 3_600_000_000
	newTerm    = LongestTerm / 2
)

// plenty reports whether half of the burst is left, and all holders together ask for a quarter of the rate at most. This
// one must ask for little. What a newcomer asks for is not known yet.
func (x *step) plenty(mine, all int64) bool {
	if x.next.Fresh {
		mine, all = 0, x.Out.Demand
	}
	return x.grows() && x.strain == 1 && x.Level > x.burst/2 && x.r.Waiting <= x.Level/limit.Micro/4 &&
		4*all <= x.rate/1000 && mine <= worth/1000
}

// lot is a holder's copy of the bucket: its part of an eighth of the burst, and more than its demand as a trickle. All
// lots together draw half of the rate at most. A newcomer's demand is not known, so it gets a little. It is little
// because tokens count as unspent until the holder renews, and the bucket refills no more once they are all it lacks.
// It is nothing where there are too few tokens for a lot.
func (x *step) lot(mine, all int64) (trickle, pile, stock int64) {
	can, out := whole(x.Level), x.Out.Stock+x.Out.Pile
	free := max((x.rate-x.repay())/2-x.Out.Trickle, 0)
	few, most := whole(can/64), x.burst/16
	var part int64
	if x.next.Fresh {
		trickle = min(free/lots, x.rate/128, worth)
		few, part = min(few, 2*limit.Micro), max(x.burst/64-out, 0)/lots
	} else {
		trickle = min(mine*1000+min(x.rate/128, worth), free)
		few, part, most = min(2*few, least), min(mulDiv(x.burst/lots, mine, all), perTerm*limit.Micro), x.burst/4
	}
	switch {
	case out <= most:
		part = max(part, few)
	case out <= x.burst/2:
		part = max(part, min(few, limit.Micro))
	}
	part = whole(min(part, x.apart(all)))
	if trickle <= 0 || part == 0 || x.large(mine) && part < 2*x.next.Largest*limit.Micro {
		return 0, 0, 0
	}
	return trickle, limit.Micro, x.r.Waiting*limit.Micro + part // the trickle fills up the stock as well
}

// lotTerm is how long a lot lasts: perTerm units, but at most four times as long as the last. A newcomer renews before
// if its tokens run low. While its demand is not known it counts as a part of the rate, so that many are not plenty.
func (x *step) lotTerm(mine int64) int64 {
	if x.next.Fresh {
		x.next.Lease.Demand = max(x.rate/64/1000, 1)
		return min(max(lasts(x.burst/lots, x.flow), newTerm), PlentyTerm)
	}
	most := int64(newTerm)
	if x.rec != nil { // the store does not know a holder that it forgot
		most = min(4*(x.t-x.rec.Start), PlentyTerm)
	}
	return min(mulDiv(perTerm, 1e9, mine), most)
}
