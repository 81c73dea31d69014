package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

// reserves is what a bucket knows of reservations: units that a request took for the most
// that it may cost, until it is known what it does. Those of a window that is over are
// in none of it but outside.
//
// To the ledger they are nothing until they are committed: pending in the cell. To the store they
// are held, and waited for, at each renewal: it takes them back and grants them anew, so that
// nobody else gets them meanwhile, and what comes back unspent is ordinary stock
// that a later renewal returns. The lease goes on as long as there are any.
type reserves struct {
	all        int64 // units in hand
	reserved   int64 // of these, those of reservedOf
	reservedOf int64 // the window that they are of
	outside    int64 // units spent of windows that were over, which the window now is not to pay for, less those that came back of such
}

// Reserved returns the units that are reserved and neither committed nor cancelled.
func (b *Bucket) Reserved() int64 {
	b.mu.Lock()
	defer b.leave()
	return b.reservedLocked()
}

func (b *Bucket) reservedLocked() int64 {
	if b.reservedOf != b.window {
		return 0
	}
	return b.reserved
}

// Reserve says that n units, which were taken of a window and announced with Hold, are reserved.
func (b *Bucket) Reserve(n, window int64) {
	b.mu.Lock()
	defer b.leave()
	r := b.own()
	r.all += n
	if window != b.window {
		r.outside -= n // the store is told of neither
		return
	}
	if b.reservedOf != b.window {
		r.reserved, r.reservedOf = 0, b.window
	}
	r.reserved += n
}

// Settle ends a reservation of n units of which m were spent, perhaps more than n: these are
// admitted beyond, and paid with what is here or comes next. What was not spent can be spent again, unless the window that it was of
// is over or the lease has ended. It ends the Hold as well. On true the owner is to look at the bucket soon.
func (b *Bucket) Settle(n, m, window int64) (attend bool) {
	b.mu.Lock()
	defer b.leave()
	ours := window == b.window && (b.live || b.counting)
	if beyond := m - n; beyond > 0 {
		b.payBeyondLocked(beyond) // in the window now, whichever the reservation was of
		b.stock.pending.Add(-n)
	} else {
		b.settleLocked(n, m, ours)
		b.early = b.early || ours && m > 0 && b.debt > 0 // of what was reserved some had been taken back: the store is to know
	}
	if soon := b.lastAsk + lease.ShortTerm; ours && n-m > b.remaining && soon < b.renewAt {
		b.renewAt = soon // more than all that was left: others may wait for it
		attend = true
	}
	r := b.own()
	r.all -= n
	if window == b.reservedOf {
		r.reserved = max(b.reserved-n, 0) // a window that is back after another has forgotten what was reserved of it
		if b.reserved == 0 && ours && !b.slots && b.trickle == 0 && b.idle() == 0 {
			b.early = true // the lease would lapse, and the store take what was reserved for what is still out
		}
	}
	if window != b.window {
		r.outside += min(m, n)
	}
	return attend || b.early
}

// Charge admits n units that were used already, whether or not they are there. The owner is to look at the bucket soon.
func (b *Bucket) Charge(n int64) {
	b.mu.Lock()
	defer b.leave()
	b.payBeyondLocked(n)
}

// payBeyondLocked admits n units beyond what was reserved: those that are here are taken, so that no
// request gets them besides, and what is missing is owed. The store is told soon, without a lease too.
func (b *Bucket) payBeyondLocked(n int64) {
	b.bringLocked()
	owed := n - b.stock.claim(n)
	b.stock.admit(owed)
	if b.counting {
		return
	}
	b.oweLocked(b.debt + owed)
	b.early, b.free = true, b.free || !b.live
}

// deferLocked has the renewal that is about to be made not tell of debts where there is no lease of which the store could know that they are beyond
// it: of a lease that lapsed, or a window that is over, it takes no more than what that could have brought. The lease that the answer brings is charged with them, and the next renewal tells.
func (b *Bucket) deferLocked(now int64) {
	if b.slots || b.live && now < b.expires {
		return
	}
	if untold := min(b.debt, b.admittedLocked()-b.toldAdmitted); untold > 0 {
		b.oweLocked(b.debt - untold)
		r := b.own()
		r.unleased += untold
		r.outside += untold
	}
}

// chargedLocked reports whether a lease is wanted to pay for what was used without one.
func (b *Bucket) chargedLocked() bool { return !b.live && !b.slots && b.debt+b.unleased > 0 }

// owedLocked is what was used without a lease and no renewal has told of.
func (b *Bucket) owedLocked() int64 {
	if b.slots {
		return 0
	}
	return b.unleased
}

// dueNowLocked has what is owed be paid by the lease that there is from now on, and told of at the next renewal.
func (b *Bucket) dueNowLocked() {
	if owed := b.owedLocked(); owed > 0 {
		b.oweLocked(b.debt + owed)
		r := b.own()
		r.outside -= owed
		r.unleased, b.early = 0, true
	}
}

// SettleAdmitted is Settle for units that a switch had admitted, whether or not they were
// there (Admit): they are no one's stock.
func (b *Bucket) SettleAdmitted(n, m, window int64) {
	b.mu.Lock()
	defer b.leave()
	b.settleLocked(n, m, false)
	b.notNobodysLocked(n) // none of them comes back any more
	if window != b.window {
		b.own().outside -= max(n-m, 0)
	}
}

func (b *Bucket) settleLocked(n, m int64, back bool) {
	switch rest := n - m; {
	case rest < 0:
		b.admitLocked(-rest)
	case back:
		b.stock.giveBack(rest)
	default:
		b.stock.giveBack(rest)
		b.stock.forfeit(rest)
	}
	b.stock.pending.Add(-n)
}

// admittedLocked is what the store is to know of as admitted: all that requests took and did not put
// back, for what may yet be put back (cell.pending) must not be granted to
// others before it is. What comes back after the store was told of it is not told of again when it is
// spent. Left out is what the store is told of as held.
func (b *Bucket) admittedLocked() int64 {
	return b.stock.taken() - b.gatheredLocked() - b.all - b.outside
}

// notNobodysLocked says that of what was nobody's n units are no more.
func (b *Bucket) notNobodysLocked(n int64) {
	if b.nobodys > 0 {
		b.own().nobodys = max(b.nobodys-n, 0)
	}
}
