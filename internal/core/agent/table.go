package agent

import (
	"math/bits"
	"sync/atomic"
)

// table finds entries by hash, without a lock for readers. Writers hold the
// registry's mutex. A reader that races with a writer may miss an entry that is
// there, never find one that is not: a miss is looked up again under the mutex
// before anything is made of it.
//
// It is in parts, so that nobody who makes an entry waits for the growth of more than one: less than a millisecond where there
// are a million entries.
type table[T any] struct {
	parts [tableParts]part[T]
	live  int // entries
}

const tableParts = 256

// part is a table of the entries whose hashes have some bits in common. An entry is in the group that its hash says, or, where
// that was full, in the first behind it that was not.
type part[T any] struct {
	groups atomic.Pointer[[]group[T]]
	live   int // entries
	hash   func(*T) uint64
}

// group is a cache line.
type group[T any] struct {
	entries [inGroup]atomic.Pointer[T] // nil: none
	// tags has eight bits of the hash of each entry there, or of one that was, from the lowest byte on: so that there is room for seven
	// entries. Of all whose tag is another's one in 256 is read in vain. In the highest byte is how many entries are further on because
	// the group was full; of 255 and more it is not known how many, until the table grows.
	tags atomic.Uint64
}

const (
	inGroup   = 7
	onePassed = 1 << (8 * inGroup)
	mostPast  = 255
	eachByte  = 0x0101_0101_0101_0101
)

// short is what a table goes by of a hash.
func short(h uint64) uint32 { return uint32(h * 0x9e37_79b9_7f4a_7c15 >> 32) }

// home is the group where a hash belongs, of n.
func home(hash uint32, n int) int {
	high, _ := bits.Mul64(uint64(hash)<<32, uint64(n))
	return int(high)
}

// tagOf is what a group knows of a hash, whose high bits say which group that is.
func tagOf(hash uint32) uint64 { return uint64(hash & 0xff) }

// likely says which of a group's tags are that of the hash: the place of each is eight bits for each trailing zero byte (placed). Above one that
// is, one that is not may seem to be; and where there is no entry any more, its tag is still there.
func likely(tags uint64, hash uint32) uint64 {
	differ := tags ^ tagOf(hash)*eachByte
	return (differ - eachByte) &^ differ & (0x80 * eachByte >> 8)
}

// placed is the place of the first that is likely, of at least one; likely & (likely-1) are the others.
func placed(likely uint64) int { return bits.TrailingZeros64(likely) / 8 }

// last reports whether no entry that belongs to the group of these tags, or to one before it, is further on.
func last(tags uint64) bool { return tags < onePassed }

func newTable[T any](hash func(*T) uint64) *table[T] {
	t := new(table[T])
	for i := range t.parts {
		t.parts[i].hash = hash
		t.parts[i].groups.Store(&[]group[T]{{}})
	}
	return t
}

// part is where a hash belongs.
func (t *table[T]) part(h uint64) *part[T] { return &t.parts[h*0x9e37_79b9_7f4a_7c15>>24%tableParts] }

// find returns the entry of a hash that is the one; nil for none.
func (t *table[T]) find(h uint64, is func(*T) bool) *T { return t.part(h).find(short(h), is) }

// insert adds an entry that is not there yet.
func (t *table[T]) insert(h uint64, p *T) {
	t.part(h).insert(short(h), p)
	t.live++
}

// remove takes an entry out, and reports whether it was there.
func (t *table[T]) remove(h uint64, p *T) bool {
	there := t.part(h).remove(short(h), p)
	if there {
		t.live--
	}
	return there
}

// each calls f for every entry, and perhaps for some inserted meanwhile. No one else
// may remove meanwhile; f may.
func (t *table[T]) each(f func(*T)) {
	for i := range t.parts {
		t.parts[i].each(f)
	}
}

func (t *part[T]) find(hash uint32, is func(*T) bool) *T {
	groups := *t.groups.Load()
	at := home(hash, len(groups))
	for range groups {
		g := &groups[at]
		tags := g.tags.Load()
		for m := likely(tags, hash); m != 0; m &= m - 1 {
			if p := g.entries[placed(m)].Load(); p != nil && is(p) {
				return p
			}
		}
		if last(tags) {
			return nil
		}
		at = next(at, len(groups))
	}
	return nil
}

// insert adds an entry. Nine tenths are used at most, and three quarters about at least: each
// time that it grows some entries are read, which is cheaper than memory for a million that nobody looks at.
func (t *part[T]) insert(hash uint32, p *T) {
	groups := *t.groups.Load()
	if 10*(t.live+1) > 9*inGroup*len(groups) {
		groups = t.grow()
	}
	put(groups, hash, p)
	t.live++
}

func put[T any](groups []group[T], hash uint32, p *T) {
	for at := home(hash, len(groups)); ; at = next(at, len(groups)) {
		g := &groups[at]
		tags := g.tags.Load()
		for i := range g.entries {
			if g.entries[i].Load() == nil {
				g.tags.Store(tags&^(0xff<<(8*i)) | tagOf(hash)<<(8*i))
				g.entries[i].Store(p)
				return
			}
		}
		if tags < mostPast*onePassed {
			g.tags.Store(tags + onePassed)
		}
	}
}

func next(at, n int) int {
	if at++; at == n {
		return 0
	}
	return at
}

// grow makes it a sixth larger. What the table does not have of the hashes is in the entries.
func (t *part[T]) grow() []group[T] {
	old := *t.groups.Load()
	groups := make([]group[T], len(old)+len(old)/6+1)
	for i := range old {
		old[i].each(func(p *T) { put(groups, short(t.hash(p)), p) })
	}
	t.groups.Store(&groups)
	return groups
}

func (t *part[T]) remove(hash uint32, p *T) bool {
	groups := *t.groups.Load()
	from := home(hash, len(groups))
	at := from
	for range groups {
		g := &groups[at]
		for i := range g.entries {
			if g.entries[i].Load() != p {
				continue
			}
			g.entries[i].Store(nil)
			t.live--
			for ; from != at; from = next(from, len(groups)) {
				if tags := groups[from].tags.Load(); tags < mostPast*onePassed {
					groups[from].tags.Store(tags - onePassed)
				}
			}
			return true
		}
		at = next(at, len(groups))
	}
	return false
}

func (t *part[T]) each(f func(*T)) {
	groups := *t.groups.Load()
	for i := range groups {
		groups[i].each(f)
	}
}

func (g *group[T]) each(f func(*T)) {
	for i := range g.entries {
		if p := g.entries[i].Load(); p != nil {
			f(p)
		}
	}
}
