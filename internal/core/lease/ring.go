package lease

import (
	"cmp"
	"slices"
)

// Ring is the sums of the leases that end in each slot, the next to end first. Each slot is in it once.
type Ring []Slot

// Slot is one.
type Slot struct {
	At int64 // Unix time in SlotLen
	Sums
}

// Add puts a lease that ends in the slot at into the ring.
func (r *Ring) Add(at int64, s Sums) {
	i, there := r.find(at)
	if !there {
		*r = slices.Insert(*r, i, Slot{At: at})
	}
	(*r)[i].Add(s)
}

// subtract takes it out again.
func (r *Ring) subtract(at int64, s Sums) {
	r.Add(at, Sums{})
	i, _ := r.find(at)
	if (*r)[i].Sums.subtract(s); (*r)[i].Sums == (Sums{}) {
		*r = slices.Delete(*r, i, i+1)
	}
}

// Has reports whether leases end in a slot.
func (r Ring) Has(at int64) bool {
	_, there := r.find(at)
	return there
}

func (r Ring) find(at int64) (i int, there bool) {
	if n := len(r); n == 0 || r[n-1].At < at {
		return n, false
	}
	return slices.BinarySearchFunc(r, at, func(s Slot, at int64) int { return cmp.Compare(s.At, at) })
}

// last is the last slot of the ring, 0 for none.
func (r Ring) last() int64 {
	if len(r) == 0 {
		return 0
	}
	return r[len(r)-1].At
}

// lastLease is the last slot that is more than fallbacks of leases that ended.
func (r Ring) lastLease() int64 {
	for i := len(r) - 1; i >= 0; i-- {
		if lent, _ := r[i].Sums.apart(); lent != (Sums{}) {
			return r[i].At
		}
	}
	return 0
}
