package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// fewest is the smallest stock worth leasing without a trickle, in tokens.
const fewest = 8

// sparse is the stock that an agent of little demand may have for a long term while there is plenty, in tokens.
// Its trickle alone leaves no room for noise.
const sparse = 32

// bulk is a holder's stock while there is plenty of a large burst, in tokens. With it, requests seldom refill
// from the trickle. One that refills takes ten times as long as another: it takes in the trickle since the last
// refill.
const bulk = 256

// largeBurst is how many seconds of the rate must be left of a burst for it to count as large.
const largeBurst = 16

// TooLarge is how long a holder denies after a request that is larger than all that is left, in microseconds.
// It is short, for a smaller request may find enough.
const TooLarge = 5_000

// repayIn is the time constant with which a bucket repays its debt, in seconds.
const repayIn = 4

// singly is the largest demand for a whole bucket, in thousandths of a unit a second, whose requests may all
// ask the store. They do so where a large request would miss what others hold.
const singly = 10_000_000

// grant decides the holder's new lease, takes it out of the level and puts it into the sums. It fills next and
// g; next already has the demand.
func (x *step) grant(g *Grant) {
	r, next := x.r, x.next
	mine := max(next.Lease.Demand, 1)
	all := x.Out.Demand + mine
	waiting := r.Waiting * limit.Micro

	x.strain = x.strainOf(mine, all)
	x.remember(r.Largest)
	trickle, pile, stock := int64(0), int64(0), int64(0)
	locked := x.t < x.Locked
	if !locked && x.plenty(mine, all) {
		trickle, pile, stock = x.lot(mine, all)
		x.lots = stock > 0
	}
	if !locked && !x.lots {
		trickle, pile = x.trickleFor(mine, all)
		stock = x.stockFor(mine, all, trickle)
	}
	if r.Spec.Lockout > 0 && !locked && stock < waiting {
		x.Locked, locked = x.t+r.Spec.Lockout, true
	}

	// The holder may spend what it has until it hears of the grant, and never if the answer is lost.
	lent := max(stock, min(x.keeps, whole(max(x.Level, 0))))
	x.Level, x.keeps = x.Level-lent, lent-stock
	next.Lent = lent + r.Fraction
	// What requests wait for is spent at once; what is reserved may come back.
	room := max(x.burst+x.slack-x.Out.Stock-x.Out.Pile-max(x.Level, 0), 0)
	reserved := min(stock, r.Reserved*limit.Micro, room)
	next.Lease.Stock = max(stock-waiting, 0) + reserved + x.keeps + r.Fraction
	if r.Spec.Ledgered && stock > 0 {
		next.Lease.Stock = max(next.Lease.Stock, min(1, room)) // if the holder is lost, the ledger says what it spent
	}
	// All that may be spent at once must fit, even with the level at nought.
	most := whole(x.burst + x.slack - x.Out.Stock - next.Lease.Stock - x.Out.Pile)
	switch {
	case pile == 0:
	case x.Algorithm == limit.LeakyBucket:
		pile = min(pile, limit.Micro+max(most, 0))
	default:
		if pile = min(pile, most); pile < limit.Micro {
			trickle, pile = 0, 0
		}
	}
	next.Lease.Trickle = trickle
	next.Lease.Pile = pile
	next.Lease.Fallback = x.fallback(mine, all)
	if pile > 0 && x.Algorithm == limit.LeakyBucket {
		next.Lease.Pile -= limit.Micro // one token a holder is free: it bounds how many requests coincide
	}

	term, hold := x.term(mine, all, trickle), r.Spec.hold()
	switch x.Algorithm {
	case limit.FixedWindow:
		left := x.WindowEnd - x.now
		if !next.Fresh && r.Spec.Lockout == 0 {
			g.Next = x.grantNext(mine, all)
		}
		if g.Next > 0 && left <= max(term, min(nextLead, (x.WindowEnd-x.Window)/4)) {
			term = max(left, 0) + ShortTerm
		} else {
			term = max(min(term, left), 1_000)
		}
	case limit.SlidingWindow:
		term, hold = x.slidingTerm(term, hold)
	}
	if next.Fresh && term > 2*ShortTerm && !x.lots {
		// It renews before it has used more. A guess must not take from others for so long.
		next.Lease.Demand = max(min(next.Lease.Demand, mulDiv(stock, 1_000, term)), 1)
	}
	x.hang(term, hold)
	x.clip(x.t)

	g.Tokens = stock / limit.Micro
	g.Trickle = trickle
	g.Pile = pile / limit.Micro
	g.TTL = term
	g.Fallback = next.Lease.Fallback
	g.ExpirySlot = next.Slot
	g.Remaining = max((x.Level+x.Out.Stock-reserved)/limit.Micro, 0)
	g.DenyFor = x.denyFor(mine, all, trickle, term, stock < waiting)
	switch {
	case x.Algorithm == limit.FixedWindow:
		g.Reset = max(x.WindowEnd-x.now, 0)
	case x.Algorithm == limit.SlidingWindow:
		g.Fallback = max(trickle, mulDiv(mulDiv(x.burst, 1e6, x.WindowEnd-x.Window), mine, all))
		if x.Level < x.burst {
			g.Reset = max(x.WindowEnd-x.now, 0)
			if x.Level+x.Left < x.burst {
				g.Reset += x.WindowEnd - x.Window
			}
		}
	case x.rate > 0 && x.burst > x.Level:
		g.Reset = lasts(x.burst-x.Level, x.flow)
	}
	if locked {
		g.DenyFor = max(x.Locked-x.t, 1_000)
	}
	x.unitIn(g)
}

// trickleFor is the part of the rate that the holder draws without asking. It is somewhat above its demand
// where there is plenty, and its share of the rate where there is not.
func (x *step) trickleFor(mine, all int64) (trickle, pile int64) {
	if x.rate == 0 || x.r.Spec.Lockout > 0 {
		return 0, 0
	}
	length := x.WindowEnd - x.Window
	if x.Algorithm == limit.SlidingWindow && length < 2*SlotLen {
		return 0, 0 // it would outlive the window, and the next one too
	}
	rate := x.rate - x.repay()
	free := rate - x.Out.Trickle
	ample := mine * 1200
	if x.Algorithm == limit.TokenBucket {
		ample = mine*1000 + mulDiv(x.spare(rate, all), mine, all)
	}
	trickle = min(ample, mulDiv(rate, mine, all), free)
	if x.abides() {
		trickle = min(trickle, free/64)
	}
	if x.t < x.Suspect {
		x.next.Declared = x.hadTrickle()
		trickle = min(x.next.Declared, ample, free) // not its share: all demand is not known yet
	}
	small := trickle < worth
	if small && !x.mayTrickle(trickle, mine, all) {
		return 0, 0 // not worth it: tokens would lie in fractions all over
	}
	if x.Algorithm == limit.LeakyBucket {
		// A pile of one paces; beyond it, its share of the burst.
		room := max(x.burst+x.slack-x.Out.Stock-x.Out.Pile, 0)
		return trickle, limit.Micro + max(whole(min(mulDiv(x.burst, mine, all), room))-limit.Micro, 0)
	}
	// The pile gives a local bucket room for the noise of its own arrivals. All piles together take what the
	// slack allows. They take more while the bucket is so far from full that it cannot exceed the burst.
	room := max(x.burst+x.slack-x.Out.Stock-x.Out.Pile-x.Level, 0)
	span := max(mulDiv(x.slack, 1e6, x.rate), min(mulDiv(room, 500_000, x.rate), ShortTerm/2))
	if x.Algorithm == limit.SlidingWindow {
		span = min(span, length/64) // piles at the edge count in full once more
	}
	pile = whole(mulDiv(trickle, span, 1e6))
	switch share := mulDiv(x.burst, mine, all); {
	case small && !x.dry():
		pile = max(pile, whole(min(share/2, noise)))
	case !small && share >= 2*noise && x.prompt() < FirstTerm/2:
		pile = max(pile, whole(min(share, room, 2*fewest*limit.Micro))) // noise is of some tokens, however small the burst
	}
	if pile < limit.Micro {
		if x.Out.Pile+limit.Micro > x.slack+x.burst/4 {
			return 0, 0 // piles of one each would leave the level no room for a token
		}
		pile = limit.Micro // or the trickle would yield none
	}
	if x.large(mine) && pile < x.next.Largest*limit.Micro {
		return 0, 0 // it would never add up to one request
	}
	if pile = min(pile, whole(x.apart(all))); pile < limit.Micro {
		return 0, 0
	}
	return trickle, pile
}

// spare is the part of the rate that all holders together may draw beyond their demand. It is a hundredth:
// holders whose demand grows miss what long leases draw in vain. A strained holder of known demand draws more
// where the rate is not wanted, at most half of what is left. So it need not ask as soon as its demand grows,
// for its answer would take long.
func (x *step) spare(rate, all int64) int64 {
	// Demand beyond twice the rate makes no difference, and with very many holders it could not be counted.
	wanted := min(all, rate/500+1) * 1000
	least := min(rate/100, wanted/5)
	if x.strain == 1 || x.rec == nil || x.rec.Grant.TTL < LongTerm || x.Level <= x.burst/8 {
		return least
	}
	return max(least, min((rate-wanted)/2, rate/100*80-wanted, wanted/4*x.strain))
}

// remember notes the largest request that waits. A larger one before it is forgotten by halves: sizes vary, and
// it takes a few requests to know how large they are.
func (x *step) remember(largest int64) {
	switch {
	case largest >= x.Largest:
		x.Largest = largest
	case x.t < x.LargestUntil:
		return
	default:
		x.Largest = max(largest, x.Largest/2)
	}
	x.LargestUntil = x.t + LongTerm
}

// repay is the part of the rate that is not leased while the bucket is in debt. So it is out of debt within
// seconds; trickles alone leave about a hundredth.
func (x *step) repay() int64 {
	debt := max(-x.Level-x.r.Spec.Borrow*limit.Micro, 0)
	return min(debt/repayIn, x.rate/8)
}

// apart is how much more may lie with holders apart from each other, where it is of no use to a large request.
// If requests exceed a sixteenth of the burst, all holders together may have a sixteenth of the burst. If one
// exceeds a fiftieth of ten seconds' rate, they may have nothing, as long as every request can ask the store.
// Then its admission is right to the token.
func (x *step) apart(all int64) int64 {
	switch size := x.Largest * limit.Micro; {
	case 16*size <= x.burst:
		return x.burst
	case x.rate > 0 && 5*size >= x.rate && all <= singly:
		return 0
	}
	return max(x.burst/16-x.Out.Stock-x.Out.Pile, 0)
}

// large reports whether the holder's requests are too large, for its demand, for tokens that come singly. One
// of them exceeds half a second's use, or the demand is only a guess. If it is a sixteenth of the burst, a
// sixteenth of a second's use is enough. One such request looks like a demand of three a second.
func (x *step) large(mine int64) bool {
	size := x.next.Largest * limit.Micro
	return x.next.Largest > 1 && (x.next.Fresh || size > mine*500 || 16*size >= x.burst && size > mine*62)
}

// largest is the largest request that the holder has had lately. It decays slowly, for large requests may be
// one of a hundred.
func (x *step) largest() int64 {
	if x.rec == nil {
		return x.r.Largest
	}
	return max(x.r.Largest, x.rec.Largest*127/128)
}

// stockFor is what the holder may spend at once. First it is what requests wait for. Beyond that it is the
// holder's share of the level, and no more than it can use soon.
func (x *step) stockFor(mine, all, trickle int64) int64 {
	level := x.Level
	if x.Algorithm == limit.SlidingWindow {
		level -= x.slidingReserve()
	}
	can := whole(max(level, 0))
	serve := x.serve(whole(max(level+x.r.Spec.Borrow*limit.Micro, 0)))
	if level < limit.Micro || x.r.Spec.Lockout > 0 || x.Algorithm == limit.LeakyBucket {
		return serve
	}
	stock := mulDiv(can, mine, all)
	if x.r.Spec.Windowed() {
		// Half of its share of all that remains. So shares shrink, and the last of a window is handed out singly.
		stock = min(can, mulDiv(can+x.Out.Stock, mine, all)/2)
	}
	plenty := x.Level > x.burst/2
	use := mine * 1000 // a second's worth
	if x.rec != nil && x.rec.Fresh {
		use = mine * 250 // requests that come with it are not in the demand yet, and want their share too
	}
	switch {
	case plenty && trickle == 0:
		use *= 10
	case plenty && x.next.Fresh:
		use = max(use, min(10*use, 2*fewest*limit.Micro)) // what is out counts as unspent until it is reported
		if x.strain > 1 && x.guesses() {
			use = max(use, x.guess(can))
		}
	case plenty:
		// The stock leaves room for noise, and more if nobody misses it soon: it may lie there for minutes.
		use = max(use/4, min(10*use, sparse*limit.Micro), x.supply(use, stock, all, trickle))
	case trickle == 0:
		use *= 4
	case trickle < worth:
		use = max(4*use*x.strain, 2*limit.Micro)
	}
	if x.ample(all) && x.rec != nil && !x.next.Fresh {
		use = max(use, min(stock/4, 2*fewest*limit.Micro)) // room for noise
	}
	if x.strain > 1 && (trickle > 0 || all > seldom) && !x.next.Fresh {
		use = max(use, (mine*1000-trickle)*x.strain*4) // what the trickle leaves open, for about a term
	}
	stock = min(stock, use)
	if trickle >= worth && !plenty && x.overloaded(all) && x.strain > 1 && !Heavy(x.strain) {
		// Of what trickles leave, one holder at a time gets some tokens, rather than each a part of one.
		stock = max(stock, min(can/8, use))
	}
	if trickle == 0 && !x.r.Spec.Windowed() {
		stock = min(stock, can/4) // nothing refills soon: the next holder has to find something
	}
	if trickle == 0 && x.next.Fresh || x.rec != nil && x.rec.Fresh && x.t-x.rec.Start < guessPer {
		stock = min(stock, x.r.Waiting*limit.Micro+can/16) // others begin with it
	}
	if plenty && !x.r.Spec.Windowed() {
		stock = max(stock, min(can/64, 2*fewest*limit.Micro))
	}
	stock -= stock % limit.Micro
	if trickle > 0 && trickle < worth {
		stock = max(stock, min(whole(can/16), 2*limit.Micro)) // or nobody would ever get it: shares are smaller
	}
	if trickle == 0 && stock < fewest*limit.Micro && !x.ample(all) && !(x.strain > 1 && all > seldom) {
		stock = 0 // small limits: only what requests wait for, so that no token lies idle
	}
	if x.guesses() {
		// What is out counts as unspent until it is reported. A holder that needs more says so at once.
		stock = min(stock, x.r.Waiting*limit.Micro+x.guess(can))
	}
	stock = min(stock, whole(x.apart(all)))
	if x.large(mine) && stock < 2*x.next.Largest*limit.Micro {
		stock = 0 // its next request would find too few
	}
	return max(min(stock, can), serve)
}

// supply is a holder's stock while there is plenty of a large burst, at least 16 seconds of the rate. It is
// half a minute's use or 256 tokens, while demand is within the rate. It is at most a quarter of the holder's
// share, for later holders miss what lies with others. Without a trickle, as in small limits, it is nothing. A
// strained holder has a second's use or 256 tokens at once, whatever the demand.
func (x *step) supply(use, share, all, trickle int64) int64 {
	switch {
	case x.strain > 1:
		return min(max(use, bulk*limit.Micro), share/16*min(x.strain, 4))
	case x.grows() && trickle > 0 && x.meets(all) && x.Level >= largeBurst*x.rate:
		return min(30*use, bulk*limit.Micro, share/4)
	}
	return 0
}

// guess is the stock of a newcomer whose lease lasts long, where so much can be had. It is two tokens for each
// time of its strain. It is four times as many if they are little of the level.
func (x *step) guess(can int64) int64 {
	least := noise * x.strain
	if least == noise {
		return least
	}
	return max(least, min(whole(can/256), 4*least))
}

// serve is the part of the grantable tokens that goes to waiting requests. Tokens too few for any of them stay
// for others, for a request has no use for them.
func (x *step) serve(can int64) int64 {
	waiting, largest := x.r.Waiting*limit.Micro, x.r.Largest*limit.Micro
	switch {
	case waiting <= can:
		return waiting
	case largest <= limit.Micro:
		return can
	case waiting%largest == 0:
		return can - can%largest // all alike, it seems
	case largest > can:
		return min(waiting-largest, can)
	}
	return can
}

// denyFor is how long the holder denies without asking, while there is nothing to be had. unserved says that
// requests that wait were not served.
func (x *step) denyFor(mine, all, trickle, term int64, unserved bool) int64 {
	level := x.Level + x.keeps + x.r.Spec.Borrow*limit.Micro
	if level >= limit.Micro {
		if unserved {
			return TooLarge
		}
		return x.leftFor(mine, all, trickle, term)
	}
	if x.r.Spec.Lockout > 0 && !unserved {
		return 0 // the next request has to ask: it locks the bucket
	}
	if x.Algorithm == limit.FixedWindow {
		left := max(x.WindowEnd-x.now, 1_000)
		switch {
		case x.Out.Stock >= limit.Micro || x.t < x.Suspect || x.Unsure > 0:
			return min(left, ShortTerm) // some of what is out may come back
		case x.void():
			return min(left, figureEvery)
		}
		return left
	}
	own := x.flow - float64(x.Out.Trickle)
	if x.Out.Trickle > 0 && x.unsettled(mine, all, trickle) || x.t < x.Suspect {
		term = min(term, x.prompt())
	}
	wait, abstains := term, x.abstains(all, trickle, term)
	switch {
	case trickle > 0 && abstains > 0:
		wait = abstains
	case own > 0:
		wait = lasts(limit.Micro-level, own)
		if x.Algorithm == limit.LeakyBucket && x.Out.Trickle > 0 {
			return max(min(wait, term), 1_000) // its own trickle gives one at a time: the next may be here sooner
		}
		if trickle > 0 {
			// What the trickles leave is worth asking for once it is some tokens, and while it lasts.
			wait = lasts(min(fewest*limit.Micro, x.burst)-level, own)
			wait = min(mulDiv(min(wait, term), all, mine), term)
		}
	}
	if trickle == 0 {
		wait = max(wait, x.pace(mine, all))
	}
	if x.Out.Trickle > 0 || x.t < x.Suspect {
		return max(min(wait, term), 20_000)
	}
	if x.Algorithm == limit.SlidingWindow {
		wait = x.slidingWait(level)
	}
	if x.Out.Stock > 0 {
		wait = min(wait, ShortTerm) // some of what is out may come back
	}
	return max(wait, 5_000) // nobody draws the rate: this is when the next token is there
}

// unsettled reports whether the holder's part of the rate is about to change. Others have it and may not keep it,
// its demand has just moved, or it came back too soon to tell its demand.
func (x *step) unsettled(mine, all, trickle int64) bool {
	if prompt := x.prompt(); x.grows() || prompt < FirstTerm/2 {
		return 2*trickle < mulDiv(x.rate, mine, all) || !x.steady || x.rec != nil && x.t-x.rec.Start < prompt/5
	}
	return 2*trickle < mulDiv(x.rate, mine, all)
}

// unitIn sets when the next unit is there, if the holder is to ask again before. Callers are told that time.
func (x *step) unitIn(g *Grant) {
	level := x.Level + x.keeps + x.r.Spec.Borrow*limit.Micro
	if g.DenyFor <= TooLarge || level >= limit.Micro || x.Withheld >= limit.Micro {
		return // what is withheld may be there soon
	}
	var in int64
	switch x.Algorithm {
	case limit.FixedWindow:
		in = x.WindowEnd - x.now
	case limit.SlidingWindow:
		in = x.slidingWait(level)
	case limit.SlidingWindowLog:
		in = x.untilUnit(level)
	default:
		in = lasts(limit.Micro-level, x.flow)
	}
	if in > g.DenyFor {
		g.UnitIn = in
	}
}
