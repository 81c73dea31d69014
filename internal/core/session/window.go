package session

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
)

// window is how many renewals may be under way: about as many as the server answers within calm. More would wait there all the same, behind
// those of all other agents, where nobody knows which of them requests wait for, and where they are executed in vain once their
// call has run out of patience. So what is too much for the server waits here, and what requests wait for goes first.
// It follows how long calls take, as TCP Vegas does (Brakmo, Peterson 1995): a window of renewals that took half of what they may is
// followed by one of twice as many, where there are as many.
type window struct {
	size  float64
	trips []*trip // calls under way that count
	under int     // renewals of these
	best  int64   // the shortest that a call took in this contact, microseconds; 0 for not known
	short bool    // it was too small for what there was to send

	// Calls in a row that took too long although no fewer renewals may be under way, and the shortest that one took.
	far   int
	least int64
}

// trip is a call under way.
type trip struct {
	at int64 // when it was sent, microseconds
	n  int   // renewals
	// extra: it went although there was no room.
	extra bool
}

const (
	firstWindow = 64
	leastWindow = 16 // a call of fewer costs the server as much for each as it costs for the call: only one that was not answered leads there
	mostWindow  = maxCalls * maxBatch
	// calm is how long a call takes, in microseconds, of a server that has as much to do as is good: it goes through its work in large
	// batches then. One that is far away has twice what it takes at best, up to farCalm: a call that took longer at best was not on
	// the way for so long.
	calm, farCalm = 150_000, 1_000_000
	// farAfter is how many calls in a row it takes to believe that the server is further away than it was: by another route, or
	// another server. Where it is others' renewals that keep it busy, quicker calls tell of the way again.
	farAfter = 16
)

func newWindow() window { return window{size: firstWindow} }

// target is how long a call may take.
func (w *window) target() int64 { return max(calm, min(2*w.best, farCalm)) }

// room returns how many more renewals may be sent at now: none until it is worth a call. Where all calls under way take twice what they may,
// one more goes: if it is answered first those hang, and are to keep no others; if not the server is busy, and has no more than twice as much of it.
func (w *window) room(now int64) int {
	room := int(w.size) - w.under
	if w.under > 0 && room < max(int(w.size)/4, 1) {
		w.short = true
		if now < w.next() {
			return 0
		}
		return min(int(w.size), maxBatch)
	}
	return min(room, maxBatch)
}

func (w *window) late(t *trip) int64 { return t.at + 2*w.target() }

// most is how long the youngest call may yet take, in microseconds, of a server that only has much to do: a window of renewals twice
// what it should before one more call goes, and twice that with what the other brings.
func (w *window) most() int64 {
	return int64(4 * float64(w.target()) * min(float64(w.under)/w.size, 1))
}

// next returns when there is room again if no call is answered; bucket.Never where there is none then, either.
func (w *window) next() int64 {
	if len(w.trips) == 0 || w.trying() {
		return bucket.Never
	}
	return w.late(w.trips[len(w.trips)-1]) // the youngest
}

// trying reports whether a call is under way for which there was no room.
func (w *window) trying() bool {
	return slices.ContainsFunc(w.trips, func(t *trip) bool { return t.extra })
}

// sent says that a call with n renewals is under way, of as many as might have been.
func (w *window) sent(now int64, n, room int) *trip {
	t := &trip{now, n, w.under > 0 && w.under+n > int(w.size)}
	w.trips = append(w.trips, t)
	w.under += n
	w.short = n >= room
	return t
}

// ended says that a call is not under way any more.
func (w *window) ended(t *trip) {
	if i := slices.Index(w.trips, t); i >= 0 {
		w.trips = slices.Delete(w.trips, i, i+1)
		w.under -= t.n
	}
}

// answered says that a call was answered after so many microseconds.
func (w *window) answered(t *trip, took int64) {
	for _, o := range slices.Clone(w.trips[:max(slices.Index(w.trips, t), 0)]) {
		if t.at+took >= w.late(o) {
			w.ended(o) // as good as: a younger one came back before it
		}
	}
	w.ended(t)
	took = max(took, 1)
	if w.best == 0 || took < w.best {
		w.best = took
	}
	w.further(took)
	ratio := float64(w.target()) / float64(took)
	if ratio < 1 || w.short {
		w.change(t.n, ratio, min(w.size, leastWindow))
	}
}

// further notes whether the way has become longer.
func (w *window) further(took int64) {
	if w.size > leastWindow || took <= w.target() {
		w.far = 0
		return
	}
	if w.far == 0 || took < w.least {
		w.least = took
	}
	if w.far++; w.far == farAfter {
		w.best, w.far = w.least, 0
	}
}

// lost says that there is no contact any more: the next may be by another way.
func (w *window) lost() { w.best = 0 }

// failed says that a call was not answered. Of a server that answers none in time so little is asked that it can.
func (w *window) failed(t *trip) {
	w.ended(t)
	w.change(t.n, 0, 1)
}

// change moves the window to ratio times its size, between a half and twice, once all of it was answered, and to no less than least.
func (w *window) change(n int, ratio, least float64) {
	w.size = min(max(w.size+float64(n)*(min(max(ratio, 0.5), 2)-1), least), mostWindow)
}
