package agent

import (
	"encoding/binary"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
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
// A decision that finds its request here reads one cache line of the table, where mostly the tokens of its bucket are (lodge.go),
// and nothing else that others do not read as well; of several limits it reads one more, of what the request came to, where those of its buckets
// are. Beyond some ten thousand buckets, lines are what it costs (docs/performance.md).
// Where tokens are elsewhere it reads a line of each bucket besides, and a table too large for a near cache has hints, so
// that these lines are waited for together: see memoHints.
// So a request is known by 96 bits of two keyed hashes, and its attributes are not compared: see Key.
//
// Readers take no lock. A group says which version of it they have read, so that one which races with a
// writer misses, or finds what was right when it looked.
type memo struct {
	table ref[memoTable] // nil: nothing is known, and nothing is to be remembered

	mu     lock          // of writers
	long   flag          // above 0 while one has it who goes over all that is known
	tables [2]*memoTable // in which tokens may lodge, by their numbers: written while none lodge in what was there
	paused *memoTable    // taken away meanwhile; nil for not
	going  marked        // the sets for which it was
	paths  map[string]*path
	rest   int // sweeps to go until it is tried again, after it did not pay
	rested int // of how many sweeps the last rest was
}

const (
	memoAttributes = 8   // of a request that is remembered
	memoValue      = 64  // bytes of a value
	memoName       = 255 // bytes of a name
	memoLimits     = 4   // that it meets
	memoLodged     = 3   // of which the tokens may lodge in a resolution: as many as its first cache line has room for
	memoNear       = 64  // shapes that are found by their last name
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

// Near begins to bring what Recall of a request will read into the processor's cache, and waits for nothing.
func (r *Registry) Near(k Key) {
	t := r.memo.table.Load()
	if t == nil {
		return
	}
	at := t.place(k, 0)
	prefetch(uintptr(unsafe.Pointer(&t.groups[at])))
	if t.hints.of != nil {
		prefetch(t.hints.address(at, k))
	}
}

// Sought goes on where Near left off, once what that began to bring is there: of a request that came before, and whose units are not in the index
// or not enough of them are, it begins to bring what it came to, and reports true. It changes nothing, and what it goes by need not hold any more.
func (r *Registry) Sought(k Key) (s Sought, ok bool) {
	t := r.memo.table.Load()
	if t == nil {
		return s, false
	}
	g := &t.groups[t.place(k, 0)]
	way := 0
	if g.keys[1].Load() == k.key {
		way = 1
	}
	w := &g.ways[way&1]
	s.known = w.known.Load()
	lodges := g.state.Load()>>(memoBits*way&63)&memoLodges != 0
	if s.known == nil || g.keys[way&1].Load() != k.key || lodges && w.tokens.Load() >= Unit {
		return s, false
	}
	if lodges {
		s.dry = &w.tokens
	}
	s.known.NearEntries()
	return s, true
}

// Recall returns what a request of this key and these attributes came to before, and where that is Plain its one bucket's cell; nil where
// that is not known; again then says that it is worth remembering.
//
// Nearly all that is known is in the first group that is looked at, was used since the last sweep, and names its attributes by the strings
// that are kept. That is decided here, without a call, for which all that is in hand would be written and read again; the rest is recall's.
func (r *Registry) Recall(k Key, attributes []limit.Attribute) (known *Resolution, plain Cell, again bool) {
	t := r.memo.table.Load()
	last := len(attributes) - 1
	if t == nil || last < 0 || k.sampled() { // which is counted
		return r.recall(t, k, attributes)
	}
	s := t.shapes.near[t.shapes.place(attributes[last].Name, len(attributes))].Load()
	if s == nil || !s.isOf(attributes) {
		return r.recall(t, k, attributes)
	}
	at := t.place(k, 0)
	if t.hints.of != nil {
		prefetch(t.hints.address(at, k))
	}
	g := &t.groups[at]
	way := 0 // without a branch, for which of them it is cannot be foretold
	if g.keys[1].Load() == k.key {
		way = 1
	}
	state := g.state.Load()
	if g.keys[way&1].Load() != k.key || uint32(g.more.Load()>>(32*way&63)) != uint32(k.more>>32) {
		return r.recall(t, k, attributes)
	}
	w := &g.ways[way&1]
	known = w.known.Load()
	says := state >> (memoBits * way & 63)
	if known == nil || uint8(says>>memoShapeAt) != s.number || says&memoUse != memoStay {
		return r.recall(t, k, attributes)
	}
	plain.tokens = &w.tokens
	if says&memoLodges == 0 {
		if plain.tokens = nil; known.plain {
			plain.tokens = known.at[0].Load()
		}
	}
	if g.state.Load() != state || state&memoOdd != 0 { // that nobody wrote meanwhile is seen last
		return r.recall(t, k, attributes)
	}
	return known, plain, false
}

// recall is Recall of what may be anywhere.
func (r *Registry) recall(t *memoTable, k Key, attributes []limit.Attribute) (known *Resolution, plain Cell, again bool) {
	if t == nil || k.none() {
		return nil, plain, false
	}
	known, tokens := t.recall(k, attributes)
	if known == nil {
		if k.sampled() && !t.pays() {
			r.memo.setAside(t)
			return nil, plain, false
		}
		return nil, plain, t.seen(k)
	}
	if k.sampled() {
		t.hits.Add(1)
	}
	if tokens == nil && known.plain {
		tokens = known.at[0].Load()
	}
	return known, Cell{tokens}, false
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
// their buckets. That must depend on the attributes and the set alone. While all are gone over it keeps nothing, for no request
// is to wait so long: one that comes again is remembered then.
func (r *Registry) Remember(attributes []limit.Attribute, set *Set, items []*Item, entries []*Entry, strictest int) {
	if len(items) == 0 || len(items) > memoLimits || set.Trying {
		return
	}
	k := KeyOf(attributes)
	if k.none() || len(attributes) == 0 {
		return
	}
	most := max(memoFloor, memoEach*int(r.buckets.Load()))
	m := &r.memo
	if m.long.Load() > 0 {
		return
	}
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
		known.at[i].Store(&e.at.tokens)
	}
	if i, at := t.find(known, func(was *Resolution) bool { return was.shape == p.shape }); at >= 0 {
		if !t.hides(i, known) {
			if !t.groups[i].ways[at].known.Load().same(known) { // or two found it at once
				t.put(i, at, known)
			}
			return
		}
		t.drop(i, at)
	}
	m.addLocked(t, known, most)
}

// shapeLocked returns the number of a request's shape, and makes it if there is none; -1 where there is no room.
func (m *memo) shapeLocked(t *memoTable, attributes []limit.Attribute) int {
	free := -1
	for i := range t.shapes.all {
		s := t.shapes.all[i].Load()
		if s == nil {
			free = i
			break
		}
		if sameNames(s.names, attributes) {
			return i
		}
	}
	if free >= 0 {
		s := &shape{number: uint8(free)}
		for i := range attributes {
			name := ownName(attributes[i].Name)
			s.names, s.at[i] = append(s.names, name), address(name)
		}
		t.shapes.all[free].Store(s)
		t.shapes.near[t.shapes.place(s.names[len(s.names)-1], len(s.names))].Store(s)
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
	}
	if len(m.paths) >= maxShared {
		clear(m.paths)
	}
	m.paths[string(key)] = p
	return p
}

// addLocked puts a resolution in a free way, or in place of another.
func (m *memo) addLocked(t *memoTable, known *Resolution, most int) {
	if t.count < most {
		if 7*t.count >= 4*memoWays*len(t.groups) { // of more, too many are elsewhere than in their first group
			t = m.resizeLocked(t, len(t.groups)+len(t.groups)/4*2)
		}
		if _, at := t.add(known); at >= 0 {
			return
		}
	}
	t.replace(known)
}

// resizeLocked replaces a table by one of so many groups.
func (m *memo) resizeLocked(t *memoTable, groups int) *memoTable {
	m.long.Add(1)
	defer m.long.Add(-1)
	next := m.newTableLocked(groups, 1-t.number, 8*t.lodging < 7*t.count)
	next.shapes, next.hints.base = t.shapes, t.hints.base
	if len(next.sights) == len(t.sights) {
		next.sights = t.sights // what was seen once stays so
	}
	t.each(func(i uint32, at int, known *Resolution) {
		if next.hints.base == 0 { // most of the others are near the first
			next.hints.around(known)
		}
		t.sendHome(i, at)
		if to, there := next.add(known); there >= 0 {
			next.groups[to].stay(there, t.groups[i].stays(at))
		}
	})
	m.table.Store(next)
	m.tables[t.number] = nil
	return next
}

// newTableLocked returns a table in which tokens may lodge; with hints where it is large and they are wanted.
func (m *memo) newTableLocked(groups int, number uint8, hinted bool) *memoTable {
	m.vacateLocked(number)
	t := newMemoTable(groups, hinted)
	t.number = number
	m.tables[number] = t
	return t
}

// Forget forgets a resolution if a bucket of it is no more; while all are gone over, the next that comes to it does, or a sweep.
func (r *Registry) Forget(known *Resolution) {
	if !known.dead() {
		return
	}
	m := &r.memo
	if m.long.Load() > 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.table.Load(); t != nil {
		if i, at := t.find(known, func(was *Resolution) bool { return was == known }); at >= 0 {
			t.drop(i, at)
		}
	}
}

// pause takes the table away before a set is replaced or forgotten: until resume requests
// go the long way.
func (m *memo) pause(s *Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.going.add(s.mark())
	if t := m.table.Load(); t != nil {
		m.table.Store(nil)
		m.paused = t
	}
}

// resume gives the table back, without what was resolved to sets that are gone. Requests go the long way meanwhile, and looking at each
// one's set would be tens of milliseconds of waiting for memory where there are a million: the marks beside the table, two bytes each, say
// of nearly all that they are of others.
func (m *memo) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.paused
	if t == nil {
		m.going = marked{}
		return
	}
	for way, mark := range t.marks {
		if m.going.has(mark) {
			t.dropGone(uint32(way/memoWays), way%memoWays)
		}
	}
	m.paused, m.going = nil, marked{}
	m.table.Store(t)
}

// marked are marks of sets, a bit each.
type marked [1 << 16 / 64]uint64

func (m *marked) add(mark uint16)      { m[mark/64] |= 1 << (mark % 64) }
func (m *marked) has(mark uint16) bool { return m[mark/64]>>(mark%64)&1 != 0 }

// begin has the memo begin anew, after all sets were replaced.
func (m *memo) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused, m.going, m.rest, m.rested = nil, marked{}, 0, 0
	m.paths = make(map[string]*path)
	m.vacateLocked(1)
	m.table.Store(m.newTableLocked(memoGroups, 0, false))
}

// sweep forgets what was not used for a while, and says of the tenants of the rest that they are in use. The owner's: the table is not
// taken away meanwhile.
func (m *memo) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.long.Add(1)
	defer m.long.Add(-1)
	t := m.table.Load()
	if t == nil {
		m.vacateLocked(0) // what was set aside
		m.vacateLocked(1)
		if m.rest > 0 {
			if m.rest--; m.rest == 0 {
				m.table.Store(m.newTableLocked(memoGroups, 0, false))
			}
		}
		return
	}
	t.each(func(i uint32, at int, known *Resolution) {
		g := &t.groups[i]
		stays := g.stays(at)
		if owner := known.set.owner; stays == memoStay && owner != nil && !owner.touched.Load() {
			owner.touched.Store(true)
		}
		g.stay(at, stays-1) // over a use just now, which the next makes good
		if stays == 1 || stays < memoStay && known.dead() {
			t.drop(i, at)
		}
	})
	switch {
	case len(t.groups) > memoGroups && t.count < len(t.groups)*memoWays/6:
		m.resizeLocked(t, max(len(t.groups)/4*2, memoGroups))
	case t.spent > len(t.groups)*memoWays/memoSpent:
		m.resizeLocked(t, len(t.groups)) // with ways as new
	}
}
