package bucket

import (
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// refillLocked credits the trickle up to now and returns the spendable units, all of them in the cell. What there was no room for is void. When units
// were spent nobody knows, for that would cost each decision a look at the clock. It may have been just now, and all that
// was left after the last refill may have taken up its room until then: it is taken to have, unless the lease is lax.
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
	// More than an hour would pile up far beyond any pile, and could overflow.
	gained := min(elapsed, 3600_000_000)
	if b.trickle > 1<<53/3600_000_000 {
		gained = int64(float64(gained) * float64(b.trickle) / 1e6)
	} else {
		gained = gained * b.trickle / 1e6
	}
	left := b.level / limit.Micro
	trickled := gained
	gained += b.level % limit.Micro
	tokens := gained / limit.Micro
	b.level = gained % limit.Micro
	if b.debt > 0 {
		pay := min(b.debt, tokens)
		b.oweLocked(b.debt - pay)
		tokens -= pay
	}
	if b.laxLocked() {
		left = have
	}
	if room := max(b.room-max(left, have), 0); tokens > room {
		b.voidedLocked(now, trickled, (tokens-room)*limit.Micro+b.level)
		tokens = room
		b.level = 0
	}
	if tokens > 0 {
		b.stock.credit(tokens)
	}
	b.levelLocked(have + tokens)
	return have + tokens
}

// topUpLocked is refillLocked while nobody asks: what is spent of a stock makes room for the trickle from then on, and not
// only once all of it is gone.
func (b *Bucket) topUpLocked(now int64) {
	if b.live && b.trickle > 0 && !b.slots && now < b.expires && b.patients() == 0 && !b.laxLocked() {
		b.refillLocked(now)
		b.putAsideLocked(now)
	}
}

// lowerLocked notes that the owner itself took units, just after a refill: they take up no room from then on.
func (b *Bucket) lowerLocked() {
	b.levelLocked(min(b.level/limit.Micro, b.stock.units()+b.stock.due()))
}

// levelLocked notes how many whole units are left after a refill.
func (b *Bucket) levelLocked(units int64) {
	b.level = min(max(units, 0), 1<<40)*limit.Micro + b.level%limit.Micro
}

// expireLocked ends a lease whose term is over. While the server is out of reach
// it goes on, and so it does while an answer is under way: its trickle was summed
// when it was granted, so all of them together still keep the limit for as long
// as the outage lasts, and a store holds an unrenewed lease's share for one term more.
func (b *Bucket) expireLocked(now int64, lost bool) {
	b.turnLocked(now, lost)
	if !b.live || now < b.expires || lost || b.ask != nil {
		return
	}
	if now < b.keptLocked() && (b.trickle > 0 || b.idle() > 0 || b.reservedLocked() > 0) {
		b.early = true // its renewal is late by no more than the store waits for it
		return
	}
	b.voidLocked()
	b.ended = true
}

// keptLocked returns until when a lease that was not renewed in time may be all the same, and nothing of it is
// lost: the store keeps its share for a term after its end.
func (b *Bucket) keptLocked() int64 { return b.expires + b.term()/2 }

// voidLocked ends the lease: what is left of it can no longer be spent.
func (b *Bucket) voidLocked() {
	b.bringLocked()
	b.live = false
	b.trickle, b.room = 0, 0
	b.oweLocked(0)
	b.noNextLocked()
	b.stock.credit(-b.foldLocked())
}

// turnLocked ends what is left of a window that is over. Out of contact, the agent
// goes on with its share of what remained of the window, and the next
// one begins with its share of it: that of a lease which was live when
// contact was lost, or whose end came before the loss was noticed.
func (b *Bucket) turnLocked(now int64, lost bool) {
	if b.length <= 0 || !(b.live || b.ended) {
		return
	}
	if now < b.turnAt {
		if lost && b.live && b.rest > 0 {
			b.stock.credit(b.rest)
			b.own().rest, b.alone = 0, max(b.alone, onRest)
		}
		return
	}
	if b.goOverLocked(now, lost) {
		return
	}
	if b.live {
		b.stock.credit(-b.stock.fold())
		b.live, b.ended = false, true
	}
	if !lost || now-b.turnAt > lease.LongTerm && b.alone != onShare {
		return
	}
	n := (now-b.turnAt)/b.length + 1
	b.beginWindowLocked(b.window + n*b.length)
	b.own().turnAt += n * b.length
	b.live, b.ended, b.alone = true, false, onShare
	b.stock.credit(b.share)
}

// noteLowLocked asks for an early renewal when the trickle no longer carries the
// demand, so that the next request need not wait.
func (b *Bucket) noteLowLocked(now, have int64) {
	if b.slots || now < b.denyUntil || now-b.lastAsk < max(earlyEvery, b.term()/lowest) || have > b.room/4+1 || b.dry {
		return
	}
	asked := b.admittedLocked() - b.toldAdmitted + b.deniedLocked() - b.toldDenied
	if b.room > 1 && !b.laxLocked() && float64(asked)*1e12 <= float64(b.trickle)*float64(now-b.lastAsk) {
		return // it carries what was asked for since the last renewal, however little lies here
	}
	b.early = true
}
