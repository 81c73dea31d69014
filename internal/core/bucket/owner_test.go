package bucket

import (
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What an owner does in one go (Visit, Compose, Answer), in its parts.

func (b *Bucket) Tick(now int64, lost bool) (served []*Waiter, late int64) {
	defer b.enter().leave()
	return b.tickLocked(now, lost)
}

func (b *Bucket) Expire(now int64, lost bool) {
	defer b.enter().leave()
	b.foldLocked()
	b.expireLocked(now, lost)
}

func (b *Bucket) Due(now int64) int64 {
	defer b.enter().leave()
	return b.dueLocked(now)
}

func (b *Bucket) Turn(now int64) int64 {
	defer b.enter().leave()
	return b.turnTimeLocked(now)
}

func (b *Bucket) Unused() bool {
	defer b.enter().leave()
	return b.unusedLocked(0)
}

func (b *Bucket) RenewStrained(now int64, final bool, strain int64) lease.Renewal {
	defer b.enter().leave()
	return b.renewLocked(now, final, strain)
}

func (b *Bucket) Beyond() int64 {
	defer b.enter().leave()
	return b.beyondLocked()
}

func (b *Bucket) Reserved() int64 {
	defer b.enter().leave()
	return b.reservedLocked()
}

// New returns a bucket without a lease.
func New(t *Terms, at *Cell, crowded bool, now int64) *Bucket {
	b := new(Bucket)
	b.Init(t, at, crowded, 0, now)
	return b
}

// Of is New of a limit that no tenant is known to hold.
func Of(l *limit.Limit) *Bucket { return New(TermsAlone(l), nil, false, 0) }

func TermsAlone(l *limit.Limit) *Terms {
	held := *l
	if held.EpsilonPPM == 0 && held.Enforcement != limit.Strict {
		held.EpsilonPPM = limit.DefaultEpsilonPPM
	}
	return TermsOf((&limit.Rule{Limit: held}).Hold())
}

// strictIf is the enforcement of a limit with that epsilon.
func strictIf(epsilonPPM int64) limit.Enforcement {
	if epsilonPPM == 0 {
		return limit.Strict
	}
	return limit.Hard
}
