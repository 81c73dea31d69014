package agent

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// valueSep joins the values of an entry; no value may hold it.
const valueSep = "\x1f"

// Entry is a bucket with what identifies it. A decision that finds it reads the end of this struct, and what requests touch. Where a
// request is remembered it reads the latter alone.
type Entry struct {
	Bucket
	// Behind it, in the same object, are its values or where they are: see values.
}

// tags are what only a bucket that is an entry has.
type tags struct {
	// Flying: a call carries its renewal. The owner's.
	Flying bool
	// Ready: it is to be renewed, and waits for a call. The owner's.
	Ready  bool
	length uint8 // of its values; longValues where they are elsewhere
}

// marks are flags of a bucket, and above them how many requests are between a failed Take and its outcome.
type marks struct{ atomic.Uint32 }

const (
	dead    = 1 << iota // out of the table: match again
	queued              // in the owner's queue
	lost                // its renewals have failed for a while
	durable             // requests touch a cell of a journal's, not own; never written later
	odd                 // it goes by its scope's odd terms; written under the mutex, by the owner
	missed              // it has no cell of the journal's, and was counted as such; guarded by Journal.mu
	leaving             // it makes room for others; the owner's
	pinned              // handles hold it: see pins; from here on it is in use, and not dropped
	slow                // one request
)

func (of *Bucket) has(flag uint32) bool { return of.marks.has(flag) }

func (m *marks) has(flag uint32) bool { return m.Load()&flag != 0 }

func (m *marks) set(flag uint32, to bool) {
	if to {
		m.Or(flag)
	} else {
		m.And(^flag)
	}
}

// Try is Take for a request that asks again: it leaves no trace of a refusal.
func (e *Entry) Try(n int64) bool {
	return takeQuietly(&e.at.tokens, n)
}

// Stock is what Take(1) subtracts a Unit from, and refuses when it falls below zero: for
// callers that cannot afford a call. They hold a Pin.
func (e *Entry) Stock() *counter { return &e.at.tokens } //nolint:revive // an atomic.Int64, but in one test's build

// Hold is Bucket.Hold.
func (e *Entry) Hold(n int64) { e.at.pending.Add(n) }

// Release is Bucket.Release.
func (e *Entry) Release(n int64) { e.at.pending.Add(-n) }

// Line is what the owner's loop keeps of a bucket that wants more than its schedule. No one else touches it.
type Line struct {
	Force  int64 // renew at this time although nothing presses, for its limit changed; 0 for no
	Since  int64 // when a call first did not answer it; 0 where the last did
	Retry  int64 // not to be asked for before this; 0 for no such time
	Fails  int32 // calls in a row that brought it no lease
	Hungry int32 // answers in a row that left requests waiting
}

// Line returns what the owner keeps of the bucket.
func (e *Entry) Line() Line {
	b := e.open(new(hand))
	defer b.close()
	return b.line
}

// SetLine says what the owner keeps of the bucket from now on.
func (e *Entry) SetLine(l Line) {
	b := e.open(new(hand))
	defer b.close()
	b.line = l
}

// trial reports whether the limit denies nothing.
func (s *Scope) trial() bool { return s.shadow || s.now.Load().rule.Limit.Shadow }

// meter is the meter that the limit's buckets feed; empty for none.
func (s *Scope) meter() string {
	if s.trial() {
		return ""
	}
	return s.now.Load().rule.Limit.Meter
}

// Excuse says that n units that the bucket refused are not denied by it.
func (e *Entry) Excuse(n int64) {
	if c := e.mapped(); c != nil {
		c.excused.Add(n)
		return
	}
	e.counted().excused.Add(n)
}

// Overage reports whether the bucket is of what a soft limit admits above itself.
func (e *Entry) Overage() bool { return e.scope().overage }

// OnTrial reports whether the bucket's limit denies nothing. The owner's.
func (e *Entry) OnTrial() bool { return e.scope().trial() }

// Shadow reports whether the bucket is the shadow version's.
func (e *Entry) Shadow() bool { return e.scope().shadow }

// Limit is the limit's name.
func (e *Entry) Limit() string { return e.scope().limit }

// Held is the limit as it is now, but for the meter.
func (e *Entry) Held() limit.Held { return e.scope().held() }

// Registry is where the bucket is, whose clock it is told.
func (e *Entry) Registry() *Registry { return e.scope().registry }

// Tenant is whose plan holds the limit; empty at the policy's top level.
func (e *Entry) Tenant() string { return e.scope().tenant }

// Values are what tells the bucket from others of its limit, in the limit's order.
func (e *Entry) Values() []string {
	if len(e.scope().names) == 0 {
		return nil
	}
	return e.AppendValues(nil)
}

// AppendValues appends them.
func (e *Entry) AppendValues(to []string) []string {
	rest := e.values()
	for range len(e.scope().names) - 1 {
		var v string
		v, rest, _ = strings.Cut(rest, valueSep)
		to = append(to, v)
	}
	if len(e.scope().names) > 0 {
		to = append(to, rest)
	}
	return to
}

// Lost reports whether the bucket's renewals have failed for a while.
func (e *Entry) Lost() bool { return e.marks.has(lost) }

// SetLost says so.
func (e *Entry) SetLost(is bool) {
	e.marks.set(lost, is)
	e.reopen() // it denies as in an outage from now on
}

// Orphan reports whether the policy no longer has the bucket's limit. The owner's.
func (e *Entry) Orphan() bool { return e.scope().orphan }

// Inherit raises or lowers the units taken for tenants below the bucket's own, between a
// Hold of as many and its Release.
func (e *Entry) Inherit(n int64) {
	if c := e.mapped(); c != nil {
		c.inherited.Add(n)
		return
	}
	e.counted().inherited.Add(n)
}

// pins are how many handles hold a bucket, of those that any does: few have one, so that a count in each would be for nothing.
type pins struct {
	mu sync.Mutex
	of map[*Entry]int
}

// Pin keeps the entry from being dropped, for a handle; Unpin ends that.
func (e *Entry) Pin() {
	p := &e.scope().registry.pins
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[*Entry]int)
	}
	p.of[e]++
	e.marks.set(pinned, true)
}

// Unpin ends a Pin.
func (e *Entry) Unpin() {
	p := &e.scope().registry.pins
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[e]--; p.of[e] == 0 {
		delete(p.of, e)
		e.marks.set(pinned, false)
	}
}

// Enter announces that a request whose Take failed is about to ask Slow or
// Enqueue. On false the bucket is no more, and the caller matches again.
// On true it calls Leave when it has its answer or waits.
func (e *Entry) Enter() bool {
	if e.marks.Add(slow)&dead != 0 {
		e.Leave()
		return false
	}
	return true
}

// Leave ends an Enter.
func (e *Entry) Leave() { e.marks.Add(^uint32(slow - 1)) }

// Queue marks the entry as waiting for its owner's attention and reports whether
// it was not already.
func (e *Entry) Queue() bool { return !e.marks.has(queued) && e.marks.Or(queued)&queued == 0 }

// Dequeue ends a Queue; the owner calls it before it looks at the entry.
func (e *Entry) Dequeue() { e.marks.And(^uint32(queued)) }

func newEntry(s *Scope, values []byte, now int64, j *Journal, alone bool) *Entry {
	e := entryWith(values)
	e.from.Store(&s.scoped)
	e.init(s, j.mount(e), alone, now)
	return e
}

// activeLocked notes that the bucket was in use.
func (b *book) activeLocked(now int64) { b.active = now/grain + 1 }

// pairs writes name=value pairs as ledger.Row has them, without the one at skip.
func pairs(names []string, values string, skip int) string {
	size := len(values)
	for _, name := range names {
		size += len(name) + len("=")
	}
	var b strings.Builder
	for i, name := range names {
		var v string
		v, values, _ = strings.Cut(values, valueSep)
		if i == skip {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(ledger.AttributeSep)
		} else {
			b.Grow(size)
		}
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(v)
	}
	return b.String()
}

// row returns the key of the entry's usage, and false where it feeds none: what
// was admitted is billed once, by the limit that names the meter. Denials count for every
// limit of a plan, without attributes where it is not metered.
func (e *Entry) row(slot int64) (ledger.Row, bool) {
	s := e.scope()
	// The tenant's name is in an object of its own, behind which is the rest that no row is to keep.
	r := ledger.Row{Slot: slot, Tenant: strings.Clone(s.tenant), Limit: s.limit, Version: s.version, Meter: s.meter()}
	switch at := s.tenantAt(); {
	case s.now.Load().rule.Limit.Shadow:
		r.Attributes = ledger.WouldDeny
	case at >= 0 && r.Meter != "":
		r.Tenant = strings.Clone(e.rootedIn())
		r.Attributes = pairs(s.names, e.values(), at)
	case r.Meter != "":
		r.Attributes = pairs(s.names, e.values(), at)
	}
	if r.Tenant != "" {
		r.Plan = e.planNow(r.Tenant)
	}
	return r, r.Tenant != ""
}

// Dead reports whether the entry was dropped.
func (e *Entry) Dead() bool { return e.marks.has(dead) }

// Counts returns units admitted and denied in all, and of those admitted how many
// the entry bills. The owner's.
func (e *Entry) Counts() (admitted, denied, billed int64) {
	b := e.open(new(hand))
	defer b.close()
	b.foldLocked()
	admitted, denied = b.cell.admitted(), b.cell.denied()
	denied = max(denied-e.excused(), 0)
	if e.scope().meter() != "" {
		billed = max(admitted-e.inherited(), 0)
	}
	return admitted, denied, billed
}

// Quiet reports whether no request is between taking from the bucket and deciding.
func (e *Entry) Quiet() bool { return e.marks.Load() < slow && e.at.pending.Load() == 0 }
