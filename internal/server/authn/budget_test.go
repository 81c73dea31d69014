package authn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
)

// An agent that asks for more than its budget is told to come again, and may then; others are not held up, and what is
// remembered is bounded.
func TestBudgets(t *testing.T) {
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	b := NewBudgets(Allowance{Burst: 100, Rate: 10, What: "things"})
	b.now = func() time.Time { return now }
	key := Principal{Name: "k"}
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
		err := b.Take(key, step.agent, step.n)
		if (err == nil) != step.ok || err != nil && !errors.Is(err, fault.ErrBusy) {
			t.Errorf("%+v: got %v", step, err)
		}
	}
	for i := range 2 * mostSpenders {
		_ = b.Take(key, fmt.Sprint("agent-", i), 1)
	}
	if n := len(b.agents.spent); n > mostSpenders {
		t.Errorf("it remembers %d agents, want at most %d", n, mostSpenders)
	}
}

// A key for a family of agents has no more by inventing them: all that speak with it share a budget, which is not
// forgotten however many there are. Another key has its own.
func TestBudgetsOfAFamily(t *testing.T) {
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	b := NewBudgets(Allowance{Burst: 100, Rate: 10, What: "things"})
	b.now = func() time.Time { return now }
	take := func(key, family string, agents int) (taken int) {
		for i := range agents {
			if b.Take(Principal{Name: key}, fmt.Sprint(family, i), 100) == nil {
				taken++
			}
		}
		return taken
	}
	if n := take("family", "gw-", 3*mostSpenders); n != familySize {
		t.Errorf("%d invented agents have what %d have, want %d", 3*mostSpenders, n, familySize)
	}
	err := b.Take(Principal{Name: "family"}, "gw-1", 100)
	if !errors.Is(err, fault.ErrBusy) || !strings.Contains(err.Error(), "key family") {
		t.Errorf("the next: got %v, want that the key has no more", err)
	}
	if n := take("another", "gw-", 3); n != 3 {
		t.Errorf("another key has what %d agents have, want 3", n)
	}
	now = now.Add(time.Second)
	if n := take("family", "new-", 10); n != 3 {
		t.Errorf("a second later: %d agents, want 3", n)
	}
}
