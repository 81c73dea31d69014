package ready

import (
	"context"
	"sync"
	"time"
)

// mostGap is the longest time without an answer that does not count as a break. A part is asked each second, and has
// two seconds to answer.
const mostGap = 5 * time.Second

// unbroken measures a time without a break: goesOn must be called at least every mostGap. A clock alone cannot, because
// it goes on while the machine, or everything, stands still.
type unbroken struct {
	mu          sync.Mutex
	since, last time.Time // by the wall clock
}

// Ledger is the readiness of a ledger to take reports, and how long it has lasted without a break.
type Ledger struct {
	ping func(context.Context) error
	unbroken
}

// NewLedger returns the part of a ledger that is pinged.
func NewLedger(ping func(context.Context) error) *Ledger { return &Ledger{ping: ping} }

// Part is the part of readiness that asks it, each second.
func (l *Ledger) Part() Part { return Part{"ledger", l.check} }

// Lasts returns how long the ledger has been there without a break, 0 if it is not there.
func (l *Ledger) Lasts() time.Duration { return l.lasts() }

func (l *Ledger) check(ctx context.Context) error {
	err := l.ping(ctx)
	if err == nil {
		l.goesOn()
	}
	return err
}

// goesOn continues the time, or begins it.
func (u *unbroken) goesOn() {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := wall()
	if u.brokenLocked(at) {
		u.since = at
	}
	u.last = at
}

// lasts returns how long the time has gone on, 0 if it does not.
func (u *unbroken) lasts() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := wall()
	if u.brokenLocked(at) {
		return 0
	}
	return at.Sub(u.since)
}

// brokenLocked reports whether the last call was too long before at, or the clock was set back.
func (u *unbroken) brokenLocked(at time.Time) bool {
	return at.Before(u.last) || at.Sub(u.last) > mostGap
}

// wall is the time by the wall clock. The monotonic clock may stand while a machine is suspended and others go on.
func wall() time.Time { return time.Now().Round(0) }
