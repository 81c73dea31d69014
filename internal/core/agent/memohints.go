package agent

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// memoHints say where what a request needs is likely to be before its group has told: the cell of a request that is Plain whose tokens do not lodge
// in the group, the resolution of another. A decision beyond some ten thousand buckets is waiting for memory, and its group is in a line that it
// waits for as long as for the cell. Hints are so small that they are in a nearer cache, and so both are waited for together.
//
// Nothing is decided by a hint. It is an address to prefetch, and may be of what is no more: that brings a line in vain.
type memoHints struct {
	of   []atomic.Uint64 // by group: 32 bits of each way; nil where the groups are in a near cache themselves, or the tokens of nearly all lodge in them
	base uint64          // addresses are counted from here
}

const (
	// memoHinted is from how many groups on there are hints: half of a processor's own cache of one MiB.
	memoHinted = 8192

	hintBits = 28 // of an address, in cache lines: 8 GiB to either side, beyond which nothing is said
	hintLine = 6
	hintSpan = 1 << (hintBits + hintLine)
	// Four bits of the request's key tell which of its group's ways is meant.
	hintMask = 1<<hintBits - 1
)

// hinted is what a hint of it is to bring.
func (r *Resolution) hinted() uintptr {
	if r.plain {
		return uintptr(unsafe.Pointer(r.at[0].Load()))
	}
	return uintptr(unsafe.Pointer(r))
}

// around has addresses counted so that those near this one can be told.
func (h *memoHints) around(known *Resolution) {
	h.base = (uint64(known.hinted()) - hintSpan/2) &^ (1<<hintLine - 1)
}

// note says where what a way has is. The memo's mutex is held.
func (h *memoHints) note(group uint32, way int, known *Resolution) {
	at := uint64(known.hinted()) - h.base
	if at >= hintSpan { // or before the base
		return
	}
	w := &h.of[group]
	hint := at>>hintLine | known.is.key>>60<<hintBits
	w.Store(w.Load()&^(math.MaxUint32<<(32*way)) | hint<<(32*way))
}

// address is where what a request needs is likely to be, if the group has it.
func (h *memoHints) address(group uint32, k Key) uintptr {
	w := h.of[group].Load()
	if w>>hintBits&0xf != k.key>>60 {
		w >>= 32
	}
	return uintptr(h.base + w&hintMask<<hintLine)
}
