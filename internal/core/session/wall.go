package session

import "time"

const (
	// jumpOver is a step of the wall clock that is no drift: a machine off by 500 ppm needs half a day for it.
	jumpOver = 20 * time.Second
	// believeAfter is how long a step must last to be taken for the truth. A slot: what
	// is booked meanwhile is late or early by as much as the clock steps, once.
	believeAfter = defaultSlot
)

// wall is the time of day that usage is booked under. It follows the machine's clock, but not at once where that
// jumps. A clock that is ten minutes ahead for a few seconds would date usage where the ledger takes none yet. One
// that is behind would bill a month that is over. It goes on by the monotonic clock until the step has lasted.
type wall struct {
	ahead   time.Duration // of the machine's clock over the monotonic one, as believed
	stepped time.Duration // where that jumped to; 0 while it has not
	since   time.Duration // when
	set     bool
}

// at returns the time to book under, where the machine's clock says now and the
// monotonic one mono.
func (w *wall) at(now time.Time, mono time.Duration) time.Time {
	ahead := time.Duration(now.UnixNano()) - mono
	off := ahead - w.ahead
	switch {
	case !w.set, off.Abs() <= jumpOver:
		*w = wall{ahead: ahead, set: true}
	case w.stepped == 0, (ahead - w.stepped).Abs() > jumpOver:
		w.stepped, w.since = ahead, mono // it jumped, or jumped on
	case mono-w.since >= believeAfter:
		*w = wall{ahead: ahead, set: true}
	default:
		w.stepped = ahead // it runs on from there
	}
	return time.Unix(0, int64(mono+w.ahead))
}
