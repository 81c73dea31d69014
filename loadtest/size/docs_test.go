package size

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/loadtest/sim"
)

var update = flag.Bool("update", false, "write what README.md and docs/sizing.md have of the calculator: constants, leases and examples")

// README.md has the constants and how often leases are renewed, and with docs/sizing.md examples as the calculator prints them.
func TestDocs(t *testing.T) {
	tables := map[string]string{"constants": constantsTable(), "leases": leasesTable()}
	mark := regexp.MustCompile(`<!-- size: (.*) -->\n`)
	examples := 0
	for _, page := range []string{"README.md", "../../docs/sizing.md"} {
		old, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		made := string(old)
		for _, m := range mark.FindAllStringSubmatch(made, -1) {
			with, isTable := tables[m[1]]
			delete(tables, m[1])
			if !isTable {
				examples++
				var out bytes.Buffer
				if err := Command(strings.Fields(m[1]), &out, io.Discard); err != nil {
					t.Fatal(err)
				}
				with = fmt.Sprintf("```\n$ bin/loadtest size %s\n%s```\n", m[1], out.String())
			}
			before, rest, _ := strings.Cut(made, m[0])
			_, after, closed := strings.Cut(rest, "<!-- /size -->\n")
			if !closed {
				t.Fatalf("%s: %s has no end", page, m[1])
			}
			made = before + m[0] + with + "<!-- /size -->\n" + after
		}
		switch {
		case made == string(old):
		case !*update:
			t.Errorf("%s is not what the calculator says; go test ./loadtest/size -run Docs -update", page)
		default:
			if err := os.WriteFile(page, []byte(made), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(tables) > 0 || examples < 3 {
		t.Errorf("%d examples, and no place for %d tables", examples, len(tables))
	}
}

func constantsTable() string {
	var b strings.Builder
	b.WriteString("| constant | value | what | | from |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range constants {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c.name, strings.TrimSpace(fmt.Sprintf("%.4g %s", c.value/c.scale, c.unit)), c.what, c.origin, c.from)
	}
	return b.String()
}

// leasesTable is of bursts of two minutes and gateways together.
func leasesTable() string {
	var b strings.Builder
	b.WriteString("| requests a second at each gateway |")
	for _, x := range demands {
		fmt.Fprintf(&b, " %g × |", x)
	}
	fmt.Fprintf(&b, "\n| ---: |%s\n", strings.Repeat(" ---: |", len(demands)))
	burst := slices.Index(bursts[:], 120)
	for i, d := range rates {
		fmt.Fprintf(&b, "| %g |", d)
		for _, p := range leases[together][burst][i] {
			fmt.Fprintf(&b, " %.2g |", p.renewals)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Each constant of the formulas has a line that says where it is from, with its value.
func TestConstantsAreListed(t *testing.T) {
	listed := map[string]constant{}
	for _, c := range constants {
		if c.origin == "" || c.what == "" || c.from == "" || c.scale == 0 {
			t.Errorf("%s does not say what it is and where it is from: %+v", c.name, c)
		}
		listed[c.name] = c
	}
	for _, file := range []string{"constants.go", "size.go", "calls.go", "ledger.go", "leases.go", "write.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				return true
			}
			for _, s := range d.Specs {
				v := s.(*ast.ValueSpec)
				if len(v.Values) == 0 || v.Type != nil {
					continue // of an enumeration
				}
				lit, ok := v.Values[0].(*ast.BasicLit)
				switch name := v.Names[0].Name; {
				case !ok || lit.Kind == token.STRING || name == "micro" || name == "month" || name == "least":
				case listed[name].name == "":
					t.Errorf("%s: %s is not in the list of constants", file, name)
				default:
					if want, err := strconv.ParseFloat(lit.Value, 64); err != nil || math.Abs(listed[name].value-want) > 1e-12*want {
						t.Errorf("%s: %s is %s, and listed as %v", file, name, lit.Value, listed[name].value)
					}
				}
			}
			return true
		})
	}
}

// within reports whether what the calculator has is what was measured, up to a factor.
func within(t *testing.T, factor, got, want float64, what string, args ...any) {
	t.Helper()
	if off := max(got/want, want/got); !(off <= factor) {
		t.Errorf("%s: the calculator has %.4g, measured was %.4g: off by %.2f, where %.2f is allowed", fmt.Sprintf(what, args...), got, want, off, factor)
	}
}

// table reads a table of the curves, by its title: rows of numbers.
func table(t *testing.T, title string) (rows [][]float64) {
	t.Helper()
	b, err := os.ReadFile("../bench/curves/report/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "### "+title+"\n")
	if !ok {
		t.Fatalf("the report of curves has no %q", title)
	}
	lines := strings.Split(strings.TrimSpace(rest), "\n")
	for _, line := range lines[2:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var row []float64
		for cell := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
			v, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(cell), ",", ""), 64)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, v)
		}
		rows = append(rows, row)
	}
	if len(rows) < 5 {
		t.Fatalf("%q has %d rows", title, len(rows))
	}
	return rows
}

// The curves' bucket, of loadtest/bench/curves: 10,000 units a second and a burst of two seconds. They begin when the load
// does, which the calculator's loads have behind them: leases are young then, and where more is asked for than
// the rate brings, the burst is used up before the bucket is as it stays.
const (
	curveRate  = 10_000.0
	curveBurst = 2.0 // seconds
	// draining is what each lease is renewed a second while such a burst is used up: TestDraining.
	draining = 3.0
)

// While a burst of two seconds is used up, a lease costs what it does however many gateways there are; simulated by another seed than
// the curves.
func TestDraining(t *testing.T) {
	for _, gateways := range []int{2, 20, 200} {
		x := 1.1
		r := sim.Run(sim.Scenario{
			Name: "draining", Agents: gateways, Limit: limitOf(x*curveRate, x, curveBurst), Duration: 20_000_000,
			Demand: func(int, int64) float64 { return x * curveRate / float64(gateways) },
		}, 2)
		within(t, 1.5, draining, float64(r.Renewals)/20/float64(gateways), "renewals a second of a lease, %d gateways", gateways)
	}
}

// curve is what each lease of that bucket is renewed a second, on average over a run's first seconds.
func curve(gateways, x, seconds float64) float64 {
	rest := renewed(gateways, x*curveRate/gateways, x, curveBurst).renewals
	switch {
	case x > 1:
		drained := min(curveBurst/(x-1), seconds)
		return (draining*drained + rest*(seconds-drained)) / seconds
	default:
		return (firstMinute*min(seconds/60, 1) + rest*seconds) / seconds
	}
}

// The calculator says of the curves what they measured.
func TestCurves(t *testing.T) {
	for _, row := range table(t, "Gateways that share one saturated bucket") {
		within(t, 1.5, curve(row[0], 1.1, 20), row[2], "renewals a second and gateway, %g gateways", row[0])
	}
	for _, row := range table(t, "Demand, and how long leases last") {
		within(t, 1.5, curve(100, row[0], 60), 1/row[1], "renewals a second of a lease, %g times the limit", row[0])
	}
	for _, row := range table(t, "Tenants on one agent") {
		l := load()
		l.Gateways, l.Tenants = 1, int(row[0])
		within(t, 1.5, Of(l).GatewayBytes/1e6, row[3], "MB of a gateway, %g tenants", row[0])
	}
}

// Three runs of the headline, of docs/performance.md: 100 gateways and 10,000 tenants, reports each half a minute and folds each ten seconds.
var headlines = []struct{ decisions, renewed, called, server, redis float64 }{
	{5_300_000, 0.0025, 0.00032, 0.50, 0.40},
	{5_128_000, 0.0023, 0.00034, 0.49, 0.37},
	{5_282_000, 0.0020, 0.00034, 0.50, 0.37},
}

// What the load renewed, and what waited for it, which is one in a thousand, comes in about as many calls as it made. They take
// some 50 ms there, for both processors are busy.
func TestCallsOfTheLoad(t *testing.T) {
	const gateways = 100
	for _, run := range headlines {
		pressing := 0.001 * run.decisions / gateways
		others := run.renewed*run.decisions/gateways - pressing
		got := gateways * (callsOf([]planned{{8000, 0.8 * others}, {2000, 0.2 * others}}, pressing, 0.05) + 1./30)
		within(t, 1.5, got, run.called*run.decisions, "calls a second")
	}
}

// With the renewals and calls that it had, the load took the processors that the constants say.
func TestProcessorsOfTheLoad(t *testing.T) {
	l := load()
	l.Rate, l.Gateways, l.Tenants, l.Zipf, l.Report = headlines[0].decisions, 100, 10_000, 1.1, 30*time.Second
	n := Of(l)
	for _, run := range headlines {
		renewals, calls := run.renewed*run.decisions, run.called*run.decisions
		within(t, 1.2, renewals*serverCPU+calls*callCPU+n.Rows*rowServerCPU+n.Entries*foldCPU, run.server, "processors of the server")
		within(t, 1.2, renewals*(stepCPU+replicaCPU), run.redis, "processors of Redis")
	}
	within(t, 1.5, n.PostgresCPU, 0.055, "processors of Postgres, which were 0.05 to 0.06 in six runs")
}
