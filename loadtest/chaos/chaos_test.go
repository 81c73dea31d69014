package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/loadtest/chaos/clock"
	"github.com/f4ee788f/quota/loadtest/gateway"
)

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name          string
		counted       counted
		ledger        int64
		lost, doubled int64
	}{
		{"equal", counted{units: 10}, 10, 0, 0},
		{"one less", counted{units: 10}, 9, 1, 0},
		{"one more", counted{units: 10}, 11, 0, 1},
		{"an answer was lost, and admitted", counted{units: 10, open: 1}, 11, 0, 0},
		{"an answer was lost, and admitted twice", counted{units: 10, open: 1}, 12, 0, 1},
		{"killed, and what was in flight was not admitted", counted{units: 10, open: 1}, 10, 0, 0},
		{"killed, and a unit is gone", counted{units: 10, open: 1}, 9, 1, 0},
	} {
		if lost, doubled := test.counted.verdict(test.ledger); lost != test.lost || doubled != test.doubled {
			t.Errorf("%s: got lost %d doubled %d, want %d and %d", test.name, lost, doubled, test.lost, test.doubled)
		}
	}
}

// A seed says the same every time, another something else, and every fault comes once
// before any of its lane comes again.
func TestDraw(t *testing.T) {
	names := func(seed uint64) (all []string) {
		p, err := draw(options{seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.lanes {
			seen := make(map[string]bool)
			size := 0
			for _, f := range allFaults {
				if f.lane == l.faults[0].lane && !f.named {
					size++
				}
			}
			for i, f := range l.faults {
				if i < size && seen[f.name] {
					t.Errorf("seed %d: %s comes again before others have come", seed, f.name)
				}
				seen[f.name] = true
				all = append(all, f.name)
			}
		}
		return all
	}
	if one, again, other := names(1), names(1), names(2); !slices.Equal(one, again) || slices.Equal(one, other) {
		t.Errorf("seed 1: %v, again: %v, seed 2: %v", one, again, other)
	}
	for _, name := range names(1) {
		if strings.HasPrefix(name, "ledger-") {
			t.Errorf("a seed chooses %s, which is to be named", name)
		}
	}
	for _, o := range []options{{only: "ledger-restored"}, {also: "ledger-restored"}, {also: "ledger-restored", seed: 2}, {also: "ledger-restored", seed: 3}, {only: "partition", also: "ledger-restored"}} {
		p, err := draw(o)
		found := slices.ContainsFunc(p.lanes, func(l lane) bool { return l.faults[0].name == "ledger-restored" })
		if err != nil || !found {
			t.Errorf("%+v: %v, the first of its lane: %t", o, err, found)
		}
	}
	if _, err := draw(options{only: "partition,nonsense"}); !errors.Is(err, errFault) {
		t.Errorf("an unknown fault: got %v, want %v", err, errFault)
	}
}

func TestBoundedFindsWhatIsTooMuch(t *testing.T) {
	began := time.Now().Truncate(10 * time.Second)
	for _, test := range []struct {
		name      string
		tenant    string
		each      int // units in each bin of a hundred milliseconds
		took      time.Duration
		exposures []exposure
		ok        bool
	}{
		{"at its rate", "crowd", 20, 0, nil, true},
		{"twice its rate", "crowd", 44, 0, nil, false},
		{"twice its rate, a millisecond each", "crowd", 44, time.Millisecond, nil, false},
		{"twice its rate, data lost", "crowd", 40, 0, []exposure{{why: dataLost, from: began, to: began.Add(time.Second)}}, true},
		{"four times its rate, two parted and data lost", "crowd", 80, 0, []exposure{{from: began, to: began}, {from: began, to: began}, {why: dataLost, from: began, to: began}}, false},
		{"twice its rate, long after data was lost", "crowd", 44, 0, []exposure{{from: began.Add(-time.Hour), to: began.Add(-time.Minute)}}, false},
		{"a full window", "window", 15, 0, nil, true},
		{"a window over its limit", "window", 16, 0, nil, false},
	} {
		c := gateway.NewCounts()
		for bin := range 100 {
			for range test.each {
				at := began.Add(time.Duration(bin) * gateway.BinLength).UnixMicro()
				c.Admitted[test.tenant] = append(c.Admitted[test.tenant], gateway.Unit{Asked: at, Known: at + test.took.Microseconds()})
			}
		}
		s := &site{out: &bytes.Buffer{}, began: began, exposures: test.exposures}
		if err := s.bounded(c); (err == nil) != test.ok {
			t.Errorf("%s: got %v, want it found wrong: %v", test.name, err, !test.ok)
		}
	}
}

func TestMonthEnd(t *testing.T) {
	for _, at := range []time.Time{time.Date(2026, 1, 31, 23, 0, 7, 0, time.UTC), time.Date(2026, 12, 5, 1, 2, 3, 4, time.UTC)} {
		end := at.Add(monthEnd(at))
		if end.Day() != 1 || end.Hour() != 0 || end.Minute() != 0 || end.Second() > 10 {
			t.Errorf("%v: ahead by %v it is %v, want the first of a month", at, monthEnd(at), end)
		}
	}
}

// Programs in Go and in C read the clock that is handed to them, also when it changes.
func TestClocksAreHanded(t *testing.T) {
	dir := t.TempDir()
	k, err := clock.New(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	off := func(env []string, program string, args ...string) time.Duration {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", program, err, out)
		}
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(at).Round(time.Minute)
	}
	check := func(name string, env []string, program string, args ...string) {
		t.Helper()
		for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 240 * time.Hour} {
			if err := k.Set(ahead); err != nil {
				t.Fatal(err)
			}
			if got := off(env, program, args...); got != ahead {
				t.Errorf("%s: got a clock %v off, want %v", name, got, ahead)
			}
		}
	}
	overlay, err := clock.Overlay(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	source := "package main\n\nimport \"time\"\n\nfunc main() { println(time.Now().UTC().Format(time.RFC3339)) }\n"
	if err := os.WriteFile(filepath.Join(dir, "now.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", filepath.Join(dir, "now"), filepath.Join(dir, "now.go")).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	check("Go", k.Env(), filepath.Join(dir, "now"))
	library, err := clock.Library(t.Context(), dir)
	if err != nil {
		if _, lookErr := exec.LookPath("cc"); lookErr == nil || os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED: no C compiler: %v (CI=true makes this a failure)", err)
	}
	check("C", k.EnvC(library), "date", "-u", "+%Y-%m-%dT%H:%M:%SZ")
}
