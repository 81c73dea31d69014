package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

// endedLocked is what became of the lease that the answer to the renewal under way replaces.
func (b *Bucket) endedLocked(p *pendingRenewal) lease.Account {
	spent, unrun := p.told-b.answered(), p.Unrun()
	return lease.Account{Unrun: unrun, Returned: p.Held, Told: spent, Beyond: max(spent+p.Held+unrun-b.granted, 0)}
}

// Standing says what the bucket spent in all, and how the lease that it has stands.
func (b *Bucket) Standing() lease.Account {
	defer b.enter().leave()
	b.foldLocked()
	return b.standingLocked()
}

// standingLocked is Standing after it was folded.
func (b *Bucket) standingLocked() lease.Account {
	if b.counting {
		return lease.Account{}
	}
	spent := b.admittedLocked() + b.owedLocked()
	a := lease.Account{Spent: spent, Beyond: max(spent-b.answered()-b.granted, 0)}
	if b.live {
		a.Held = max(b.granted-(spent-b.answered()), 0)
	}
	return a
}

// beyondLocked returns by how many units the agent may have exceeded the limit out of contact. It is the units admitted
// since the last answer, if that answer's lease had ended when the renewal under way was sent. Slots come back, so for
// them it is those given out without a lease.
func (b *Bucket) beyondLocked() int64 {
	switch {
	case b.counting || b.ask == nil:
		return 0
	case b.slots:
		return b.unleased
	case b.live && b.ask.sentAt < b.expires:
		return 0
	}
	return max(b.ask.told-b.answered(), 0)
}
