//go:build amd64 || arm64

// Package prefetch has memory come before it is read.
package prefetch

// Line begins to bring a line into the processor's cache. It waits for nothing, and no address is a fault: where
// there is no memory, nothing happens.
//
//go:noescape
func Line(at uintptr)
