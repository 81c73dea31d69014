package lease

import "github.com/f4ee788f/quota/internal/limit"

// fewest is the smallest stock worth leasing without a trickle, in tokens.
const fewest = 8

// sparse is the stock that an agent of little demand may have for a whole long
// term while there is plenty, in tokens: its trickle alone leaves no room for noise.
const sparse = 64

// grant decides the holder's new lease, takes it out of the level and puts it into
// the sums. next holds the demand; it and g are filled.
func (s *State) grant(now, t int64, rec *Record, r *Renewal, rate, burst, slack int64, flow float64, next *Record, g *Grant) {
	mine := max(next.Lease.Demand, 1)
	all := s.Out.Demand + mine

	trickle, pile := s.trickleFor(mine, all, rate, burst, slack)
	stock := s.stockFor(mine, all, trickle, r, burst)

	if next.OnShare {
		stock = max(min(r.Held*limit.Micro, s.Level-s.Level%limit.Micro), 0)
	}

	s.Level -= stock
	next.Lent = stock
	next.Lease.Stock = max(stock-r.Waiting*limit.Micro, 0)
	if pile > 0 {
		// All that may be spent at once has to fit, were the level lowered to nothing.
		most := burst + slack - s.Out.Stock - next.Lease.Stock - s.Out.Pile
		if pile = min(pile, most-most%limit.Micro); pile < limit.Micro {
			trickle, pile = 0, 0
		}
	}
	next.Lease.Trickle = trickle
	next.Lease.Pile = pile

	pressed := rate > 0 && (mulDiv(s.Out.Trickle+trickle, 100, rate) > 85 || s.Level < burst/4)
	term := int64(LongTerm)
	switch {
	case next.Fresh && rate > 0 && s.Level > burst/2:
		term = 2 * ShortTerm // a wrong guess costs little here, and a crowd of new buckets much
	case next.Fresh:
		term = FirstTerm
	case pressed && trickle > 0:
		term = ShortTerm
	default:
		if rec != nil && rec.Fresh {
			term = 4 * FirstTerm
		} else if rec != nil && rec.Grant.TTL > 0 {
			term = min(term, 4*rec.Grant.TTL)
		} else {
			term = ShortTerm
		}
	}
	if s.WindowEnd > 0 {
		term = max(min(term, s.WindowEnd-now), 1_000)
	}

	next.Expires = t + term
	next.Slot = (t + 2*term + SlotLen) / SlotLen
	s.Out.add(next.Lease)
	sums := s.Ring[next.Slot]
	sums.add(next.Lease)
	s.Ring[next.Slot] = sums
	s.clip(t, burst, slack)

	g.Tokens = stock / limit.Micro
	g.Trickle = trickle
	g.Pile = pile / limit.Micro
	g.TTL = term
	g.Fallback = max(trickle, mulDiv(rate, mine, all))
	if s.WindowEnd > 0 {
		// The holder's share of a window, were it spread over it.
		g.Fallback = mulDiv(mulDiv(burst, 1e6, s.WindowEnd-s.Window), mine, all)
	}
	g.ExpirySlot = next.Slot
	g.Remaining = max((s.Level+s.Out.Stock)/limit.Micro, 0)
	g.DenyFor = s.denyFor(now, mine, all, trickle, term, flow)
	if next.OnShare && stock == 0 {
		g.DenyFor = max(s.WindowEnd-now, 1_000)
	}
	switch {
	case s.WindowEnd > 0:
		g.Reset = max(s.WindowEnd-now, 0)
	case rate > 0 && burst > s.Level:
		g.Reset = lasts(burst-s.Level, flow)
	}
}

// trickleFor is the part of the rate that the holder draws without asking: somewhat
// above its demand where there is plenty, its share of the rate where there is not.
func (s *State) trickleFor(mine, all, rate, burst, slack int64) (trickle, pile int64) {
	if rate == 0 {
		return 0, 0
	}
	free := rate - s.Out.Trickle
	trickle = min(mine*1200, mulDiv(rate, mine, all), free)
	if mulDiv(trickle, ShortTerm, 1e6) < 2*limit.Micro {
		return 0, 0 // not worth it: tokens would lie in fractions all over
	}
	// The pile gives a local bucket room for the noise of its own arrivals: as much
	// as the slack allows all of them together, and more where the bucket is so
	// far from full that it cannot exceed the burst.
	room := max(burst+slack-s.Out.Stock-s.Out.Pile-s.Level, 0)
	span := max(mulDiv(slack, 1e6, rate), min(mulDiv(room, 500_000, rate), ShortTerm/2))
	pile = mulDiv(trickle, span, 1e6)
	pile -= pile % limit.Micro
	if pile < limit.Micro {
		if s.Out.Pile+limit.Micro > slack+burst/4 {
			return 0, 0 // piles of one each would leave the level no room for a token
		}
		pile = limit.Micro // or the trickle would yield none
	}
	return trickle, pile
}

// stockFor is what the holder may spend at once: its share of what is there, no
// more than it can use soon, and first of all what requests wait for.
func (s *State) stockFor(mine, all, trickle int64, r *Renewal, burst int64) int64 {
	if s.Level < limit.Micro {
		return 0
	}
	whole := s.Level - s.Level%limit.Micro
	stock := mulDiv(whole, mine, all)
	if r.Spec.Windowed() {
		stock /= 2 // shrinking shares: the last of a window is handed out singly
	}
	plenty := s.Level > burst/2
	use := mine * 1000 // a second's worth
	switch {
	case plenty && trickle == 0:
		use *= 10
	case plenty:
		use = max(use, min(10*use, sparse*limit.Micro))
	case trickle == 0:
		use *= 4
	}
	stock = min(stock, use)
	if plenty && !r.Spec.Windowed() {
		stock = max(stock, min(whole/64, 2*fewest*limit.Micro))
	}
	stock -= stock % limit.Micro
	if trickle == 0 && stock < fewest*limit.Micro {
		stock = 0 // small limits: only what requests wait for, so that no token lies idle
	}
	return min(max(stock, r.Waiting*limit.Micro), whole)
}

// denyFor tells the holder to deny without asking while there is nothing to be had.
func (s *State) denyFor(now, mine, all, trickle, term int64, flow float64) int64 {
	if s.Level >= limit.Micro {
		return 0
	}
	if s.WindowEnd > 0 {
		left := max(s.WindowEnd-now, 1_000)
		if s.Out.Stock > 0 {
			return min(left, ShortTerm) // some of what is out may come back
		}
		return left
	}
	own := flow - float64(s.Out.Trickle)
	if s.Out.Trickle > 0 && trickle == 0 {
		term = min(term, FirstTerm/2) // others have the rate now; they may not keep it
	}
	wait := term
	if own > 0 {
		wait = lasts(limit.Micro-s.Level, own)
		if trickle > 0 {
			wait = min(mulDiv(min(wait, term), all, mine), term) // no longer than it lasts
		}
	}
	if s.Out.Trickle > 0 {
		return max(min(wait, term), 20_000)
	}
	most := int64(3600_000_000) // nobody draws the rate: this is when the next token is there
	if s.Out.Stock > 0 {
		most = 60_000_000 // or sooner, from what is out
	}
	return max(min(wait, most), 5_000)
}
