package recovery

import (
	"testing"
	"time"
)

// Epochs rise with the time, and two that begin at the same time are not the same.
func TestEpochsRiseAndAreRandom(t *testing.T) {
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	seen := map[int64]bool{}
	for range 100 {
		e := NewEpoch(now)
		if d := e - now.UnixMicro(); d < -1<<epochBits || d > 1<<epochBits {
			t.Fatalf("epoch %d is %d µs from %v", e, d, now)
		}
		if later := NewEpoch(now.Add(1 << epochBits * time.Microsecond)); later <= e {
			t.Fatalf("a second later the epoch is %d, and was %d", later, e)
		}
		seen[e] = true
	}
	if len(seen) < 95 {
		t.Errorf("100 epochs of one moment are %d", len(seen))
	}
}
