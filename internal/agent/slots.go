package agent

import "github.com/f4ee788f/quota/internal/limit"

// A bucket of slots holds units that requests give back at their end (Finish). What it
// was granted is either in use or spare:
//
//	credited = in use + spare,   credited − debt = as the store last knew
//
// The store counts all of it as the holder's, so that no slot is in two hands: what a
// renewal gives back is taken out of the cell first, and is nobody's until
// the answer says how much of it stays (offered). What is in use, or kept, no answer
// takes away. The slots of an agent that is no more come back when its record's slot of the
// expiry ring has passed.

// Finish gives back n slots of a request that was admitted and came to its end. It returns requests
// whose turn came, whose Done the caller runs. It takes the mutex only where requests wait.
func (b *Bucket) Finish(n int64) []*Waiter {
	b.cell.finish(n)
	return b.wake()
}

// Cancel is PutBack, and returns requests whose turn came, whose Done the caller runs.
func (b *Bucket) Cancel(n int64) []*Waiter {
	b.cell.back.Add(n)
	return b.wake()
}

func (b *Bucket) wake() []*Waiter {
	if b.patient.Load() == 0 {
		return nil // one that comes after this finds what came back
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.serveLocked(Never)
}

// payLocked lets slots that came back pay for those in use beyond the lease. While none
// is free anywhere, those beyond the agent's share are nobody's until the next renewal tells of
// fewer, and do not go to the next request here: or an agent that is always busy would never let
// others have one.
func (b *Bucket) payLocked() {
	switch {
	case !b.slots:
	case !b.live:
		b.cell.forfeit(endless)
	default:
		if b.debt > 0 {
			b.debt -= b.cell.forfeit(b.debt)
		}
		if over := b.cell.credited() - b.share; b.dry && !b.failed && over > 0 {
			b.cell.forfeit(over)
		}
	}
}

// shareLocked takes the agent's share of the slots from a grant, in whole slots: for
// a fraction of one it has one for that fraction of the grants.
func (b *Bucket) shareLocked(micro int64) {
	if micro <= 0 {
		b.share = endless // the store does not say
		return
	}
	b.share = micro / limit.Micro
	if b.jitterLocked(limit.Micro) < micro%limit.Micro {
		b.share++
	}
}

// offerLocked takes the spare slots out of the cell that the next renewal gives
// back, and returns how many they are. While some of them are not in use the agent keeps half of them, for
// requests that come before the answer; all of them go back when others wait
// for them. A renewal that follows one without an answer gives back the same.
func (b *Bucket) offerLocked(final bool) int64 {
	spare := b.foldLocked()
	switch {
	case final:
	case b.failed, b.ask != nil: // one without an answer gave back some already
		spare = 0
	case !b.dry:
		spare /= 2
	}
	b.offered += spare - b.cell.credit(-spare)
	return b.offered
}

// Busy reports whether requests have slots, so that the lease has to go on.
func (b *Bucket) Busy() bool {
	if !b.slots {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cell.inUse() > 0
}
