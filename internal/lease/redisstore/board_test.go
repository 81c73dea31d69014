package redisstore_test

import (
	"strings"
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

	// One that is taken down is gone, and another stays.
	for _, revision := range []int64{1_764_000_000_000, 1_764_000_000_001} {
		if err := s.Retract(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		if revision == 1_764_000_000_000 {
			want(0, 1_764_000_000_001, "second")
		}
	}
	want(0, 0, "")
}

// What no server posts is no copy, and keeps no server from posting one.
func TestBoardOfOthers(t *testing.T) {
	cluster := testenv.Redis(t)
	s := redisstore.New(cluster.Client(), cluster.Prefix)
	key := cluster.Prefix + "switches"
	for name, write := range map[string]func() error{
		"a string":  func() error { return cluster.Client().Set(t.Context(), key, "allow_all", 0).Err() },
		"no number": func() error { return cluster.Client().HSet(t.Context(), key, "revision", "x", "text", "forged").Err() },
		"a fraction": func() error {
			return cluster.Client().HSet(t.Context(), key, "revision", "8.5", "text", "forged").Err()
		},
		"beyond all revisions": func() error {
			return cluster.Client().HSet(t.Context(), key, "revision", "9e99", "text", "forged").Err()
		},
		"not a number": func() error {
			return cluster.Client().HSet(t.Context(), key, "revision", "nan", "text", "forged").Err()
		},
		"without a text": func() error { return cluster.Client().HSet(t.Context(), key, "revision", "9").Err() },
		"a text of a megabyte": func() error {
			return cluster.Client().HSet(t.Context(), key, "revision", "9", "text", strings.Repeat("x", 1<<20)).Err()
		},
	} {
		if err := cluster.Client().Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if r, text, err := s.Posted(t.Context(), 0); r != 0 || text != "" || err != nil {
			t.Errorf("%s: posted %d %.20q, %v; want nothing", name, r, text, err)
		}
		if err := s.Post(t.Context(), 7, "ours"); err != nil {
			t.Errorf("%s: post: %v", name, err)
		}
		if r, text, err := s.Posted(t.Context(), 0); r != 7 || text != "ours" || err != nil {
			t.Errorf("%s: posted %d %.20q, %v; want ours", name, r, text, err)
		}
	}
}
