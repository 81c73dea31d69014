package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Summary is the last line of a run, and whether everything held.
type Summary struct {
	Scenarios, OverBound int
	Worst, Steady        float64
	Failed               []string // promises broken
	Missed               []string // promises broken that are known to be
	Kept                 []string // scenarios that are known to break one, and do not: with the report's seed a failure
}

// Summarize adds up the results.
func Summarize(results []Result) Summary {
	s := Summary{Scenarios: len(results)}
	for i := range results {
		r := &results[i]
		s.OverBound += r.OverBound
		if most, when := r.promisedError(); most > 0 && most <= 5 {
			err := math.Max(math.Abs(r.ErrorPct), math.Abs(r.CamePct))
			if when {
				err = math.Max(err, math.Abs(r.WorstPct))
			}
			s.Worst = math.Max(s.Worst, err)
			if r.Scenario.Steady {
				s.Steady = math.Max(s.Steady, err)
			}
		}
		broken := r.Broken()
		for _, b := range broken {
			line := r.Scenario.Name + ": " + b.String()
			if r.Scenario.Missed == "" || b.What == neverOver.What {
				s.Failed = append(s.Failed, line)
			} else {
				s.Missed = append(s.Missed, line+" ("+r.Scenario.Missed+")")
			}
		}
		if len(broken) == 0 && r.Scenario.Missed != "" {
			s.Kept = append(s.Kept, r.Scenario.Name+": is said to miss a promise, and keeps all")
		}
	}
	return s
}

// promisedError is the error allowed to the scenario in every 10 s, 0 for none. when says whether that counts by when
// units were admitted, too.
func (r *Result) promisedError() (most float64, when bool) {
	for _, p := range r.Scenario.Promises {
		switch p.What {
		case wrong(0)[1].What:
			return p.Most, true
		case wrongLarge(0)[1].What:
			return p.Most, false
		}
	}
	return 0, false
}

// String is the line that scripts read.
func (s Summary) String() string {
	figures := fmt.Sprintf("worst_error_pct=%.2f steady_error_pct=%.2f over_bound=%d", s.Worst, s.Steady, s.OverBound)
	if len(s.Failed) > 0 || s.Scenarios == 0 {
		return fmt.Sprintf("sim: FAILED scenarios=%d failed=%d %s", s.Scenarios, len(s.Failed), figures)
	}
	return fmt.Sprintf("sim: ok scenarios=%d %s", s.Scenarios, figures)
}

// besides are the figures that only some scenarios have.
func (r *Result) besides() string {
	var out []string
	say := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if r.Scenario.Faults.Healed > 0 {
		if r.Recovered < 0 {
			say("not right within 1 %% again in this run")
		} else {
			say("right within 1 %% after %.1f s", float64(r.Recovered)/float64(second))
		}
	}
	if r.Forgotten > 0 {
		say("%s tokens were out when forgotten", thousands(r.Forgotten))
	}
	if r.Lost > 0 {
		say("%s tokens lost with agents", thousands(r.Lost))
	}
	if r.Scenario.Hop {
		say("one limiter asked over the network: %.2f, as they came %.2f", r.HopPct, r.HopCamePct)
	}
	for _, p := range r.Scenario.Promises {
		switch p.What {
		case fair.What, tenfold.What, short.What, noEdge.What, oneTrip.What:
			say("%s: %.2f", p.What, p.Figure(r))
		case exactly[0].What:
			say("units apart in a window: %d, in all: %d, of %d at edges", r.WindowApart, r.Admitted-r.Ideal, r.AtEdge)
		case apart(0).What:
			say("units apart: %d", r.Admitted-r.Ideal)
		}
	}
	return strings.Join(out, "; ")
}

// comparesTenSeconds reports whether the scenario is judged by windows of 10 s, and not by its units.
func (r *Result) comparesTenSeconds() bool {
	most, _ := r.promisedError()
	return most > 0 || r.Scenario.Faults.Healed > 0 || r.Scenario.Faults.Strain > 0 || len(r.Scenario.Promises) == 0
}

// Table is the report's table of one section.
func Table(section string, results []Result) string {
	var b strings.Builder
	b.WriteString("| scenario | would catch | requests | error % | worst 10 s % | as they came % | of the bound | of 0.1 s | renewals % | calls % | waited % | p99 wait ms | besides |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n")
	for i := range results {
		r := &results[i]
		if r.Scenario.Section != section {
			continue
		}
		tenth := fmt.Sprintf("%.3f", r.OverTenth)
		if r.OverTenth == 0 {
			tenth = ""
		}
		worst, came := fmt.Sprintf("%.2f", r.WorstPct), fmt.Sprintf("%.2f", r.CamePct)
		if !r.comparesTenSeconds() {
			worst, came = "", ""
		}
		besides := r.besides()
		for _, broken := range r.Broken() {
			besides = strings.TrimPrefix(besides+"; **missed**: "+broken.String(), "; ")
		}
		if r.Scenario.Missed != "" {
			besides += " (" + r.Scenario.Missed + ")"
		}
		fmt.Fprintf(&b, "| [%s](%s.svg) | %s | %s | %.2f | %s | %s | %.3f | %s | %.3f | %.3f | %.3f | %.1f | %s |\n",
			r.Scenario.Name, slug(r.Scenario.Name), r.Scenario.Catches, thousands(r.Requests), r.ErrorPct, worst, came, r.Over, tenth, r.RenewedPct, r.CalledPct,
			r.WaitedPct, float64(r.WaitP99)/1000, besides)
	}
	return b.String()
}

// slug is a name for a file.
func slug(name string) string {
	name = strings.NewReplacer("×", "x", "%", "pct", "/", " per ", ".", "_").Replace(name)
	return strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return r > unicode.MaxASCII || r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), "-")
}

// Where the run's files are, below the repository's root: a report of everything, and the summary in the docs.
const (
	reportDir  = "loadtest/sim/report"
	reportPage = reportDir + "/README.md"
	boundPage  = "docs/error-bound.md"
)

// Files are the files that a run makes, by name below root. They are the report and the page of the docs with new
// tables, and a chart for each scenario.
func Files(root string, results []Result) (map[string][]byte, error) {
	report, err := os.ReadFile(filepath.Join(root, reportPage))
	if err != nil {
		return nil, err
	}
	bound, err := os.ReadFile(filepath.Join(root, boundPage))
	if err != nil {
		return nil, err
	}
	var tables bytes.Buffer
	for _, section := range sections {
		fmt.Fprintf(&tables, "### %s\n\n%s\n", section, Table(section, results))
	}
	s := Summarize(results)
	if len(s.Missed) > 0 {
		tables.WriteString("Missed, all of them:\n\n")
		for _, m := range s.Missed {
			fmt.Fprintf(&tables, "- %s\n", m)
		}
		tables.WriteByte('\n')
	}
	line := fmt.Sprintf("```\n%s\n```\n", s)
	tables.WriteString(line)
	if report, err = between(report, "scenarios", tables.Bytes()); err != nil {
		return nil, err
	}
	if report, err = between(report, "frontier", []byte(frontierTables(results))); err != nil {
		return nil, err
	}
	if bound, err = between(bound, "summary", []byte(sectionsTable(results)+"\n"+line)); err != nil {
		return nil, err
	}
	files := map[string][]byte{reportPage: report, boundPage: bound}
	for i := range results {
		if strings.HasPrefix(results[i].Scenario.Section, frontier) {
			continue // figures of a whole run only
		}
		files[filepath.Join(reportDir, slug(results[i].Scenario.Name)+".svg")] = results[i].Chart()
	}
	return files, nil
}

// sectionsTable is the docs' summary: the range of each figure over the scenarios of a section.
func sectionsTable(results []Result) string {
	var b strings.Builder
	b.WriteString("| scenarios | runs | error % | worst 10 s % | most of the bound | renewals % |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, section := range sections {
		var run, worst, renewed extent
		n, over := 0, 0.0
		for i := range results {
			r := &results[i]
			if r.Scenario.Section != section {
				continue
			}
			n++
			run.add(r.ErrorPct)
			renewed.add(r.RenewedPct)
			over = max(over, r.Over)
			if r.comparesTenSeconds() {
				worst.add(r.WorstPct)
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %.3f | %s |\n", section, n, run.text(2), worst.text(2), over, renewed.text(1))
	}
	return b.String()
}

// extent is the least and the most of some figures.
type extent struct {
	least, most float64
	any         bool
}

func (s *extent) add(v float64) {
	if !s.any {
		*s = extent{v, v, true}
		return
	}
	s.least, s.most = min(s.least, v), max(s.most, v)
}

func (s extent) text(digits int) string {
	if !s.any {
		return ""
	}
	unit := math.Pow10(digits)
	round := func(v float64) float64 { return math.Round(v*unit)/unit + 0 } // + 0: not "-0.00"
	return fmt.Sprintf("%.*f…%.*f", digits, round(s.least), digits, round(s.most))
}

// between puts text between the page's markers of that name.
func between(page []byte, name string, text []byte) ([]byte, error) {
	begin, end := []byte("<!-- sim: "+name+" -->\n"), []byte("<!-- sim: end of "+name+" -->\n")
	before, rest, ok := bytes.Cut(page, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !ok || !ended {
		return nil, fmt.Errorf("no lines %q and %q to put tables between", bytes.TrimSpace(begin), bytes.TrimSpace(end))
	}
	return bytes.Join([][]byte{before, begin, []byte("\n"), text, []byte("\n"), end, after}, nil), nil
}

// Write puts the files below root, and drops charts of no scenario.
func Write(root string, files map[string][]byte) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	for _, name := range strays(root, files) {
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// Differ returns the files below root that differ from files.
func Differ(root string, files map[string][]byte) []string {
	var out []string
	for name, text := range files {
		if have, err := os.ReadFile(filepath.Join(root, name)); err != nil || !bytes.Equal(have, text) {
			out = append(out, name)
		}
	}
	return append(out, strays(root, files)...)
}

// strays are charts of no scenario.
func strays(root string, files map[string][]byte) []string {
	entries, err := os.ReadDir(filepath.Join(root, reportDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []string{err.Error()}
	}
	var out []string
	for _, e := range entries {
		name := filepath.Join(reportDir, e.Name())
		if _, ok := files[name]; !ok && strings.HasSuffix(name, ".svg") {
			out = append(out, name)
		}
	}
	return out
}
