package agent

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// memoTable is a cache: a request is in the group that its hash says, or in the one
// beside it, which the processor brings with it, or where these are full in one of two others.
type memoTable struct {
	groups []memoGroup // an even number
	shapes *shapes
	hints  memoHints // to here a cache line
	sights []word    // by hash, see memoSights: of two requests that were seen and are not known, the later one below

	// The writers'.
	marks   []uint16 // by way: its set's, whatever it is where there is no resolution
	count   int      // resolutions
	lodging int      // of which the bucket's tokens lodge in their way
	spent   int      // ways in which some did
	number  uint8    // among memo.tables

	_      [32]byte // what is written away from what all read
	hits   atomic.Int64
	_      [56]byte
	misses atomic.Int64
	_      [56]byte
}

// memoGroup is a cache line. Writers hold the memo's mutex, and change a way between two changes of the version,
// the first of which makes it odd. Readers change the marks of use alone, while it is even.
type memoGroup struct {
	state word // 16 bits of each way, and above them the version
	keys  [memoWays]word
	more  word // 32 bits for each way
	ways  [memoWays]memoWay
}

// memoWay has besides a resolution, where that is Plain, mostly the tokens of its one bucket: see lodging.
type memoWay struct {
	known  ref[Resolution]
	tokens counter
}

// What a group's state says of a way, and its version.
const (
	memoUse     = 0x0f    // for how many sweeps it stays without use
	memoLodges  = 0x10    // the bucket's tokens are here
	memoShapeAt = 5       // its shape, of eight bits
	memoWithin  = 0x2000  // its resolution is where tokens may lodge, for it is of several limits
	memoBits    = 16      // of a way
	memoOdd     = 1 << 32 // a writer is at it
	memoUses    = memoUse | memoUse<<memoBits
)

// recall returns the resolution of a request, and where its bucket's tokens lodge, if the table has it.
func (t *memoTable) recall(k Key, attributes []limit.Attribute) (known *Resolution, tokens *counter) {
	a, b := &t.groups[t.place(k, 0)], &t.groups[t.place(k, 1)]
	if known, tokens = a.recall(t, k, attributes); known != nil {
		return known, tokens
	}
	if known, tokens = b.recall(t, k, attributes); known != nil {
		return known, tokens
	}
	if a.free() >= 0 || b.free() >= 0 {
		return nil, nil
	}
	if known, tokens = t.groups[t.place(k, 2)].recall(t, k, attributes); known != nil {
		return known, tokens
	}
	return t.groups[t.place(k, 3)].recall(t, k, attributes)
}

// free returns a way that is not in use; -1 for none.
func (g *memoGroup) free() int {
	for i := range g.ways {
		if g.ways[i].known.Load() == nil {
			return i
		}
	}
	return -1
}

// recall returns the resolution of a request, if the group has it, and where its bucket's tokens lodge; nil for elsewhere.
func (g *memoGroup) recall(t *memoTable, k Key, attributes []limit.Attribute) (known *Resolution, tokens *counter) {
	at := 0 // without a branch, for which of them it is cannot be foretold
	if g.keys[1].Load() == k.key {
		at = 1
	}
	for {
		state := g.state.Load()
		if g.keys[at&1].Load() != k.key || uint32(g.more.Load()>>(32*at&63)) != uint32(k.more>>32) {
			return nil, nil
		}
		w := &g.ways[at&1]
		known = w.known.Load()
		way := state >> (memoBits * at & 63)
		s := t.shapes.all[uint8(way>>memoShapeAt)].Load()
		// That nobody wrote meanwhile is seen last.
		if known != nil && s != nil && s.has(attributes) && (g.state.Load()^state)&^memoUses == 0 && state&memoOdd == 0 {
			if way&memoUse < memoStay {
				g.used(at, state)
			}
			if way&memoLodges != 0 {
				tokens = &w.tokens
			}
			return known, tokens
		}
		if at == 0 {
			return nil, nil
		}
		at = 0 // there may be two of the same values, which name other attributes
	}
}

// used notes that a way was used, unless the group is written meanwhile.
func (g *memoGroup) used(at int, state uint64) {
	for {
		next := state&^(memoUse<<(memoBits*at)) | memoStay<<(memoBits*at)
		if next == state || g.state.CompareAndSwap(state, next) {
			return
		}
		now := g.state.Load()
		if (now^state)&^memoUses != 0 {
			return
		}
		state = now
	}
}

// memoPlaces is how many groups a request may be in.
const memoPlaces = 4

// place is the i-th group where a request may be.
func (t *memoTable) place(k Key, i uint32) uint32 {
	x := uint32(k.more)
	if i >= 2 {
		x = bits.ReverseBytes32(x * 0x9e37_79b1)
	}
	return uint32(uint64(x)*uint64(len(t.groups))>>32) ^ i&1
}

// seen notes that a request was seen, and reports whether it was before.
func (t *memoTable) seen(k Key) bool {
	sight, hash := &t.sights[uint64(uint32(k.more))*uint64(len(t.sights))>>32], uint32(k.key)
	s := sight.Load()
	if uint32(s>>32) == hash || uint32(s) == hash {
		return true
	}
	sight.Store(s<<32 | uint64(hash))
	return false
}

// pays counts a request that is not known. Where there is room for all that are in use, as there always is for memoFloor, each
// is so a few times; a memo that goes on knowing less often than not is not worth the look.
func (t *memoTable) pays() bool {
	misses := t.misses.Add(1)
	return misses < int64(max(len(t.groups)*memoWays, memoFloor))*4/memoSample+memoSample || t.hits.Load() > misses
}

func newMemoTable(groups int, hinted bool) *memoTable {
	t := &memoTable{groups: make([]memoGroup, groups), shapes: new(shapes), sights: make([]word, max(groups, memoSights)), marks: make([]uint16, groups*memoWays)}
	if hinted && groups >= memoHinted {
		t.hints.of = make([]atomic.Uint64, groups)
	}
	return t
}

// find returns where a resolution of the same key is that f accepts: its group, and which of the ways; -1 for nowhere.
func (t *memoTable) find(known *Resolution, f func(*Resolution) bool) (i uint32, at int) {
	for place := range uint32(memoPlaces) {
		i := t.place(known.is, place)
		for at := range memoWays {
			if was := t.groups[i].ways[at].known.Load(); was != nil && was.is == known.is && f(was) {
				return i, at
			}
		}
	}
	return 0, -1
}

// hides reports whether requests do not look where a resolution is: its first two groups were full as it was put elsewhere,
// and one of them is not any more. It would be found the long way for as long as that lasts.
func (t *memoTable) hides(group uint32, known *Resolution) bool {
	a, b := t.place(known.is, 0), t.place(known.is, 1)
	return group != a && group != b && (t.groups[a].free() >= 0 || t.groups[b].free() >= 0)
}

// add puts a resolution in a free way, and returns where; -1 where there was none.
func (t *memoTable) add(known *Resolution) (i uint32, at int) {
	for place := range uint32(memoPlaces) {
		i := t.place(known.is, place)
		if at := t.groups[i].free(); at >= 0 {
			t.put(i, at, known)
			t.count++
			return i, at
		}
	}
	return t.makeRoom(known)
}

// makeRoom puts a resolution in place of one that another of its groups has a free way for; see add.
func (t *memoTable) makeRoom(known *Resolution) (i uint32, at int) {
	for place := range uint32(memoPlaces) {
		i := t.place(known.is, place)
		for at := range memoWays {
			was := t.groups[i].ways[at].known.Load()
			for other := range uint32(memoPlaces) {
				to := t.place(was.is, other)
				there := t.groups[to].free()
				if there < 0 {
					continue
				}
				t.sendHome(i, at)
				t.put(to, there, was) // a reader that misses it meanwhile finds it the long way
				t.groups[to].stay(there, t.groups[i].stays(at))
				t.put(i, at, known)
				t.count++
				return i, at
			}
		}
	}
	return 0, -1
}

// replace puts a resolution in place of one that was not used lately, or else of any.
func (t *memoTable) replace(known *Resolution) {
	chance := rand.IntN(2 * memoWays)
	for n := range 2 * memoWays {
		i, at := t.place(known.is, uint32(n/memoWays)), n%memoWays
		g := &t.groups[i]
		if g.ways[at].known.Load() != nil && (g.stays(at) < memoStay || n >= chance) {
			t.put(i, at, known)
			return
		}
	}
}

// put puts a resolution in a way, and says where what it needs is. The memo's mutex is held.
func (t *memoTable) put(i uint32, at int, known *Resolution) {
	t.sendHome(i, at)
	lodges := t.lodge(i, at, known)
	t.groups[i].put(at, known, lodges)
	t.marks[int(i)*memoWays+at] = known.set.mark()
	if t.hints.of != nil && !lodges && i == t.place(known.is, 0) {
		t.hints.note(i, at, known)
	}
	if !known.plain {
		t.lodgeWithin(i, at, known) // once it is there, for what is at home of the tokens names the way
	}
}

func (t *memoTable) each(f func(i uint32, at int, known *Resolution)) {
	for i := range t.groups {
		for at := range memoWays {
			if known := t.groups[i].ways[at].known.Load(); known != nil {
				f(uint32(i), at, known)
			}
		}
	}
}

// dropGone empties a way if what it has was resolved to a set that is gone.
func (t *memoTable) dropGone(i uint32, at int) {
	if known := t.groups[i].ways[at].known.Load(); known != nil && known.set.Gone() {
		t.drop(i, at)
	}
}

// drop empties a way.
func (t *memoTable) drop(i uint32, at int) {
	t.sendHome(i, at)
	t.groups[i].put(at, nil, false)
	t.count--
}

// put puts a resolution in a way, or nil. The memo's mutex is held.
func (g *memoGroup) put(at int, known *Resolution, lodges bool) {
	state := g.state.Load()
	for !g.state.CompareAndSwap(state, state+memoOdd) { // readers mark uses
		state = g.state.Load()
	}
	var k Key
	var says uint64
	if known != nil {
		k = known.is
		says = memoStay | uint64(known.shape)<<memoShapeAt
		if lodges {
			says |= memoLodges
		}
		if !known.plain {
			says |= memoWithin
		}
	}
	g.ways[at].known.Store(known)
	g.keys[at].Store(k.key)
	g.more.Store(g.more.Load()&^(math.MaxUint32<<(32*at)) | k.more>>32<<(32*at))
	g.state.Store((state+2*memoOdd)&^((1<<memoBits-1)<<(memoBits*at)) | says<<(memoBits*at))
}

// stays is for how many sweeps a way stays without use.
func (g *memoGroup) stays(at int) int { return int(g.state.Load() >> (memoBits * at) & memoUse) }

// stay sets it. The memo's mutex is held.
func (g *memoGroup) stay(at, sweeps int) {
	for {
		state := g.state.Load()
		if g.state.CompareAndSwap(state, state&^(memoUse<<(memoBits*at))|uint64(sweeps)<<(memoBits*at)) {
			return
		}
	}
}
