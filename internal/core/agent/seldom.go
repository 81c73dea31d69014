package agent

import (
	"sync/atomic"
	"unsafe"
)

// scoped is what a bucket has its scope from: the scope itself or, of a bucket that has it, what few have, in front of
// which it is, for a pointer of its own would take eight bytes of all the others.
type scoped struct{ scope *Scope }

func (of *Bucket) scope() *Scope { return of.from.Load().scope }

// is reports whether the bucket is of a scope.
func (of *Bucket) is(s *Scope) bool {
	c := of.from.Load()
	return c == &s.scoped || c.scope == s
}

// seldom returns what few buckets have; nil where nothing of it was needed yet.
func (of *Bucket) seldom() *seldom {
	c := of.from.Load()
	if c == &c.scope.scoped {
		return nil
	}
	return (*seldom)(unsafe.Pointer(c))
}

// seldom is what few buckets have at a time. What none of it is needed for any more, a bucket gives up when its book is
// closed: a request that still has it in hand finds nothing in it that counts.
type seldom struct {
	// What a denial reads, and what says whether the book is open, lies together.
	scoped
	shutUntil counter              // see Shut; written under the mutex
	shutRetry counter              // when one unit may be there, as of then
	finished  counter              // slots given back by requests that came to their end
	folded    counter              // stock.folded; written under the mutex
	book      atomic.Pointer[book] // while it is open: written, and its book used, under the mutex

	more *[moreBytes]byte // of a book that is packed, what has no room in the bucket; guarded by the mutex

	// What requests share without the mutex.
	inherited counter // cell.inherited, of a bucket without a cell
	excused   counter // cell.excused, likewise
	// patient counts the requests that wait their turn, so that one which gives back
	// sees them without the mutex. It is written under it.
	patient flag
	keep    flag        // more slots than this lying idle are a surplus that the owner has not noticed
	stays   atomic.Bool // requests count in it without the mutex: it is never given up
}

// idle reports whether nothing in it is needed. The mutex is held.
func (s *seldom) idle() bool {
	return s.book.Load() == nil && s.more == nil && s.over()
}

// over is idle, whatever the book needs of it.
func (s *seldom) over() bool {
	return !s.stays.Load() && s.shutUntil.Load() == 0 && s.patient.Load() == 0
}

// due returns the units that came back to a bucket and are not folded yet.
func (s *seldom) due(c *hot) int64 {
	folded := s.folded.Load() // first: it never exceeds the others
	return c.back.Load() + s.finished.Load() - folded
}

// rarely returns what few buckets have, and makes it if there is none.
func (b *book) rarely() *seldom {
	if s := b.seldom(); s != nil {
		return s
	}
	s := &seldom{scoped: scoped{b.scope()}}
	s.folded.Store(b.cell.folded)
	b.cell.apart = s
	b.from.Store(&s.scoped)
	return s
}

// counted is rarely, for a request that counts in it without the mutex.
func (of *Bucket) counted() *seldom {
	if s := of.seldom(); s != nil && s.stays.Load() {
		return s
	}
	b := of.open(new(hand))
	defer b.close()
	s := b.rarely()
	s.stays.Store(true)
	return s
}

// inherited is units that requests of tenants below took here; see cell.
func (of *Bucket) inherited() int64 {
	if c := of.mapped(); c != nil {
		return c.inherited.Load()
	}
	if s := of.seldom(); s != nil {
		return s.inherited.Load()
	}
	return 0
}

// excused is units that were refused here and are denied nowhere; see cell.
func (of *Bucket) excused() int64 {
	if c := of.mapped(); c != nil {
		return c.excused.Load()
	}
	if s := of.seldom(); s != nil {
		return s.excused.Load()
	}
	return 0
}

// patients returns how many requests wait their turn.
func (of *Bucket) patients() int {
	s := of.seldom()
	if s == nil {
		return 0
	}
	return int(s.patient.Load())
}
