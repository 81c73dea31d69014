package agent

import "math/bits"

// Schedule says when buckets are to be looked at. The owner's. It is a wheel: a slot for each span of time, which holds what is due in
// it, in no order, and what is due whole rounds later. So to set a bucket and to take it out again reads hardly any other, where
// each that is read is waited for in memory (BenchmarkSchedule).
type Schedule struct {
	slots [][]*Entry // none before the first is set
	used  [wheel / 64]uint64
	n     int
	from  int64 // slots before are done with: what is due before is in this one
	next  int64 // the first time that anything is due, where known; else 0
}

// when is when a bucket is to be looked at and, below that, its place in its slot, plus one; 0 where it is in none. Of the time there are
// as many bits as tell apart what is due within twelve days: what is later is looked at then.
type when uint64

const (
	placeBits = 24
	mostIn    = 1<<placeBits - 1 // of one slot
	dueBits   = 64 - placeBits
)

func (w when) place() int { return int(w & mostIn) }

func (w when) slot() int { return slotOf(int64(w >> placeBits)) }

func (w *when) set(due int64, place int) { *w = when(due)<<placeBits | when(place) }

// due is when a bucket in the schedule is due, which is not before the slot that is now.
func (s *Schedule) due(e *Entry) int64 {
	from := s.from << slotBits
	return from + (int64(e.when>>placeBits)-from)&(1<<dueBits-1)
}

const (
	slotBits = 16  // of microseconds in a slot: 66 ms
	wheel    = 512 // slots: half a minute, for few buckets wait longer
	// keptRoom is how much room a slot that got empty keeps: more was of buckets that came together.
	keptRoom = 256
)

func slotOf(due int64) int { return int(due >> slotBits & (wheel - 1)) }

// Set says when e is to be looked at; Never takes it out.
func (s *Schedule) Set(e *Entry, due int64) {
	if due == Never {
		s.Remove(e)
		return
	}
	from := s.from << slotBits
	due = min(max(due, from), from+1<<dueBits-1) // what is over is due at once
	for len(s.slots) > 0 && len(s.slots[slotOf(due)]) == mostIn {
		due += 1 << slotBits
	}
	k, place := slotOf(due), e.when.place()
	if place > 0 && e.when.slot() == k {
		s.forget(s.due(e))
	} else {
		s.Remove(e)
		if s.slots == nil {
			s.slots = make([][]*Entry, wheel)
		}
		slot := s.slots[k]
		if n := len(slot); n == cap(slot) && n > keptRoom {
			slot = append(make([]*Entry, 0, n+n/8), slot...) // of a great many, a quarter more is a good deal
		}
		place = len(slot) + 1
		s.slots[k] = append(slot, e)
		s.used[k/64] |= 1 << (k % 64)
		if s.n++; s.n == 1 {
			s.next = due
		}
	}
	e.when.set(due, place)
	if s.next > due {
		s.next = due
	}
}

// forget says that what is due at a time goes.
func (s *Schedule) forget(due int64) {
	if due == s.next {
		s.next = 0
	}
}

// Remove takes e out.
func (s *Schedule) Remove(e *Entry) {
	k, at := e.when.slot(), e.when.place()-1
	if at < 0 {
		return
	}
	slot := s.slots[k]
	s.forget(s.due(e))
	e.when = 0
	end := len(slot) - 1
	if last := slot[end]; last != e {
		slot[at] = last
		last.when = last.when&^mostIn | when(at+1)
	}
	slot[end] = nil
	s.slots[k] = slot[:end]
	s.n--
	if end == 0 {
		s.used[k/64] &^= 1 << (k % 64)
		if cap(slot) > keptRoom {
			s.slots[k] = nil
		}
	}
}

// Pop takes out a bucket that is due at now; nil where none is.
func (s *Schedule) Pop(now int64) *Entry {
	until := now >> slotBits
	if s.n == 0 {
		s.from = max(s.from, until)
	}
	for s.n > 0 && (s.next == 0 || s.next <= now) {
		slot := s.slots[s.from&(wheel-1)]
		for i := len(slot) - 1; i >= 0; i-- {
			if e := slot[i]; s.due(e) <= now {
				s.Remove(e)
				return e
			}
		}
		if s.from >= until {
			return nil
		}
		s.from++
	}
	return nil
}

// Next returns when the first bucket is due, Never when there is none.
func (s *Schedule) Next() int64 {
	if s.n == 0 {
		return Never
	}
	if s.next == 0 {
		s.next = s.first()
	}
	return s.next
}

func (s *Schedule) first() int64 {
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
		for _, e := range s.slots[k] {
			least = min(least, s.due(e))
		}
		if least>>slotBits <= s.from+int64(i) {
			break // what is in later slots is due later
		}
	}
	return least
}

// Near appends to found, up to most, the buckets that are due at a time, and leaves them where they are.
func (s *Schedule) Near(at int64, most int, found []*Entry) []*Entry {
	last := min(at>>slotBits, s.from+wheel-1)
	for slot := s.from; s.n > 0 && slot <= max(last, s.from); slot++ {
		for _, e := range s.slots[slot&(wheel-1)] {
			if s.due(e) > at {
				continue
			}
			if len(found) >= most {
				return found
			}
			found = append(found, e)
		}
	}
	return found
}
