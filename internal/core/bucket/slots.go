package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A bucket of slots holds units that requests give back at their end (Finish). What it
// was granted is either in use or spare:
//
//	credited = in use + spare,   credited − debt = as the store last knew
//
// The store counts all of it as the holder's, so that no slot is in two hands: what a
// renewal gives back is taken out of the cell first, and is nobody's until
// the answer says how much of it stays (offered). What is in use, or kept, no answer
// takes away. What lies idle beyond what the store lets it keep (pile) is given up for good, soon. The
// slots of an agent that is no more come back when its record's slot of the expiry ring has passed.
//
// A request of several slots gathers them here while it will have them within the agent's share. A larger one gives up at each
// renewal what it has gathered, and waits until the store has all of its slots at once.

// Finish gives back n slots of a request that was admitted and came to its end. It returns requests
// whose turn came, whose Done the caller runs. It takes the mutex only where requests wait.
func (b *Bucket) Finish(n int64) []*Waiter {
	b.sharing().finished.Add(n)
	return b.wake()
}

// Cancel is PutBack, and returns requests whose turn came, whose Done the caller runs.
func (b *Bucket) Cancel(n int64) []*Waiter {
	b.PutBack(n)
	return b.wake()
}

// Surplus reports whether more slots lie idle here than the agent may keep, to the first who
// asks: the owner is to look at the bucket, which then gives them up. Whoever gave slots back asks.
func (b *Bucket) Surplus() bool {
	s := b.shared.Load()
	if s == nil || b.stock.due()+b.stock.units() <= int64(s.keep.Load()) {
		return false
	}
	b.mu.Lock()
	defer b.leave()
	if !b.slots || !b.live {
		return false
	}
	b.stock.common().keep.Store(noticed)
	return true
}

// noticed is shared.keep while the owner knows of a surplus, or has it to look for one.
const noticed = math.MaxInt32

func (b *Bucket) noticedLocked() bool {
	s := b.shared.Load()
	return s != nil && s.keep.Load() == noticed
}

// surplusLocked looks whether there is a surplus; if not, whoever gives back looks for one.
func (b *Bucket) surplusLocked() bool {
	if b.idle() > b.room {
		b.stock.common().keep.Store(noticed)
		return true
	}
	b.stock.common().keep.Store(int32(min(b.room, noticed-1)))
	return false
}

// idle is how many units are there that no request has.
func (b *Bucket) idle() int64 { return b.stock.due() + b.stock.units() + b.aside() }

// earlyEveryLocked is the least time between two renewals that nobody waits for, in microseconds. Of slots that
// are given up others wait: the fewer of all are this agent's, the longer it is, so that all agents together
// do so some thousand times a second.
func (b *Bucket) earlyEveryLocked() int64 {
	if !b.slots {
		return earlyEvery
	}
	return max(2_000, min(200*b.capacity/max(b.share, 1), earlyEvery))
}

func (b *Bucket) wake() []*Waiter {
	if b.patients() == 0 {
		return nil // one that comes after this finds what came back
	}
	b.mu.Lock()
	defer b.leave()
	return b.serveLocked(Never)
}

// payLocked takes out of what came back what was nobody's, and lets the rest pay what is owed, slots for those in use beyond the lease. While none of these
// is free anywhere, those beyond the agent's share are nobody's until the next renewal tells of
// fewer, and do not go to the next request here: or an agent that is always busy would never let
// others have one.
func (b *Bucket) payLocked() {
	switch {
	case !b.slots:
		if b.nobodys > 0 {
			b.notNobodysLocked(b.stock.forfeit(b.nobodys))
		}
		if b.debt > 0 {
			b.oweLocked(b.debt - b.stock.forfeit(b.debt))
		}
	case !b.live:
		b.stock.forfeit(endless)
	default:
		if b.debt > 0 {
			b.oweLocked(b.debt - b.stock.forfeit(b.debt))
		}
		if over := b.stock.credited() - b.share; b.dry && !b.failed && over > 0 {
			b.early = b.stock.forfeit(over) > 0 || b.early // the store is to know
		}
	}
}

// shareLocked takes the agent's share of the slots from a grant, in whole slots: for
// a fraction of one it has one for that fraction of the grants.
func (b *Bucket) shareLocked(micro int64) {
	if micro <= 0 {
		b.own().share = endless // the store does not say
		return
	}
	b.own().share = micro / limit.Micro
	if b.jitterLocked(limit.Micro) < micro%limit.Micro {
		b.own().share++
	}
}

// offerLocked takes the spare slots out of the cell that the next renewal gives
// back, and returns how many of them the answer may leave here. What is more than the agent may keep is
// no longer its own, whatever the answer. While some of all are free the agent has some of its spare all the same, for
// requests that come before the answer; all of them go back when others wait
// for them. A renewal that follows one without an answer gives back the same.
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
	if gone := spare - b.stock.credit(-spare); gone != 0 {
		b.own().offered += gone
	}
	if !final && !b.failed && !b.gathersLocked() {
		b.ungatherLocked()
	}
	return b.offered
}

// unofferedLocked has no slots on their way back.
func (b *Bucket) unofferedLocked() {
	if b.offered != 0 {
		b.own().offered = 0
	}
}

// gathersLocked reports whether the first of those who wait their turn gathers slots over several renewals: it will have them within
// the agent's share, and all shares together are no more than there are. Were a larger one to, two agents could each keep
// what the other lacks, and neither ever begin.
func (b *Bucket) gathersLocked() bool {
	if b.patients() == 0 || !b.queue.waiters[0].patient {
		return true
	}
	share := b.share
	if share >= lease.SlotOwn {
		share -= share / 9 // the store adds an eighth
	}
	return b.stock.inUse()-b.gatheredLocked()+b.queue.waiters[0].Units <= share
}

// ungatherLocked gives up, for good, what those who wait their turn have gathered.
func (b *Bucket) ungatherLocked() {
	for _, w := range b.queue.waiters {
		if w.got > 0 {
			b.stock.giveBack(w.got)
			b.stock.pending.Add(-w.got)
			b.stock.forfeit(w.got)
			w.got = 0
		}
	}
}
