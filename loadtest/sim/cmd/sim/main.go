// Command sim runs the simulation and prints a table. It rewrites the report beside the simulator and the summary in
// docs/error-bound.md. Its last line is for scripts; it exits non-zero when a scenario does not hold.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/f4ee788f/quota/loadtest/sim"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of arrivals and network; the report is written for 1")
	only := flag.String("only", "", "run scenarios whose section and name hold this; writes nothing")
	root := flag.String("root", ".", "root of the repository: loadtest/sim/report and docs/error-bound.md are below it")
	check := flag.Bool("check", false, "write nothing, and fail where the committed files are not what the run gives")
	flag.Parse()

	scenarios := slices.DeleteFunc(slices.Concat(sim.Scenarios(), sim.Frontier()), func(sc sim.Scenario) bool {
		return !strings.Contains(sc.Section+": "+sc.Name, *only)
	})
	results := sim.RunAll(scenarios, *seed)
	show(results)
	s := sim.Summarize(results)
	for _, m := range s.Missed {
		fmt.Println("missed:", m)
	}
	if *seed == 1 {
		s.Failed = append(s.Failed, s.Kept...)
	}
	if *only == "" && *seed == 1 {
		files, err := sim.Files(*root, results)
		switch {
		case err != nil:
			s.Failed = append(s.Failed, err.Error())
		case *check:
			for _, name := range sim.Differ(*root, files) {
				s.Failed = append(s.Failed, name+" is not what this run gives: run make sim and commit it")
			}
		default:
			if err := sim.Write(*root, files); err != nil {
				s.Failed = append(s.Failed, err.Error())
			}
		}
	}
	for _, f := range s.Failed {
		fmt.Println("failed:", f)
	}
	fmt.Println(s)
	if len(s.Failed) > 0 || s.Scenarios == 0 {
		os.Exit(1)
	}
}

func show(results []sim.Result) {
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "scenario\tarrivals\tadmitted\tideal\terror %\tworst 10 s %\tas they came\tmost of bound\tof 0.1 s\trenewals %\tcalls %\twaited %\tp99 ms\t")
	section := ""
	for i := range results {
		r := &results[i]
		if r.Scenario.Section != section {
			section = r.Scenario.Section
			fmt.Fprintf(out, "%s\t\t\t\t\t\t\t\t\t\t\t\t\t\n", strings.ToUpper(section))
		}
		mark := ""
		if len(r.Broken()) > 0 {
			mark = "  ✗"
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t%s\n",
			r.Scenario.Name, r.Arrivals, r.Admitted, r.Ideal, r.ErrorPct, r.WorstPct, r.CamePct, r.Over, r.OverTenth,
			r.RenewedPct, r.CalledPct, r.WaitedPct, r.AgainPct, float64(r.WaitP99)/1000, mark)
	}
	_ = out.Flush() // to standard output: whoever reads it sees that it ended
}
