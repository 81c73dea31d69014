package agent

import "github.com/f4ee788f/quota/internal/lease"

// reserves is what a bucket knows of reservations: units that a request took for the most
// that it may cost, until it is known what it does. Those of a window that is over are
// in none of it but outside.
//
// To the ledger they are nothing until they are committed: pending in the cell. To the store they
// are held, and waited for, at each renewal: it takes them back and grants them anew, so that
// nobody else gets them meanwhile, and what comes back unspent is ordinary stock
// that a later renewal returns. The lease goes on as long as there are any.
type reserves struct {
	all      int64 // units in hand
	reserved int64 // of these, those of window
	window   int64 // that they are of
	outside  int64 // units committed of windows that were over, which the window now is not to pay for
}

// Reserved returns the units that are reserved and neither committed nor cancelled.
func (b *Bucket) Reserved() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reservedLocked()
}

func (b *Bucket) reservedLocked() int64 {
	kept := b.seldom.Load()
	if kept == nil || kept.window != b.window {
		return 0
	}
	return kept.reserved
}

// Reserve says that n units, which were taken and announced with Hold, are reserved. It
// returns the window that they are of, for Settle.
func (b *Bucket) Reserve(n int64) (window int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.rarely()
	if kept.window != b.window {
		kept.reserved, kept.window = 0, b.window
	}
	kept.all += n
	kept.reserved += n
	return b.window
}

// Settle ends a reservation of n units of which m were spent, perhaps more than n: these are
// admitted beyond, and paid with what is here or comes next. What was not spent can be spent again, unless the window that it was of
// is over or the lease has ended. It ends the Hold as well. On true the owner is to look at the bucket soon.
func (b *Bucket) Settle(n, m, window int64) (attend bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ours := window == b.window && (b.live || b.counting)
	if ours && m > n {
		b.payBeyondLocked(m - n)
		b.cell.pending.Add(-n)
	} else {
		b.settleLocked(n, m, ours)
	}
	if soon := b.lastAsk + lease.ShortTerm; ours && n-m > b.remaining && soon < b.renewAt {
		b.renewAt = soon // more than all that was left: others may wait for it
		attend = true
	}
	kept := b.rarely()
	kept.all -= n
	if window == kept.window {
		kept.reserved -= n
	}
	if window != b.window {
		kept.outside += m
	}
	return attend || b.early
}

// payBeyondLocked admits n units beyond what was reserved: those that are here are taken, so that no
// request gets them besides, and what is missing is owed. The store is told soon.
func (b *Bucket) payBeyondLocked(n int64) {
	owed := n - b.cell.claim(n)
	b.cell.admit(owed)
	b.debt += owed
	b.early = true
}

// SettleAdmitted is Settle for units that a switch had admitted, whether or not they were
// there (Admit): they are no one's stock.
func (b *Bucket) SettleAdmitted(n, m int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settleLocked(n, m, false)
}

func (b *Bucket) settleLocked(n, m int64, back bool) {
	switch rest := n - m; {
	case rest < 0:
		b.admitLocked(-rest)
	case back:
		b.cell.back.Add(rest)
	default:
		b.cell.back.Add(rest)
		b.cell.forfeit(rest)
	}
	b.cell.pending.Add(-n)
}

// admittedLocked is what the store is to know of as admitted: all that requests took and did not put
// back, for what may yet be put back (cell.pending) must not be granted to
// others before it is. What comes back after the store was told of it is not told of again when it is
// spent. Left out is what the store is told of as held.
func (b *Bucket) admittedLocked() int64 {
	taken := b.cell.taken() - b.gatheredLocked()
	if kept := b.seldom.Load(); kept != nil {
		taken -= kept.all + kept.outside
	}
	return taken
}
