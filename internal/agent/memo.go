package agent

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/f4ee788f/quota/internal/limit"
)

// memo is what requests were resolved to, by all that they say: the same attributes lead to the
// same buckets until the set that holds them is replaced. A request that is known is not
// matched, and neither its tenant nor its buckets are looked up (BenchmarkRecall).
//
// What is not in it is found the long way, so it may forget anything at any time. It keeps
// what is worth it: requests that are seen a second time, and none at all for a while when few come again.
// It must not know what no longer holds: whoever replaces a set or forgets a tenant takes
// the table away before (pause), and gives it back without what was resolved to what is gone (resume).
//
// A decision that finds its request here reads one cache line of the table and one of each bucket, its cell, and nothing
// else that others do not read as well: beyond some ten thousand buckets, lines are what it costs (docs/performance.md).
// So a request is known by 96 bits of two keyed hashes, and its attributes are not compared: see memoKey.
//
// Readers take no lock. A group says which version of it they have read, so that one which races with a
// writer misses, or finds what was right when it looked.
type memo struct {
	table ref[memoTable] // nil: nothing is known, and nothing is to be remembered

	mu     lock       // of writers
	paused *memoTable // taken away meanwhile; nil for not
	paths  map[string]*path
	rest   int // sweeps to go until it is tried again, after it did not pay
	rested int // of how many sweeps the last rest was
}

const (
	memoAttributes = 8   // of a request that is remembered
	memoValue      = 64  // bytes of a value
	memoLimits     = 4   // that it meets
	memoShapes     = 256 // lists of names of attributes; requests of further ones are not remembered

	// memoFloor is how many requests may be remembered however few buckets there are, and
	// memoEach how many for each bucket where that is more.
	memoFloor = 16_384
	memoEach  = 2

	memoGroups = 64 // of the first table
	memoWays   = 2  // of a group, which is a cache line
	memoStay   = 12 // sweeps that a resolution stays without use: some two minutes, as a bucket

	// memoSample is of how many different requests one is counted, to see whether the memo pays.
	memoSample  = 64
	memoMaxRest = 64 // sweeps
)

// memoTable is a cache: a request is in the group that its hash says, or in the one
// beside it, which the processor brings with it, or where these are full in one of two others.
type memoTable struct {
	groups []memoGroup // an even number
	shapes *[memoShapes]ref[shape]
	sights []word // by group: hashes of two requests that were seen and are not known, the later one below
	count  int    // resolutions; the writers'

	_      [56]byte // what is written away from what all read
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

// memoWay has besides a resolution the cell of one of its buckets, so that both can be waited for at once, and the
// former need not be where that bucket decides alone.
type memoWay struct {
	known ref[Resolution]
	near  ref[cell]
}

// What a group's state says of a way, and its version.
const (
	memoUse     = 0x0f    // for how many sweeps it stays without use
	memoPlain   = 0x10    // Plain
	memoShapeAt = 5       // its shape, of eight bits
	memoBits    = 16      // of a way
	memoOdd     = 1 << 32 // a writer is at it
	memoUses    = memoUse | memoUse<<memoBits
)

// Resolution is what a request came to: the limits that it meets in the order of asking, and their
// buckets. It is immutable. What asking needs is its first cache line.
type Resolution struct {
	*path
	set     *Set
	is      memoKey
	cells   [memoLimits]*cell // of entries
	entries [memoLimits]*Entry
}

// path is what requests share that name the same attributes and meet the same limits of a plan.
type path struct {
	items     [memoLimits]*Item
	limits    int
	strictest int
	shape     int
	near      int // the limit whose bucket the fewest requests share: it is the least likely to be at hand
	plain     bool
	slots     bool
	holds     [memoLimits]bool // Item.Hold
	inherited [memoLimits]bool // Item.Inherited
}

// shape is a list of names of attributes.
type shape struct{ names []string }

// Limits returns how many limits the request meets: at least one.
func (p *path) Limits() int { return p.limits }

// Strictest returns which of them is the strictest.
func (p *path) Strictest() int { return p.strictest }

// Plain reports whether it is one limit, of which nothing is to be announced before units are taken, nor
// anything given back at the request's end; see Item.
func (p *path) Plain() bool { return p.plain }

// Slots reports whether one of the limits is of slots.
func (p *path) Slots() bool { return p.slots }

// Item returns limit i.
func (p *path) Item(i int) *Item { return p.items[i] }

// Entry returns the bucket of limit i, which may be no more.
func (r *Resolution) Entry(i int) *Entry { return r.entries[i] }

// Set returns the set that held the request.
func (r *Resolution) Set() *Set { return r.set }

// has reports whether a request names the same attributes.
func (s *shape) has(attributes []limit.Attribute) bool {
	names := s.names
	if len(names) != len(attributes) {
		return false
	}
	var elsewhere uintptr // a name is not the one that is kept, but may be its like
	for i := range attributes {
		name := attributes[i].Name
		elsewhere |= (address(name) ^ address(names[i])) | uintptr(len(name)^len(names[i]))
	}
	return elsewhere == 0 || sameNames(names, attributes)
}

// address is where a string is. Names are kept where nobody writes, so one at the same place is the same.
func address(s string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(s))) }

func sameNames(names []string, attributes []limit.Attribute) bool {
	for i := range attributes {
		if attributes[i].Name != names[i] {
			return false
		}
	}
	return true
}

// Cell is where a bucket's units are. The zero Cell is none.
type Cell struct{ at *cell }

// None reports whether it is none.
func (c Cell) None() bool { return c.at == nil }

// Take is Bucket.Take, for as long as the caller has in hand what it got the cell with.
func (c Cell) Take(n int64) bool { return c.at.take(n) }

// Recall returns what a request of these attributes came to before, and where that is Plain its one bucket's cell; nil where
// that is not known; again then says that it is worth remembering.
func (r *Registry) Recall(attributes []limit.Attribute) (known *Resolution, plain Cell, again bool) {
	t := r.memo.table.Load()
	if t == nil {
		return nil, plain, false
	}
	k, ok := memoHash(attributes)
	if !ok {
		return nil, plain, false
	}
	g := &t.groups[t.place(k, 0)]
	known, near, state := g.recall(t, k, attributes)
	if known == nil {
		if known, near, state = t.recall(k, attributes); known == nil {
			if k.sampled() && !t.pays() {
				r.memo.setAside(t)
				return nil, plain, false
			}
			return nil, plain, t.seen(k)
		}
	}
	if k.sampled() {
		t.hits.Add(1)
	}
	if state&memoPlain != 0 {
		return known, Cell{near}, false
	}
	return known, plain, false
}

// recall returns the resolution of a request, if the table has it elsewhere than in the first group.
func (t *memoTable) recall(k memoKey, attributes []limit.Attribute) (known *Resolution, near *cell, way uint64) {
	a, b := &t.groups[t.place(k, 0)], &t.groups[t.place(k, 1)]
	if known, near, way = b.recall(t, k, attributes); known != nil {
		return known, near, way
	}
	if !a.full() || !b.full() {
		return nil, nil, 0
	}
	if known, near, way = t.groups[t.place(k, 2)].recall(t, k, attributes); known != nil {
		return known, near, way
	}
	return t.groups[t.place(k, 3)].recall(t, k, attributes)
}

// full reports whether all ways are in use.
func (g *memoGroup) full() bool {
	for i := range g.ways {
		if g.ways[i].known.Load() == nil {
			return false
		}
	}
	return true
}

// recall returns the resolution of a request, its cell, and what the state says of its way, if the group has it.
func (g *memoGroup) recall(t *memoTable, k memoKey, attributes []limit.Attribute) (known *Resolution, near *cell, way uint64) {
	at := 0 // without a branch, for which of them it is cannot be foretold
	if g.keys[1].Load() == k.key {
		at = 1
	}
	if known, near, way = g.recallFrom(at, t, k, attributes); known != nil || at == 0 || g.keys[0].Load() != k.key {
		return known, near, way
	}
	return g.recallFrom(0, t, k, attributes) // there may be two of the same values, which name other attributes
}

// recallFrom is recall, of one way.
func (g *memoGroup) recallFrom(at int, t *memoTable, k memoKey, attributes []limit.Attribute) (known *Resolution, near *cell, way uint64) {
	state := g.state.Load()
	w := &g.ways[at&1]
	if near = w.near.Load(); near != nil {
		near.tokens.Load() // begins to bring it into the processor's cache
	}
	if g.keys[at&1].Load() != k.key || uint32(g.more.Load()>>(32*at)) != uint32(k.more>>32) {
		return nil, nil, 0
	}
	known = w.known.Load()
	way = state >> (memoBits * at)
	s := t.shapes[uint8(way>>memoShapeAt)].Load()
	// That nobody wrote meanwhile is seen last.
	if known == nil || s == nil || !s.has(attributes) || (g.state.Load()^state)&^memoUses != 0 || state&memoOdd != 0 {
		return nil, nil, 0
	}
	if way&memoUse < memoStay {
		g.used(at, state)
	}
	return known, near, way
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
func (t *memoTable) place(k memoKey, i uint32) uint32 {
	x := uint32(k.more)
	if i >= 2 {
		x = bits.ReverseBytes32(x * 0x9e37_79b1)
	}
	return uint32(uint64(x)*uint64(len(t.groups))>>32) ^ i&1
}

// seen notes that a request was seen, and reports whether it was before.
func (t *memoTable) seen(k memoKey) bool {
	sight, hash := &t.sights[t.place(k, 0)], uint32(k.key)
	s := sight.Load()
	if uint32(s>>32) == hash || uint32(s) == hash {
		return true
	}
	sight.Store(s<<32 | uint64(hash))
	return false
}

// pays counts a request that is not known. Where there is room for all that are in use, each
// is so a few times; a memo that goes on knowing less often than not is not worth the look.
func (t *memoTable) pays() bool {
	misses := t.misses.Add(1)
	return misses < int64(len(t.groups))*4*memoWays/memoSample+memoSample || t.hits.Load() > misses
}

// setAside has a table that does not pay go, for a while.
func (m *memo) setAside(t *memoTable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table.Load() != t {
		return
	}
	m.table.Store(nil)
	m.rested = min(max(2*m.rested, 1), memoMaxRest)
	m.rest = m.rested
	clear(m.paths)
}

// Remember keeps what a request was resolved to: the limits that it meets, in the order of asking, and
// their buckets. That must depend on the attributes and the set alone.
func (r *Registry) Remember(attributes []limit.Attribute, set *Set, items []*Item, entries []*Entry, strictest int) {
	if len(items) == 0 || len(items) > memoLimits || set.Trying {
		return
	}
	k, ok := memoHash(attributes)
	if !ok {
		return
	}
	most := max(memoFloor, memoEach*int(r.buckets.Load()))
	m := &r.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	if t == nil || set.Gone() { // which is said before the table is given back
		return
	}
	p := m.pathLocked(t, attributes, items, strictest)
	if p == nil {
		return
	}
	known := &Resolution{path: p, set: set, is: k}
	copy(known.entries[:], entries)
	for i, e := range entries {
		known.cells[i] = e.cell
	}
	if g, at := t.find(known, func(was *Resolution) bool { return was.shape == p.shape }); g != nil {
		g.put(at, known)
		return
	}
	m.addLocked(t, known, most)
}

// shapeLocked returns the number of a request's shape, and makes it if there is none; -1 where there is no room.
func (m *memo) shapeLocked(t *memoTable, attributes []limit.Attribute) int {
	free := -1
	for i := range t.shapes {
		s := t.shapes[i].Load()
		if s == nil {
			free = i
			break
		}
		if len(s.names) == len(attributes) && sameNames(s.names, attributes) {
			return i
		}
	}
	if free >= 0 {
		s := new(shape)
		for i := range attributes {
			s.names = append(s.names, ownName(attributes[i].Name))
		}
		t.shapes[free].Store(s)
	}
	return free
}

// pathLocked returns the path of a request, and makes it if there is none; nil where there is no room for its shape.
func (m *memo) pathLocked(t *memoTable, attributes []limit.Attribute, items []*Item, strictest int) *path {
	key := make([]byte, 0, 256)
	for i := range attributes {
		key = append(append(key, attributes[i].Name...), 0)
	}
	for _, it := range items {
		// An item stays where it is for as long as a path has it.
		key = binary.NativeEndian.AppendUint64(key, uint64(uintptr(unsafe.Pointer(it))))
	}
	if p := m.paths[string(key)]; p != nil {
		return p
	}
	p := &path{limits: len(items), strictest: strictest, shape: m.shapeLocked(t, attributes)}
	if p.shape < 0 {
		return nil
	}
	copy(p.items[:], items)
	p.plain = len(items) == 1 && !items[0].Inherited && !items[0].Hold && !items[0].Slots
	for i, it := range items {
		p.slots = p.slots || it.Slots
		p.holds[i], p.inherited[i] = it.Hold, it.Inherited
		if it.values > items[p.near].values {
			p.near = i
		}
	}
	if len(m.paths) >= maxShared {
		clear(m.paths)
	}
	m.paths[string(key)] = p
	return p
}

// ownName returns a name in memory that nobody writes: for one with a meaning of its own the constant,
// which a program has only once.
func ownName(name string) string {
	for _, n := range [...]string{"tenant", "user", "ip", "endpoint", "method", "priority"} {
		if n == name {
			return n
		}
	}
	return strings.Clone(name)
}

// addLocked puts a resolution in a free way, or in place of another.
func (m *memo) addLocked(t *memoTable, known *Resolution, most int) {
	if t.count < most {
		if 2*t.count >= len(t.groups)*memoWays {
			t = m.resizeLocked(t, len(t.groups)+len(t.groups)/4*2)
		}
		if g, _ := t.add(known); g != nil {
			return
		}
	}
	t.replace(known)
}

// resizeLocked replaces a table by one of so many groups.
func (m *memo) resizeLocked(t *memoTable, groups int) *memoTable {
	next := newMemoTable(groups)
	next.shapes = t.shapes
	t.each(func(g *memoGroup, at int, known *Resolution) {
		if to, there := next.add(known); to != nil {
			to.stay(there, g.stays(at))
		}
	})
	m.table.Store(next)
	return next
}

func newMemoTable(groups int) *memoTable {
	return &memoTable{groups: make([]memoGroup, groups), shapes: new([memoShapes]ref[shape]), sights: make([]word, groups)}
}

// find returns where a resolution of the same key is that f accepts.
func (t *memoTable) find(known *Resolution, f func(*Resolution) bool) (g *memoGroup, at int) {
	for i := range uint32(memoPlaces) {
		g := &t.groups[t.place(known.is, i)]
		for at := range g.ways {
			if was := g.ways[at].known.Load(); was != nil && was.is == known.is && f(was) {
				return g, at
			}
		}
	}
	return nil, 0
}

// add puts a resolution in a free way, and returns where; nil where there was none.
func (t *memoTable) add(known *Resolution) (*memoGroup, int) {
	for i := range uint32(memoPlaces) {
		g := &t.groups[t.place(known.is, i)]
		for at := range g.ways {
			if g.ways[at].known.Load() == nil {
				g.put(at, known)
				t.count++
				return g, at
			}
		}
	}
	return t.makeRoom(known)
}

// makeRoom puts a resolution in place of one that another of its groups has a free way for; see add.
func (t *memoTable) makeRoom(known *Resolution) (*memoGroup, int) {
	for i := range uint32(memoPlaces) {
		g := &t.groups[t.place(known.is, i)]
		for at := range g.ways {
			was := g.ways[at].known.Load()
			for j := range uint32(memoPlaces) {
				to := &t.groups[t.place(was.is, j)]
				for there := range to.ways {
					if to.ways[there].known.Load() == nil {
						to.put(there, was) // a reader that misses it meanwhile finds it the long way
						to.stay(there, g.stays(at))
						g.put(at, known)
						t.count++
						return g, at
					}
				}
			}
		}
	}
	return nil, 0
}

// replace puts a resolution in place of one that was not used lately, or else of any.
func (t *memoTable) replace(known *Resolution) {
	chance := rand.IntN(2 * memoWays)
	for i := range 2 * memoWays {
		g, at := &t.groups[t.place(known.is, uint32(i/memoWays))], i%memoWays
		if g.ways[at].known.Load() != nil && (g.stays(at) < memoStay || i >= chance) {
			g.put(at, known)
			return
		}
	}
}

func (t *memoTable) each(f func(g *memoGroup, at int, known *Resolution)) {
	for i := range t.groups {
		g := &t.groups[i]
		for at := range g.ways {
			if known := g.ways[at].known.Load(); known != nil {
				f(g, at, known)
			}
		}
	}
}

// drop empties a way.
func (t *memoTable) drop(g *memoGroup, at int) {
	g.put(at, nil)
	t.count--
}

// put puts a resolution in a way, or nil. The memo's mutex is held.
func (g *memoGroup) put(at int, known *Resolution) {
	state := g.state.Load()
	for !g.state.CompareAndSwap(state, state+memoOdd) { // readers mark uses
		state = g.state.Load()
	}
	var k memoKey
	var near *cell
	var says uint64
	if known != nil {
		k, near = known.is, known.cells[known.near]
		says = memoStay | uint64(known.shape)<<memoShapeAt
		if known.plain {
			says |= memoPlain
		}
	}
	w := &g.ways[at]
	w.known.Store(known)
	w.near.Store(near)
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

// Take takes n units of every bucket, in the order of asking, and says before it what has to be known of each (Item). It
// returns how many buckets had them: where one did not, its units are announced, those of the ones before are in
// hand, and the others were not asked.
func (r *Resolution) Take(n int64) int {
	limits := r.limits
	for i := range limits {
		r.cells[i&(memoLimits-1)].tokens.Load() // all are waited for together
	}
	for i := range limits {
		c := r.cells[i&(memoLimits-1)]
		if r.holds[i&(memoLimits-1)] {
			c.pending.Add(n)
		}
		if r.inherited[i&(memoLimits-1)] {
			c.inherited.Add(n)
		}
		if !c.take(n) {
			return i
		}
	}
	for i := range limits {
		if r.holds[i&(memoLimits-1)] {
			r.cells[i&(memoLimits-1)].pending.Add(-n)
		}
	}
	return limits
}

// Forget forgets a resolution if a bucket of it is no more.
func (r *Registry) Forget(known *Resolution) {
	if !known.dead() {
		return
	}
	m := &r.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.table.Load(); t != nil {
		if g, at := t.find(known, func(was *Resolution) bool { return was == known }); g != nil {
			t.drop(g, at)
		}
	}
}

// pause takes the table away before a set is replaced or forgotten: until resume requests
// go the long way.
func (m *memo) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.table.Load(); t != nil {
		m.table.Store(nil)
		m.paused = t
	}
}

// resume gives the table back, without what was resolved to sets that are gone.
func (m *memo) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.paused
	if t == nil {
		return
	}
	m.paused = nil
	t.each(func(g *memoGroup, at int, known *Resolution) {
		if known.set.Gone() {
			t.drop(g, at)
		}
	})
	m.table.Store(t)
}

// dead reports whether a bucket is no more.
func (r *Resolution) dead() bool {
	for _, e := range r.entries[:r.limits] {
		if e.Dead() {
			return true
		}
	}
	return false
}

// begin has the memo begin anew, after all sets were replaced.
func (m *memo) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused, m.rest, m.rested = nil, 0, 0
	m.paths = make(map[string]*path)
	m.table.Store(newMemoTable(memoGroups))
}

// sweep forgets what was not used for a while, and says of the tenants of the rest that they are in use.
func (m *memo) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	if t == nil {
		if m.rest > 0 {
			if m.rest--; m.rest == 0 {
				m.table.Store(newMemoTable(memoGroups))
			}
		}
		return
	}
	t.each(func(g *memoGroup, at int, known *Resolution) {
		stays := g.stays(at)
		if owner := known.set.owner; stays == memoStay && owner != nil && !owner.touched.Load() {
			owner.touched.Store(true)
		}
		g.stay(at, stays-1) // over a use just now, which the next makes good
		if stays == 1 || stays < memoStay && known.dead() {
			t.drop(g, at)
		}
	})
	if len(t.groups) > memoGroups && t.count < len(t.groups)*memoWays/6 {
		m.resizeLocked(t, max(len(t.groups)/4*2, memoGroups))
	}
}
