package leasing

import (
	"fmt"
	"testing"
	"time"
)

// Each agent counts once, from its first call until half a minute after its last.
func TestFleetIsCounted(t *testing.T) {
	var f fleet
	now := time.Unix(1_000, 0)
	for i := range 10 {
		for range 3 {
			if got := f.hear(fmt.Sprint("gw-", i), now); got != int32(i+1) {
				t.Errorf("after agent %d: %d agents, want %d", i, got, i+1)
			}
		}
	}
	for range 6 {
		now = now.Add(heardFor / 6)
		f.hear("gw-3", now)
	}
	if got := f.hear("gw-4", now.Add(heardFor/8)); got != 2 {
		t.Errorf("%d agents after half a minute in which one called, want it and the one that calls", got)
	}
}
