package sim

import (
	"math"
	"testing"
)

// sampled is how many scenarios TestScenarios runs; 0 means all. The longest are
// left out then.
var sampled int

// Every scenario holds what it promises: the bound in every window, the error over the
// run and in every 10 s.
func TestScenarios(t *testing.T) {
	scenarios := Scenarios()
	if sampled > 0 {
		scenarios = scenarios[:sampled]
	}
	for _, sc := range scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			r := Run(sc, 1)
			if r.OverBound > 0 {
				t.Errorf("%d windows above the bound, the worst %.3f of it", r.OverBound, r.Over)
			}
			if e := math.Max(math.Abs(r.ErrorPct), math.Abs(r.WorstPct)); e > sc.MaxErrorPct {
				t.Errorf("error %.2f %% over the run and %.2f %% in the worst 10 s, want at most %.0f %%", r.ErrorPct, r.WorstPct, sc.MaxErrorPct)
			}
		})
	}
}

// Dense buckets cost what DESIGN promises: at most one renewal in 200 decisions.
func TestDenseBucketsRenewSeldom(t *testing.T) {
	for _, sc := range Scenarios() {
		if !sc.Dense || sampled > 0 {
			continue
		}
		if r := Run(sc, 2); r.RenewedPct > 0.5 {
			t.Errorf("%s: %.3f %% of decisions cost a renewal, want at most 0.5 %%", sc.Name, r.RenewedPct)
		}
	}
}

// With nothing summed every agent has the whole limit, and the check of the
// bound has to say so.
func TestUnguardedBreaksTheBound(t *testing.T) {
	sc := Scenarios()[1]
	sc.Unguarded = true
	sc.Duration = 10 * second
	if r := Run(sc, 1); r.OverBound == 0 || r.Over < 1.2 {
		t.Errorf("got %d windows over and %.3f of the bound, want many and far above 1", r.OverBound, r.Over)
	}
}

// A seed gives one history.
func TestSameSeedSameRun(t *testing.T) {
	sc := Scenarios()[4]
	sc.Duration = 5 * second
	if a, b := Run(sc, 3), Run(sc, 3); a != b {
		t.Errorf("got %+v\nand %+v", a, b)
	}
}
