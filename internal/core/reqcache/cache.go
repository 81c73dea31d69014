package reqcache

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	// window is in how many slots a request may be, from the one that its key names on: two cache lines or three.
	window = 8
	// leastSlots are those of the first table, and leastSeen the requests of which it notes that they came once.
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

	mu     sync.Mutex // of writers; whoever decides a request only tries it
	shapes map[string]*shape
	closed bool
}

// table is replaced when it is full, or much too large. A slot's key and what it points to are written one after the other: a
// reader that sees them of two requests compares the attributes, and misses.
type table[V any] struct {
	slots []slot[V]       // a power of two, and window more
	shift int             // of a key, to its slot
	seen  []atomic.Uint32 // by key: a request that came, and is not known
	count int             // known requests; the writers'
}

type slot[V any] struct {
	key   atomic.Uint64
	known atomic.Pointer[known[V]]
}

// known is a request that is remembered. With a V of 40 bytes it takes two cache lines that a processor reads together: a
// request that is found costs them, its slot's line, and those that V points to.
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

// Get returns what a request came to; nil where that is not known. again then says that it came before, and is worth
// remembering: most requests of a flood come once.
func (c *Cache[V]) Get(k Key, attributes []limit.Attribute) (v *V, again bool) {
	t := c.table.Load()
	slots := t.at(k)
	for i := range slots {
		if slots[i].key.Load() != uint64(k) {
			continue
		}
		if n := slots[i].known.Load(); n != nil && n.is(attributes) {
			if n.idle.Load() != 0 {
				n.idle.Store(0)
			}
			return &n.value, false
		}
	}
	if k == 0 {
		return nil, false
	}
	seen := &t.seen[uint64(k)>>(64-bits.Len(uint(len(t.seen)-1)))]
	if again = seen.Load() == uint32(k); !again {
		seen.Store(uint32(k))
	}
	return nil, again
}

// Put remembers what a request came to, in place of what it came to before, and no more than so many requests. While another
// writes it does nothing.
func (c *Cache[V]) Put(k Key, attributes []limit.Attribute, v V, most int) {
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
	if t.put(k, n, t.count < most) && 2*t.count > len(t.slots)-window && c.growing.CompareAndSwap(false, true) {
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

// put takes the slot of the same request, a free one if there is room for more, or that of one that was not used for long;
// and reports whether there is one more then. The mutex is held.
func (t *table[V]) put(k Key, n *known[V], room bool) (more bool) {
	slots := t.at(k)
	var free, idlest *slot[V]
	from := rand.IntN(window) // of those that are all in use any goes
	for i := range slots {
		s := &slots[(from+i)%window]
		switch was := s.known.Load(); {
		case was == nil:
		case s.key.Load() == uint64(k) && was.values == n.values && was.shape == n.shape:
			s.known.Store(n)
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
		free.store(k, n)
		t.count++
		return true
	case idlest != nil:
		idlest.store(k, n)
	}
	return false
}

func (s *slot[V]) store(k Key, n *known[V]) {
	s.key.Store(uint64(k))
	s.known.Store(n)
}

func (t *table[V]) empty(s *slot[V]) {
	s.known.Store(nil)
	s.key.Store(0)
	t.count--
}

// resize replaces the table by one of so many slots. The mutex is held.
func (c *Cache[V]) resize(slots int) {
	old := c.table.Load()
	next := newTable[V](slots)
	next.saw(old.seen)
	for i := range old.slots {
		if n := old.slots[i].known.Load(); n != nil {
			next.put(Key(old.slots[i].key.Load()), n, true)
		}
	}
	c.table.Store(next)
}

// saw takes over what was seen; of a smaller table each key may be in either of two places.
func (t *table[V]) saw(seen []atomic.Uint32) {
	if len(seen) == len(t.seen) {
		t.seen = seen
		return
	}
	for i := range t.seen {
		t.seen[i].Store(seen[i*len(seen)/len(t.seen)].Load())
	}
}

// Delete forgets a request, if it is known for that. While another writes it does nothing.
func (c *Cache[V]) Delete(k Key, v *V) {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	t := c.table.Load()
	slots := t.at(k)
	for i := range slots {
		if n := slots[i].known.Load(); n != nil && &n.value == v {
			t.empty(&slots[i])
		}
	}
}

// Sweep forgets what was not used for long, and all for which keep is false; used says that it was used since the last sweep.
// It may take long, and holds up nobody.
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

// Len returns how many requests are known.
func (c *Cache[V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Load().count
}
