package ledger

import (
	"fmt"
	"testing"
	"time"
)

// A key that makes up agents holds usage back by a bounded number of epochs: those heard of last. An agent
// without a key is not counted.
func TestEpochsOfAKeyAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		key  string
		want int // the epoch, of those that were seen one a millisecond, that usage is complete through
	}{{"k", 5}, {"", 0}} {
		var epochs []Frontier
		for i := range OpenEpochsOfKey + 5 {
			at := now.Add(-time.Minute).UnixMilli() + int64(i)
			epochs = append(epochs, Frontier{Epoch: Epoch{Agent: fmt.Sprint("a", i), Epoch: 1}, Seq: 1, State: StateOpen, Seen: at, Through: at, Key: c.key})
		}
		got := Completeness(epochs, func(Epoch) bool { return true }, true, now, 0).Through
		if want := time.UnixMilli(epochs[c.want].Through).UTC(); !got.Equal(want) {
			t.Errorf("under key %q: complete through %v, want %v", c.key, got, want)
		}
	}
}
