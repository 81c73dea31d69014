package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/fault"
)

// An agent that asks for more than its budget is told to come again, and may then; others are not held up, and what is
// remembered is bounded.
func TestBudgets(t *testing.T) {
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	b := newBudgets(allowance{burst: 100, rate: 10, what: "things"})
	b.now = func() time.Time { return now }
	key := principal{name: "k"}
	for _, step := range []struct {
		agent string
		after time.Duration
		n     int
		ok    bool
	}{
		{"a", 0, 60, true}, {"a", 0, 60, false}, {"b", 0, 60, true}, {"a", time.Second, 60, false}, {"a", time.Second, 60, true},
		{"a", 0, 1, false}, {"a", time.Minute, 1000, true}, {"a", time.Minute, 1, false}, {"a", time.Minute, 1, true},
	} {
		now = now.Add(step.after)
		err := b.take(key, step.agent, step.n)
		if (err == nil) != step.ok || err != nil && !errors.Is(err, fault.ErrBusy) {
			t.Errorf("%+v: got %v", step, err)
		}
	}
	for i := range 2 * mostSpenders {
		_ = b.take(key, fmt.Sprint("agent-", i), 1)
	}
	if len(b.spent) > mostSpenders {
		t.Errorf("it remembers %d agents, want at most %d", len(b.spent), mostSpenders)
	}
}
