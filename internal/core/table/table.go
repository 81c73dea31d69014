// Package table is a hash table that is read without a lock: its owner serialises those who write.
//
// A reader that races with a writer may miss an entry that is there, and never finds one that is not. So a miss is looked
// up again by a writer before it makes an entry.
package table

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// Table finds entries by hash. It is in parts, so that an insertion waits for the growth of one part at most. That
// takes less than a millisecond among a million entries.
type Table[T any] struct {
	parts [Parts]part[T]
	live  int
}

// Parts is how many parts a table has.
const Parts = 256

// part has the entries whose hashes share eight bits. An entry is in the group that its hash says, or in the first one
// behind it that had room.
type part[T any] struct {
	groups atomic.Pointer[[]group[T]]
	live   int
	hash   func(*T) uint64
}

// group is a cache line.
type group[T any] struct {
	entries [inGroup]atomic.Pointer[T] // nil: none
	// tags has eight bits of the hash of each entry, from the lowest byte on; a removed entry's stay. A wrong entry is read
	// for one tag in 256. The highest byte counts the entries that are further on because the group was full. From 255
	// on the count is unknown until the part grows.
	tags atomic.Uint64
}

const (
	inGroup   = 7
	onePassed = 1 << (8 * inGroup)
	mostPast  = 255
	eachByte  = 0x0101_0101_0101_0101
	scatter   = 0x9e37_79b9_7f4a_7c15
)

// New returns an empty table. hash returns an entry's hash, for when the table grows.
func New[T any](hash func(*T) uint64) *Table[T] {
	t := new(Table[T])
	for i := range t.parts {
		t.parts[i].hash = hash
		t.parts[i].groups.Store(&[]group[T]{{}})
	}
	return t
}

// Len returns how many entries there are. The owner's.
func (t *Table[T]) Len() int { return t.live }

// Find returns the entry of a hash for which is is true; nil for none.
func (t *Table[T]) Find(h uint64, is func(*T) bool) *T {
	part, hash := t.part(h)
	groups := *part.groups.Load()
	at := home(hash, len(groups))
	for range groups { // by hand, for this is what requests wait for
		g := &groups[at]
		tags := g.tags.Load()
		for m := likely(tags, hash); m != 0; m &= m - 1 {
			if p := g.entries[bits.TrailingZeros64(m)/8].Load(); p != nil && is(p) {
				return p
			}
		}
		if tags < onePassed {
			break
		}
		if at++; at == len(groups) {
			at = 0
		}
	}
	return nil
}

// Insert adds an entry that is not there yet. The owner's.
func (t *Table[T]) Insert(h uint64, p *T) {
	part, hash := t.part(h)
	groups := *part.groups.Load()
	// At most nine tenths are used. To read some entries for each growth is cheaper than memory that nobody looks at.
	if 10*(part.live+1) > 9*inGroup*len(groups) {
		groups = part.grow()
	}
	put(groups, hash, p)
	part.live++
	t.live++
}

// Remove takes an entry out, and reports whether it was there. The owner's.
func (t *Table[T]) Remove(h uint64, p *T) bool {
	part, hash := t.part(h)
	groups := *part.groups.Load()
	for at := range from(hash, len(groups)) {
		for i := range groups[at].entries {
			if groups[at].entries[i].Load() != p {
				continue
			}
			groups[at].entries[i].Store(nil)
			part.live--
			t.live--
			for passed := range from(hash, len(groups)) {
				if passed == at {
					return true
				}
				groups[passed].pass(-1)
			}
		}
	}
	return false
}

// All are all entries, and perhaps some that are inserted or removed meanwhile: entries never move.
func (t *Table[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range Parts {
			for p := range t.Part(i) {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// Part are the entries of one of the parts, as All are all.
func (t *Table[T]) Part(i int) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		groups := *t.parts[i].groups.Load()
		for g := range groups {
			for e := range groups[g].entries {
				if p := groups[g].entries[e].Load(); p != nil && !yield(p) {
					return
				}
			}
		}
	}
}

// part returns the part that a hash belongs to, and the hash's form there.
func (t *Table[T]) part(h uint64) (p *part[T], hash uint32) {
	return &t.parts[h*scatter>>24%Parts], uint32(h * scatter >> 32)
}

// home is the group where a hash belongs, of n.
func home(hash uint32, n int) int { return int(uint64(hash) * uint64(n) >> 32) }

// from are n groups, from the one where a hash belongs.
func from(hash uint32, n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, at := 0, home(hash, n); i < n && yield(at); i++ {
			if at++; at == n {
				at = 0
			}
		}
	}
}

// likely has a bit in the byte of each tag that is the hash's. Above a true one there may be a false one.
func likely(tags uint64, hash uint32) uint64 {
	differ := tags ^ uint64(hash&0xff)*eachByte
	return (differ - eachByte) &^ differ & (0x80 * eachByte >> 8)
}

func put[T any](groups []group[T], hash uint32, p *T) {
	for at := range from(hash, len(groups)) {
		g := &groups[at]
		for i := range g.entries {
			if g.entries[i].Load() == nil {
				g.tags.Store(g.tags.Load()&^(0xff<<(8*i)) | uint64(hash&0xff)<<(8*i))
				g.entries[i].Store(p)
				return
			}
		}
		g.pass(1)
	}
}

// pass counts an entry that is further on, or no more.
func (g *group[T]) pass(n int64) {
	if tags := g.tags.Load(); tags < mostPast*onePassed {
		g.tags.Store(tags + uint64(n*onePassed))
	}
}

// grow makes the part a sixth larger.
func (t *part[T]) grow() []group[T] {
	old := *t.groups.Load()
	groups := make([]group[T], len(old)+len(old)/6+1)
	for i := range old {
		for e := range old[i].entries {
			if p := old[i].entries[e].Load(); p != nil {
				put(groups, uint32(t.hash(p)*scatter>>32), p)
			}
		}
	}
	t.groups.Store(&groups)
	return groups
}
