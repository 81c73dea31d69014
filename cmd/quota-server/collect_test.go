package main

import "testing"

// A small heap grows by the room, a large one to twice what it is, as with Go's own rule.
func TestRoom(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, mostPercent}, {1 << 20, mostPercent}, {64 << 20, 400}, {256 << 20, 100}, {8 << 30, 100}} {
		if got := percent(c.live); got != c.want {
			t.Errorf("%d bytes live: got %d %%, want %d", c.live, got, c.want)
		}
	}
}
