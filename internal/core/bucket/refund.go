package bucket

// Refund gives up to n units back that requests took and did not need, as if they had not taken them. It returns how
// many. These are units that nobody was told of: taken in this window since the last renewal, while its lease lives,
// and not collected yet. So no count falls that the store or the ledger has. What is back is no more than the trickle
// would have left room for. inherited says that they are billed at a tenant below. The caller runs the Done of requests
// whose turn came.
//
// At a limit without a meter, units of a request under way count as taken. If another limit denies it, as many of the
// units told before are given back in their place.
func (b *Bucket) Refund(now, n int64, inherited bool) (got int64, served []*Waiter) {
	defer b.enter().leave()
	if n = min(n, b.untoldLocked(now), b.uncollectedLocked(inherited)); n <= 0 {
		return 0, nil
	}
	if inherited { // announced, so that a crash between these does not bill too little here
		of := b.stock.elsewhere()
		if b.stock.mapped() == nil {
			of = &b.stock.common().elsewhere
		}
		b.pending.Add(n)
		b.back.Add(n)
		of.inherited.Add(-n)
		b.pending.Add(-n)
	} else {
		b.back.Add(n)
	}
	if b.patients() > 0 {
		served = b.serveLocked(Never)
	}
	return n, served
}

// untoldLocked is how many units the store was not told of, and may be spent again.
func (b *Bucket) untoldLocked(now int64) int64 {
	have := b.refillLocked(now)
	switch {
	case b.slots:
		return 0
	case b.counting:
		return endless
	case !b.live || now >= b.expires || b.length > 0 && now >= b.turnAt:
		return 0
	}
	flying := max(b.pending.Load()-b.all, 0) // without what is reserved, which is not admitted
	n := b.admittedLocked() - flying - max(b.toldAdmitted, b.entered)
	if b.trickle > 0 {
		n = min(n, b.room-have)
	}
	return n
}

// uncollectedLocked is how many units no report has, of the bucket's own tenant or of those below.
func (b *Bucket) uncollectedLocked(inherited bool) int64 {
	admitted, below := b.stock.admitted(), b.stock.elsewhere().inherited.Load()
	n := below - b.unrowed
	if !inherited {
		n = admitted - below - b.bookedLocked().Admitted
	}
	return min(n, admitted-b.collectedAdmitted)
}
