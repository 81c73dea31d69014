package sim

import (
	"fmt"
	"strings"

	"github.com/f4ee788f/quota/internal/limit"
)

// frontier is the section of the runs that only the table of what ε buys is made of.
const frontier = "What ε buys"

// Frontier are the same agents and demands under several ε. They promise no error; the bound is theirs as well.
func Frontier() []Scenario {
	var out []Scenario
	for _, demand := range []float64{0.9, 1.1, 3} {
		for _, percent := range []int64{0, 1, 5, 10} {
			l := ordinary
			if l.EpsilonPPM = percent * 10_000; percent == 0 {
				l.Enforcement = limit.Strict
			}
			sc := of(frontier, fmt.Sprintf("ε %d %%, 100 agents", percent), 100, l, demand)
			sc.Duration, sc.Promises = 30*second, nil
			out = append(out, sc)
		}
	}
	return out
}

// frontierTable is what error and renewals come to under each ε.
func frontierTable(results []Result) string {
	var b strings.Builder
	b.WriteString("| scenario | error % | worst 10 s % | renewals % | waited % | p99 wait ms | of the bound |\n")
	b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for i := range results {
		if r := &results[i]; r.Scenario.Section == frontier {
			fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.3f | %.3f | %.1f | %.3f |\n", r.Scenario.Name, r.ErrorPct, r.WorstPct,
				r.RenewedPct, r.WaitedPct, float64(r.WaitP99)/1000, r.Over)
		}
	}
	return b.String()
}
