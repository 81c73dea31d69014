package lease

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Sweep removes records of holders that are long gone, looking at a few. It
// changes no answer: a record that old is ignored.
func (s *State) Sweep(now int64) {
	seen := 0
	for holder, rec := range s.Holders {
		if s.Gone(rec) {
			delete(s.Holders, holder)
		}
		if seen++; seen == 2 {
			return
		}
	}
}

// Gone reports whether a record of the bucket may be dropped: its holder is long gone.
func (s *State) Gone(r *Record) bool { return r.gone(s.Last) }

// Idle reports whether the bucket can be forgotten at now without a loss. By then it is full, its window is
// over, and every record is out of date. Each grant sets Full.
func (s *State) Idle(now int64) bool {
	return now >= s.Full && now+s.Offset >= s.Last
}

// AnewAfter is how many seconds after a lease's end its holder begins the conversation anew. It is late enough that nothing of the
// lease is given back any more, whatever is reported then. Except for a log, it is also before the store forgets the
// record. It is 0 for never: slots are reported as in use, and a long hold keeps the lease in the sums.
func AnewAfter(l *limit.Limit) int16 {
	const life = RecordLife / 1_000_000
	switch {
	case l.Algorithm == limit.Concurrency || l.FallbackHold > time.Minute:
		return 0
	case l.Algorithm == limit.SlidingWindowLog:
		return life + life/8 // an entry of the log can be taken out while there is a record of it
	}
	return life / 2
}
