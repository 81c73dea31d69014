package client

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// With a journal the same end loses nothing: the next start settles it.
func TestCloseLeavesTheRestToTheNextStart(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		took, err := closeAway(t, s, WithJournal(dir))
		if took > 10*time.Second {
			t.Errorf("Close took %v, want 10s at most", took)
		}
		if !errors.Is(err, ErrUnsettled) || !strings.Contains(err.Error(), "7 units in 1 reports, kept in the journal for the next start") {
			t.Errorf("Close: %v, want that 7 units are kept in the journal", err)
		}
		s.set(func(f *fake) { f.down = false })
		shut(t, dial(t, s, WithJournal(dir)))
		if got := s.billed(nil); got != 7 {
			t.Errorf("the ledger has %d units after the next start, want 7", got)
		}
	})
}
