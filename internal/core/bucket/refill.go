package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// refillLocked credits the trickle up to now and returns the spendable units, all of them in the cell. Tokens that find
// no room are void. Units may have been spent just now. So those left after the last refill take up room until now, if
// the lease is not lax.
func (b *Bucket) refillLocked(now int64) int64 {
	b.bringLocked()
	have := b.foldLocked()
	if !b.live || b.trickle == 0 {
		b.last = now
		return have
	}
	elapsed := now - b.last
	if elapsed <= 0 {
		return have // a clock that stepped back must not refill the same second twice
	}
	b.last = now
	if b.exact && b.ask != nil {
		return have // the store takes what trickles meanwhile back
	}
	gained := int64(min(float64(elapsed)*float64(b.trickle)/1e6, 1<<53)) // up to the largest lease
	sum, left := gained+b.level%limit.Micro, b.level/limit.Micro
	tokens := sum / limit.Micro
	b.level = sum % limit.Micro
	pay := min(b.debt, tokens)
	b.debt -= pay
	tokens -= pay
	if b.laxLocked() {
		left = have
	}
	if room := max(b.room-max(left, have), 0); tokens > room {
		b.voidedLocked(now, gained, (tokens-room)*limit.Micro+b.level)
		tokens, b.level = room, 0
	}
	if tokens > 0 {
		b.stock.credit(tokens)
	}
	b.levelLocked(have + tokens)
	return have + tokens
}

// topUpLocked is refillLocked while nobody asks: spent units make room at once, not only once the cell is empty.
func (b *Bucket) topUpLocked(now int64) {
	if b.live && b.trickle > 0 && !b.slots && now < b.expires && b.patients() == 0 && !b.laxLocked() {
		b.refillLocked(now)
		b.putAsideLocked(now)
	}
}

// levelLocked notes how many whole units are left after a refill.
func (b *Bucket) levelLocked(units int64) {
	b.level = min(max(units, 0), 1<<40)*limit.Micro + b.level%limit.Micro
}

// noteLowLocked asks for an early renewal when the trickle no longer carries the demand.
func (b *Bucket) noteLowLocked(now, have int64) {
	if b.slots || b.dry || have > b.room/4+1 || now < b.denyUntil || now-b.lastAsk < b.lowAfterLocked() {
		return
	}
	asked := b.admittedLocked() - b.toldAdmitted + b.deniedLocked() - b.toldDenied
	carried := float64(asked)*1e12 <= float64(b.trickle)*float64(now-b.lastAsk) // however little lies here
	if b.room <= 1 || b.laxLocked() || !carried {
		b.early = true
	}
}

// lowAfterLocked is how long after a renewal a lease that runs low may be renewed. A first lease is a guess.
func (b *Bucket) lowAfterLocked() int64 {
	if b.turns == 0 {
		return earlyEvery
	}
	return max(earlyEvery, min(b.term(), lease.LongTerm)/lowest)
}

// trickleTakesLocked is how long after its last credit the trickle, which is not 0, has brought n tokens and the debt.
func (b *Bucket) trickleTakesLocked(n int64) int64 {
	missing := float64(n+b.debt)*limit.Micro - float64(b.level%limit.Micro)
	return int64(min(math.Ceil(missing*1e6/float64(b.trickle)), 1<<53))
}
