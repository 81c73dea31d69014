package bucket

import (
	"github.com/f4ee788f/quota/internal/core/limit"
)

// RetryAfter is when n units that the bucket just refused may be there, in microseconds from now; 0 where it never has
// as many. lost says that the server is out of contact.
func (b *Bucket) RetryAfter(now, n int64, lost bool) int64 {
	defer b.enter().leave()
	if b.hopelessLocked(n) {
		return 0
	}
	return b.retryAfterLocked(now, n, lost)
}

// retryAfterLocked returns when n units may be there, from the trickle or in the whole bucket. The store may name an
// earlier time to ask, for others may give some back.
func (b *Bucket) retryAfterLocked(now, n int64, lost bool) int64 {
	wait := max(b.denyUntil-now, b.unitAt-now, 0)
	if b.live && b.trickle > 0 && n <= b.room {
		soon := b.trickleTakesLocked(n - b.stock.units() - b.aside() + b.waitingLocked().missing)
		if wait == 0 || soon < wait || b.paced { // paced requests do not ask: what they want comes by itself
			wait = soon
		}
	}
	if lost && b.aloneLocked() {
		return max(min(wait, outageWait), 1) // it may be back by then
	}
	if lost && wait == 0 {
		wait = outageWait
	}
	return max(wait, b.lacksLocked(now, n), 1)
}

// lacksLocked is about when the whole bucket has n units, if nobody else asks. The store tells of the first unit only,
// so this is for several. It ignores units that others give back by then.
func (b *Bucket) lacksLocked(now, n int64) int64 {
	if n == 1 || b.slots || b.hopelessLocked(n) || b.answeredAt == 0 {
		return 0
	}
	left := b.leftLocked(now)
	lacks, reset := n-left-b.Rule.Limit.Borrow, max(b.resetAt-now, 0)
	switch {
	case lacks <= 0:
		return 0
	case b.length > 0: // a window gains nothing before its end
		return reset
	case !b.refills():
		return reset // by then all used units have faded; it is not known here when enough have
	case left == 0: // it may be overdrawn: only when all is back is known
		return max(reset-b.Rate.Takes(b.capacity+b.Rule.Limit.Borrow-n), b.Rate.Takes(lacks))
	}
	return b.Rate.Takes(lacks)
}

// refills reports whether the whole bucket gains its rate all the time.
func (t *Terms) refills() bool {
	return t.Rule.Limit.Algorithm == limit.TokenBucket || t.Rule.Limit.Algorithm == limit.LeakyBucket
}
