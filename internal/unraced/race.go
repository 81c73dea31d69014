//go:build race

package unraced

// Watched says whether the race detector watches.
const Watched = true
