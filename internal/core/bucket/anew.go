package bucket

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// anewAfter is how many seconds after a lease's end the conversation begins anew: before the store
// forgets the record, and so late that nothing of the lease is given back any more, whatever is reported
// then. 0 for never: slots are reported as in use, and a long hold keeps the lease in the sums.
func anewAfter(l *limit.Limit) int16 {
	const life = lease.RecordLife / 1_000_000
	switch {
	case l.Algorithm == limit.Concurrency || l.FallbackHold > time.Minute:
		return 0
	case l.Algorithm == limit.SlidingWindowLog:
		return life + life/8 // an entry of the log can be taken out while there is a record of it
	}
	return life / 2
}

// beginAnewLocked begins another conversation when the last lease ended long ago. What was spent of
// it was taken out of the bucket when it was granted. Once the store has no record of that,
// it would take it out again, as spent by a holder that it does not know; so it is reported no more. Whoever spent
// more than it was granted reports all of it.
func (b *Bucket) beginAnewLocked(now int64) {
	spent := b.toldAdmitted - b.answered()
	if b.live || b.anewIn == 0 || spent <= 0 || spent > b.granted || now-b.expires < int64(b.anewIn)*1_000_000 {
		return
	}
	b.turns, b.granted = 0, 0
	b.hearLocked(b.toldAdmitted, b.answeredDenied())
}
