package switchfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

func TestParse(t *testing.T) {
	yes := func(mode limit.Mode, denied ...string) Says { return Says{mode, true, denied} }
	for text, want := range map[string]Says{
		"":                                    {},
		"# nothing\n\n---\n":                  {},
		"{}":                                  {},
		"mode: allow_all":                     yes(limit.ModeAllowAll),
		"---\nmode:  'shadow_all'  # why\r\n": yes(limit.ModeShadowAll),
		"mode: normal\ndeny: []\n":            yes(limit.ModeNormal),
		"deny: [b, \"a\", a]":                 {Denied: []string{"a", "b"}},
		"deny:\n  - acme/web\n  # not this\n  - x:y@z\nmode: allow_all": yes(limit.ModeAllowAll, "acme/web", "x:y@z"),
		"deny:\n- a\n- 'b'\n":                  {Denied: []string{"a", "b"}},
		"deny: [b, a, b]":                      {Denied: []string{"a", "b"}},
		"mode: normal\ndeny: b":                yes(limit.ModeNormal, "b"),
		"deny: acme":                           {Denied: []string{"acme"}},
		`{"mode": "allow_all", "deny": ["a"]}`: yes(limit.ModeAllowAll, "a"),
		"\xef\xbb\xbf{\"deny\": null}\n":       {},
	} {
		got, err := Parse([]byte(text))
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"mode: everything":              "allowed are normal",
		"mode:":                         "one word",
		"mode: allow_all\nmode: normal": "twice",
		"mod: normal":                   "neither mode",
		" mode: normal":                 "neither mode",
		"mode normal":                   "neither mode",
		"- a":                           "neither mode",
		"deny: [a":                      "ends with ]",
		"deny: [a, [b]]":                "commas",
		"deny: [no good]":               "commas",
		"deny: a b":                     "a list of them",
		"deny: &x a":                    "a list of them",
		"deny:\n- a\n- b c":             "one on each line",
		"deny: ['a;b']":                 "not a tenant's id",
		`{"mode": 1}`:                   "not JSON",
		`{"deny": ["a"], "x": 1}`:       "not JSON",
		`{"mode": "normal"} x`:          "follows",
		`{mode: normal}`:                "not JSON",
		"deny: [" + strings.Repeat("a,", limit.MaxDenied) + "a]": "at most 1024",
	} {
		if got, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

// What a file says counts once it was read twice, a fault is told once, and leaves
// what was said before.
func TestFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "switches.yaml")
	f := Follow(path, Says{})
	look := func(text string, mode limit.Mode, changed, faulty bool) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		says, now, err := f.Look()
		if says.Mode != mode || now != changed || (err != nil) != faulty {
			t.Errorf("%q: got %v, changed %v, %v; want %v, %v, a fault %v", text, says.Mode, now, err, mode, changed, faulty)
		}
	}
	look("mode: allow_all", limit.ModeNormal, false, false)
	look("mode: allow_all", limit.ModeAllowAll, true, false)
	look("", limit.ModeAllowAll, false, false) // it is being written
	look("mode: allow_all", limit.ModeAllowAll, false, false)
	look("mode: x", limit.ModeAllowAll, false, true)
	look("mode: x", limit.ModeAllowAll, true, true)
	look("mode: x", limit.ModeAllowAll, false, true)
	look("mode: allow_all", limit.ModeAllowAll, false, false)
	look("mode: allow_all", limit.ModeAllowAll, true, false) // the fault is gone
	look("", limit.ModeAllowAll, false, false)
	look("", limit.ModeNormal, true, false)
}
