package agent

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
func (of *Bucket) Reserved() int64 {
	b := of.open(new(hand))
	defer b.close()
	return b.reservedLocked()
}

func (b *book) reservedLocked() int64 {
	if b.reservedOf != b.window {
		return 0
	}
	return b.reserved
}

// Reserve says that n units, which were taken of a window and announced with Hold, are reserved.
func (of *Bucket) Reserve(n, window int64) {
	b := of.open(new(hand))
	defer b.close()
	b.all += n
	if window != b.window {
		b.outside -= n // the store is told of neither
		return
	}
	if b.reservedOf != b.window {
		b.reserved, b.reservedOf = 0, b.window
	}
	b.reserved += n
}

// Settle ends a reservation of n units of which m were spent, perhaps more than n: these are
// admitted beyond, and paid with what is here or comes next. What was not spent can be spent again, unless the window that it was of
// is over or the lease has ended. It ends the Hold as well. On true the owner is to look at the bucket soon.
func (of *Bucket) Settle(n, m, window int64) (attend bool) {
	b := of.open(new(hand))
	defer b.close()
	ours := window == b.window && (b.live || b.counting)
	if beyond := m - n; beyond > 0 {
		b.payBeyondLocked(beyond) // in the window now, whichever the reservation was of
		b.cell.pending.Add(-n)
	} else {
		b.settleLocked(n, m, ours)
		b.early = b.early || ours && m > 0 && b.debt > 0 // of what was reserved some had been taken back: the store is to know
	}
	if soon := b.lastAsk + lease.ShortTerm; ours && n-m > b.remaining && soon < b.renewAt {
		b.renewAt = soon // more than all that was left: others may wait for it
		attend = true
	}
	b.all -= n
	if window == b.reservedOf {
		b.reserved = max(b.reserved-n, 0) // a window that is back after another has forgotten what was reserved of it
		if b.reserved == 0 && ours && !b.slots && b.trickle == 0 && b.idle() == 0 {
			b.early = true // the lease would lapse, and the store take what was reserved for what is still out
		}
	}
	if window != b.window {
		b.outside += min(m, n)
	}
	return attend || b.early
}

// Charge admits n units that were used already, whether or not they are there. The owner is to look at the bucket soon.
func (of *Bucket) Charge(n int64) {
	b := of.open(new(hand))
	defer b.close()
	b.payBeyondLocked(n)
}

// payBeyondLocked admits n units beyond what was reserved: those that are here are taken, so that no
// request gets them besides, and what is missing is owed. The store is told soon, without a lease too.
func (b *book) payBeyondLocked(n int64) {
	b.bringLocked()
	owed := n - b.cell.claim(n)
	b.cell.admit(owed)
	if b.counting {
		return
	}
	b.debt += owed
	b.early, b.free = true, b.free || !b.live
}

// deferLocked has the renewal that is about to be made not tell of debts where there is no lease of which the store could know that they are beyond
// it: of a lease that lapsed, or a window that is over, it takes no more than what that could have brought. The lease that the answer brings is charged with them, and the next renewal tells.
func (b *book) deferLocked(now int64) {
	if b.slots || b.live && now < b.expires {
		return
	}
	if untold := min(b.debt, b.admittedLocked()-b.toldAdmitted); untold > 0 {
		b.debt -= untold
		b.unleased += untold
		b.outside += untold
	}
}

// chargedLocked reports whether a lease is wanted to pay for what was used without one.
func (b *book) chargedLocked() bool { return !b.live && !b.slots && b.debt+b.unleased > 0 }

// owedLocked is what was used without a lease and no renewal has told of.
func (b *book) owedLocked() int64 {
	if b.slots {
		return 0
	}
	return b.unleased
}

// dueNowLocked has what is owed be paid by the lease that there is from now on, and told of at the next renewal.
func (b *book) dueNowLocked() {
	if owed := b.owedLocked(); owed > 0 {
		b.debt += owed
		b.outside -= owed
		b.unleased, b.early = 0, true
	}
}

// SettleAdmitted is Settle for units that a switch had admitted, whether or not they were
// there (Admit): they are no one's stock.
func (of *Bucket) SettleAdmitted(n, m, window int64) {
	b := of.open(new(hand))
	defer b.close()
	b.settleLocked(n, m, false)
	b.nobodys = max(b.nobodys-n, 0) // none of them comes back any more
	if window != b.window {
		b.outside -= max(n-m, 0)
	}
}

func (b *book) settleLocked(n, m int64, back bool) {
	switch rest := n - m; {
	case rest < 0:
		b.admitLocked(-rest)
	case back:
		b.cell.giveBack(rest)
	default:
		b.cell.giveBack(rest)
		b.cell.forfeit(rest)
	}
	b.cell.pending.Add(-n)
}

// admittedLocked is what the store is to know of as admitted: all that requests took and did not put
// back, for what may yet be put back (cell.pending) must not be granted to
// others before it is. What comes back after the store was told of it is not told of again when it is
// spent. Left out is what the store is told of as held.
func (b *book) admittedLocked() int64 {
	return b.cell.taken() - b.gatheredLocked() - b.all - b.outside
}
