//go:build amd64 || arm64

package agent

// prefetch begins to bring a line into the processor's cache. It waits for nothing, and no address is a fault: where
// there is no memory, nothing happens.
//
//go:noescape
func prefetch(at uintptr)
