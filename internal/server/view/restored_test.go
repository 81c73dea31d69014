package view

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/server/servertest"
)

// A server finds out that its policy store is another by numbers that fell, and its ledger by its name. Either way
// what was known of the one before is forgotten.
func TestServerForgetsARestoredPolicy(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	const text = "plans: {p: {limits: [{name: a, rate: 1/s}]}}"
	s := &servertest.Restored{Store: servertest.StoreOf(t, at, text, text+" # again", strings.Replace(text, "1/s", "2/s", 1))}
	v, err := New(s, servertest.Nobody{}, time.Now, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	forgot := 0
	v.hooks.Replaced = func() { forgot++ }
	for _, c := range []struct {
		what  string
		texts []string // in the store that comes in place; nil for none
		want  int
	}{
		{"first seen", nil, 0},
		{"seen again", nil, 0},
		{"the version fell", []string{text}, 1},
		{"seen again", nil, 1},
		{"one more version", []string{text, strings.Replace(text, "1/s", "3/s", 1)}, 1},
	} {
		if c.texts != nil {
			s.Store = servertest.StoreOf(t, at, c.texts...)
		}
		if err := v.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if forgot != c.want {
			t.Errorf("%s: forgot %d times, want %d", c.what, forgot, c.want)
		}
	}
}
