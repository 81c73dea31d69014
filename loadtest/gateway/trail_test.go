package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func asked(trail *Trail, tenant string) error {
	_, err := trail.Asked(tenant)
	return err
}

func admit(trail *Trail, tenant string) error {
	at, err := trail.Asked(tenant)
	return errors.Join(err, trail.Admitted(tenant, at))
}

func TestTrailTellsWhatWasInFlight(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trail")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if c, err := ReadTrail(name); err != nil || len(c.Admitted) != 0 {
		t.Errorf("no trail: got %v, %v, want empty counts", c, err)
	}
	trail, err := OpenTrail(name)
	must(err)
	before := trueMicros()
	for range 3 {
		must(admit(trail, "a"))
	}
	must(asked(trail, "a"))
	must(trail.Denied("a"))
	must(asked(trail, "a")) // killed here
	must(trail.Close())
	again, err := OpenTrail(name) // a second life goes on with it
	must(err)
	must(admit(again, "b"))
	must(again.Close())
	c, err := ReadTrail(name)
	must(err)
	if len(c.Admitted["a"]) != 3 || c.Open["a"] != 1 || c.Denied["a"] != 1 || len(c.Admitted["b"]) != 1 || c.Open["b"] != 0 {
		t.Errorf("got %+v, want 3 admitted, 1 denied and 1 open of a, 1 admitted of b", c)
	}
	if n := c.Before("a", before); n != 0 {
		t.Errorf("before the first: got %d, want 0", n)
	}
	if n := c.Before("a", trueMicros()+1); n != 3 {
		t.Errorf("before now: got %d, want 3", n)
	}
	total := NewCounts()
	total.Add(c)
	total.Add(c)
	if a, b := len(total.Admitted["a"]), len(total.Admitted["b"]); a != 6 || b != 2 {
		t.Errorf("it twice: got %d of a and %d of b, want 6 and 2", a, b)
	}
	for _, u := range c.Admitted["a"] {
		if u.Asked < before || u.Known < u.Asked {
			t.Errorf("a unit asked at %d and known at %d, after %d", u.Asked, u.Known, before)
		}
	}
	for text, broken := range map[string]bool{"? a\n+ a": false, "+ a x 1\n": true, "! 1 x\n": true, "hello\n": true, "": false} {
		must(os.WriteFile(name, []byte(text), 0o600))
		if _, err := ReadTrail(name); errors.Is(err, ErrRecord) != broken {
			t.Errorf("%q: got error %v, want one: %v", text, err, broken)
		}
	}
}

// A unit is taken for admitted soon before that was known, but for the time in which its gateway did not run.
func TestNarrowKnowsOfPauses(t *testing.T) {
	const ms = 1000 // microseconds
	for _, test := range []struct {
		name   string
		pauses []Pause
		asked  int64 // of a unit asked at nought and known at 1 s; narrowed by 50 ms
	}{
		{"none", nil, 950 * ms},
		{"just before", []Pause{{From: 700 * ms, To: 990 * ms}}, 660 * ms},
		{"two in a row", []Pause{{From: 880 * ms, To: 930 * ms}, {From: 940 * ms, To: 990 * ms}}, 850 * ms},
		{"long before", []Pause{{From: 100 * ms, To: 900 * ms}}, 950 * ms},
		{"behind it", []Pause{{From: 1000 * ms, To: 1900 * ms}}, 950 * ms},
		{"it is noted behind it", []Pause{{From: 900 * ms, To: 1001 * ms}}, 850 * ms},
		{"all of the time", []Pause{{From: -100 * ms, To: 1001 * ms}}, 0},
	} {
		c := NewCounts()
		c.Admitted["a"], c.Pauses = []Unit{{Asked: 0, Known: 1000 * ms}}, test.pauses
		if c.Narrow(50 * time.Millisecond); c.Admitted["a"][0].Asked != test.asked {
			t.Errorf("%s: got %d, want %d", test.name, c.Admitted["a"][0].Asked, test.asked)
		}
	}
}
