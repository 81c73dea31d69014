package main

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/f4ee788f/quota/loadtest/bench"
	"github.com/f4ee788f/quota/pkg/client"
)

// baselinesFile has what decisions took when it was last renewed, by `make bench-baselines`.
const baselinesFile = "baselines.json"

var renewBaselines = flag.Bool("renew-baselines", false, "measure "+baselinesFile+" anew instead of holding decisions to it")

// baseline is what a decision takes in floors: of what it cannot do without, measured in turns with it.
type baseline struct {
	Ratio  float64 `json:"ratio"`
	Allocs float64 `json:"allocs"`
}

const (
	// loss is how many times its baseline a decision may take. Ratios of one run move by a third between
	// machines and with what else they do; what is remembered of requests, switched off, is worth three.
	loss = 1.5
	// handleLoss is the same beside an atomic addition of 5 ns, which a machine that is busy moves by more.
	handleLoss = 2
	// lossTries is how often it is measured before that counts: a real loss shows every time.
	lossTries = 5
	// moreAllocs is what a decision may allocate beyond its baseline: what the client's loop does beside it.
	moreAllocs = 0.05
)

// guarded is a decision that is held to its baseline.
type guarded struct {
	name string
	loss float64
	open func(c *client.Client) []candidate // the decision, its floor and, if they have one, the loop about both
}

func guardedDecisions() []guarded {
	handle := func(tenant string, want bool, floor candidate) func(c *client.Client) []candidate {
		return func(c *client.Client) []candidate {
			l, err := c.Limiter(ctx, client.Attribute{Name: client.AttrTenant, Value: tenant})
			check(err)
			l.Allow(ctx)
			return []candidate{ofHandle(l, want), floor}
		}
	}
	known := func(buckets int, endpoint string, limits int, want bool) func(c *client.Client) []candidate {
		return func(c *client.Client) []candidate {
			q := newRequests(buckets, false, false)
			fill(c, q, endpoint, want)
			return []candidate{ours(c, q, endpoint, want), goMap(q, limits), loop(q)}
		}
	}
	return []guarded{
		{"handle ÷ atomic add", handleLoss, handle("acme", true, atomicAdd())},
		// A denial says when to come again: it reads the clock, which takes from five to twelve additions, by machine.
		{"handle, denied ÷ reading the clock", handleLoss, handle(bench.Denied, false, readClock())},
		{"one limit ÷ map read", loss, known(1_000, oneLimit, 1, true)},
		{"three limits ÷ three map reads", loss, known(1_000, threeLimits, 3, true)},
		{"denied ÷ map read", loss, known(1_000, deniedPath, 1, false)},
		{"denied by one of three ÷ map read", loss, known(1_000, deniedOfThree, 1, false)},
		// Among so many it is a matter of how many lines it waits for, one after the other.
		{"denied among 100,000 ÷ map read", loss, known(100_000, deniedPath, 1, false)},
	}
}

// take measures it once.
func (g *guarded) take(all []candidate) baseline {
	f := measure(1, 41, all)
	took, floor := f[0].ns, f[1].ns
	if len(all) > 2 {
		took, floor = took-f[2].ns, floor-f[2].ns
	}
	return baseline{Ratio: took / floor, Allocs: f[0].allocs}
}

// No decision takes half as much again as it did, in floors of the same run, or allocates more.
func TestNoDecisionLoses(t *testing.T) {
	b, err := os.ReadFile(baselinesFile)
	if err != nil {
		t.Fatal(err)
	}
	baselines := map[string]baseline{}
	if err := json.Unmarshal(b, &baselines); err != nil {
		t.Fatal(err)
	}
	all := guardedDecisions()
	for _, g := range all {
		t.Run(g.name, func(t *testing.T) {
			c, stop, err := bench.Open(fiftyRules(), planOf)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
			candidates := g.open(c)
			if *renewBaselines {
				var taken []baseline
				for range lossTries {
					taken = append(taken, g.take(candidates))
				}
				slices.SortFunc(taken, func(a, b baseline) int { return int(1e6 * (a.Ratio - b.Ratio)) })
				baselines[g.name] = taken[len(taken)/2]
				return
			}
			base, ok := baselines[g.name]
			if !ok {
				t.Fatalf("%s has none; `make bench-baselines` measures it", baselinesFile)
			}
			for range lossTries {
				now := g.take(candidates)
				t.Logf("%.2f floors, was %.2f; %.3f allocations, were %.3f", now.Ratio, base.Ratio, now.Allocs, base.Allocs)
				if now.Ratio <= g.loss*base.Ratio && now.Allocs <= base.Allocs+moreAllocs {
					return
				}
			}
			t.Errorf("in %d tries never within %.1f times its baseline of %.2f floors and %.3f allocations; if that is meant: `make bench-baselines`, and say why",
				lossTries, g.loss, base.Ratio, base.Allocs)
		})
	}
	if *renewBaselines {
		maps.DeleteFunc(baselines, func(name string, _ baseline) bool {
			return !slices.ContainsFunc(all, func(g guarded) bool { return g.name == name })
		})
		b, err := json.MarshalIndent(baselines, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(baselinesFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s is new:\n%s", baselinesFile, b)
	}
}
