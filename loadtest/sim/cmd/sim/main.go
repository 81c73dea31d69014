// Command sim runs the simulation and prints a table. Its last line is for
// scripts; it exits non-zero when a scenario does not hold.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/f4ee788f/quota/loadtest/sim"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of arrivals and network")
	only := flag.String("only", "", "run scenarios whose name holds this")
	flag.Parse()

	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "scenario\tagents\tarrivals\tadmitted\tideal\terror %\tworst 10 s %\tmost of bound\twindows over\trenewals %\twaited %\t")
	var worst, steady float64
	over, n, failed := 0, 0, 0
	for _, sc := range sim.Scenarios() {
		if !strings.Contains(sc.Name, *only) {
			continue
		}
		r := sim.Run(sc, *seed)
		n++
		err := math.Max(math.Abs(r.ErrorPct), math.Abs(r.WorstPct))
		worst = math.Max(worst, err)
		if sc.Steady {
			steady = math.Max(steady, err)
		}
		over += r.OverBound
		mark := ""
		if err > sc.MaxErrorPct || r.OverBound > 0 {
			failed++
			mark = "  ✗"
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%.2f\t%.2f\t%.3f\t%d\t%.3f\t%.3f\t%s\n",
			r.Name, r.Agents, r.Arrivals, r.Admitted, r.Ideal, r.ErrorPct, r.WorstPct, r.Over, r.OverBound, r.RenewedPct, r.WaitedPct, mark)
	}
	out.Flush()
	if failed > 0 || n == 0 {
		fmt.Printf("sim: FAILED scenarios=%d failed=%d worst_error_pct=%.2f steady_error_pct=%.2f over_bound=%d\n", n, failed, worst, steady, over)
		os.Exit(1)
	}
	fmt.Printf("sim: ok scenarios=%d worst_error_pct=%.2f steady_error_pct=%.2f over_bound=%d\n", n, worst, steady, over)
}
