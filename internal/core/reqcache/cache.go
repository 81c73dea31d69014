package reqcache

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	// window is the number of slots that a request may be in, from the one that its key names: some three cache lines.
	window = 8
	// leastSlots is the size of the first table, and leastSeen how many requests it notes as having come once.
	leastSlots = 1 << 10
	leastSeen  = 1 << 15
	// stay is how many sweeps a request stays without use: some two minutes, as a bucket does.
	stay = 12
	// inline is room for the values of most requests.
	inline = 56
)

// Cache remembers a V for each request. Its methods are safe for concurrent use. The zero Cache is not: see New.
type Cache[V any] struct {
	table   atomic.Pointer[table[V]]
	growing atomic.Bool
	grows   sync.WaitGroup

	mu     sync.Mutex // of writers; a request only tries it
	shapes map[string]*shape
	closed bool
}

// table is replaced when it is two thirds full, or much too large. A slot's fields are written one after the other. A
// reader that sees the key of one request and the attributes of another compares the attributes, and misses.
type table[V any] struct {
	slots []slot[V]       // a power of two, and window more
	shift int             // of a key, to its slot
	seen  []atomic.Uint32 // by key: a request that came, and is not known
	count int             // known requests; the writers'
}

type slot[V any] struct {
	key   atomic.Uint64
	known atomic.Pointer[known[V]]
	first atomic.Pointer[bucket.Hot]
}

// known is a request that is remembered. With a V of 40 bytes it takes two cache lines that a processor reads together.
type known[V any] struct {
	shape  *shape
	values string       // each behind its length
	idle   atomic.Int32 // sweeps since it was used
	value  V
	inline [inline]byte // where values are, if they fit
}

// New returns an empty cache.
func New[V any]() *Cache[V] {
	c := &Cache[V]{shapes: make(map[string]*shape)}
	c.table.Store(newTable[V](leastSlots))
	return c
}

func newTable[V any](slots int) *table[V] {
	return &table[V]{
		slots: make([]slot[V], slots+window), shift: 64 - bits.Len(uint(slots-1)),
		seen: make([]atomic.Uint32, max(slots, leastSeen)),
	}
}

// at are the slots where a key may be.
func (t *table[V]) at(k Key) []slot[V] {
	first := uint64(k) >> t.shift
	return t.slots[first : first+window : first+window]
}

// Get returns the value of a request; nil where that is not known. again then says that the request came before, and is
// worth remembering: most requests of a flood come once. dry says that the request's first bucket had no unit. The
// bucket is read before the attributes are compared, so that the processor waits for both at once. Among 100,000
// requests that saves a fifth of a decision. While the request is being written, dry may be another bucket's.
func (c *Cache[V]) Get(k Key, attributes []limit.Attribute) (v *V, dry, again bool) {
	t := c.table.Load()
	slots := t.at(k)
	for i := range slots {
		if slots[i].key.Load() != uint64(k) {
			continue
		}
		first := slots[i].first.Load()
		dry = first != nil && first.Dry()
		if n := slots[i].known.Load(); n != nil && n.is(attributes) {
			if n.idle.Load() != 0 {
				n.idle.Store(0)
			}
			return &n.value, dry, false
		}
	}
	if k == 0 {
		return nil, false, false
	}
	seen := &t.seen[uint64(k)>>(64-bits.Len(uint(len(t.seen)-1)))]
	if again = seen.Load() == uint32(k); !again {
		seen.Store(uint32(k))
	}
	return nil, false, again
}

// Put remembers a request's value and its first bucket, in place of earlier ones. The cache holds at most the given
// number of requests. While another writes, Put does nothing.
func (c *Cache[V]) Put(k Key, attributes []limit.Attribute, first *bucket.Hot, v V, most int) {
	if k == 0 || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	s := c.shapeOf(attributes)
	if s == nil {
		return
	}
	t := c.table.Load()
	n := &known[V]{shape: s, value: v}
	n.says(attributes)
	if t.put(k, n, first, t.count < most) && 3*t.count > 2*(len(t.slots)-window) && c.growing.CompareAndSwap(false, true) {
		c.grows.Go(func() {
			defer c.growing.Store(false)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.resize(2 * (len(t.slots) - window))
		})
	}
}

// Close ends remembering, and returns when no growth is under way.
func (c *Cache[V]) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.grows.Wait()
}

// put takes the slot of the same request. Else it takes a free one if there is room for more, or the one that was
// unused for longest. It reports whether one more request is known then. The mutex is held.
func (t *table[V]) put(k Key, n *known[V], first *bucket.Hot, room bool) (more bool) {
	slots := t.at(k)
	var free, idlest *slot[V]
	from := rand.IntN(window) // if all are in use, any will do
	for i := range slots {
		s := &slots[(from+i)%window]
		switch was := s.known.Load(); {
		case was == nil:
		case s.key.Load() == uint64(k) && was.values == n.values && was.shape == n.shape:
			s.store(k, n, first)
			return false
		case idlest == nil || was.idle.Load() > idlest.known.Load().idle.Load():
			idlest = s
		}
		if free == nil && slots[i].known.Load() == nil {
			free = &slots[i]
		}
	}
	switch {
	case free != nil && room:
		free.store(k, n, first)
		t.count++
		return true
	case idlest != nil:
		idlest.store(k, n, first)
	}
	return false
}

func (s *slot[V]) store(k Key, n *known[V], first *bucket.Hot) {
	s.key.Store(uint64(k))
	s.first.Store(first)
	s.known.Store(n)
}

func (t *table[V]) empty(s *slot[V]) {
	s.store(0, nil, nil)
	t.count--
}

// resize replaces the table by one with the given number of slots. The mutex is held.
func (c *Cache[V]) resize(slots int) {
	old := c.table.Load()
	next := newTable[V](slots)
	next.saw(old.seen)
	for i := range old.slots {
		s := &old.slots[i]
		if n := s.known.Load(); n != nil {
			next.put(Key(s.key.Load()), n, s.first.Load(), true)
		}
	}
	c.table.Store(next)
}

// saw takes over the notes on requests seen once, as far as the places of keys in the other table allow.
func (t *table[V]) saw(seen []atomic.Uint32) {
	if len(seen) == len(t.seen) {
		t.seen = seen
		return
	}
	for i := range t.seen {
		t.seen[i].Store(seen[i*len(seen)/len(t.seen)].Load())
	}
}

// Sweep forgets requests that were not used for long, and those that keep refuses; used says that one was used since the last
// sweep. It may take long, and nobody waits for it.
func (c *Cache[V]) Sweep(keep func(v *V, used bool) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table.Load()
	for i := range t.slots {
		s := &t.slots[i]
		if n := s.known.Load(); n != nil {
			idle := n.idle.Add(1)
			if !keep(&n.value, idle == 1) || idle > stay {
				t.empty(s)
			}
		}
	}
	if slots := len(t.slots) - window; slots > leastSlots && 8*t.count < slots {
		c.resize(slots / 2)
	}
}
