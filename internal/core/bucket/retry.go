package bucket

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// retryAfterLocked is when n units may be there: from the trickle, or in the whole bucket, be it that asking
// makes sense before, for others may give some back; lost says that nobody is there to be asked.
func (b *Bucket) retryAfterLocked(now, n int64, lost bool) int64 {
	wait := max(b.denyUntil-now, b.unitAt-now, 0)
	if b.live && b.trickle > 0 && n <= b.room {
		soon := b.trickleTakesLocked(n - b.stock.units() - b.aside() + b.missingLocked())
		if wait == 0 || soon < wait || b.paced { // which is not asked for: it comes
			wait = soon
		}
	}
	if lost && wait == 0 {
		wait = outageWait
	}
	return max(wait, b.lacksLocked(now, n), 1)
}

// RetryAfter is when n units that the bucket just refused may be there; 0 where it never has as many. lost says that nobody is there to be
// asked.
func (b *Bucket) RetryAfter(now, n int64, lost bool) int64 {
	b.mu.Lock()
	defer b.leave()
	if b.hopelessLocked(n) {
		return 0
	}
	return b.retryAfterLocked(now, n, lost)
}

// hopelessLocked reports whether n units are more than the whole bucket ever has.
func (b *Bucket) hopelessLocked(n int64) bool {
	return b.capacity > 0 && n > b.capacity+b.Rule.Limit.Borrow
}

// lacksLocked is about when the whole bucket has n units, as far as it is known here and if nobody else asks, where
// more than one is asked for: what the store says is of the first. What others have given back by then is not in it.
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
		return reset // by then all that was used has faded; when so much has, is not known here
	case left == 0: // or less, for a bucket may be overdrawn: when all is back is known
		return max(reset-b.refillTakes(b.capacity+b.Rule.Limit.Borrow-n), b.refillTakes(lacks))
	}
	return b.refillTakes(lacks)
}

// refills reports whether the whole bucket gains its rate all the time.
func (t *Terms) refills() bool {
	return t.Rule.Limit.Algorithm == limit.TokenBucket || t.Rule.Limit.Algorithm == limit.LeakyBucket
}

// refillTakes is how many microseconds the whole bucket takes to gain n units.
func (t *Terms) refillTakes(n int64) int64 {
	return int64(min(math.Ceil(float64(n)*float64(t.Rate.Per.Microseconds())/float64(t.Rate.Units)), 1<<53))
}

// trickleTakesLocked is how many microseconds after its last credit the trickle, which is not 0, has
// brought n tokens, what it pays first included.
func (b *Bucket) trickleTakesLocked(n int64) int64 {
	missing := float64(n+b.debt)*limit.Micro - float64(b.level%limit.Micro)
	return int64(min(math.Ceil(missing*1e6/float64(b.trickle)), 1<<53))
}
