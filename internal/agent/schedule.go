package agent

import "container/heap"

// Schedule orders buckets by when they are to be looked at. The owner's.
type Schedule struct{ h dueHeap }

type dueHeap []*Entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].Line.Due < h[j].Line.Due }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Line.index, h[j].Line.index = int32(i)+1, int32(j)+1
}
func (h *dueHeap) Push(x any) {
	e := x.(*Entry)
	e.Line.index = int32(len(*h)) + 1
	*h = append(*h, e)
}
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.Line.index = 0
	return e
}

// Set says when e is to be looked at; Never takes it out.
func (s *Schedule) Set(e *Entry, due int64) {
	switch {
	case due == Never:
		s.Remove(e)
	case e.Line.index == 0:
		e.Line.Due = due
		heap.Push(&s.h, e)
	case e.Line.Due != due:
		e.Line.Due = due
		heap.Fix(&s.h, int(e.Line.index)-1)
	}
}

// Remove takes e out.
func (s *Schedule) Remove(e *Entry) {
	if e.Line.index > 0 {
		heap.Remove(&s.h, int(e.Line.index)-1)
	}
}

// Next returns when the first bucket is due, Never when there is none.
func (s *Schedule) Next() int64 {
	if len(s.h) == 0 {
		return Never
	}
	return s.h[0].Line.Due
}

// Pop takes out the first bucket, if it is due at now.
func (s *Schedule) Pop(now int64) *Entry {
	if len(s.h) == 0 || s.h[0].Line.Due > now {
		return nil
	}
	return heap.Pop(&s.h).(*Entry)
}
