package explore

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

// guard is a piece of the product that keeps the bound. Without it the setting has a counterexample.
type guard struct {
	name     string
	file     string // in internal/core
	is, goes string // the text; and what is there without the guard: removed() says so
	setting  string // where it shows
	shows    string // how, for people
}

// guards are removed one at a time. Text that is there no more fails the test: name what keeps the bound instead.
var guards = []guard{
	{
		"the same number gets the same answer", "lease/step.go",
		"if rec != nil && r.Number == rec.Grant.Number {",
		"if rec != nil && r.Number == rec.Grant.Number && !removed() {",
		"dense, strict",
		"44 of 40: 0 is busy, its next call is executed twice, it is busy, 1 is asked",
	},
	{
		"a smaller number is stale", "lease/step.go",
		"if rec != nil && r.Number < rec.Grant.Number {",
		"if rec != nil && r.Number < rec.Grant.Number && !removed() {",
		"dense, strict",
		"41 of 40: 0 is asked, 1's next call is executed twice, later both are busy",
	},
	{
		"trickles sum to the rate", "lease/share.go",
		"\tfree := rate - x.Out.Trickle\n\tample",
		"\tfree := rate - x.Out.Trickle\n\tif removed() {\n\t\tfree = rate\n\t}\n\tample",
		"dense, strict",
		"41 of 40: both are busy for a second",
	},
	{
		"a lease's place in the ring goes with it", "lease/level.go",
		"\tx.Ring.subtract(x.rec.Slot, lent)\n",
		"\tif !removed() {\n\t\tx.Ring.subtract(x.rec.Slot, lent)\n\t}\n",
		"dense, strict",
		"42 of 40: one agent is busy for a second",
	},
	{
		"a bucket that servers say is forgotten lends little", "lease/step.go",
		"born && r.forgot(", "born && !removed() && r.forgot(",
		"window, forgotten",
		"40 of 22: 0 is asked, the store forgets, 0.3 s later 1 is asked",
	},
	{
		"the bucket refills by what is not lent", "lease/level.go",
		"own := x.flow - float64(x.drawn(x.rate)); own > 0",
		"own := x.flow - float64(x.drawn(x.rate)); own > 0 || removed() && func() bool { own = x.flow; return true }()",
		"dense, strict",
		"41 of 40: one agent is busy for a second",
	},
	{
		"slots in use are taken out", "lease/slots.go",
		"\tx.Level -= inUse\n",
		"\tif !removed() {\n\t\tx.Level -= inUse\n\t}\n",
		"slots",
		"4 of 3: one agent is asked twice",
	},
	{
		"kept slots are the holder's", "lease/slots.go",
		"\tx.Level -= kept\n",
		"\tif !removed() {\n\t\tx.Level -= kept\n\t} else {\n\t\tx.Level -= spare\n\t}\n",
		"slots",
		"4 of 3: 0 is asked, a request of it ends, a second later it is asked",
	},
	{
		"a log notes what it grants", "lease/log.go",
		"\tx.note(next.Expires, granted/limit.Micro)\n",
		"\tif !removed() {\n\t\tx.note(next.Expires, granted/limit.Micro)\n\t}\n",
		"log",
		"6 of 3: each agent is asked once",
	},
	{
		"a log takes out what was not spent", "lease/log.go",
		"\t\tcase !x.anew():\n\t\t\tx.takeOut(rec.Expires, lent-spent)",
		"\t\tcase !x.anew():\n\t\t\tif removed() {\n\t\t\t\tspent = 0\n\t\t\t}\n\t\t\tx.takeOut(rec.Expires, lent-spent)",
		"log",
		"4 of 3: one agent is asked twice",
	},
	{
		"units of a window end with it", "bucket/edge.go",
		"\t\tb.stock.credit(-b.stock.fold())\n\t\tb.debt, b.offered = 0, 0\n",
		"\t\tif !removed() {\n\t\t\tb.stock.credit(-b.stock.fold())\n\t\t}\n\t\tb.debt, b.offered = 0, 0\n",
		"window, outage",
		"more than 20: out of contact, an agent is asked before an edge and after it",
	},
	{
		"no grant of a window takes away what its holder has", "lease/level.go",
		"\t\tx.keeps = min(held, rec.Lent)\n",
		"\t\tif !removed() {\n\t\t\tx.keeps = min(held, rec.Lent)\n\t\t}\n",
		"window, leased ahead",
		"24 of 21: a call of 0 is not answered, and both are asked",
	},
	{
		"a strict lease draws nothing while its renewal is under way", "bucket/refill.go",
		"\tif b.exact && b.ask != nil {\n",
		"\tif b.exact && b.ask != nil && !removed() {\n",
		"dense, strict, an answer is lost",
		"41 of 40: one is busy, its next call is not answered, both are busy",
	},
	{
		"a last renewal takes the units out", "bucket/renew.go",
		"\t\theld -= b.stock.credit(-held) // before",
		"\t\tif !removed() {\n\t\t\theld -= b.stock.credit(-held)\n\t\t} // before",
		"dense, strict",
		"41 of 40: 0 is asked, 1 is busy, then both are",
	},
	{
		"the window before counts", "lease/sliding.go",
		"\tx.Left = x.Before\n\t// What",
		"\tif !removed() {\n\t\tx.Left = x.Before\n\t}\n\t// What",
		"sliding",
		"one agent is asked once, and denied for ever",
	},
	{
		"what a store forgot of a window is withheld", "lease/forget.go",
		"\t\tx.withhold(within)\n",
		"\t\tif !removed() {\n\t\t\tx.withhold(within)\n\t\t}\n",
		"window, forgotten",
		"40 of 22: 0 is asked, the store forgets, 0.3 s later 1 is asked",
	},
	{
		"a holder's slots come back before they are counted again", "lease/slots.go",
		"\t\t\tx.Level += rec.Lease.Stock // release",
		"\t\t\tif !removed() {\n\t\t\t\tx.Level += rec.Lease.Stock\n\t\t\t} // release",
		"slots",
		"one agent is asked once, and denied for ever",
	},
}

// Without any one of the guards, exploring finds a counterexample, and prints it.
func TestGuards(t *testing.T) {
	unraced.Only(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "explore.test")
	overlay := overlay(t, dir)
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i := range guards {
		g := &guards[i]
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), program, "-test.run", "^TestExplore$/^"+strings.ReplaceAll(g.setting, " ", "_")+"$")
			run.Env = append(os.Environ(), fmt.Sprint(removedGuard, "=", i))
			out, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(out), broken) {
				t.Errorf("all holds without it, and it should show: %s: %v\n%s", g.shows, err, out)
				return
			}
			t.Logf("%s\n%s", g.shows, out)
		})
	}
}

// removedGuard names the guard that a program of TestGuards does without.
const removedGuard = "EXPLORE_WITHOUT"

// overlay writes the product's files with guards that can be removed, and returns what has the compiler take them.
func overlay(t *testing.T, dir string) string {
	t.Helper()
	core, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for i, g := range guards {
		path := filepath.Join(core, g.file)
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
		if n := strings.Count(texts[path], g.is); n != 1 {
			t.Fatalf("%s: %d times %q, want it once", g.file, n, g.is)
		}
		texts[path] = strings.Replace(texts[path], g.is, strings.ReplaceAll(g.goes, "removed()", fmt.Sprintf("removed(%d)", i)), 1)
		pkg := filepath.Dir(path)
		texts[filepath.Join(pkg, "removed.go")] = fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
)

var without = func() int {
	i, err := strconv.Atoi(os.Getenv(%q))
	if err != nil {
		return -1
	}
	return i
}()

func removed(i int) bool { return i == without }
`, filepath.Base(pkg), removedGuard)
	}
	replace := map[string]string{}
	for path, text := range texts {
		file := filepath.Join(dir, strings.ReplaceAll(path, string(filepath.Separator), "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = file
	}
	out, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
