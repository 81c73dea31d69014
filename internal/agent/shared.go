//go:build !interleave

package agent

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// What requests and the owner share of a bucket. The build tag interleave puts others in
// their place, which let a test run every order of the operations (interleave_test.go).
type (
	counter = atomic.Int64
	flag    = atomic.Int32
	lock    = sync.Mutex
	word    = atomic.Uint64

	ref[T any] = atomic.Pointer[T]
)

// stripe tells callers at the same time apart, mostly: by where their stacks are.
func stripe() uint32 {
	var here byte
	return uint32(uintptr(unsafe.Pointer(&here))>>11) * 0x9e37_79b1 >> 16
}
