package lease

import (
	"cmp"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A sliding window log keeps the time of every unit that it granted, for a period. It grants only to requests that wait.
// They spend on arrival, or not at all once their lease is over. The time that counts is the lease's end. So units were
// admitted before it, and in every period at most the log's units. A step takes time in proportion to its entries: at
// most its units, which limit.MaxLog bounds.

// Entry is the units granted to be spent until one time.
type Entry struct {
	At    int64
	Units int64
}

// LongestWithin is the longest term of a log's lease, in microseconds.
const LongestWithin = 2 * ShortTerm

// logTerm is the term of a holder that does not say how soon it admits.
func logTerm(period int64) int64 { return max(min(FirstTerm, period/10), 1_000) }

// log is the step of a sliding window log.
func (x *step) log(g *Grant) {
	r, rec, next := x.r, x.rec, x.next
	switch spent := x.spent; {
	case rec == nil && r.ExpiresIn > 0: // forget took it into account
	case rec == nil:
		x.enter(spent)
	default:
		lent := rec.Lent / limit.Micro
		switch {
		case spent > lent:
			x.enter(spent - lent)
		case !x.anew():
			x.takeOut(rec.Expires, lent-spent)
		}
	}
	next.Largest = r.Largest
	next.Expires = x.t
	if r.Final {
		return
	}
	term := logTerm(r.Spec.Period)
	if r.Within > 0 {
		term = max(min(r.Within, LongestWithin), 1_000)
	}
	next.Expires = x.t + term
	waiting, granted := r.Waiting*limit.Micro, int64(0)
	if x.t >= x.Locked {
		granted = x.serve(whole(max(x.Level+r.Spec.Borrow*limit.Micro, 0)))
		if r.Spec.Lockout > 0 && granted < waiting {
			x.Locked = x.t + r.Spec.Lockout
		}
	}
	next.Lent = granted
	next.Lease.Stock = min(granted, r.Reserved*limit.Micro)
	x.hang(term, r.Spec.hold())
	x.note(next.Expires, granted/limit.Micro)
	g.Tokens = granted / limit.Micro
	g.TTL = term
	g.ExpirySlot = next.Slot
	g.Remaining = max(x.Level/limit.Micro, 0)
	if n := len(x.Log); n > 0 {
		g.Reset = max(x.Log[n-1].At+r.Spec.Period-x.t, 0)
	}
	level := x.Level + r.Spec.Borrow*limit.Micro
	switch {
	case x.t < x.Locked:
		g.DenyFor = max(x.Locked-x.t, 1_000)
	case r.Spec.Lockout > 0: // the next request has to ask: it locks the bucket
	case level < limit.Micro:
		g.DenyFor = x.untilUnit(level)
		if x.Out.Stock > 0 {
			g.DenyFor = min(g.DenyFor, ShortTerm) // what is reserved may come back
		}
	case granted < waiting:
		g.DenyFor = TooLarge
	}
	x.unitIn(g)
}

// untilUnit is how long it takes until enough of the oldest entries have left for one unit.
func (x *step) untilUnit(level int64) int64 {
	for _, e := range x.Log {
		if level += e.Units * limit.Micro; level >= limit.Micro {
			return max(e.At+x.r.Spec.Period-x.t, 1_000)
		}
	}
	return 1_000
}

// leave drops entries that are a period old, or older.
func (x *step) leave(to int64) {
	n := 0
	for n < len(x.Log) && x.Log[n].At+x.r.Spec.Period <= to {
		x.Level += x.Log[n].Units * limit.Micro
		n++
	}
	x.Log = x.Log[n:]
}

// note adds an entry.
func (x *step) note(at, units int64) {
	if units <= 0 {
		return
	}
	x.Level -= units * limit.Micro
	i, there := slices.BinarySearchFunc(x.Log, at, func(e Entry, at int64) int { return cmp.Compare(e.At, at) })
	if there {
		x.Log[i].Units += units
		return
	}
	x.Log = slices.Insert(x.Log, i, Entry{at, units})
}

// enter adds an entry for units that were spent unasked, as far as the bucket goes into debt.
func (x *step) enter(units int64) {
	x.note(x.t, min(units, mulDiv(x.Level-x.floor(), 1, limit.Micro)))
}

// takeOut takes unspent units out of the entry of that time, if it is still there.
func (x *step) takeOut(at, units int64) {
	if units <= 0 {
		return
	}
	for i := len(x.Log) - 1; i >= 0; i-- {
		if x.Log[i].At != at {
			continue
		}
		units = min(units, x.Log[i].Units)
		x.Log[i].Units -= units
		x.Level += units * limit.Micro
		if x.Log[i].Units == 0 {
			x.Log = append(x.Log[:i], x.Log[i+1:]...)
		}
		return
	}
}

// fillLog begins a log that was forgotten as if it had been used up evenly.
func (x *step) fillLog() {
	p := &x.r.Spec
	x.Log = make([]Entry, 0, p.Units)
	for i := int64(1); i <= p.Units; i++ {
		at := x.t - p.Period + mulDiv(p.Period, i, p.Units)
		if n := len(x.Log); n > 0 && x.Log[n-1].At == at {
			x.Log[n-1].Units++
			continue
		}
		x.Log = append(x.Log, Entry{at, 1})
	}
	x.Level = 0
}
