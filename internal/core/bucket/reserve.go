package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

// reserves is a bucket's state of reservations. A request reserves the most units that it may cost, until its cost is
// known. Reservations of a window that is over only count in outside.
//
// The ledger does not see them until they are committed: they are pending in the cell. Each renewal tells the store
// that they are held and waited for. It takes them back and grants them anew, so that nobody else gets them meanwhile.
// What comes back unspent is ordinary stock that a later renewal returns. The lease goes on as long as there are any.
type reserves struct {
	all        int64 // units in hand
	reserved   int64 // of these, those of reservedOf
	reservedOf int64 // the window that they are of
	// outside is units spent from windows that were over, less those that came back to such. The current window does
	// not pay for them.
	outside int64
}

// reservedLocked returns the units of the current window that are reserved, and neither committed nor cancelled.
func (b *Bucket) reservedLocked() int64 {
	if b.reservedOf != b.window {
		return 0
	}
	return b.reserved
}

// Reserve says that n units, which were taken of a window and announced with Hold, are reserved.
func (b *Bucket) Reserve(n, window int64) {
	defer b.enter().leave()
	b.all += n
	if window != b.window {
		b.outside -= n // the store is told of neither
		return
	}
	b.reserved, b.reservedOf = b.reservedLocked()+n, window
}

// Settle ends a reservation of n units of which m were spent, and its Hold. at is the journal's stake; nil for none.
// Units spent beyond n are admitted, and paid with what is here or comes next. What was not spent can be spent again,
// unless its window is over or the lease has ended. On true the owner is to look at the bucket soon.
func (b *Bucket) Settle(n, m, window int64, at *Stake) (attend bool) {
	defer b.enter().leave()
	ours := window == b.window && (b.live || b.counting)
	b.spentLocked(n, m, at)
	if m > n {
		b.payBeyondLocked(m - n) // in the window now, whichever the reservation was of
	} else {
		if ours {
			b.stock.folds(m - n) // they come back, as others do
		}
		// Some of what was reserved had been taken back: the store is to know.
		b.early = b.early || ours && m > 0 && b.debt > 0
	}
	if soon := b.lastAsk + lease.ShortTerm; ours && n-m > b.remaining && soon < b.renewAt {
		b.renewAt = soon // more than all that was left: others may wait for it
		attend = true
	}
	b.all -= n
	if window == b.reservedOf {
		b.reserved = max(b.reserved-n, 0) // a window that is back after another has forgotten what was reserved of it
		if b.reserved == 0 && ours && !b.slots && !b.holdsLocked() {
			b.early = true // the lease would lapse, and the store take what was reserved for what is still out
		}
	}
	if window != b.window {
		b.outside += min(m, n)
	}
	return attend || b.early
}

// SettleAdmitted is Settle for units that a switch had admitted (Admit): they are no one's stock.
func (b *Bucket) SettleAdmitted(n, m, window int64, at *Stake) {
	defer b.enter().leave()
	b.spentLocked(n, m, at)
	b.notNobodysLocked(n - m) // the others may come back by a Refund
	if window != b.window {
		b.outside -= max(n-m, 0)
	}
}

// spentLocked makes n units that were taken m, and ends their Hold. It is one step in the cell, which the stake tells
// of beforehand: nothing else is put in between, for that needs the mutex.
func (b *Bucket) spentLocked(n, m int64, at *Stake) {
	at.begin(b.stock.putIn(b.stock.tokens.Load()) + m - n)
	if m != n {
		b.stock.admit(m - n)
	}
	at.settled()
	b.pending.Add(-n)
}

// payBeyondLocked pays n units that were admitted beyond what was reserved. It takes those that are here out, so that
// no request gets them besides. What is missing is owed. The store is told soon, without a lease too.
func (b *Bucket) payBeyondLocked(n int64) {
	b.bringLocked()
	owed := n - b.stock.withdraw(n)
	if b.counting {
		return
	}
	b.debt += owed
	b.early, b.free = true, b.free || !b.live
}

// deferLocked leaves debts out of the next renewal where no lease is in force: the store could not know that they are
// beyond one. For a lease that lapsed, or a window that is over, the store takes no more than that could have brought.
// The next lease is charged with the debts, and the renewal after it tells of them.
func (b *Bucket) deferLocked(now int64) {
	if b.slots || b.live && now < b.expires {
		return
	}
	if untold := min(b.debt, b.admittedLocked()-b.toldAdmitted); untold > 0 {
		b.debt -= untold
		b.unleased += untold
		b.outside += untold
	}
}

// chargedLocked reports whether a lease is wanted to pay for units used without one.
func (b *Bucket) chargedLocked() bool { return !b.live && !b.slots && b.debt+b.unleased > 0 }

// owedLocked returns the units used without a lease that no renewal has told of.
func (b *Bucket) owedLocked() int64 {
	if b.slots {
		return 0
	}
	return b.unleased
}

// chargeLocked charges the lease with units used without one. The next renewal tells of it.
func (b *Bucket) chargeLocked() {
	if owed := b.owedLocked(); owed > 0 {
		b.debt += owed
		b.outside -= owed
		b.unleased, b.early = 0, true
	}
}

// admittedLocked returns the units that the store is to know as admitted: all that requests took and did not put back.
// It includes units that may yet be put back, so that they are not granted to others before. Units that come back after
// the store was told of them, and are spent then, are not told again. Units reported as held are left out.
func (b *Bucket) admittedLocked() int64 {
	return b.stock.taken() - b.waitingLocked().gathered - b.all - b.outside
}
