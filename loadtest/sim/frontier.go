package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// frontier begins the sections of runs that only the tables about ε use, one for each pair of knobs.
const frontier = "What ε buys: "

// Frontier are runs of the same limit that differ in ε and one other thing, and runs of slots, which have no ε. They
// promise no error; the bound holds for them too.
func Frontier() []Scenario {
	var out []Scenario
	each := func(pair, name string, agents int, l limit.Limit, demand float64, percents ...int64) {
		for _, percent := range percents {
			l.Enforcement = limit.Hard
			if l.EpsilonPPM = percent * 10_000; percent == 0 {
				l.Enforcement = limit.Strict
			}
			sc := of(frontier+pair, fmt.Sprintf("ε %d %%, %s", percent, name), agents, l, demand)
			sc.Duration, sc.Promises = 30*second, nil
			out = append(out, sc)
		}
	}
	for _, demand := range []float64{1.1, 3} {
		each("demand", "100 agents", 100, ordinary, demand, 0, 1, 5, 10)
	}
	for _, agents := range []int{10, 1000} {
		each("agents", fmt.Sprintf("%d agents", agents), agents, ordinary, 1.1, 0, 5)
	}
	for _, burst := range []int64{2_000, 100_000} {
		each("burst", fmt.Sprintf("a burst of %s", thousands(burst)), 100, bucketLimit(10_000, time.Second, burst), 1.1, 0, 5)
	}
	for _, trip := range []int64{100} {
		first := len(out)
		each("round trip", fmt.Sprintf("round trips of %d ms", trip), 100, ordinary, 1.1, 0, 5)
		for i := range out[first:] {
			out[first+i].Faults.RoundTrip = trip * millisecond
		}
	}
	for _, n := range []int64{4, 64, 220} {
		sc := slotScenario(frontier+"slots on each agent", fmt.Sprintf("%d slots on each of 10 agents", n), 10*n, 0, 1)
		sc.Duration, sc.Promises = 30*second, nil
		out = append(out, sc)
	}
	return out
}

// slotScenario has ten agents whose requests keep their slots for 100 ms on average. So n slots are 10 × n requests a
// second.
func slotScenario(section, name string, n, queue int64, factor float64) Scenario {
	return Scenario{
		Section: section, Name: fmt.Sprintf("%s, %g ×", name, factor), Agents: 10, Duration: minute,
		Limit:  limit.Limit{Name: "in flight", Algorithm: limit.Concurrency, Slots: n, Queue: queue},
		Demand: even(10*float64(n)*factor, 10), Promises: wrong(5),
		Lasts: func(r *rand.Rand) int64 { return 1 + int64(r.ExpFloat64()*100*float64(millisecond)) },
	}
}

// frontierTables are the errors and renewals, a table for each pair of knobs.
func frontierTables(results []Result) string {
	var b strings.Builder
	section := ""
	for i := range results {
		r := &results[i]
		pair, ok := strings.CutPrefix(r.Scenario.Section, frontier)
		if !ok {
			continue
		}
		if r.Scenario.Section != section {
			if section != "" {
				b.WriteByte('\n')
			}
			section = r.Scenario.Section
			fmt.Fprintf(&b, "| by %s | error %% | worst 10 s %% | renewals %% | waited %% | p99 wait ms | of the bound |\n", pair)
			b.WriteString("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.3f | %.3f | %.1f | %.3f |\n", r.Scenario.Name, r.ErrorPct, r.WorstPct,
			r.RenewedPct, r.WaitedPct, float64(r.WaitP99)/1000, r.Over)
	}
	return b.String()
}
