package agent

import (
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/reqcache"
)

const (
	// knownLimits is how many limits a request may meet that is remembered.
	knownLimits = 4
	// knownFloor is how many requests may be remembered however few buckets there are, and
	// knownEach how many for each bucket where that is more.
	knownFloor = 16_384
	knownEach  = 2
	// ofSlots is a bit of Resolution.strictest: one of the limits is of slots.
	ofSlots = 1 << 7
)

// Resolution is what a request came to: the limits that it meets in the order of asking, and their buckets. It is
// immutable. A request that is known is not matched, and neither its tenant nor its buckets are looked up.
type Resolution struct {
	set       *Set
	limits    uint8
	strictest uint8                 // and ofSlots
	holds     uint8                 // of which limits units are announced before they are taken: a bit each; see Item.Hold
	inherited uint8                 // likewise; see Item.Inherited
	items     [knownLimits]uint8    // their places in the set
	first     met                   // the first limit's bucket
	more      *[knownLimits - 1]met // the others'; nil for none
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
	return &r.more[i-1]
}

// Limits returns how many limits the request meets: at least one.
func (r *Resolution) Limits() int { return int(r.limits) }

// Strictest returns which of them is the strictest.
func (r *Resolution) Strictest() int { return int(r.strictest &^ ofSlots) }

// Slots reports whether one of the limits is of slots.
func (r *Resolution) Slots() bool { return r.strictest&ofSlots != 0 }

// Item returns limit i.
func (r *Resolution) Item(i int) *Item { return &r.set.Items[r.items[i]] }

// Entry returns the bucket of limit i, which may be no more.
func (r *Resolution) Entry(i int) *Entry { return r.met(i).entry }

// Set returns the set that held the request.
func (r *Resolution) Set() *Set { return r.set }

// Take takes n units of every bucket, in the order of asking, and says before it what has to be known of each (Item). It
// returns how many buckets had them: where one did not, its units are announced, those of the ones before are in
// hand, and the others were not asked.
func (r *Resolution) Take(n int64) int {
	if r.limits == 1 && r.holds|r.inherited == 0 {
		if r.first.at.Take(n) {
			return 1
		}
		return 0
	}
	for i := range int(r.limits) {
		m := r.met(i)
		if r.holds>>i&1 != 0 {
			m.at.Hold(n)
		}
		if r.inherited>>i&1 != 0 {
			m.entry.Inherit(n)
		}
		if !m.at.Take(n) {
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

// Dry returns the first limit whose bucket has no unit at hand; -1 for none. A request that asks there first takes nothing
// of the others in vain.
func (r *Resolution) Dry() int {
	for i := range int(r.limits) {
		if r.met(i).at.Dry() {
			return i
		}
	}
	return -1
}

// Recall returns what a request of this key and these attributes came to before; nil where that is not known, or holds no
// more. again then says that it is worth remembering.
func (r *Registry) Recall(k reqcache.Key, attributes []limit.Attribute) (known *Resolution, again bool) {
	if known, again = r.known.Get(k, attributes); known != nil && known.set.Gone() {
		return nil, true
	}
	return known, again
}

// Remember keeps what a request was resolved to: the limits that it meets, in the order of asking, and
// their buckets. That must depend on the attributes and the set alone.
func (r *Registry) Remember(k reqcache.Key, attributes []limit.Attribute, set *Set, items []*Item, entries []*Entry, strictest int) {
	if len(items) == 0 || len(items) > knownLimits || set.Trying {
		return
	}
	known := Resolution{set: set, limits: uint8(len(items)), strictest: uint8(strictest)}
	if len(items) > 1 {
		known.more = new([knownLimits - 1]met)
	}
	for i, it := range items {
		place := set.Place(it)
		if place > 255 {
			return
		}
		known.items[i] = uint8(place)
		*known.met(i) = met{entries[i].Hot(), entries[i]}
		if it.Slots {
			known.strictest |= ofSlots
		}
		if it.Hold {
			known.holds |= 1 << i
		}
		if it.Inherited {
			known.inherited |= 1 << i
		}
	}
	r.known.Put(k, attributes, known, max(knownFloor, knownEach*int(r.buckets.Load())))
}

// Forget forgets a resolution if a bucket of it is no more.
func (r *Registry) Forget(k reqcache.Key, known *Resolution) {
	if known.dead() {
		r.known.Delete(k, known)
	}
}

// dead reports whether a bucket is no more.
func (r *Resolution) dead() bool {
	for i := range int(r.limits) {
		if r.met(i).entry.Dead() {
			return true
		}
	}
	return false
}

// sweepKnown forgets what was not used for a while or holds no more, and says of the tenants of the rest that they are in use.
func (r *Registry) sweepKnown() {
	r.known.Sweep(func(known *Resolution, used bool) bool {
		if owner := known.set.owner; used && owner != nil && !owner.touched.Load() {
			owner.touched.Store(true)
		}
		return !known.set.Gone() && !known.dead()
	})
}
