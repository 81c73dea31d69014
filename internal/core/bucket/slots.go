package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// A bucket of slots holds units that requests give back at their end (Finish). What it was granted is in use or spare:
//
//	credited = in use + spare,   credited − debt = as the store last knew
//
// The store counts all of it as the holder's, so that no slot is in two hands. A renewal first takes out of the cell
// the slots that it gives back. Until the answer says how many of them stay, they are nobody's (offered). No answer
// takes away slots that are in use, or kept. Idle slots beyond those that the store lets it keep (room) are given up
// for good, soon. The slots of an agent that is gone come back when its record's slot of the expiry ring has passed.
//
// A request of several slots gathers them here while it will have them within the agent's share. A larger one gives up
// at each renewal what it has gathered, and waits until the store has all of its slots at once.

// Finish gives back n slots of a request that was admitted and ended. It returns requests whose turn came. The caller
// runs their Done. It takes the mutex only where requests wait.
func (b *Bucket) Finish(n int64) []*Waiter {
	b.sharing().finished.Add(n)
	return b.wake()
}

// Cancel is PutBack, and returns requests whose turn came. The caller runs their Done.
func (b *Bucket) Cancel(n int64) []*Waiter {
	b.PutBack(n)
	return b.wake()
}

func (b *Bucket) wake() []*Waiter {
	if b.patients() == 0 {
		return nil // a request that comes after this finds the units that came back
	}
	defer b.enter().leave()
	return b.serveLocked(Never)
}

// Surplus reports whether more slots lie idle here than the agent may keep. Only the first caller hears of it. The
// owner is to look at the bucket, which then gives them up. Requests ask after they gave slots back.
func (b *Bucket) Surplus() bool {
	s := b.stock.shared.Load()
	if s == &unshared || b.stock.due()+b.stock.units() <= int64(s.keep.Load()) {
		return false
	}
	defer b.enter().leave()
	if !b.slots || !b.live {
		return false
	}
	s.keep.Store(noticed)
	return true
}

// noticed is shared.keep while the owner knows of a surplus, or is to look for one.
const noticed = math.MaxInt32

// surplusLocked reports whether there is a surplus. If not, requests that give back look for one.
func (b *Bucket) surplusLocked() bool {
	is, keep := b.idle() > b.room, int32(min(b.room, noticed-1))
	if is {
		keep = noticed
	}
	b.stock.common().keep.Store(keep)
	return is
}

// earlyEveryLocked is the least time between two renewals that nobody waits for, in microseconds. For slots it may be
// shorter, because others wait for those that are given up. The smaller this agent's share of all slots, the longer it
// is, so that all agents together renew some thousand times a second.
func (b *Bucket) earlyEveryLocked() int64 {
	if !b.slots {
		return earlyEvery
	}
	return max(2_000, min(200*b.capacity/max(b.share, 1), earlyEvery))
}

// payLocked takes nobody's units out of those that came back, and pays debts with the rest. Slots pay for those in use
// beyond the lease. While no slot is free anywhere, slots beyond the agent's share are nobody's until the next renewal
// tells of fewer. They do not go to the next request here, or a busy agent would never let others have one.
func (b *Bucket) payLocked() {
	if b.slots && !b.live {
		b.stock.forfeit(endless)
		return
	}
	if b.nobodys > 0 && !b.slots {
		b.notNobodysLocked(b.stock.forfeit(b.nobodys))
	}
	if b.debt > 0 {
		b.debt -= b.stock.forfeit(b.debt)
	}
	if b.slots && b.dry && !b.failed {
		if over := b.stock.credited() - b.share; over > 0 && b.stock.forfeit(over) > 0 {
			b.early = true // the store is to know, and the request that gave back tells the owner: see Surplus
			b.stock.common().keep.Store(-1)
		}
	}
}

// notNobodysLocked says that n fewer units are nobody's.
func (b *Bucket) notNobodysLocked(n int64) { b.nobodys = max(b.nobodys-n, 0) }

// offerLocked takes the spare slots out of the cell that the next renewal gives back. It returns how many of them the
// answer may leave here. Those beyond what the agent may keep are no longer its own, whatever the answer. While some of
// all slots are free, the agent keeps a few for requests that come before the answer. All go back when others wait for
// them. A renewal after an unanswered one gives back the same slots.
func (b *Bucket) offerLocked(final bool) int64 {
	spare := b.foldLocked()
	switch {
	case final:
	case b.failed, b.ask != nil: // one without an answer gave back some already
		spare = 0
	default:
		if up := spare - b.room; up > 0 && b.live {
			spare -= up + b.stock.credit(-up)
		}
		if !b.dry {
			spare -= min(spare/2, int64(b.rate()*earlyEvery/1e6))
		}
	}
	b.offered += spare - b.stock.credit(-spare)
	if !final && !b.failed && !b.gathersLocked() {
		b.loseGatheredLocked()
	}
	return b.offered
}

// gathersLocked reports whether the first of those who wait their turn gathers slots over several renewals. It will
// have them within the agent's share, and all shares together are no more than there are. If a larger one gathered too,
// two agents could each keep what the other lacks, and neither would ever begin.
func (b *Bucket) gathersLocked() bool {
	if b.patients() == 0 || !b.waiters.patient {
		return true
	}
	share := b.share
	if share >= lease.SlotOwn {
		share -= share / 9 // the store adds an eighth
	}
	return b.stock.inUse()-b.waitingLocked().gathered+b.waiters.Units <= share
}
