package redisstore_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// The copy of the switches is the one of the highest revision, whatever the order.
func TestBoard(t *testing.T) {
	cluster := testenv.Redis(t)
	s := redisstore.New(cluster.Client(), cluster.Prefix)
	want := func(after, revision int64, text string) {
		t.Helper()
		if r, got, err := s.Posted(t.Context(), after); err != nil || r != revision || got != text {
			t.Errorf("posted after %d: %d %q, %v; want %d %q", after, r, got, err, revision, text)
		}
	}
	want(0, 0, "")
	for _, p := range []struct {
		revision int64
		text     string
	}{{1_764_000_000_000, "first"}, {1_764_000_000_001, "second"}, {1_764_000_000_000, "late"}, {1_764_000_000_001, "twin"}} {
		if err := s.Post(t.Context(), p.revision, p.text); err != nil {
			t.Fatal(err)
		}
	}
	want(0, 1_764_000_000_001, "second")
	want(1_764_000_000_000, 1_764_000_000_001, "second")
	want(1_764_000_000_001, 1_764_000_000_001, "")
}
