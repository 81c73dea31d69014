package wheel

import "math"

// Never is the time of what is not due.
const Never = math.MaxInt64

// Wheel says which buckets are due. One goroutine owns it. It has a list for each span of time, of what is due in that
// span, in no order, this round or a later one. So to set a bucket or to take one out reads hardly any other: with a
// million buckets each read waits for memory (BenchmarkWheel).
//
// A bucket does not know its place in a list. One that left stays listed until its span comes, or until half of the
// list has left. The zero Wheel is empty.
type Wheel[T any, P item[T]] struct {
	slots []slot[P] // none before the first is set
	n     int       // buckets that wait
	from  int64     // spans before are done with: what was due in them is in this one
	next  int64     // the first time that anything is due; 0 where it has to be looked up
}

// slot is what is due in a span. It may list a bucket that left, and twice one that came back.
type slot[P any] struct {
	list []P
	left int // of the list, at most
}

// item is what a wheel holds: it keeps when it is due, and nobody else writes that.
type item[T any] interface {
	*T
	When() *When
}

const (
	slotBits = 16  // of microseconds in a span: 66 ms
	spans    = 512 // half a minute, for few buckets wait longer
	// leftAlone is how many of a list may have left whatever its length.
	leftAlone = 16
	// mostKept is how many an empty list keeps room for.
	mostKept = 4096
)

// When is when a bucket is due. It has as many bits of the time as tell apart nine minutes: what is due later is looked
// at by then.
type When uint32

const (
	dueBits = 29
	waits   = When(1) << 31 // it is in the wheel
	seen    = When(1) << 30 // by a walk over a list that is under way
	renews  = When(1) << 29 // what is due is a renewal, which may go with others: see Near
)

func (w When) in(slot int) bool { return w&waits != 0 && slotOf(int64(w)) == slot }

func slotOf(due int64) int { return int(due >> slotBits & (spans - 1)) }

// due is when a bucket in the wheel is due: not before the span that is now.
func (s *Wheel[T, P]) due(e P) int64 {
	from := s.from << slotBits
	return from + (int64(*e.When())-from)&(1<<dueBits-1)
}

// Set says when a bucket is due; Never takes it out.
func (s *Wheel[T, P]) Set(e P, due int64) {
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
			s.slots = make([]slot[P], spans)
		}
		s.slots[k].list = append(s.slots[k].list, e)
		if s.n++; s.n == 1 {
			s.next = due
		}
	}
	*e.When() = waits | When(due&(1<<dueBits-1))
	if s.next > due {
		s.next = due
	}
}

// Renews says that what the bucket is due for is a renewal, which may go with others.
func (s *Wheel[T, P]) Renews(e P) {
	if *e.When() != 0 {
		*e.When() |= renews
	}
}

// Remove takes a bucket out.
func (s *Wheel[T, P]) Remove(e P) {
	if *e.When() == 0 {
		return
	}
	at := &s.slots[slotOf(int64(*e.When()))]
	at.left++
	if s.take(e); s.n > 0 && at.left > leftAlone && 2*at.left > len(at.list) {
		s.sweep(at)
	}
}

// take has a bucket not wait any more. It stays listed, unless none waits: a list would keep buckets that are no more.
func (s *Wheel[T, P]) take(e P) {
	s.forget(s.due(e))
	*e.When() = 0
	if s.n--; s.n > 0 {
		return
	}
	for k := range s.slots {
		s.slots[k].keep(0)
		s.slots[k].left = 0
	}
}

// forget says that what was due at a time is not any more.
func (s *Wheel[T, P]) forget(due int64) {
	if due == s.next {
		s.next = 0
	}
}

// sweep takes those out of a list that left it.
func (s *Wheel[T, P]) sweep(at *slot[P]) {
	kept := at.list[:0]
	for _, e := range at.list {
		if w := *e.When(); w&waits != 0 && w&seen == 0 && &s.slots[slotOf(int64(w))] == at {
			*e.When() |= seen
			kept = append(kept, e)
		}
	}
	at.keep(len(kept))
	at.left = 0
	for _, e := range kept {
		*e.When() &^= seen
	}
}

// keep keeps the first n of a list. The memory of many goes back with the last.
func (at *slot[P]) keep(n int) {
	clear(at.list[n:])
	at.list = at.list[:n]
	if n == 0 && cap(at.list) > mostKept {
		at.list = nil
	}
}

// Pop takes out a bucket that is due at now; nil where none is.
func (s *Wheel[T, P]) Pop(now int64) P {
	until := now >> slotBits
	if s.n == 0 {
		s.from = max(s.from, until)
	}
	for s.n > 0 && (s.next == 0 || s.next <= now) {
		if e := s.popFrom(int(s.from&(spans-1)), now); e != nil {
			return e
		}
		if s.from >= until {
			return nil
		}
		s.from++
	}
	return nil
}

// popFrom takes out a bucket of a list that is due, and what is listed behind it and left.
func (s *Wheel[T, P]) popFrom(k int, now int64) P {
	at := &s.slots[k]
	for i := len(at.list) - 1; i >= 0; i-- {
		e := at.list[i]
		waits := e.When().in(k)
		if waits && s.due(e) > now {
			continue
		}
		last := len(at.list) - 1
		at.list[i] = at.list[last] // which was looked at
		at.keep(last)
		if waits {
			s.take(e)
			return e
		}
		at.left = max(at.left-1, 0)
	}
	return nil
}

// Next returns when the first bucket is due, Never when there is none.
func (s *Wheel[T, P]) Next() int64 {
	if s.n == 0 {
		return Never
	}
	if s.next == 0 {
		s.next = s.first()
	}
	return s.next
}

// first looks up when the first bucket is due.
func (s *Wheel[T, P]) first() int64 {
	least := int64(Never)
	for span := s.from; span < s.from+spans; span++ {
		k := int(span & (spans - 1))
		for _, e := range s.slots[k].list {
			if e.When().in(k) {
				least = min(least, s.due(e))
			}
		}
		if least>>slotBits <= span {
			break // what is in later spans is due later
		}
	}
	return least
}

// Near appends to found, up to most, buckets that are due by then for a renewal that may go with others. They stay in.
func (s *Wheel[T, P]) Near(at int64, most int, found []P) []P {
	before := len(found)
	last := max(min(at>>slotBits, s.from+spans-1), s.from)
	for span := s.from; s.n > 0 && span <= last && len(found) < most; span++ {
		k := int(span & (spans - 1))
		for _, e := range s.slots[k].list {
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
