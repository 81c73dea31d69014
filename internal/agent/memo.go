package agent

import (
	"encoding/binary"
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
// Readers take no lock. A resolution is immutable and says itself whose it is, so a reader that races with a
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
	memoAttributes = 8  // of a request that is remembered
	memoValue      = 64 // bytes of a value
	memoWords      = 24 // of eight bytes, of all its values
	memoFew        = 8  // words for which a smaller resolution is enough
	memoLimits     = 4  // that it meets

	// memoFloor is how many requests may be remembered however few buckets there are, and
	// memoEach how many for each bucket where that is more.
	memoFloor = 16_384
	memoEach  = 2

	memoGroups = 64 // of the first table
	memoWays   = 3  // of a group, which is a cache line
	memoStay   = 12 // sweeps that a resolution stays without use: some two minutes, as a bucket

	// memoSample is of how many different requests one is counted, to see whether the memo pays.
	memoSample  = 64
	memoMaxRest = 64 // sweeps
)

// memoTable is a cache: a request is in the group that its hash says, or in the one
// beside it, which the processor brings with it, or where these are full in one of two others.
type memoTable struct {
	groups []memoGroup
	count  int // resolutions; the writers'

	_      [32]byte // what is written away from what all read
	hits   atomic.Int64
	_      [56]byte
	misses atomic.Int64
	_      [56]byte
}

type memoGroup struct {
	tags  word // 16 bits of each way's hash
	ways  [memoWays]memoWay
	sight word // hashes of two requests that were seen and are not known, the later one below
}

// memoWay has besides a resolution one of the buckets that it asks, so that both can be waited for at once.
type memoWay struct {
	known ref[Resolution]
	near  ref[Entry]
}

// Resolution is what a request came to: the limits that it meets in the order of asking, and their
// buckets. It is immutable, but for the mark of its use.
type Resolution struct {
	*path
	set     *Set
	lengths uint64 // of the values, a byte each; the values follow the struct
	hash    uint32
	stays   atomic.Uint32 // for how many sweeps without use
	entries [memoLimits]*Entry
}

// path is what requests share that name the same attributes and meet the same limits of a plan.
type path struct {
	names     []string
	items     [memoLimits]*Item
	limits    int
	strictest int
	plain     bool
}

// Limits returns how many limits the request meets: at least one.
func (p *path) Limits() int { return p.limits }

// Strictest returns which of them is the strictest.
func (p *path) Strictest() int { return p.strictest }

// Plain reports whether it is one limit, of which nothing is to be announced before units are taken, nor
// anything given back at the request's end; see Item.
func (p *path) Plain() bool { return p.plain }

// Item returns limit i.
func (p *path) Item(i int) *Item { return p.items[i] }

// Entry returns the bucket of limit i, which may be no more.
func (r *Resolution) Entry(i int) *Entry { return r.entries[i] }

// Set returns the set that held the request.
func (r *Resolution) Set() *Set { return r.set }

// ends is a value's first and last eight bytes, which overlap in a short one: with the length they say all of
// up to sixteen. What is between them in longer ones is read where it is.
func ends(v string) (first, last uint64) {
	p := unsafe.Pointer(unsafe.StringData(v))
	if len(v) >= 8 {
		return *(*uint64)(p), *(*uint64)(unsafe.Add(p, len(v)-8))
	}
	return shortEnds(v)
}

func shortEnds(v string) (first, last uint64) {
	p := unsafe.Pointer(unsafe.StringData(v))
	switch {
	case len(v) >= 4:
		return uint64(*(*uint32)(p)), uint64(*(*uint32)(unsafe.Add(p, len(v)-4)))
	case len(v) > 0:
		return uint64(v[0]) | uint64(v[len(v)/2])<<8, uint64(v[len(v)-1])
	}
	return 0, 0
}

// memoSeeds keep others from choosing values that collide.
var memoSeeds = func() (s struct {
	ends                 [memoAttributes][2]uint64
	between, whole, last uint64
}) {
	for i := range s.ends {
		s.ends[i] = [2]uint64{rand.Uint64(), rand.Uint64()}
	}
	s.between, s.whole, s.last = rand.Uint64()|1, rand.Uint64(), rand.Uint64()|1
	return s
}()

func folded(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// memoHash returns the hash of a request's values; false for a request that is too large to be remembered.
func memoHash(attributes []limit.Attribute) (hash uint32, ok bool) {
	if len(attributes) > memoAttributes {
		return 0, false
	}
	var h, lengths uint64
	for i := range attributes {
		v := attributes[i].Value
		p := unsafe.Pointer(unsafe.StringData(v))
		var first, last uint64
		if len(v) >= 8 { // by hand, for ends is too large to be inlined
			first, last = *(*uint64)(p), *(*uint64)(unsafe.Add(p, len(v)-8))
		} else {
			first, last = shortEnds(v)
		}
		seed := &memoSeeds.ends[i%memoAttributes]
		lengths = lengths<<8 | uint64(len(v))
		h ^= folded(first^seed[0], last^seed[1])
		if len(v) > 16 {
			if len(v) > memoValue {
				return 0, false
			}
			for m := 8; m < len(v)-8; m += 8 {
				h = folded(h^*(*uint64)(unsafe.Add(p, m)), memoSeeds.between)
			}
		}
	}
	return uint32(folded(h^lengths^memoSeeds.whole, memoSeeds.last)), true
}

// is reports whether the resolution is of a request of these attributes.
func (r *Resolution) is(attributes []limit.Attribute) bool {
	names := r.names
	if len(names) != len(attributes) {
		return false
	}
	kept := unsafe.Pointer(r.values())
	var differ, lengths uint64
	var elsewhere uintptr // a name is not the one that is kept, but may be its like
	for i := range attributes {
		v, name := attributes[i].Value, attributes[i].Name
		p := unsafe.Pointer(unsafe.StringData(v))
		var first, last uint64
		if len(v) >= 8 { // as in memoHash
			first, last = *(*uint64)(p), *(*uint64)(unsafe.Add(p, len(v)-8))
		} else {
			first, last = shortEnds(v)
		}
		lengths = lengths<<8 | uint64(len(v))
		// In Go ^ binds no closer than |.
		differ |= (*(*uint64)(unsafe.Add(kept, 16*i)) ^ first) | (*(*uint64)(unsafe.Add(kept, 16*i+8)) ^ last)
		elsewhere |= (address(name) ^ address(names[i])) | uintptr(len(name)^len(names[i]))
	}
	if differ|(lengths^r.lengths) != 0 {
		return false
	}
	return (elsewhere == 0 || sameNames(names, attributes)) && (!anyLong(lengths) || sameBetween(unsafe.Add(kept, 16*len(attributes)), attributes))
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

// anyLong reports whether a value is longer than its ends: a byte of lengths, none above memoValue, is above 16.
func anyLong(lengths uint64) bool {
	const each = 0x0101_0101_0101_0101
	return (lengths+(0x80-17)*each)&(0x80*each) != 0
}

// sameBetween compares what is between the ends of long values with what is kept of it.
func sameBetween(kept unsafe.Pointer, attributes []limit.Attribute) bool {
	at := 0
	for i := range attributes {
		if v := attributes[i].Value; len(v) > 16 {
			n := len(v) - 16
			if v[8:8+n] != unsafe.String((*byte)(unsafe.Add(kept, at)), n) {
				return false
			}
			at += n
		}
	}
	return true
}

// values is where the key is: the ends of all values, then what is between them.
func (r *Resolution) values() *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r)))
}

// newResolution returns a resolution of a request, without what it came to; nil for one that is too large.
func newResolution(hash uint32, attributes []limit.Attribute) *Resolution {
	kept, between := make([]uint64, 0, 2*memoAttributes), make([]byte, 0, memoAttributes*memoValue)
	var lengths uint64
	for i := range attributes {
		v := attributes[i].Value
		first, last := ends(v)
		kept = append(kept, first, last)
		lengths = lengths<<8 | uint64(len(v))
		if len(v) > 16 {
			between = append(between, v[8:len(v)-8]...)
		}
	}
	var r *Resolution
	switch n := len(kept) + (len(between)+7)/8; {
	case n <= memoFew:
		r = &new(struct {
			Resolution
			values [memoFew]uint64
		}).Resolution
	case n <= memoWords:
		r = &new(struct {
			Resolution
			values [memoWords]uint64
		}).Resolution
	default:
		return nil
	}
	r.hash, r.lengths = hash, lengths
	values := unsafe.Slice(r.values(), len(kept)+(len(between)+7)/8)
	copy(values, kept)
	if len(between) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&values[len(kept)])), len(between)), between)
	}
	return r
}

// Recall returns what a request of these attributes came to before, or nil where that is not known; again
// then says that it is worth remembering.
func (r *Registry) Recall(attributes []limit.Attribute) (known *Resolution, again bool) {
	t := r.memo.table.Load()
	if t == nil {
		return nil, false
	}
	hash, ok := memoHash(attributes)
	if !ok {
		return nil, false
	}
	// Most are in the way that the hash says: the processor foretells that they are, and reads on before it knows.
	g, at := &t.groups[t.place(hash, 0)], favourite(hash)
	w := &g.ways[at]
	if near := w.near.Load(); near != nil {
		near.Near()
	}
	if uint16(g.tags.Load()>>(16*at)) == uint16(tagOf(hash)) {
		if known = w.known.Load(); known != nil && !known.is(attributes) {
			known = nil
		}
	}
	if known == nil {
		if known = t.recall(hash, attributes); known == nil {
			if sampled(hash) && !t.pays() {
				r.memo.setAside(t)
				return nil, false
			}
			return nil, g.seen(hash)
		}
	}
	if known.stays.Load() < memoStay {
		known.stays.Store(memoStay)
	}
	if sampled(hash) {
		t.hits.Add(1)
	}
	return known, false
}

// favourite is the way of a group that a request is in where it can be.
func favourite(hash uint32) uint32 { return hash >> 16 * memoWays >> 16 }

// recall returns the resolution of a request, if the table has it.
func (t *memoTable) recall(hash uint32, attributes []limit.Attribute) *Resolution {
	a := &t.groups[t.place(hash, 0)]
	if known := a.recall(hash, attributes); known != nil {
		return known
	}
	b := &t.groups[t.place(hash, 1)]
	if known := b.recall(hash, attributes); known != nil {
		return known
	}
	if !a.full() || !b.full() {
		return nil
	}
	if known := t.groups[t.place(hash, 2)].recall(hash, attributes); known != nil {
		return known
	}
	return t.groups[t.place(hash, 3)].recall(hash, attributes)
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

// recall returns the resolution of a request, if the group has it.
func (g *memoGroup) recall(hash uint32, attributes []limit.Attribute) *Resolution {
	for m := equalTags(g.tags.Load(), hash); m != 0; m &= m - 1 {
		w := &g.ways[bits.TrailingZeros64(m)/16]
		if near := w.near.Load(); near != nil {
			near.Near()
		}
		if known := w.known.Load(); known != nil && known.is(attributes) {
			return known
		}
	}
	return nil
}

// memoPlaces is how many groups a request may be in.
const memoPlaces = 4

// place is the i-th group where a request may be.
func (t *memoTable) place(hash, i uint32) uint32 {
	if i >= 2 {
		hash = bits.ReverseBytes32(hash * 0x9e37_79b1)
	}
	return (hash ^ i&1) & uint32(len(t.groups)-1)
}

// tagOf is of other bits than place, as far as there are others.
func tagOf(hash uint32) uint64 { return uint64(hash >> 16) }

// equalTags has the top bit of each 16 set where the tag is that of the hash, and perhaps of such above.
func equalTags(tags uint64, hash uint32) uint64 {
	const ones, tops = 0x0001_0001_0001, 0x8000_8000_8000
	x := tags ^ tagOf(hash)*ones
	return (x - ones) &^ x & tops
}

// seen notes that a request was seen, and reports whether it was before.
func (g *memoGroup) seen(hash uint32) bool {
	s := g.sight.Load()
	if uint32(s>>32) == hash || uint32(s) == hash {
		return true
	}
	g.sight.Store(s<<32 | uint64(hash))
	return false
}

func sampled(hash uint32) bool { return hash>>8%memoSample == 0 }

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
	hash, ok := memoHash(attributes)
	if !ok {
		return
	}
	known := newResolution(hash, attributes)
	if known == nil {
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
	known.path, known.set = m.pathLocked(attributes, items, strictest), set
	copy(known.entries[:], entries)
	known.stays.Store(memoStay)
	if g, at := t.find(hash, func(was *Resolution) bool { return was.is(attributes) }); g != nil {
		g.ways[at].set(known)
		return
	}
	m.addLocked(t, known, most)
}

// pathLocked returns the path of a request, and makes it if there is none.
func (m *memo) pathLocked(attributes []limit.Attribute, items []*Item, strictest int) *path {
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
	p := &path{limits: len(items), strictest: strictest}
	copy(p.items[:], items)
	p.plain = len(items) == 1 && !items[0].Inherited && !items[0].Hold && !items[0].Slots
	for i := range attributes {
		p.names = append(p.names, ownName(attributes[i].Name))
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
			t = m.resizeLocked(t, 2*len(t.groups))
		}
		if t.add(known) {
			return
		}
	}
	t.replace(known)
}

// resizeLocked replaces a table by one of so many groups.
func (m *memo) resizeLocked(t *memoTable, groups int) *memoTable {
	next := newMemoTable(groups)
	t.each(func(_ *memoGroup, _ int, known *Resolution) { next.add(known) })
	m.table.Store(next)
	return next
}

func newMemoTable(groups int) *memoTable {
	return &memoTable{groups: make([]memoGroup, groups)}
}

// find returns where a resolution is that f accepts.
func (t *memoTable) find(hash uint32, f func(*Resolution) bool) (g *memoGroup, at int) {
	for i := range uint32(memoPlaces) {
		g := &t.groups[t.place(hash, i)]
		for at := range g.ways {
			if known := g.ways[at].known.Load(); known != nil && known.hash == hash && f(known) {
				return g, at
			}
		}
	}
	return nil, 0
}

// add puts a resolution in a free way, and reports whether there was one.
func (t *memoTable) add(known *Resolution) bool {
	for i := range uint32(memoPlaces) {
		g := &t.groups[t.place(known.hash, i)]
		for at := range uint32(memoWays) {
			at = (favourite(known.hash) + at) % memoWays
			if g.ways[at].known.Load() == nil {
				g.put(int(at), known)
				t.count++
				return true
			}
		}
	}
	return false
}

// replace puts a resolution in place of one that was not used lately, or else of any.
func (t *memoTable) replace(known *Resolution) {
	chance := rand.IntN(2 * memoWays)
	for i := range 2 * memoWays {
		g, at := &t.groups[t.place(known.hash, uint32(i/memoWays))], i%memoWays
		if was := g.ways[at].known.Load(); was != nil && (was.stays.Load() < memoStay || i >= chance) {
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
	g.ways[at].set(nil)
	g.tags.Store(g.tags.Load() &^ (0xffff << (16 * at)))
	t.count--
}

func (g *memoGroup) put(at int, known *Resolution) {
	g.tags.Store(g.tags.Load()&^(0xffff<<(16*at)) | tagOf(known.hash)<<(16*at))
	g.ways[at].set(known)
}

func (w *memoWay) set(known *Resolution) {
	w.known.Store(known)
	var near *Entry
	if known != nil {
		// The bucket that the fewest requests share is the least likely to be at hand.
		most := -1
		for i, it := range known.items[:known.limits] {
			if int(it.values) > most {
				most, near = int(it.values), known.entries[i]
			}
		}
	}
	w.near.Store(near)
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
		if g, at := t.find(known.hash, func(was *Resolution) bool { return was == known }); g != nil {
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
		stays := known.stays.Load()
		if owner := known.set.owner; stays == memoStay && owner != nil && !owner.touched.Load() {
			owner.touched.Store(true)
		}
		known.stays.Store(stays - 1) // over a use just now, which the next makes good
		if stays == 1 || stays < memoStay && known.dead() {
			t.drop(g, at)
		}
	})
	if len(t.groups) > memoGroups && t.count < len(t.groups)*memoWays/8 {
		m.resizeLocked(t, len(t.groups)/2)
	}
}
