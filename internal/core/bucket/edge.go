package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

const (
	// ahead is how long before a window's end the store grants tokens of the next one, at
	// most, and at most a quarter of the window, in microseconds. Each agent picks a time of its
	// own around the middle of it for the window's last renewal.
	ahead = 2_000_000
	// overFor is how long an agent goes on with tokens of a window that it went over to
	// by itself, and within half of which it renews.
	overFor = 2 * lease.ShortTerm
)

// span is what only buckets of windows and those of slots use.
type span struct {
	window  int64 // start of the window of the tokens, the server's microseconds; 0 without
	length  int64 // of the window
	share   int64 // units of each further window to go on with when contact is lost; slots to keep
	turnAt  int64 // when the window ends
	rest    int64 // of what remains of this window, its share beyond what it was granted
	next    int64 // tokens of the window to come, which it goes over to at turnAt
	edgeAsk int64 // when to ask for tokens of the window to come
	turned  int64 // tokens that this window began with, as the agent went over by itself
	offered int64 // slots that a renewal without an answer gives back: nobody's until then
}

// goOverLocked goes over to the tokens of the next window at the end of one, without a
// call: no request waits for it. On false there are none.
func (b *Bucket) goOverLocked(now int64, lost bool) bool {
	if !b.live || b.next == 0 || now >= b.turnAt+b.length || lost && b.share > b.next {
		b.noNextLocked()
		return false
	}
	b.stock.credit(-b.stock.fold())
	b.oweLocked(0)
	r := b.own()
	r.rest, r.turned, r.next = 0, b.next, 0
	b.beginWindowLocked(b.window + b.length)
	b.expires = b.turnAt + overFor
	b.renewAt = b.turnAt + b.jitterLocked(overFor/2)
	b.unchecked = true
	r.turnAt += b.length // a calendar window's may be another: the next answer tells
	b.undenyLocked()
	b.stock.credit(b.turned)
	return true
}

// beginWindowLocked goes on with the window that starts then, and with nothing of the one before: what those who wait
// have gathered is void as well, and of what came back after the store was told of it nothing is left that could be spent untold.
func (b *Bucket) beginWindowLocked(start int64) {
	b.own().window = start
	if b.queue != nil {
		for _, w := range b.queue.waiters {
			b.stock.giveBack(w.got)
			b.stock.forfeit(w.got)
			b.stock.pending.Add(-w.got)
			w.got = 0
		}
	}
	b.own().outside -= max(b.toldAdmitted-b.admittedLocked(), 0)
}

// noNextLocked has no tokens of the window to come.
func (b *Bucket) noNextLocked() {
	if b.next != 0 {
		b.own().next = 0
	}
}

// Window is the window that units taken now are of; 0 where there are none.
func (b *Bucket) Window() int64 {
	b.mu.Lock()
	defer b.leave()
	return b.window
}

// PutBackOf is PutBack for units taken of a window: where that is over, they are nobody's. It returns requests whose turn
// came, whose Done the caller runs.
func (b *Bucket) PutBackOf(n, window int64) []*Waiter {
	b.mu.Lock()
	defer b.leave()
	b.stock.giveBack(n)
	if window != b.window {
		b.stock.forfeit(n)
		b.own().outside -= n // they were told of in their own, or never will be
		return nil
	}
	if b.patients() == 0 {
		return nil
	}
	return b.serveLocked(Never)
}

// edgeTimeLocked returns when it goes over to the next window; Never where it does not.
func (b *Bucket) edgeTimeLocked() int64 {
	if b.next == 0 {
		return Never
	}
	return b.turnAt
}

// edgeLocked says when a bucket is renewed for its window's end: once more shortly before
// that, and, when it has tokens of the next window, shortly after.
func (b *Bucket) edgeLocked(now int64) {
	if b.length <= 0 {
		return
	}
	lead := min(ahead, b.length/4)
	b.own().edgeAsk = b.turnAt - lead/4 - b.jitterLocked(lead/2+1)
	if b.expires+2*margin < b.turnAt {
		return
	}
	if b.next > 0 {
		// Not before the store's edge: the answer was on its way for part of the time.
		b.own().turnAt = b.resetAt
		b.expires = b.turnAt
		b.renewAt = b.turnAt + 1 // goes over first
		return
	}
	if b.edgeAsk > now {
		b.renewAt = b.edgeAsk
	} else {
		b.renewAt = b.turnAt // it was asked already: not ever more often towards the end
	}
}

// dueEdgeLocked returns when to ask for tokens of the next window: once, whether the lease still
// lives or requests are denied until the window's end, if anything was asked for of late.
func (b *Bucket) dueEdgeLocked(now int64) int64 {
	switch {
	case b.length <= 0 || b.next > 0 || b.lastAsk >= b.edgeAsk || now >= b.turnAt:
		return Never
	case now < b.edgeAsk:
		return b.edgeAsk
	case b.stock.admitted()+b.deniedLocked() == b.toldAdmitted+b.toldDenied:
		return Never
	}
	return now
}

// jitterLocked returns a number below n that agents and renewals do not share: a hash
// of the conversation, so that no chance comes into a bucket from outside.
func (b *Bucket) jitterLocked(n int64) int64 {
	h := uint64(b.began())*0x9e3779b97f4a7c15 + uint64(b.number)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return int64((h ^ h>>31) % uint64(n))
}
