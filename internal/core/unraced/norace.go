//go:build !race

package unraced

// watched says whether the race detector watches.
const watched = false
