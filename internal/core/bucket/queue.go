package bucket

import (
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// maxWaiting bounds the requests that wait for a renewal of one bucket, or their turn where the limit has no bound.
const maxWaiting = 1024

// Waiter is a request that waits in a bucket, for a renewal's answer (Enqueue) or until its turn comes (Join).
type Waiter struct {
	Units    int64
	Reserves bool          // the units will be reserved, and may come back
	Done     func(Verdict) // called once, when it is decided, without the bucket's mutex
	Since    int64         // when it began to wait, by the bucket's clock; 0 for not known

	next    *Waiter
	patient bool  // it waits its turn
	got     int64 // units in hand already, while it waits its turn
	window  int64
	verdict Verdict
}

// Verdict returns the verdict of a request that was decided.
func (w *Waiter) Verdict() Verdict { return w.verdict }

// Serve tells requests their verdicts.
func Serve(waiters []*Waiter) {
	for _, w := range waiters {
		w.Done(w.verdict)
	}
}

// Window returns the window of an admitted request's units; 0 without windows.
func (w *Waiter) Window() int64 { return w.window }

// Dismiss decides a request that is in no bucket as Bucket.Dismiss would.
func (w *Waiter) Dismiss() { w.verdict = Verdict{Outcome: Rematch} }

// queue is the requests that wait in a bucket. Those that wait their turn are served strictly in their order, as tokens
// and slots come. The first gathers what there is, so that neither smaller nor later ones keep it waiting for ever.
type queue struct {
	waiters *Waiter // the first, in the order in which they came; nil when nobody waits
	unheard bool    // a request that waits its turn came since the last renewal
}

// patients returns how many requests wait their turn. It needs no mutex.
func (b *Bucket) patients() int { return int(b.stock.shared.Load().patient.Load()) }

// Enqueue adds a request that was told to wait for an answer. It is false when too many wait: the request is denied.
func (b *Bucket) Enqueue(w *Waiter) bool {
	defer b.enter().leave()
	w.patient = false
	return b.enqueueLocked(w, maxWaiting)
}

// Join adds a request that was told to wait, and waits its turn, if the limit lets another one. It returns requests
// whose turn has come, perhaps its own. The caller runs their Done.
func (b *Bucket) Join(w *Waiter) (served []*Waiter, ok bool) {
	defer b.enter().leave()
	w.patient = true
	if !b.enqueueLocked(w, int64(b.most)) {
		return nil, false
	}
	b.unheard = true
	b.stock.common().patient.Add(1) // before it looks: a request that gives back after that sees it
	return b.serveLocked(Never), true
}

// enqueueLocked adds a request unless so many of its kind wait already. It walks the queue as serveLocked does.
func (b *Bucket) enqueueLocked(w *Waiter, most int64) bool {
	end, alike := &b.waiters, int64(0)
	for ; *end != nil; end = &(*end).next {
		if (*end).patient == w.patient {
			alike++
		}
	}
	if alike >= most {
		b.refused.Add(w.Units)
		return false
	}
	*end = w
	return true
}

// Abandon removes a request that no longer waits, and reports whether it was still there: if not, its verdict is on its
// way. denied says that it counts as denied here, for no other bucket denied it. What it had gathered may serve
// others, whose Done the caller runs.
func (b *Bucket) Abandon(w *Waiter, denied bool) (served []*Waiter, was bool) {
	defer b.enter().leave()
	at := &b.waiters
	for *at != w {
		if *at == nil {
			return nil, false
		}
		at = &(*at).next
	}
	b.removeLocked(at)
	if denied {
		b.refused.Add(w.Units)
	}
	if b.patients() == 0 {
		return nil, true
	}
	return b.serveLocked(Never), true
}

// Dismiss takes out all requests that wait, undecided, for the caller to tell.
func (b *Bucket) Dismiss() []*Waiter {
	defer b.enter().leave()
	return b.decideLocked(func(*Waiter) Verdict { return Verdict{Outcome: Rematch} })
}

// removeLocked takes the request at *at out of the queue. What it gathered comes back.
func (b *Bucket) removeLocked(at **Waiter) {
	w := *at
	*at, w.next = w.next, nil
	if w.patient {
		b.stock.common().patient.Add(-1)
	}
	b.ungatherLocked(w)
	if b.waiters == nil {
		b.unheard = false
	}
}

// decideLocked removes and returns the requests that decide decides.
func (b *Bucket) decideLocked(decide func(*Waiter) Verdict) (decided []*Waiter) {
	for at := &b.waiters; *at != nil; {
		w := *at
		v := decide(w)
		if v.Outcome == Wait {
			at = &w.next
			continue
		}
		b.removeLocked(at)
		if w.verdict, w.window = v, b.window; v.Outcome == Admitted {
			w.verdict.Until = b.untilLocked()
		}
		decided = append(decided, w)
	}
	return decided
}

// serveLocked decides waiting requests with what is there: those that wait their turn strictly in order, the others as
// they fit. Before denyUntil the others are denied, from least units on, when nothing is left for them. After it, and
// with a now of Never, they wait for the next renewal. None gets a unit that could no longer be spent when it came: now
// may be a while ago.
func (b *Bucket) serveLocked(now int64) []*Waiter {
	if b.waiters == nil {
		return nil
	}
	b.bringLocked()
	if b.waiters.patient {
		b.payLocked() // what came back goes to it, and not into the cell, where any request may take it
	} else {
		b.foldLocked()
	}
	held := false // by one that waits its turn
	until := b.untilLocked()
	served := b.decideLocked(func(w *Waiter) Verdict {
		switch {
		case until > 0 && w.Since >= until:
			held = held || w.patient
		case w.patient:
			if !held && b.gatherLocked(w) {
				return Verdict{Outcome: Admitted}
			}
			held = true
		case !held && b.foldLocked() >= w.Units && b.Try(w.Units):
			return Verdict{Outcome: Admitted}
		case now < b.denyUntil && w.Units >= int64(b.least):
			b.refused.Add(w.Units)
			return Verdict{Outcome: Denied, RetryAfter: b.retryAfterLocked(now, w.Units, false)}
		}
		return Verdict{Outcome: Wait}
	})
	if len(served) > 0 || held {
		// Units that the owner itself took, just after a refill, take up no room from then on.
		b.levelLocked(min(b.level/limit.Micro, b.stock.units()+b.stock.due()))
	}
	return served
}

// gatherLocked takes what there is for w, and reports whether w has all its units now. Until then they are pending.
func (b *Bucket) gatherLocked(w *Waiter) bool {
	missing := w.Units - w.got
	b.pending.Add(missing)
	got := b.stock.claim(missing)
	w.got += got
	if w.got < w.Units {
		b.pending.Add(got - missing)
		return false
	}
	b.pending.Add(-w.Units)
	w.got = 0
	return true
}

// ungatherLocked puts back the units that the request gathered.
func (b *Bucket) ungatherLocked(w *Waiter) {
	if w.got > 0 {
		b.back.Add(w.got)
		b.pending.Add(-w.got)
		w.got = 0
	}
}

// loseGatheredLocked takes the gathered units from requests that wait their turn, and makes them nobody's.
func (b *Bucket) loseGatheredLocked() {
	for w := b.waiters; w != nil; w = w.next {
		got := w.got
		b.ungatherLocked(w)
		b.stock.forfeit(got)
	}
}

// waiting sums up what requests wait for, in units.
type waiting struct {
	units     int64 // all of theirs
	largest   int64 // those of the largest request
	reserves  int64 // those that will be reserved
	gathered  int64 // those that requests have in hand already
	missing   int64 // those that requests that wait their turn still miss
	impatient bool  // a request waits for an answer only
}

func (b *Bucket) waitingLocked() (s waiting) {
	for w := b.waiters; w != nil; w = w.next {
		s.units += w.Units
		s.largest = max(s.largest, w.Units)
		s.gathered += w.got
		if w.Reserves {
			s.reserves += w.Units
		}
		if w.patient {
			s.missing += w.Units - w.got
		} else {
			s.impatient = true
		}
	}
	return s
}

// wantedLocked returns the units that a renewal asks for, and those of the largest request: fewer do not serve it.
// Where requests wait their turn for slots, the first one decides, for nobody overtakes it. All count as of its size,
// so that no grant is a part of one. While it gathers slots, any slot is of use.
func (b *Bucket) wantedLocked() (units, largest int64) {
	s, first := b.waitingLocked(), b.waiters
	switch {
	case !b.slots || first == nil || !first.patient:
		return s.units, s.largest
	case b.gathersLocked():
		return s.units, 1
	}
	return s.units - s.units%first.Units, first.Units
}

const (
	// patientEvery is how often to ask for requests that wait their turn, when the store neither gives anything nor
	// says when to come again.
	patientEvery = 20_000
	// backlogEvery is how often to ask for more than the trickle for them: as often as under any pressure.
	backlogEvery = lease.ShortTerm - lease.ShortTerm/5
	// visitEvery is how often such a bucket is looked at in any case, for units that other limits put back.
	visitEvery = 500_000
)

// turnTimeLocked returns when to look at the bucket for requests that wait their turn, Never if none do. That is when
// the trickle has brought the units that the first one misses, or visitEvery from now if that is sooner.
func (b *Bucket) turnTimeLocked(now int64) int64 {
	if b.patients() == 0 {
		return Never
	}
	first := b.waiters
	for !first.patient {
		first = first.next
	}
	at := now + visitEvery
	if b.live && b.trickle > 0 {
		// The trickle does not go on beyond its room: what is there has to be gathered.
		missing := max(min(first.Units-first.got, b.room)-b.stock.units(), 1)
		at = min(at, max(b.last+b.trickleTakesLocked(missing), now+1))
	}
	return at
}

// dueQueueLocked returns when to ask for those who wait.
func (b *Bucket) dueQueueLocked(now int64) int64 {
	switch {
	case b.waiters == nil:
		return Never
	case b.betweenLocked(now):
		return b.beginAt
	case b.waitingLocked().impatient:
		return now
	case now < b.denyUntil:
		return b.deniesUntilLocked()
	case b.unheard && b.trickle > 0:
		return max(now, b.lastAsk+earlyEvery)
	case b.unheard:
		return now
	case b.live && b.trickle > 0:
		return max(now, b.lastAsk+backlogEvery) // served as it comes, and there may be more of it
	}
	return max(now, b.lastAsk+patientEvery)
}

// Urgent reports whether requests wait.
func (b *Bucket) Urgent() bool {
	defer b.enter().leave()
	return b.waiters != nil
}
