package bucket

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// maxWaiting bounds the requests that wait for a renewal of one bucket, and those that wait their
// turn where the limit names no bound: the server's answer is a round trip away,
// and memory is not for ever. More are denied.
const maxWaiting = 1024

// Waiter is a request that waits in a bucket: for a renewal's answer (Enqueue), or until its
// turn comes, whatever the answers are (Join).
type Waiter struct {
	Units int64
	// Reserves: they are reserved when they are there, and may come back.
	Reserves bool
	// Done is called once, by whoever decided, without the bucket's mutex held.
	Done func(Verdict)

	patient bool
	got     int64 // in hand already, as the first of those who wait their turn
	window  int64 // that the units which it was given are of
	verdict Verdict
}

// queue is the requests that wait in a bucket. Those that wait their turn are
// served strictly in the order in which they came, as tokens and slots come: the first
// gathers what there is, so that neither smaller nor later ones keep it waiting for ever.
type queue struct {
	waiters []*Waiter // in the order in which they came
	units   int64     // all of theirs
	unheard bool      // one that waits its turn came since the last renewal

	first [2]*Waiter // where the first are, for most are as few
}

// Verdict returns what became of a request that was decided.
func (w *Waiter) Verdict() Verdict { return w.verdict }

// Window returns the window that the units of a request are of which was admitted; 0 where there are none.
func (w *Waiter) Window() int64 { return w.window }

// Dismiss decides a request that is not enqueued as the bucket's Dismiss would.
func (w *Waiter) Dismiss() { w.verdict = Verdict{Outcome: Rematch} }

// Enqueue adds a request that was told to wait for an answer. It reports false when the
// request has to be denied instead: too many wait already.
func (b *Bucket) Enqueue(w *Waiter) bool {
	b.mu.Lock()
	defer b.leave()
	w.patient = false
	return b.enqueueLocked(w, maxWaiting)
}

// Join adds a request that was told to wait and waits its turn, as many as the limit lets. It
// returns requests whose turn has come, perhaps its own, whose Done the caller runs.
func (b *Bucket) Join(w *Waiter) (served []*Waiter, ok bool) {
	b.mu.Lock()
	defer b.leave()
	w.patient = true
	if !b.enqueueLocked(w, int64(b.most)) {
		return nil, false
	}
	b.queue.unheard = true
	b.stock.common().patient.Add(1) // before it looks: who gives back after this looks for it
	return b.serveLocked(Never), true
}

// enqueueLocked adds a request unless as many of its kind wait as may.
func (b *Bucket) enqueueLocked(w *Waiter, most int64) bool {
	if b.queue == nil {
		b.own().queue = new(queue)
		b.queue.waiters = b.queue.first[:0]
	}
	n := int64(b.patients())
	if !w.patient {
		n = int64(len(b.queue.waiters)) - n
	}
	if n >= most {
		b.stock.refuse(w.Units)
		b.emptyLocked()
		return false
	}
	b.queue.waiters = append(b.queue.waiters, w)
	b.queue.units += w.Units
	return true
}

// Abandon removes a request that no longer waits, which counts as denied here if it
// was denied nowhere else, and reports whether it was still there; if not, its verdict
// is on its way. What it had gathered may serve others, whose Done the caller runs.
func (b *Bucket) Abandon(w *Waiter, denied bool) (served []*Waiter, was bool) {
	b.mu.Lock()
	defer b.leave()
	if b.queue == nil {
		return nil, false
	}
	i := slices.Index(b.queue.waiters, w)
	if i < 0 {
		return nil, false
	}
	b.queue.waiters = slices.Delete(b.queue.waiters, i, i+1)
	b.leaveLocked(w)
	if denied {
		b.stock.refuse(w.Units)
	}
	if b.emptyLocked() || b.patients() == 0 {
		return nil, true
	}
	return b.serveLocked(Never), true
}

// leaveLocked forgets a request that is no longer among the waiters, and was not admitted.
func (b *Bucket) leaveLocked(w *Waiter) {
	b.queue.units -= w.Units
	if w.patient {
		b.stock.common().patient.Add(-1)
	}
	if w.got > 0 {
		b.stock.giveBack(w.got)
		b.stock.pending.Add(-w.got)
		w.got = 0
	}
}

// emptyLocked drops a queue in which nobody waits.
func (b *Bucket) emptyLocked() bool {
	if b.queue != nil && len(b.queue.waiters) == 0 {
		b.queue = nil
	}
	return b.queue == nil
}

// takeAllLocked empties the queue.
func (b *Bucket) takeAllLocked() []*Waiter {
	if b.queue == nil {
		return nil
	}
	out := b.queue.waiters
	for _, w := range out {
		b.leaveLocked(w)
	}
	b.queue = nil
	return out
}

// waitingLocked returns the units that requests wait for.
func (b *Bucket) waitingLocked() int64 {
	if b.queue == nil {
		return 0
	}
	return b.queue.units
}

// largestLocked returns the units of the largest request that waits.
func (b *Bucket) largestLocked() (n int64) {
	if b.queue != nil {
		for _, w := range b.queue.waiters {
			n = max(n, w.Units)
		}
	}
	return n
}

// wantedLocked returns the units that requests wait for, and those of the largest: fewer serve it not. Where they wait their turn
// for slots it is the first that decides, for those after it do not overtake it: all are taken to be of its size, so that nothing
// is granted that would not make up one. While it gathers them any slot is of use.
func (b *Bucket) wantedLocked() (waiting, largest int64) {
	waiting = b.waitingLocked()
	if !b.slots || waiting == 0 || !b.queue.waiters[0].patient {
		return waiting, b.largestLocked()
	}
	if b.gathersLocked() {
		return waiting, 1
	}
	first := b.queue.waiters[0].Units
	return waiting - waiting%first, first
}

// reservingLocked returns the units that requests wait for which are to be reserved.
func (b *Bucket) reservingLocked() (n int64) {
	if b.queue != nil {
		for _, w := range b.queue.waiters {
			if w.Reserves {
				n += w.Units
			}
		}
	}
	return n
}

// gatheredLocked returns the units that requests which wait have in hand.
func (b *Bucket) gatheredLocked() (n int64) {
	if b.patients() > 0 {
		for _, w := range b.queue.waiters {
			n += w.got
		}
	}
	return n
}

// missingLocked returns the units that those who wait their turn still miss.
func (b *Bucket) missingLocked() (n int64) {
	if b.patients() > 0 {
		for _, w := range b.queue.waiters {
			if w.patient {
				n += w.Units - w.got
			}
		}
	}
	return n
}

// impatientLocked reports whether a request waits for an answer only.
func (b *Bucket) impatientLocked() bool {
	return b.queue != nil && len(b.queue.waiters) > b.patients()
}

// serveLocked decides waiting requests with what is there: those that wait their
// turn strictly in order, the others as they fit. Before denyUntil, which the store set,
// the others are denied when nothing is left for them, from least units on; after it, and with a now of Never,
// they go on waiting for the next renewal.
func (b *Bucket) serveLocked(now int64) []*Waiter {
	if b.queue == nil {
		return nil
	}
	q := b.queue
	b.bringLocked()
	if q.waiters[0].patient {
		// What came back goes to it, and not first where any request may take it.
		b.payLocked()
	} else {
		b.foldLocked()
	}
	var served []*Waiter
	waiting := q.waiters[:0]
	held := false // by one who waits its turn
	for _, w := range q.waiters {
		switch {
		case w.patient && !held && b.gatherLocked(w):
			w.verdict = Verdict{Outcome: Admitted}
			b.stock.common().patient.Add(-1)
		case w.patient:
			held = true
			waiting = append(waiting, w)
			continue
		case !held && b.foldLocked() >= w.Units && b.stock.takeQuietly(w.Units):
			w.verdict = Verdict{Outcome: Admitted}
		case now < b.denyUntil && w.Units >= int64(b.least):
			b.stock.refuse(w.Units)
			w.verdict = Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, w.Units, false)}
		default:
			waiting = append(waiting, w)
			continue
		}
		w.window = b.window
		q.units -= w.Units
		served = append(served, w)
	}
	if len(served) > 0 || held {
		b.lowerLocked()
	}
	clear(q.waiters[len(waiting):])
	q.waiters = waiting
	b.emptyLocked()
	return served
}

// gatherLocked takes what there is for w and reports whether that is all of it. What
// it has meanwhile is announced as pending: it is not admitted yet.
func (b *Bucket) gatherLocked(w *Waiter) bool {
	missing := w.Units - w.got
	b.stock.pending.Add(missing)
	got := b.stock.claim(missing)
	w.got += got
	if w.got < w.Units {
		b.stock.pending.Add(got - missing)
		return false
	}
	b.stock.pending.Add(-w.Units)
	w.got = 0
	return true
}

// stuckLocked reports whether nothing is to come for those who wait their turn while
// the server is away.
func (b *Bucket) stuckLocked() bool {
	if b.slots {
		return b.stock.inUse() == 0
	}
	return b.trickle == 0
}

const (
	// patientEvery is how often to ask for requests that wait their turn, when the
	// store neither gives anything nor says when to come again.
	patientEvery = 20_000
	// backlogEvery is how often to ask for more than the trickle for them: as often as
	// under any pressure.
	backlogEvery = lease.ShortTerm - lease.ShortTerm/5
	// visitEvery is how often such a bucket is looked at in any case, for units
	// that other limits put back.
	visitEvery = 500_000
)

// Turn returns when to look at the bucket for those who wait their turn: when
// the trickle has brought what the first still misses. Never when nobody does.
func (b *Bucket) Turn(now int64) int64 {
	b.mu.Lock()
	defer b.leave()
	return b.turnTimeLocked(now)
}

func (b *Bucket) turnTimeLocked(now int64) int64 {
	if b.patients() == 0 {
		return Never
	}
	at := now + visitEvery
	if b.live && b.trickle > 0 {
		var missing int64
		for _, w := range b.queue.waiters {
			if w.patient {
				missing = w.Units - w.got
				break
			}
		}
		// The trickle does not go on beyond its room: what is there has to be gathered.
		missing = max(min(missing, b.room)-b.stock.units(), 1)
		at = min(at, max(b.last+b.trickleTakesLocked(missing), now+1))
	}
	return at
}

// dueQueueLocked returns when to ask for those who wait.
func (b *Bucket) dueQueueLocked(now int64) int64 {
	switch {
	case b.queue == nil:
		return Never
	case b.impatientLocked():
		return now
	case now < b.denyUntil:
		return b.deniesUntilLocked()
	case b.queue.unheard && b.trickle > 0:
		return max(now, b.lastAsk+earlyEvery)
	case b.queue.unheard:
		return now
	case b.live && b.trickle > 0:
		return max(now, b.lastAsk+backlogEvery) // served as it comes, and there may be more of it
	}
	return max(now, b.lastAsk+patientEvery)
}

// Urgent reports whether requests wait.
func (b *Bucket) Urgent() bool {
	b.mu.Lock()
	defer b.leave()
	return b.queue != nil
}

// Pressed reports whether a request waits for an answer only.
func (b *Bucket) Pressed() bool {
	b.mu.Lock()
	defer b.leave()
	return b.impatientLocked()
}

// Dismiss takes out all requests that wait, undecided, for the caller to tell.
func (b *Bucket) Dismiss() []*Waiter {
	b.mu.Lock()
	defer b.leave()
	out := b.takeAllLocked()
	for _, w := range out {
		w.verdict = Verdict{Outcome: Rematch}
	}
	return out
}
