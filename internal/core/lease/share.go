package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// fewest is the smallest stock worth leasing without a trickle, in tokens.
const fewest = 8

// sparse is the stock that an agent of little demand may have for a whole long
// term while there is plenty, in tokens: its trickle alone leaves no room for noise.
const sparse = 32

// bulk is the stock of a holder where there is plenty of a large burst, in tokens, so that its requests refill seldom from its
// trickle: one that does takes ten times as long as another, and finds there what the trickle brought since the last one did.
const bulk = 256

// largeBurst is how many seconds of the rate there are to be left of a burst that is large.
const largeBurst = 16

// TooLarge is how long a holder denies that has a request which is larger than all that is
// there, in microseconds: a smaller one may find enough, and is to ask soon.
const TooLarge = 5_000

// repayIn is the time constant, in seconds, with which a bucket repays what it is in debt with.
const repayIn = 4

// singly is the demand for a whole bucket, in thousandths of a unit a second, up to which all of its requests
// may ask the store where a large one would miss what others hold.
const singly = 10_000_000

// grant decides the holder's new lease, takes it out of the level and puts it into
// the sums. next holds the demand; it and g are filled.
func (x *step) grant(g *Grant) {
	r, next := x.r, x.next
	mine := max(next.Lease.Demand, 1)
	all := x.Out.Demand + mine
	waiting := r.Waiting * limit.Micro

	x.strain = x.strainOf(mine, all)
	x.remember(r.Largest)
	trickle, pile, stock := int64(0), int64(0), int64(0)
	locked := x.t < x.Locked
	if !locked {
		trickle, pile = x.trickleFor(mine, all)
		stock = x.stockFor(mine, all, trickle)
	}
	if next.OnShare > 0 {
		stock = max(min(r.Held*limit.Micro, whole(x.Level)), 0)
	}
	if r.Spec.Lockout > 0 && !locked && stock < waiting {
		x.Locked, locked = x.t+r.Spec.Lockout, true
	}

	x.Level -= stock
	next.Lent = stock
	// What requests wait for is spent at once; what is reserved may come back.
	room := max(x.burst+x.slack-x.Out.Stock-x.Out.Pile-max(x.Level, 0), 0)
	reserved := min(stock, r.Reserved*limit.Micro, room)
	next.Lease.Stock = max(stock-waiting, 0) + reserved
	if r.Spec.Ledgered && stock > 0 {
		next.Lease.Stock = max(next.Lease.Stock, min(1, room)) // should the holder be lost, the ledger is to say what it spent
	}
	// All that may be spent at once has to fit, were the level lowered to nothing.
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
	if pile > 0 && x.Algorithm == limit.LeakyBucket {
		next.Lease.Pile -= limit.Micro // one a holder counts against nothing: that is the bound on coinciding requests
	}

	term, hold := x.term(mine, all, trickle), r.Spec.hold()
	switch x.Algorithm {
	case limit.FixedWindow:
		left := x.WindowEnd - x.now
		if x.lead() && next.OnShare == 0 && !locked {
			g.Next = x.grantNext(mine, all)
		}
		if g.Next > 0 {
			term = max(term, left+ShortTerm)
		} else {
			term = max(min(term, left), 1_000)
		}
	case limit.SlidingWindow:
		term, hold = x.slidingTerm(term, hold)
	}
	if next.Fresh && term > 2*ShortTerm {
		// It renews before it has used more: what was guessed is not to take from others for so long.
		next.Lease.Demand = max(min(next.Lease.Demand, mulDiv(stock, 1_000, term)), 1)
	}
	x.hang(term, hold)
	x.clip(x.t)

	g.Tokens = stock / limit.Micro
	g.Trickle = trickle
	g.Pile = pile / limit.Micro
	g.TTL = term
	g.Fallback = max(trickle, mulDiv(x.rate, mine, all))
	g.ExpirySlot = next.Slot
	g.Remaining = max((x.Level+x.Out.Stock-reserved)/limit.Micro, 0)
	g.DenyFor = x.denyFor(mine, all, trickle, term, stock < waiting)
	switch {
	case x.Algorithm == limit.FixedWindow:
		// The holder's share of a window, were it spread over it.
		g.Fallback = mulDiv(mulDiv(x.burst, 1e6, x.WindowEnd-x.Window), mine, all)
		g.Reset = max(x.WindowEnd-x.now, 0)
		if next.OnShare > 0 && stock == 0 {
			g.DenyFor = max(min(x.WindowEnd-x.now, next.OnShare-x.t), 1_000)
		}
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

// trickleFor is the part of the rate that the holder draws without asking: somewhat
// above its demand where there is plenty, its share of the rate where there is not.
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
		x.next.Declared = x.declared()
		trickle = min(x.next.Declared, ample, free) // its share is of a demand that is not all known yet
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
	// The pile gives a local bucket room for the noise of its own arrivals: as much
	// as the slack allows all of them together, and more where the bucket is so
	// far from full that it cannot exceed the burst.
	room := max(x.burst+x.slack-x.Out.Stock-x.Out.Pile-x.Level, 0)
	span := max(mulDiv(x.slack, 1e6, x.rate), min(mulDiv(room, 500_000, x.rate), ShortTerm/2))
	if x.Algorithm == limit.SlidingWindow {
		span = min(span, length/64) // what lies in piles at the edge counts in full once more
	}
	pile = whole(mulDiv(trickle, span, 1e6))
	if small && !x.dry() {
		pile = max(pile, whole(min(mulDiv(x.burst/2, mine, all), noise)))
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

// spare is how much of the rate all holders together may draw beyond their demand: a hundredth, for what long leases have beyond what is
// used is missed by those whose demand grows. A strained holder of known demand draws more where the rate is not wanted, half of what is
// left at most, so that it need not ask as soon as its demand grows: its answer would take long.
func (x *step) spare(rate, all int64) int64 {
	wanted := min(all, rate/500+1) * 1000 // beyond twice the rate it is all the same, and of very many holders more than can be counted
	least := min(rate/100, wanted/5)
	if x.strain == 1 || x.rec == nil || x.rec.Grant.TTL < LongTerm || x.Level <= x.burst/8 {
		return least
	}
	return max(least, min((rate-wanted)/2, rate/100*80-wanted, wanted/4*x.strain))
}

// remember takes note of the largest request that waits. One that was larger is forgotten by halves: of
// large requests some are larger than others, and it takes a few to know how large they are.
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

// repay is the part of the rate that is not leased while the bucket is in debt, so that it is out of it within
// seconds: what trickles leave by chance is a hundredth.
func (x *step) repay() int64 {
	debt := max(-x.Level-x.r.Spec.Borrow*limit.Micro, 0)
	return min(debt/repayIn, x.rate/8)
}

// apart is how much more may lie with holders apart from each other, where it is of no use to a large request. Where
// there are such as are more than a sixteenth of the burst, a sixteenth of it in all; and where one is more than a
// fiftieth of what ten seconds bring, nothing: whether it is admitted is to be right to the token, as long as
// the store can be asked for every single one.
func (x *step) apart(all int64) int64 {
	switch size := x.Largest * limit.Micro; {
	case 16*size <= x.burst:
		return x.burst
	case x.rate > 0 && 5*size >= x.rate && all <= singly:
		return 0
	}
	return max(x.burst/16-x.Out.Stock-x.Out.Pile, 0)
}

// large reports whether the holder's requests are so large, for its demand, that tokens
// which come singly are of no use to it: one of them is more than half a second's use, or than what a guess
// is worth; or, where it is a sixteenth of the burst, a sixteenth of a second's, for one such request looks like
// a demand of three a second.
func (x *step) large(mine int64) bool {
	size := x.next.Largest * limit.Micro
	return x.next.Largest > 1 && (x.next.Fresh || size > mine*500 || 16*size >= x.burst && size > mine*62)
}

// largest is the largest request that the holder has had lately: of those that are one of a hundred, it
// has to remember the last.
func (x *step) largest() int64 {
	if x.rec == nil {
		return x.r.Largest
	}
	return max(x.r.Largest, x.rec.Largest*127/128)
}

// stockFor is what the holder may spend at once: its share of what is there, no
// more than it can use soon, and first of all what requests wait for.
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
		stock /= 2 // shrinking shares: the last of a window is handed out singly
	}
	plenty := x.Level > x.burst/2
	use := mine * 1000 // a second's worth
	if x.rec != nil && x.rec.Fresh {
		use = mine * 250 // those who come with it are not in the demand yet: they want their share too
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
		use = max(use/4, min(10*use, sparse*limit.Micro), x.supply(use, stock, all, trickle)) // room for noise, and where it is missed by nobody soon for more: it may lie there for minutes
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
		stock = max(stock, min(can/8, use)) // of what trickles leave one has some tokens, and then another, rather than each a part of one
	}
	if trickle == 0 && !x.r.Spec.Windowed() {
		stock = min(stock, can/4) // nothing refills soon: whoever comes next has to find something
	}
	if trickle == 0 && x.next.Fresh || x.rec != nil && x.rec.Fresh && x.t-x.rec.Start < guessPer {
		stock = min(stock, x.r.Waiting*limit.Micro+can/16) // others begin with it
	}
	if plenty && !x.r.Spec.Windowed() {
		stock = max(stock, min(can/64, 2*fewest*limit.Micro))
	}
	stock -= stock % limit.Micro
	if trickle > 0 && trickle < worth {
		stock = max(stock, min(whole(can/16), 2*limit.Micro)) // or it would never be had, shares being less
	}
	if trickle == 0 && stock < fewest*limit.Micro && !x.ample(all) && !(x.strain > 1 && all > seldom) {
		stock = 0 // small limits: only what requests wait for, so that no token lies idle
	}
	if x.guesses() {
		// What is out counts as unspent until it is reported: who asks for more than that says so at once.
		stock = min(stock, x.r.Waiting*limit.Micro+x.guess(can))
	}
	stock = min(stock, whole(x.apart(all)))
	if x.large(mine) && stock < 2*x.next.Largest*limit.Micro {
		stock = 0 // nor one that its next request would find too few
	}
	return max(min(stock, can), serve)
}

// supply is the stock that a holder has of its share where there is plenty of a large burst, 16 seconds of the rate: half a minute's use or 256
// tokens, while no more is asked for than the rate brings, and a quarter of the share at most, for what lies with holders is missed by those that come
// later. One without a trickle, of small limits, has none of it. A strained one has a second's use or 256 tokens at once, whatever is asked for.
func (x *step) supply(use, share, all, trickle int64) int64 {
	switch {
	case x.strain > 1:
		return min(max(use, bulk*limit.Micro), share/16*min(x.strain, 4))
	case x.grows() && trickle > 0 && x.meets(all) && x.Level >= largeBurst*x.rate:
		return min(30*use, bulk*limit.Micro, share/4)
	}
	return 0
}

// guess is the stock of a newcomer whose lease lasts long, where so much can be had: two tokens for each time of its strain, and
// four times as many if they are little of what is there.
func (x *step) guess(can int64) int64 {
	least := noise * x.strain
	if least == noise {
		return least
	}
	return max(least, min(whole(can/256), 4*least))
}

// serve is what of the tokens that can be had goes to the requests that wait. What none of them
// could be served with stays for others: tokens too few for a request are lost to it.
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

// denyFor tells the holder to deny without asking while there is nothing to be had; unserved
// says that requests wait that were not served.
func (x *step) denyFor(mine, all, trickle, term int64, unserved bool) int64 {
	level := x.Level + x.r.Spec.Borrow*limit.Micro
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
	if x.Out.Trickle > 0 && 2*trickle < mulDiv(x.rate, mine, all) || x.t < x.Suspect {
		term = min(term, FirstTerm/2) // others have its part of the rate now; they may not keep it
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
			// What the trickles leave is worth asking for when it is some tokens, and no longer than it lasts.
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

// unitIn has the grant say when the next unit is there, where the holder is to ask again before: that is what callers are told.
func (x *step) unitIn(g *Grant) {
	level := x.Level + x.r.Spec.Borrow*limit.Micro
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
