//go:build !interleave

package agent

import (
	"sync"
	"sync/atomic"
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
