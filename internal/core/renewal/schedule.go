package renewal

import (
	"iter"
	"math"
	"math/bits"
)

// Never is the time of what needs no attention.
const Never = math.MaxInt64

// Schedule says when buckets are to be looked at. The owner's. It is a wheel: a slot for each span of time, which holds what is due in
// it, in no order, and what is due whole rounds later. So to set a bucket and to take it out again reads hardly any other, where
// each that is read is waited for in memory (BenchmarkSchedule).
//
// A bucket does not know where in its slot it is, for that would take three bytes of each: what is taken out or due elsewhere stays listed until its
// slot comes, or until there are as many such as others in it.
type Schedule[T any, P item[T]] struct {
	slots  []slot[P] // none before the first is set
	used   [wheel / 64]uint64
	n      int
	from   int64     // slots before are done with: what is due before is in this one
	next   int64     // the first time that anything is due, where known; else 0
	spare  *chunk[P] // up to mostSpare
	spares int
}

// item is what a schedule holds: it knows when it is due, and nobody else writes that.
type item[T any] interface {
	*T
	When() *When
}

// slot is a list of buckets, the last in front. A bucket in it that is not due at such a time counts for nothing; one that left and came back
// may be in it twice.
type slot[P any] struct {
	last *chunk[P] // the others are full
	n    int32     // in last
	all  int32
	left int32 // of all, how many left at most
}

// chunk is a part of a slot: in pieces of two cache lines, so that what a million buckets take for it is what they need.
type chunk[P any] struct {
	of   [inChunk]P
	more *chunk[P]
}

const (
	inChunk   = 15
	mostSpare = 64
	// leftAlone is how many in a slot may have left it whatever remains.
	leftAlone = 16
)

// When is when a bucket is to be looked at: of the time as many bits as tell apart what is due within nine minutes, for what is later is
// looked at then.
type When uint32

const (
	dueBits = 29
	waits   = When(1) << 31 // it is in the schedule
	seen    = When(1) << 30 // in a walk over a slot that is under way
	renews  = When(1) << 29 // its renewal may go with others then; see Near
)

func (w When) in(slot int) bool { return w&waits != 0 && slotOf(int64(w)) == slot }

// due is when a bucket in the schedule is due, which is not before the slot that is now.
func (s *Schedule[T, P]) due(e P) int64 {
	from := s.from << slotBits
	return from + (int64(*e.When())-from)&(1<<dueBits-1)
}

const (
	slotBits = 16  // of microseconds in a slot: 66 ms
	wheel    = 512 // slots: half a minute, for few buckets wait longer
)

func slotOf(due int64) int { return int(due >> slotBits & (wheel - 1)) }

// Set says when e is to be looked at; Never takes it out.
func (s *Schedule[T, P]) Set(e P, due int64) {
	if due == Never {
		s.Remove(e)
		return
	}
	from := s.from << slotBits
	due = min(max(due, from), from+1<<dueBits-1) // what is over is due at once
	k := slotOf(due)
	if e.When().in(k) {
		s.forget(s.due(e))
	} else {
		s.Remove(e)
		if s.slots == nil {
			s.slots = make([]slot[P], wheel)
		}
		s.list(&s.slots[k], e)
		s.used[k/64] |= 1 << (k % 64)
		if s.n++; s.n == 1 {
			s.next = due
		}
	}
	*e.When() = waits | When(due&(1<<dueBits-1))
	if s.next > due {
		s.next = due
	}
}

// Renews says that what e is due for is a renewal, which may go with others.
func (s *Schedule[T, P]) Renews(e P) {
	if *e.When() != 0 {
		*e.When() |= renews
	}
}

// forget says that what is due at a time goes.
func (s *Schedule[T, P]) forget(due int64) {
	if due == s.next {
		s.next = 0
	}
}

// Remove takes e out.
func (s *Schedule[T, P]) Remove(e P) {
	if *e.When() == 0 {
		return
	}
	k := slotOf(int64(*e.When()))
	s.take(e)
	if at := &s.slots[k]; s.n == 0 {
		s.empty()
	} else if at.left++; at.left > leftAlone && 2*at.left > at.all {
		s.sweep(k)
	}
}

// take takes out what stays listed.
func (s *Schedule[T, P]) take(e P) {
	s.forget(s.due(e))
	*e.When() = 0
	s.n--
}

// empty forgets what is listed when nothing waits: it would keep buckets that are no more.
func (s *Schedule[T, P]) empty() {
	for i, used := range s.used {
		for ; used != 0; used &= used - 1 {
			s.slots[64*i+bits.TrailingZeros64(used)] = slot[P]{}
		}
		s.used[i] = 0
	}
}

// sweep takes those out of a slot's list that left it.
func (s *Schedule[T, P]) sweep(k int) {
	s.walk(k, func(e P) bool {
		if !e.When().in(k) || *e.When()&seen != 0 {
			return false
		}
		*e.When() |= seen
		return true
	})
	for e := range s.listed(k) {
		*e.When() &^= seen
	}
	s.slots[k].left = 0
}

// list adds e to a slot's list.
func (s *Schedule[T, P]) list(at *slot[P], e P) {
	if at.last == nil || at.n == inChunk {
		c := s.spare
		if c == nil {
			c = new(chunk[P])
		} else {
			s.spare, s.spares = c.more, s.spares-1
		}
		c.more = at.last
		at.last, at.n = c, 0
	}
	at.last.of[at.n] = e
	at.n++
	at.all++
}

// unlist has the last in a slot's list take the place of another, which may be itself.
func (s *Schedule[T, P]) unlist(k int, place *P) {
	at := &s.slots[k]
	at.n--
	at.all--
	*place = at.last.of[at.n]
	at.last.of[at.n] = *new(P)
	if at.n > 0 {
		return
	}
	c := at.last
	at.last, at.n = c.more, inChunk
	if c.more = nil; s.spares < mostSpare {
		c.more, s.spare, s.spares = s.spare, c, s.spares+1
	}
	if at.last == nil {
		*at = slot[P]{}
		s.used[k/64] &^= 1 << (k % 64)
	}
}

// walk goes over a slot's list, the last first, and takes out those for which stay is false.
func (s *Schedule[T, P]) walk(k int, stay func(P) bool) {
	for c, n := s.slots[k].last, s.slots[k].n; c != nil; n = inChunk {
		more := c.more // it may be taken off the list
		for i := n - 1; i >= 0; i-- {
			if !stay(c.of[i]) {
				s.unlist(k, &c.of[i]) // by one that was looked at
			}
		}
		c = more
	}
}

// listed is a slot's list.
func (s *Schedule[T, P]) listed(k int) iter.Seq[P] {
	return func(yield func(P) bool) {
		for c, n := s.slots[k].last, s.slots[k].n; c != nil; c, n = c.more, inChunk {
			for _, e := range c.of[:n] {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Pop takes out a bucket that is due at now; nil where none is.
func (s *Schedule[T, P]) Pop(now int64) P {
	until := now >> slotBits
	if s.n == 0 {
		s.from = max(s.from, until)
	}
	for s.n > 0 && (s.next == 0 || s.next <= now) {
		if e := s.popFrom(int(s.from&(wheel-1)), now); e != nil {
			return e
		}
		if s.from >= until {
			return nil
		}
		s.from++
	}
	return nil
}

// popFrom takes out a bucket of a slot that is due, and what is listed there behind it and left.
func (s *Schedule[T, P]) popFrom(k int, now int64) P {
	for c, n := s.slots[k].last, s.slots[k].n; c != nil; n = inChunk {
		more := c.more
		for i := n - 1; i >= 0; i-- {
			e := c.of[i]
			left := !e.When().in(k)
			if !left && s.due(e) > now {
				continue
			}
			s.unlist(k, &c.of[i])
			if left {
				s.slots[k].left = max(s.slots[k].left-1, 0)
				continue
			}
			if s.take(e); s.n == 0 {
				s.empty()
			}
			return e
		}
		c = more
	}
	return nil
}

// Next returns when the first bucket is due, Never when there is none.
func (s *Schedule[T, P]) Next() int64 {
	if s.n == 0 {
		return Never
	}
	if s.next == 0 {
		s.next = s.first()
	}
	return s.next
}

func (s *Schedule[T, P]) first() int64 {
	least := int64(Never)
	for i := 0; i < wheel; i++ {
		k := int((s.from + int64(i)) & (wheel - 1))
		if s.used[k/64]>>(k%64) == 0 {
			i += 63 - k%64 // none in the rest of this word
			continue
		}
		skip := bits.TrailingZeros64(s.used[k/64] >> (k % 64))
		i, k = i+skip, k+skip
		if i >= wheel {
			break
		}
		for e := range s.listed(k) {
			if e.When().in(k) {
				least = min(least, s.due(e))
			}
		}
		if least>>slotBits <= s.from+int64(i) {
			break // what is in later slots is due later
		}
	}
	return least
}

// Near appends to found, up to most, the buckets that are due at a time and are to be renewed then, as far as is known, and leaves them where they are.
func (s *Schedule[T, P]) Near(at int64, most int, found []P) []P {
	before := len(found)
	last := min(at>>slotBits, s.from+wheel-1)
	for slot := s.from; s.n > 0 && slot <= max(last, s.from) && len(found) < most; slot++ {
		k := int(slot & (wheel - 1))
		for e := range s.listed(k) {
			if len(found) >= most {
				break
			}
			if e.When().in(k) && *e.When()&(seen|renews) == renews && s.due(e) <= at {
				*e.When() |= seen
				found = append(found, e)
			}
		}
	}
	for _, e := range found[before:] {
		*e.When() &^= seen
	}
	return found
}
