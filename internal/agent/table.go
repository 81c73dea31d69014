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
// An entry is in the group that its hash says, or, where that was full, in the first behind it that was not. A find
// costs one line here and then the entry's own (BenchmarkAttributes in loadtest/bench).
type table[T any] struct {
	groups atomic.Pointer[[]group[T]]
	live   int // entries
}

// group is a cache line.
type group[T any] struct {
	entries [inGroup]atomic.Pointer[T] // nil: none
	hashes  [inGroup]atomic.Uint32     // of the entry there, or of one that was
	passed  atomic.Uint32              // entries that are further on, because it was full
}

const (
	inGroup   = 5
	minGroups = 16
)

// short is what a table knows of a hash.
func short(h uint64) uint32 { return uint32(h * 0x9e37_79b9_7f4a_7c15 >> 32) }

// home is the group where a hash belongs, of n.
func home(hash uint32, n int) int {
	high, _ := bits.Mul64(uint64(hash)<<32, uint64(n))
	return int(high)
}

func newTable[T any]() *table[T] {
	t := &table[T]{}
	g := make([]group[T], minGroups)
	t.groups.Store(&g)
	return t
}

// has returns the entry of that hash which is at the place; nil for none.
func (g *group[T]) has(i int, hash uint32) *T {
	if g.hashes[i].Load() != hash {
		return nil
	}
	return g.entries[i].Load()
}

// find returns the entry of a hash that is the one; nil for none. Decisions have loops of their own, without a call.
func (t *table[T]) find(h uint64, is func(*T) bool) *T {
	groups, hash := *t.groups.Load(), short(h)
	at := home(hash, len(groups))
	for range groups {
		g := &groups[at]
		for i := range inGroup {
			if p := g.has(i, hash); p != nil && is(p) {
				return p
			}
		}
		if g.passed.Load() == 0 {
			return nil
		}
		at = next(at, len(groups))
	}
	return nil
}

// insert adds an entry that is not there yet. Four fifths are used at most, and two thirds about at least: each
// group that is added moves some entries, which is cheaper than memory for a million that nobody looks at.
func (t *table[T]) insert(h uint64, p *T) {
	groups := *t.groups.Load()
	if 5*(t.live+1) > 4*inGroup*len(groups) {
		groups = t.grow()
	}
	put(groups, short(h), p)
	t.live++
}

func put[T any](groups []group[T], hash uint32, p *T) {
	for at := home(hash, len(groups)); ; at = next(at, len(groups)) {
		g := &groups[at]
		for i := range g.entries {
			if g.entries[i].Load() == nil {
				g.hashes[i].Store(hash)
				g.entries[i].Store(p)
				return
			}
		}
		g.passed.Add(1)
	}
}

func next(at, n int) int {
	if at++; at == n {
		return 0
	}
	return at
}

func (t *table[T]) grow() []group[T] {
	old := *t.groups.Load()
	groups := make([]group[T], len(old)+len(old)/5)
	for i := range old {
		for j := range old[i].entries {
			if p := old[i].entries[j].Load(); p != nil {
				put(groups, old[i].hashes[j].Load(), p)
			}
		}
	}
	t.groups.Store(&groups)
	return groups
}

// remove takes an entry out, and reports whether it was there.
func (t *table[T]) remove(h uint64, p *T) bool {
	groups, hash := *t.groups.Load(), short(h)
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
				groups[from].passed.Add(^uint32(0))
			}
			return true
		}
		at = next(at, len(groups))
	}
	return false
}

// each calls f for every entry, and perhaps for some inserted meanwhile. No one else
// may remove meanwhile; f may.
func (t *table[T]) each(f func(*T)) {
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
