package client

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// The file's mode wins over the server's, its denials are added to theirs, and it needs no
// server. A fault leaves what it said before; without the file the server's hold.
func TestSwitchFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "switches.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: limit.Rate{Units: 1, Per: time.Hour, Calendar: limit.Hour}, Burst: 10}), func(t *testing.T, s *fake) {
		write("mode: [")
		if _, err := Dial(t.Context(), "passthrough:fake", WithSwitchFile(path)); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), path) {
			t.Errorf("Dial with a broken file: %v, want ErrOption with its name", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		c := dial(t, s, WithSwitchFile(path))
		h, _ := c.Limiter(t.Context(), tenant("a"))
		ask := func() Decision {
			d := c.Allow(t.Context(), tenant("a"))
			if h.Allow(t.Context()).Allowed != d.Allowed {
				t.Errorf("the handle decides another way than %+v", d)
			}
			return d
		}
		after := func(what string, allowed bool, reason Reason) {
			t.Helper()
			time.Sleep(time.Second)
			if d := ask(); d.Allowed != allowed || d.Reason != reason {
				t.Errorf("%s: %+v, want %v by %v", what, d, allowed, reason)
			}
		}
		drive(c, 1, 20, tenant("a")) // the bucket is dry
		after("without a file", false, ReasonLimit)
		write("mode: allow_all")
		after("allow all", true, ReasonSwitch)
		write("mode: nothing")
		after("a broken file", true, ReasonSwitch)
		if f := c.Stats().SwitchFile; !strings.Contains(f, "allowed are normal") {
			t.Errorf("the fault is told as %q", f)
		}
		s.flip(limit.Switches{Mode: limit.ModeShadowAll})
		write("mode: normal")
		after("normal over the server's shadow all", false, ReasonLimit)
		if f := c.Stats().SwitchFile; f != "" {
			t.Errorf("a fault is told of a file without one: %q", f)
		}
		write("deny: [a]")
		after("a tenant denied", false, ReasonSwitch)
		write("mode: allow_all\ndeny: [a]")
		after("a tenant denied while all are allowed", false, ReasonSwitch)
		s.set(func(f *fake) { f.down = true })
		time.Sleep(5 * time.Second)
		write("mode: allow_all")
		after("allow all without a server", true, ReasonSwitch)
		s.set(func(f *fake) { f.down = false })
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		after("the server's shadow all", true, ReasonSwitch)
		shut(t, c)
	})
}

// The file is in force before anything is known of a policy.
func TestSwitchFileWithoutServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "switches.json")
	if err := os.WriteFile(path, []byte(`{"mode": "allow_all", "deny": ["a"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bubble(t, plans(1, requests(1, 10)), func(t *testing.T, s *fake) {
		s.down = true
		c := dial(t, s, WithSwitchFile(path), WithFirstWait(0))
		time.Sleep(time.Millisecond)
		if d := c.Allow(t.Context(), tenant("b")); !d.Allowed || d.Reason != ReasonSwitch {
			t.Errorf("%+v, want allowed by the switch", d)
		}
		if d := c.Allow(t.Context(), tenant("a")); d.Allowed || d.Reason != ReasonSwitch {
			t.Errorf("%+v of a denied tenant, want denied by the switch", d)
		}
		shut(t, c)
	})
}
