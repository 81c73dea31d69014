package agent

import (
	"cmp"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/wheel"
)

// Entry is a bucket with what identifies it.
type Entry struct {
	scope *Scope
	key   *byte // its values begin there: see values
	marks atomic.Uint32
	when  wheel.When // it is due; the wheel's

	pins   atomic.Int32 // handles that hold it
	length uint16       // of its values
	// Flying: a call carries its renewal. The owner's.
	Flying bool
	// Ready: it is to be renewed, and waits for a call. The owner's.
	Ready bool

	bucket.Bucket // behind what a denial reads as well
}

// Marks are flags, and above them how many requests are between a failed Take and its outcome.
const (
	dead    = 1 << iota // out of the table: match again
	queued              // in the owner's queue
	lost                // its renewals have failed for a while
	missed              // it has no cell of the journal's, and was counted as such
	leaving             // it makes room for others; the owner's
	slow                // one request; from here on it is in use, and not dropped
)

func (e *Entry) has(flag uint32) bool { return e.marks.Load()&flag != 0 }

func (e *Entry) mark(flag uint32, to bool) {
	if to {
		e.marks.Or(flag)
	} else {
		e.marks.And(^flag)
	}
}

func newEntry(s *Scope, values string, now int64, at *bucket.Cell, j releaser, crowded bool, agents int64) *Entry {
	e := &Entry{scope: s, key: unsafe.StringData(values), length: uint16(len(values))}
	e.Init(s.now.Load(), at, crowded, agents, now)
	if at != nil {
		runtime.AddCleanup(e, j.Release, at)
	}
	return e
}

// When is when the bucket is due; the wheel's.
func (e *Entry) When() *wheel.When { return &e.when }

// releaser takes back the cell of an entry that nobody can reach any more.
type releaser interface{ Release(*bucket.Cell) }

// values are the bucket's key; see match.Item.AppendKey.
func (e *Entry) values() string { return unsafe.String(e.key, int(e.length)) }

// Values are what tells the bucket from others of its limit, in the limit's order.
func (e *Entry) Values() []string { return e.AppendValues(nil) }

// Compare orders buckets in a way that is the same in every process; the table's order is not.
func Compare(a, b *Entry) int {
	return cmp.Or(cmp.Compare(a.values(), b.values()), cmp.Compare(a.Limit(), b.Limit()), cmp.Compare(a.Tenant(), b.Tenant()))
}

// AppendValues appends them.
func (e *Entry) AppendValues(to []string) []string {
	if len(e.scope.names) == 0 {
		return to
	}
	return match.AppendValues(to, e.values())
}

// trial reports whether the limit denies nothing.
func (s *Scope) trial() bool { return s.shadow || s.now.Load().Rule.Limit.Shadow }

// meter is the meter that the limit's buckets feed; empty for none.
func (s *Scope) meter() string {
	if s.trial() {
		return ""
	}
	return s.now.Load().Rule.Limit.Meter
}

// Overage reports whether the bucket counts the units that a soft limit admits above itself.
func (e *Entry) Overage() bool { return e.scope.overage }

// Metered reports whether the units that the bucket admits are billed.
func (e *Entry) Metered() bool { return e.scope.meter() != "" }

// OnTrial reports whether the bucket's limit denies nothing. The owner's.
func (e *Entry) OnTrial() bool { return e.scope.trial() }

// Shadow reports whether the bucket is the shadow version's.
func (e *Entry) Shadow() bool { return e.scope.shadow }

// Limit is the limit's name.
func (e *Entry) Limit() string { return e.scope.limit }

// Held is the limit as it is now, but for the meter.
func (e *Entry) Held() limit.Held { return e.scope.held() }

// Registry returns the bucket's registry, whose clock the bucket is told.
func (e *Entry) Registry() *Registry { return e.scope.registry }

// Tenant is whose plan holds the limit; empty at the policy's top level.
func (e *Entry) Tenant() string { return e.scope.tenant }

// Accounted reports whether the entry's leases are accounted for. Slots are not spent, and limits that are only tried
// take nothing.
func (e *Entry) Accounted() bool { return !e.scope.now.Load().Slots() && !e.Shadow() }

// Lost reports whether the bucket's renewals have failed for a while.
func (e *Entry) Lost() bool { return e.has(lost) }

// SetLost says so.
func (e *Entry) SetLost(is bool) {
	e.mark(lost, is)
	e.Reopen() // it denies as in an outage from now on
}

// Orphan reports whether the policy no longer has the bucket's limit. The owner's.
func (e *Entry) Orphan() bool { return e.scope.orphan() }

// Pin keeps the entry from being dropped, for a handle.
func (e *Entry) Pin() { e.pins.Add(1) }

// Unpin ends a Pin.
func (e *Entry) Unpin() { e.pins.Add(-1) }

// Enter announces that a request whose Take failed is about to call Ask or
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
func (e *Entry) Queue() bool { return !e.has(queued) && e.marks.Or(queued)&queued == 0 }

// Dequeue ends a Queue; the owner calls it before it looks at the entry.
func (e *Entry) Dequeue() { e.mark(queued, false) }

// Dead reports whether the entry was dropped.
func (e *Entry) Dead() bool { return e.has(dead) }

// inUse reports whether a handle or a request has the bucket.
func (e *Entry) inUse() bool { return e.marks.Load() >= slow || e.pins.Load() > 0 }

// Quiet reports whether no request is between taking from the bucket and deciding.
func (e *Entry) Quiet() bool { return e.marks.Load() < slow && e.Bucket.Quiet() }

// Compose is Bucket.Compose; of a bucket whose limit is gone it is the last.
func (e *Entry) Compose(now, idleSince int64, final bool, strain int64) lease.Renewal {
	return e.Bucket.Compose(now, idleSince, final || e.scope.orphan(), e.has(leaving), strain)
}

// Counts returns units admitted and denied in all, and of those admitted how many
// the entry bills. The owner's.
func (e *Entry) Counts() (admitted, denied, billed int64) {
	admitted, denied, billed = e.Bucket.Counts()
	if !e.Metered() {
		billed = 0
	}
	return admitted, denied, billed
}

// Row returns the key of the entry's usage, and false where it feeds none.
func (e *Entry) Row(slot int64) (ledger.Row, bool) { return e.scope.row(e.values(), slot) }

// row is Entry.Row of a bucket with those values. Only the limit that names a meter bills admitted units. Denials count
// for every limit of a plan, without attributes where it is not metered.
func (s *Scope) row(values string, slot int64) (ledger.Row, bool) {
	// Clone, for a row must not keep alive the text that the name is a part of.
	r := ledger.Row{Slot: slot, Tenant: strings.Clone(s.tenant), Limit: s.limit, Version: s.version, Meter: s.meter()}
	switch at := s.tenantAt(); {
	case s.now.Load().Rule.Limit.Shadow:
		r.Attributes = ledger.WouldDeny
	case at >= 0 && r.Meter != "":
		r.Tenant = strings.Clone(s.rootedIn(values))
		r.Attributes = pairs(s.names, values, at)
	case r.Meter != "":
		r.Attributes = pairs(s.names, values, at)
	}
	if r.Tenant != "" {
		r.Plan = s.planNow(r.Tenant)
	}
	return r, r.Tenant != ""
}

// pairs writes name=value pairs as ledger.Row has them, without the one at skip.
func pairs(names []string, values string, skip int) string {
	var buf [256]byte
	b := buf[:0]
	for i, name := range names {
		if i == skip {
			continue
		}
		if len(b) > 0 {
			b = append(b, ledger.AttributeSep...)
		}
		b = append(append(append(b, name...), '='), match.Value(values, i)...)
	}
	return string(b)
}
