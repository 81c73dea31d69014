package ready

import (
	"context"
	"sync"
	"time"
)

// mostGap is how long a part may go without an answer and be taken to have been there all the while: it is asked each
// second, and has two to answer.
const mostGap = 5 * time.Second

// unbroken is a time that goes on while it is said to, at least every mostGap. Clocks tell no such time by themselves:
// they go on while the machine, or all there is, stands still.
type unbroken struct {
	mu          sync.Mutex
	since, last time.Time // by the wall clock
}

// Ledger is readiness of a ledger, which can be settled with, and for how long it was there without a break.
type Ledger struct {
	ping func(context.Context) error
	unbroken
}

// NewLedger returns the part of a ledger that is pinged.
func NewLedger(ping func(context.Context) error) *Ledger { return &Ledger{ping: ping} }

// Part is how readiness asks it, each second.
func (l *Ledger) Part() Part { return Part{"ledger", l.check} }

// Lasts returns for how long it has been there by now, 0 if it is not.
func (l *Ledger) Lasts() time.Duration { return l.lasts() }

func (l *Ledger) check(ctx context.Context) error {
	err := l.ping(ctx)
	if err == nil {
		l.goesOn()
	}
	return err
}

// goesOn says that it goes on, or begins.
func (u *unbroken) goesOn() {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := wall()
	if u.brokenLocked(at) {
		u.since = at
	}
	u.last = at
}

// lasts returns for how long it has gone on by now, 0 if it does not.
func (u *unbroken) lasts() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := wall()
	if u.brokenLocked(at) {
		return 0
	}
	return at.Sub(u.since)
}

// brokenLocked reports whether nothing was said for too long by at, or the clock was set back.
func (u *unbroken) brokenLocked(at time.Time) bool {
	return at.Before(u.last) || at.Sub(u.last) > mostGap
}

// wall is the time by the wall clock. The monotonic one may stand while a machine is suspended, and others go on.
func wall() time.Time { return time.Now().Round(0) }
