package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

const (
	// ahead is the longest time before a window's end, in microseconds, at which an agent makes its last renewal of it. In
	// short windows it is a quarter of the window. Each agent picks its own time around the middle of it.
	ahead = 2_000_000
	// overFor is how long an agent goes on with tokens of a window that it began by itself. It renews by half of it, or
	// by the part overIn of the window.
	overFor = 2 * lease.ShortTerm
	overIn  = 16
	// Out of contact an agent's clock may come apart from others'. It leaves out the end of each window for that, and no
	// more than the part doubtIn of it.
	doubtIn = 8
	// cut is how many units a grant has to take away from an agent for the store to hear soon that they are not spent.
	cut = 16
)

// span is state that only buckets of windows, of slots, or of strict limits use.
type span struct {
	window  int64 // start of the window of the tokens, the server's microseconds; 0 without
	length  int64 // of the window
	share   int64 // slots to keep
	turnAt  int64 // the window is not over before then, by any clock
	beginAt int64 // the next one has begun by then, by any clock
	next    int64 // tokens of the window to come, which it goes over to at beginAt
	edgeAsk int64 // when to make the last renewal of the window, for a part of the next that is as demand is now
	turned  int64 // tokens that this window began with, if the agent went over to it by itself
	heard   int64 // the number of the last renewal that was answered
	offered int64 // units that an unanswered renewal gives back: nobody's until the answer
	entered int64 // units admitted before this window: see Refund
}

// turnLocked ends a window that is over, with the units left of it. The agent goes over to its part of the next one by
// itself. Out of contact it goes on with its part of each further window, even if its lease ended before.
func (b *Bucket) turnLocked(now int64, lost bool) {
	if b.length <= 0 || now < b.turnAt || !(b.live || b.ended) {
		return
	}
	if b.live {
		b.stock.credit(-b.stock.fold())
		b.debt, b.offered = 0, 0
	}
	windows := int64(0)
	if now >= b.beginAt {
		windows = (now-b.beginAt)/b.length + 1
	}
	part := b.comingLocked()
	switch {
	case part > 0 && windows == 0 && (b.live || lost):
		return // it has not begun for certain
	case part > 0 && (lost && !b.exact || b.live && b.next > 0 && windows == 1 && b.turnAt <= b.keptLocked()):
	default:
		b.live, b.ended, b.next, b.turned = false, true, 0, part // for when contact proves to be lost
		return
	}
	b.live, b.ended, b.next, b.turned = true, false, 0, part
	b.expires = b.beginAt + (windows-1)*b.length + overFor
	b.renewAt = b.expires - overFor + lease.Jitter(b.began(), b.number, min(overFor/2, b.length/overIn))
	b.unchecked = true
	b.undenyLocked()
	b.beginWindowLocked(b.window + windows*b.length)
	b.beginAt += windows*b.length + drift(windows*b.length)
	b.turnAt = max(b.turnAt+windows*b.length-drift(windows*b.length), b.beginAt-b.length/doubtIn)
	b.stock.credit(b.turned)
}

// betweenLocked reports whether the window may be over, and the next one has not begun for certain. Requests wait that
// long: a store that is still in the window has nothing for them.
func (b *Bucket) betweenLocked(now int64) bool {
	return b.length > 0 && now >= b.turnAt && now < b.beginAt
}

// comingLocked is the agent's part of the next window.
func (b *Bucket) comingLocked() int64 { return max(b.next, b.turned) }

// beginWindowLocked goes on with the window that starts then, and with nothing of the one before. What those who wait
// have gathered is void as well. Units that came back after the store was told of them could be spent again untold.
// None of them are left.
func (b *Bucket) beginWindowLocked(start int64) {
	b.window = start
	b.loseGatheredLocked()
	b.outside -= max(b.toldAdmitted-b.admittedLocked(), 0)
	b.entered = b.admittedLocked()
}

// Window is the window that units taken now are of; 0 where there are none.
func (b *Bucket) Window() int64 {
	defer b.enter().leave()
	return b.window
}

// PutBackOf is Cancel for units taken of a window: if that is over, they are nobody's.
func (b *Bucket) PutBackOf(n, window int64) []*Waiter {
	defer b.enter().leave()
	b.back.Add(n)
	if window != b.window {
		b.stock.forfeit(n)
		b.outside -= n // they were told of in their own, or never will be
		return nil
	}
	if b.patients() == 0 {
		return nil
	}
	return b.serveLocked(Never)
}

// edgeLocked has the bucket renewed shortly before its window's end, and shortly after it if it has a part of the next.
func (b *Bucket) edgeLocked(now int64) {
	if b.length <= 0 {
		return
	}
	lead := min(ahead, b.length/4)
	b.edgeAsk = b.turnAt - lead/4 - lease.Jitter(b.began(), b.number, lead/2+1)
	switch {
	case b.expires+2*margin < b.turnAt: // it ends before
	case b.edgeAsk > now:
		b.renewAt = b.edgeAsk
	case b.next > 0:
		b.renewAt = b.beginAt + 1 // goes over first
	default:
		b.renewAt = b.beginAt // it was asked already: not ever more often towards the end
	}
}

// dueEdgeLocked returns when to ask for tokens of the next window: once, if anything was asked for of late. It does so
// as well while requests are denied until the window's end.
func (b *Bucket) dueEdgeLocked(now int64) int64 {
	switch {
	case b.length <= 0 || b.lastAsk >= b.edgeAsk || now >= b.turnAt:
		return Never
	case now < b.edgeAsk:
		return b.edgeAsk
	case b.stock.admitted()+b.deniedLocked() == b.toldAdmitted+b.toldDenied:
		return Never
	}
	return now
}
