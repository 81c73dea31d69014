package agent

import "sync/atomic"

// seldom is what few buckets ever have.
type seldom struct {
	reserves                         // guarded by the bucket's mutex
	hopeless int64                   // likewise: units refused for being more than the capacity, no demand that a lease could serve
	company  atomic.Pointer[Company] // it was in last; see Entry.With
	denials  atomic.Pointer[denials] // nil while they are counted in the cell
}

// rarely returns what few buckets have, and makes it if there is none.
func (b *Bucket) rarely() *seldom {
	if s := b.seldom.Load(); s != nil {
		return s
	}
	b.seldom.CompareAndSwap(nil, new(seldom))
	return b.seldom.Load()
}
