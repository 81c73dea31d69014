package agent

import "sync/atomic"

// table finds entries by hash, without a lock for readers. Writers hold the
// registry's mutex. A reader that races with a writer may miss an entry that is
// there, never find one that is not: a miss is looked up again under the mutex
// before anything is made of it.
//
// It is open addressing over slots of two words, four to a cache line, so that a
// find costs one line here and then the entry's own (BenchmarkAttributes in
// loadtest/bench).
type table[T any] struct {
	slots atomic.Pointer[[]slot[T]]
	live  int // entries
	used  int // entries and tombstones
}

type slot[T any] struct {
	hash  atomic.Uint64 // 0: never used, ends a probe; 1: tombstone
	entry atomic.Pointer[T]
}

const (
	tombstone = 1
	minSlots  = 64
)

// usable maps a hash to one that is neither empty nor a tombstone.
func usable(h uint64) uint64 {
	if h <= tombstone {
		return h + 2
	}
	return h
}

func newTable[T any]() *table[T] {
	t := &table[T]{}
	s := make([]slot[T], minSlots)
	t.slots.Store(&s)
	return t
}

// insert adds an entry that is not there yet.
func (t *table[T]) insert(h uint64, p *T) {
	slots := *t.slots.Load()
	if 4*(t.used+1) > 3*len(slots) {
		slots = t.grow()
	}
	t.put(slots, h, p)
	t.live++
}

func (t *table[T]) put(slots []slot[T], h uint64, p *T) {
	mask := uint64(len(slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &slots[i]
		if old := s.hash.Load(); old <= tombstone {
			if old == 0 {
				t.used++
			}
			s.entry.Store(p)
			s.hash.Store(h)
			return
		}
	}
}

// grow makes room: twice the size, or the same without tombstones.
func (t *table[T]) grow() []slot[T] {
	old := *t.slots.Load()
	n := minSlots
	for 4*(t.live+1)+n/2 > 3*n { // room to grow by an eighth at least
		n *= 2
	}
	slots := make([]slot[T], n)
	t.used = 0
	for i := range old {
		if h := old[i].hash.Load(); h > tombstone {
			t.put(slots, h, old[i].entry.Load())
		}
	}
	t.slots.Store(&slots)
	return slots
}

// remove takes an entry out.
func (t *table[T]) remove(h uint64, p *T) {
	slots := *t.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &slots[i]
		switch s.hash.Load() {
		case 0:
			return
		case h:
			if s.entry.Load() == p {
				s.hash.Store(tombstone)
				s.entry.Store(nil)
				t.live--
				return
			}
		}
	}
}

// each calls f for every entry, and perhaps for some inserted meanwhile. No one else
// may remove meanwhile; f may.
func (t *table[T]) each(f func(*T)) {
	slots := *t.slots.Load()
	for i := range slots {
		if slots[i].hash.Load() > tombstone {
			f(slots[i].entry.Load())
		}
	}
}
