//go:build !interleave

package bucket

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// The types of state that requests and the owner share. With the build tag interleave others replace them, so that a
// test can run every order of the operations (interleave_test.go).
type (
	counter = atomic.Int64
	flag    = atomic.Int32
	lock    = sync.Mutex
)

// latch is a bucket's mutex: one of latches, chosen by the bucket's address. A mutex of its own would cost every bucket
// eight bytes. Nobody who has one locks another bucket, and nobody has one for long.
type latch struct{}

// latches are on lines of their own.
var latches [1024]struct {
	lock
	_ [56]byte
}

func (l *latch) lock() *lock {
	at := uint64(uintptr(unsafe.Pointer(l))) * 0x9e37_79b9_7f4a_7c15
	return &latches[at>>54].lock
}

func (l *latch) Lock()   { l.lock().Lock() }
func (l *latch) Unlock() { l.lock().Unlock() }
