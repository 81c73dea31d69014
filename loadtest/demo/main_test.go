package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/pkg/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: the demo takes ten seconds")
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"ada", "free → paid", "enterprise", "ledger units", "decisions with"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// The demo must not pass when the books differ by a unit, when an answer is missing,
// or when nobody was limited.
func TestDemoNoticesWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(map[string]*tally, *app, map[string]int64){
		"a unit too few":        func(_ map[string]*tally, _ *app, units map[string]int64) { units["bell"]-- },
		"a unit too many":       func(_ map[string]*tally, _ *app, units map[string]int64) { units["ada"]++ },
		"units of a stranger":   func(_ map[string]*tally, _ *app, units map[string]int64) { units["(others)"] = 1 },
		"served, and not asked": func(_ map[string]*tally, w *app, _ map[string]int64) { w.served["curie"].Add(1) },
		"an error":              func(n map[string]*tally, _ *app, _ map[string]int64) { n["bell"].other.Add(1) },
		"nobody denied": func(n map[string]*tally, _ *app, _ map[string]int64) {
			n["ada"].sent.Add(-n["ada"].denied.Load())
			n["ada"].denied = atomic.Int64{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tallies, witness, units := make(map[string]*tally), newApp(), make(map[string]int64)
			for _, id := range names() {
				n := new(tally)
				n.sent.Store(10)
				n.allowed.Store(7)
				n.denied.Store(3)
				tallies[id] = n
				witness.served[id].Store(7)
				units[id] = 7
			}
			var out bytes.Buffer
			if err := table(&out, tallies, witness, units, client.Stats{}); err != nil {
				t.Fatalf("nothing is wrong: got %v", err)
			}
			spoil(tallies, witness, units)
			if err := table(&out, tallies, witness, units, client.Stats{}); err == nil {
				t.Error("got no error")
			}
		})
	}
}
