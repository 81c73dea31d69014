package renewal

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
)

// window is how many renewals may be under way: about as many as the server answers within calm. More would wait at the
// server, behind those of all other agents. It does not know which of them requests wait for, and executes in vain those
// whose call has timed out. So what is too much for the server waits here, and what requests wait for goes first.
//
// It follows how long calls take, as TCP Vegas does (Brakmo, Peterson 1995). If a window of renewals took half as long as
// it may, the next is twice as large, where there is as much to renew.
type window struct {
	size  float64
	trips []*trip // calls under way that count
	under int     // renewals of these
	best  int64   // the shortest that a call took in this contact, microseconds; 0 for not known
	short bool    // it was too small for what there was to send

	far   int   // calls in a row that took too long while the window was the smallest
	least int64 // the shortest that one of these took
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
	leastWindow = 16 // in smaller calls the call costs the server as much as its renewals; only a failed call leads there
	mostWindow  = maxCalls * maxBatch
	// calm is how long a call may take, in microseconds: a server that is as busy as is good works in large batches. A far
	// server may take twice the shortest call, up to farCalm.
	calm, farCalm = 150_000, 1_000_000
	// farAfter is how many slow calls in a row show that the server is further away than before: by another route, or
	// another server.
	farAfter = 16
)

func newWindow() window { return window{size: firstWindow} }

// target is how long a call may take.
func (w *window) target() int64 { return max(calm, min(2*w.best, farCalm)) }

// room returns how many more renewals may be sent at now: none until it is worth a call. Where all calls under way take
// twice what they may, one more goes. If it is answered first, those hang and no longer count. If not, the server is
// busy, and has twice as much to do at most.
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

// most is how long the youngest call may yet take, in microseconds, if the server is only busy. A window may take
// twice what it should before one more call goes, and twice that with it.
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

// found says that a server answers again, perhaps another, and by another route. One that was too busy is asked for
// little still.
func (w *window) found() { w.best = 0 }

// failed says that a call was not answered. A server that answers none in time is asked so little that it can.
func (w *window) failed(t *trip) {
	w.ended(t)
	w.change(t.n, 0, 1)
}

// change moves the window towards ratio times its size, from a half to twice, by the part of it that n renewals are. It
// becomes no smaller than least.
func (w *window) change(n int, ratio, least float64) {
	w.size = min(max(w.size+float64(n)*(min(max(ratio, 0.5), 2)-1), least), mostWindow)
}
