package agent

import (
	"slices"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/reqcache"
)

const (
	// knownLimits is how many limits a request may meet that is remembered.
	knownLimits = 4
	// knownFloor is how many requests may be remembered however few buckets there are, and
	// knownEach how many for each bucket where that is more.
	knownFloor = 16_384
	knownEach  = 2
)

// Resolution is the limits that a request meets, in the order of asking, and their buckets. It is immutable. A known
// request is not matched, and neither its tenant nor its buckets are looked up.
type Resolution struct {
	set       *Set
	limits    uint8 // how many
	strictest uint8
	holds     uint8              // a bit for each limit whose units are announced before they are taken: Item.Hold
	marks     uint8              // likewise: see Item.Inherited, and from timed on limit.Limit.Timed
	items     [knownLimits]uint8 // their places in the set
	first     met                // the first limit's bucket
	more      *more              // what few requests need; nil for none
}

// more is what a resolution has beyond its first limit's bucket.
type more struct {
	met     [knownLimits - 1]met         // the other limits' buckets
	weights *[knownLimits]*limit.Weights // by limit; nil where all count requests
}

// weighed is more of a request with weights, which lie beside it in memory.
type weighed struct {
	more
	of [knownLimits]*limit.Weights
}

// met is a bucket that a request meets.
type met struct {
	at    *bucket.Hot // what requests touch of it
	entry *Entry
}

// met returns limit i's bucket.
func (r *Resolution) met(i int) *met {
	if i == 0 {
		return &r.first
	}
	return &r.more.met[i-1]
}

// Limits returns how many limits the request meets: at least one.
func (r *Resolution) Limits() int { return int(r.limits) }

// Strictest returns which of them is the strictest.
func (r *Resolution) Strictest() int { return int(r.strictest) }

// Item returns limit i.
func (r *Resolution) Item(i int) *match.Item { return &r.set.Items[r.items[i]] }

// Entry returns the bucket of limit i, which may be no more.
func (r *Resolution) Entry(i int) *Entry { return r.met(i).entry }

// Set returns the set that held the request.
func (r *Resolution) Set() *Set { return r.set }

// timed is the first bit of marks for limits whose units are to be taken in time.
const timed = 1 << knownLimits

// Take takes n units of every bucket, in the order of asking, and announces them first where that is due (match.Item). It
// returns how many buckets had them. Of the next one they are announced all the same, and the others were not asked.
func (r *Resolution) Take(n int64, clock func() int64) int {
	for i := range int(r.limits) {
		m := r.met(i)
		if r.holds>>i&1 != 0 {
			m.at.Hold(n)
		}
		if r.marks>>i&1 != 0 {
			m.entry.Inherit(n)
		}
		if !r.take(m, i, n, clock) {
			return i
		}
	}
	for i := range int(r.limits) {
		if r.holds>>i&1 != 0 {
			r.met(i).at.Release(n)
		}
	}
	return int(r.limits)
}

// take takes n units of limit i, in time.
func (r *Resolution) take(m *met, i int, n int64, clock func() int64) bool {
	if r.marks>>i&timed == 0 {
		return m.at.Take(n)
	}
	until := m.entry.Until()
	return m.at.Take(n) && m.entry.InTime(n, until, clock)
}

// Units are a request's units of each limit that it meets.
type Units [knownLimits]int64

// Weighs reports whether a limit's units may be others than the request's units of requests.
func (r *Resolution) Weighs() bool { return r.more != nil && r.more.weights != nil }

// UnitsOf returns the units that limit i makes of what a request costs, if Weighs. It reports false where it cannot.
func (r *Resolution) UnitsOf(i int, a *limit.Amounts) (n int64, ok bool) {
	return r.more.weights[i].Units(a)
}

// Costs are those of the policy that the request was resolved by.
func (r *Resolution) Costs() *limit.Costs { return r.set.costs }

// TakeEach is Take for units that differ by limit, if Weighs: those that each makes of what the request costs. It writes
// them to units. A bucket of which the request needs none is not asked, and had them. One whose limit cannot make units
// of the costs had none.
func (r *Resolution) TakeEach(a *limit.Amounts, units *Units, clock func() int64) int {
	for i := range int(r.limits) {
		n, ok := r.more.weights[i].Units(a)
		if !ok {
			return i
		}
		if n == 0 {
			continue
		}
		units[i] = n
		m := r.met(i)
		if r.holds>>i&1 != 0 {
			m.at.Hold(n)
		}
		if r.marks>>i&1 != 0 {
			m.entry.Inherit(n)
		}
		if !r.take(m, i, n, clock) {
			return i
		}
	}
	for i := range int(r.limits) {
		if r.holds>>i&1 != 0 && units[i] > 0 {
			r.met(i).at.Release(units[i])
		}
	}
	return int(r.limits)
}

// Dry returns the first limit whose bucket has no unit at hand; -1 for none. A request that asks there first takes nothing
// of the others in vain. first says so of the first one.
func (r *Resolution) Dry(first bool) int {
	for i := range int(r.limits) {
		if i == 0 && first || i > 0 && r.met(i).at.Dry() {
			return i
		}
	}
	return -1
}

// Recall returns the resolution of a request with this key and these attributes; nil where it is not known, or holds no
// more. again then says that the request is worth remembering. dry says that its first bucket has no unit at hand.
func (r *Registry) Recall(k reqcache.Key, attributes []limit.Attribute) (known *Resolution, dry, again bool) {
	if known, dry, again = r.known.Get(k, attributes); known != nil && known.set.Gone() {
		return nil, false, true
	}
	return known, dry, again
}

// Remember keeps a request's resolution: the limits that it meets, in the order of asking, and their buckets. It must
// depend on the attributes and the set alone. The end of slots must be told, so requests for them are not remembered.
func (r *Registry) Remember(k reqcache.Key, attributes []limit.Attribute, set *Set, items []*match.Item, entries []*Entry, strictest int) {
	if len(items) == 0 || len(items) > knownLimits || set.Trying || slices.ContainsFunc(items, func(it *match.Item) bool { return it.Slots }) {
		return
	}
	known := Resolution{set: set, limits: uint8(len(items)), strictest: uint8(strictest)}
	weighs := slices.ContainsFunc(items, func(it *match.Item) bool { return it.Weighs })
	if len(items) > 1 {
		known.more = new(more)
	}
	if weighs {
		w := new(weighed)
		known.more, w.weights = &w.more, &w.of
	}
	for i, it := range items {
		place := set.Place(it)
		if place > 255 {
			return
		}
		known.items[i] = uint8(place)
		*known.met(i) = met{entries[i].Hot, entries[i]}
		if weighs {
			var ok bool
			if known.more.weights[i], ok = it.Rule.Weights(attributes); !ok {
				return // no request of these attributes is allowed
			}
		}
		if it.Hold {
			known.holds |= 1 << i
		}
		if it.Inherited {
			known.marks |= 1 << i
		}
		if it.Rule.Limit.Timed() {
			known.marks |= timed << i
		}
	}
	r.known.Put(k, attributes, known.first.at, known, max(knownFloor, knownEach*int(r.buckets.Load())))
}

// Dead reports whether a bucket is no more: the request is to be remembered anew.
func (r *Resolution) Dead() bool {
	for i := range r.Limits() {
		if r.Entry(i).Dead() {
			return true
		}
	}
	return false
}

// sweepKnown forgets resolutions that were not used for a while or hold no more. It notes the tenants of used ones as
// in use.
func (r *Registry) sweepKnown() {
	r.known.Sweep(func(known *Resolution, used bool) bool {
		if owner := known.set.owner; used && owner != nil && !owner.touched.Load() {
			owner.touched.Store(true)
		}
		return !known.set.Gone() && !known.Dead()
	})
}
