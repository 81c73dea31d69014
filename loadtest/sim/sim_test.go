package sim

import (
	"cmp"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// sampled leaves only the shortest runs, for the race detector.
var sampled bool

// named returns the scenario of that name.
func named(t *testing.T, name string) Scenario {
	t.Helper()
	for _, sc := range Scenarios() {
		if sc.Name == name {
			return sc
		}
	}
	t.Fatalf("no scenario %q", name)
	return Scenario{}
}

// A few scenarios keep their promises; `make sim` runs all of them.
func TestScenarios(t *testing.T) {
	for _, name := range []string{
		"10 agents, 0.9 ×", "10 agents, 3 ×", "5 a minute over 10 agents, 3 ×",
		"20 agents of 40,000/s, 0.5 ×", "strict, 100 agents, 3 ×",
		"moves to another tenth of the agents every 2 s, 3 ×", "one of 100 leaves and one joins each second, 3 ×",
		"10,000 in 10 s over 20 agents, 3 ×", "log, 5 a minute over 10 agents, 3 ×", "leaky, 1,000/s over 10 agents, 3 ×",
		"50 slots over 10 agents, 0.9 ×", "2,500 slots over 10 agents, 0.9 ×", "the store forgets everything, 3 ×",
		"server away for 2 s, 100 sparse keys over 10 agents, 0.1 ×",
		"server silent for 20 s, 100 sparse keys over 10 agents, 0.1 ×",
		"server silent for 20 s, 20 keys of 100/s over 10 agents, 0.8 ×",
		"the store forgets 100 sparse keys over 10 agents, 0.1 ×", "the store forgets 20 keys of 100/s over 10 agents, 0.8 ×",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := named(t, name)
			if sampled && (sc.Agents > 10 || sc.Limit.Slots > 100) {
				t.Skip("too long under the race detector")
			}
			r := Run(sc, 1)
			for _, b := range r.Broken() {
				t.Error(b)
			}
		})
	}
}

// A second before a total outage one gateway spends the burst. In the outage, more than all of the rate is asked for at
// each of those that had asked for little: what they may go on with is within the bound.
func TestDemandComesInAnOutage(t *testing.T) {
	t.Parallel()
	for _, burst := range []int64{100, 1_000} {
		for seed := range uint64(3) {
			const rate, begins, away = 100, 30 * second, 30 * second
			sc := of("", "comes in an outage", 10, bucketLimit(rate, time.Second, burst), 3)
			sc.Varies, sc.Duration, sc.Promises = true, begins+away+10*second, nil
			sc.Faults.Cuts = []Cut{{Span: Span{begins, begins + away}}}
			sc.Demand = func(a int, now int64) float64 {
				switch {
				case now >= begins:
					return 2 * rate
				case now >= begins-second && a == 0:
					return 20 * rate
				}
				return 0.05 * rate
			}
			r := Run(sc, seed+1)
			for _, b := range r.Broken() {
				t.Errorf("a burst of %d, seed %d: %s; most of the bound %.3f", burst, seed+1, b, r.Over)
			}
		}
	}
}

// Of a gateway whose leases last for minutes all that is asked for moves to another that had none, or half of it, as traffic does that is sent
// elsewhere: the burst is of two seconds, and what lies idle where it was is missed after that.
func TestDemandMovesFromLongLeases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ stays, other float64 }{{0, 0.8}, {0, 0.95}, {0.4, 0.4}, {0.5, 0.45}} {
		const rate, moved = 1_000, 400 * second
		sc := of("", "moves after minutes", 2, bucketLimit(rate, time.Second, 2*rate), 0.8)
		sc.Varies, sc.Duration = true, moved+80*second
		sc.Demand = func(a int, now int64) float64 {
			switch {
			case now < moved:
				return []float64{0.8 * rate, 0}[a]
			case a == 0:
				return c.stays * rate
			}
			return c.other * rate
		}
		r := Run(sc, 1)
		for _, b := range r.Broken() {
			t.Errorf("%g of the rate stays, and %g is asked for elsewhere: %s", c.stays, c.other, b)
		}
		if r.RenewedPct > 0.1 {
			t.Errorf("%g of the rate stays, and %g is asked for elsewhere: %.3f %% renewals, and leases were to be long", c.stays, c.other, r.RenewedPct)
		}
	}
}

// Of small limits no more than the rate is asked for over some agents for minutes, and then a burst by one of them: it has all that there is, as
// it would of one limiter, and none lies with the others.
func TestSmallLimitsHoldNothingBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		agents int
		burst  int64
		each   float64 // requests a second of each agent
		came   float64 // of the one with the burst
	}{{10, 120, 0.08, 30}, {3, 400, 0.3, 100}} {
		for seed := range uint64(3) {
			sc := of("", "a burst of a small limit", c.agents, bucketLimit(60, time.Minute, c.burst), 0.8)
			const begins = 300 * second
			sc.Varies, sc.Duration, sc.Promises = true, begins+40*second, []Promise{apart(1)}
			sc.Demand = func(a int, now int64) float64 {
				if a == 0 && now >= begins && now < begins+10*second {
					return c.came
				}
				return c.each
			}
			r := Run(sc, seed+1)
			for _, b := range r.Broken() {
				t.Errorf("a burst of %d, seed %d: %s", c.burst, seed+1, b)
			}
		}
	}
}

// A gateway that has nearly all of the rate is lost without a word, and its traffic goes to another: of bursts of some seconds what is there makes
// up for what is kept for it.
func TestOneIsLostWithNearlyAllOfTheRate(t *testing.T) {
	t.Parallel()
	for _, burst := range []int64{5, 10, 20, 60} {
		const rate, lost = 1_000, 400 * second
		sc := of("", "one is lost", 2, bucketLimit(rate, time.Second, burst*rate), 0.95)
		sc.Varies, sc.Duration = true, lost+80*second
		sc.Faults.Crashes = []Crash{{At: lost, Agent: 0}}
		sc.Demand = func(a int, now int64) float64 {
			if (a == 0) == (now < lost) {
				return 0.95 * rate
			}
			return 0
		}
		r := Run(sc, 1)
		for _, b := range r.Broken() {
			t.Errorf("a burst of %d s: %s", burst, b)
		}
	}
}

// Slots have no room for an error, nor has a log.
func TestBoundOfSlotsAndLogs(t *testing.T) {
	b := newBound(&Scenario{Limit: limit.Limit{Algorithm: limit.Concurrency, Slots: 2, EpsilonPPM: 1_000_000}}, 0)
	b.admit(0, 1)
	b.admit(1, 1)
	b.finish(1)
	b.admit(2, 1)
	if b.over != 0 {
		t.Fatalf("two in flight, of 2: got %d over", b.over)
	}
	if b.admit(3, 1); b.over != 1 {
		t.Errorf("three in flight, of 2: got %d over, want 1", b.over)
	}
	l := windowLimit(2, time.Minute)
	l.Algorithm = limit.SlidingWindowLog
	b = newBound(&Scenario{Limit: l}, 0)
	for _, at := range []int64{0, second, minute, minute + second} {
		b.admit(at, 1)
	}
	if b.over != 0 {
		t.Fatalf("two in each minute, of 2: got %d over", b.over)
	}
	if b.admit(minute+2*second, 1); b.over != 1 {
		t.Errorf("three in a minute, of 2: got %d over, want 1", b.over)
	}
}

// With nothing summed every agent has the whole limit, and the check of the
// bound has to say so.
func TestUnguardedBreaksTheBound(t *testing.T) {
	for _, name := range []string{"100 agents, 3 ×", "10,000 in 10 s over 20 agents, 3 ×",
		"sliding, 10,000 in 10 s over 20 agents, 3 ×", "leaky, 1,000/s over 10 agents, 3 ×", "50 slots over 10 agents, 2 ×"} {
		sc := named(t, name)
		sc.Unguarded = true
		sc.Duration = 10 * second
		r := Run(sc, 1)
		if r.OverBound == 0 || r.Over < 1.2 {
			t.Errorf("%s: got %d admissions over and %.3f of the bound, want many and far above 1", name, r.OverBound, r.Over)
		}
		if len(Summarize([]Result{r}).Failed) == 0 {
			t.Errorf("%s: the summary says ok", name)
		}
	}
}

// With nobody told that the store forgot, leases that it does not know of live on for two minutes beside what it grants,
// and the check of the bound has to say so.
func TestUntoldLossBreaksTheBound(t *testing.T) {
	if sampled {
		t.Skip("too long under the race detector")
	}
	sc := named(t, "20 agents, half have long leases, the store forgets once as the others begin, 0.7 ×")
	sc.Duration = 125 * second
	for _, untold := range []bool{false, true} {
		sc.Faults.Untold = untold
		if r := Run(sc, 1); (r.OverBound > 0) != untold {
			t.Errorf("untold %v: %d admissions over, and %.3f of the bound", untold, r.OverBound, r.Over)
		}
	}
}

// An agent that has less than its part, or more, is seen.
func TestUnfairSharesAreSeen(t *testing.T) {
	for name, demand := range map[string]func(a int, now int64) float64{ // of ten agents
		"equal demand: shares, 3 ×":                        func(a int, _ int64) float64 { return 10_000 - 1_000*float64(a/9) },
		"one agent with ten times the others' demand, 3 ×": func(a int, _ int64) float64 { return 1_500 + 14_500*float64(1-min(a, 1)) },
	} {
		sc := named(t, name)
		sc.Agents, sc.Duration, sc.Demand = 10, 10*second, demand
		p := sc.Promises[len(sc.Promises)-1]
		if r := Run(sc, 1); p.Figure(&r) <= p.Most {
			t.Errorf("%s: with another demand got %s %.2f; want more than %g", name, p.What, p.Figure(&r), p.Most)
		}
	}
}

// A seed gives one history, and one chart.
func TestSameSeedSameRun(t *testing.T) {
	sc := named(t, "5 % lost, 5 % twice, 3 ×")
	sc.Duration = 5 * second
	a, b, c := Run(sc, 3), Run(sc, 3), Run(sc, 4)
	if string(a.Chart()) != string(b.Chart()) || a.Admitted != b.Admitted || a.Renewals != b.Renewals {
		t.Errorf("got %d admitted and %d renewals, then %d and %d", a.Admitted, a.Renewals, b.Admitted, b.Renewals)
	}
	if string(a.Chart()) == string(c.Chart()) {
		t.Error("another seed gave the same chart")
	}
}

// Names tell scenarios and their charts apart.
func TestNamesAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	for _, sc := range Scenarios() {
		s := slug(sc.Name)
		if seen[s] || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("%q makes the file name %q", sc.Name, s)
		}
		seen[s] = true
		if sc.Catches == "" {
			t.Errorf("%q says not what it would catch", sc.Name)
		}
		known := false
		for _, section := range sections {
			known = known || section == sc.Section
		}
		if !known {
			t.Errorf("%q is of section %q, which the report does not have", sc.Name, sc.Section)
		}
	}
	if len(seen) != len(catches) {
		t.Errorf("%d scenarios, and %d say what they would catch", len(seen), len(catches))
	}
}

// The bound is looked at in every window, wherever it begins.
func TestBoundSeesEveryWindow(t *testing.T) {
	sc := Scenario{Limit: bucketLimit(1_000, 1_000_000_000, 1_000), Duration: 30 * second}
	b := newBound(&sc, 0)
	// 1,050 just before a second's end and 1,051 just after: one too many for 1 s, and no other window.
	b.admit(999_999, 1_050)
	b.admit(1_999_998, 1_050)
	if b.over != 0 {
		t.Fatalf("2,100 in a second are within (1 + 5 %%) × 2,000; got %d over", b.over)
	}
	b.admit(1_999_998, 1)
	if b.over != 1 {
		t.Errorf("2,101 in a second: got %d over, want 1", b.over)
	}
}

// The docs' row of a section has the range of its figures; those judged by units have no worst 10 s.
func TestASectionIsSummedUp(t *testing.T) {
	in := func(promises ...Promise) *Scenario { return &Scenario{Section: sections[0], Promises: promises} }
	table := sectionsTable([]Result{
		{Scenario: in(wrong(5)...), ErrorPct: -0.5, WorstPct: -2, Over: 0.9, RenewedPct: 4},
		{Scenario: in(wrong(5)...), ErrorPct: -0.001, WorstPct: 1, Over: 0.95, RenewedPct: 0.2},
		{Scenario: in(apart(0)), ErrorPct: 0, WorstPct: 70, Over: 0.1, RenewedPct: 1},
		{Scenario: &Scenario{Section: "another"}, ErrorPct: 99},
	})
	if want := "| Steady demand | 3 | -0.50…0.00 | -2.00…1.00 | 0.950 | 0.2…4.0 |\n"; !strings.Contains(table, want) {
		t.Errorf("got\n%s\nwant in it %s", table, want)
	}
}

// Agents that know nothing of a bucket admit a unit each on credit: all at once, or as they come to one that the others
// have emptied. No window is above the bound, for there is credit only where it has room for all agents'. If each takes
// itself for the only one, a thousand break the bound of a small limit.
func TestColdFleetsKeepTheBound(t *testing.T) {
	for _, c := range []struct {
		name        string
		agents      int
		rate, burst int64
		keys        int
		counted     int
		credit      bool // there is some
	}{
		{"as many as there is credit for", 10, 100, 1_000, 0, 0, true},
		{"a hundred", 100, 10_000, 20_000, 0, 0, true},
		{"a thousand", 1_000, 10_000, 100_000, 0, 0, true},
		{"a thousand at a small limit", 1_000, 100, 1_000, 0, 0, false},
		{"many keys of an attacker", 10, 100, 1_000, 100, 0, true},
		{"control", 1_000, 100, 20, 0, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if sampled && c.agents > 10 {
				t.Skip("too long under the race detector")
			}
			for seed := range uint64(2) {
				sc := of("", c.name, c.agents, bucketLimit(c.rate, time.Second, c.burst), 0)
				sc.Keys, sc.Counted, sc.Varies, sc.Duration = c.keys, c.counted, true, 16*second
				if c.keys > 0 {
					sc.Key = func(r *rand.Rand, _ int) int { return r.IntN(c.keys) }
				}
				each := max(2*float64(max(c.keys, 1))*float64(c.rate+c.burst/10)/float64(c.agents), 2)
				sc.Demand = func(a int, now int64) float64 {
					if a%2 == 1 && now < 12*second {
						return 0
					}
					return each
				}
				r := Run(sc, seed+1)
				t.Logf("seed %d: %.3f of the bound, %.2f %% waited", seed+1, r.Over, r.WaitedPct)
				if over := r.OverBound > 0; over != (c.counted == 1) {
					t.Errorf("seed %d: %d admissions above the bound, the most %.3f of it", seed+1, r.OverBound, r.Over)
				}
				held := (&limit.Rule{Limit: sc.Limit}).Hold()
				if got := held.Credit().Of(int64(cmp.Or(c.counted, c.agents))) > 0; got != c.credit {
					t.Errorf("there is credit: %v, want %v", got, c.credit)
				}
			}
		})
	}
}
