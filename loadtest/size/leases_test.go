package size

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/loadtest/sim"
)

var measure = flag.Bool("measure", false, "simulate what leases.txt has not, and write it; all of it takes some ten minutes of two processors")

// Of the simulations: what there is to learn has been learned by then, and long terms are as long as they get.
const (
	growing = 420 * time.Second
	counted = 240 * time.Second
	running = 60 * time.Second // where leases are short
)

// limitOf is a tenant's limit of which so much is asked for.
func limitOf(demand, x, burst float64) limit.Limit {
	rate, per := demand/x, time.Second
	units := rate
	for units < 1000 && per < 10_000*time.Second {
		units, per = units*10, per*10
	}
	return limit.Limit{
		Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: int64(math.Round(units)), Per: per},
		Burst: max(int64(burst*rate), 1), Enforcement: limit.Hard, EpsilonPPM: 50_000,
	}
}

// atRest simulates gateways that each ask d a second, x times the limit together, and returns what each lease is renewed and what
// requests wait for at each gateway, a second. Where more is asked for than the rate, the burst is used up first: by what is asked
// for, or where that would take too many requests by five times the rate.
func atRest(gateways int, d, x, burst float64) point {
	until, span := growing, counted
	s := sim.Scenario{Name: "at rest", Agents: gateways, Limit: limitOf(d*float64(gateways), x, burst), Demand: func(int, int64) float64 { return d }}
	if x > 1 {
		drained := time.Duration((burst/(x-1) + 10) * float64(time.Second))
		if span = running; d < 1 {
			span = counted
		}
		if d >= 2 && burst > 2 {
			drained = time.Duration((burst/(5-1) + 10) * float64(time.Second))
			s.Varies = true
			s.Demand = func(_ int, now int64) float64 {
				if now < drained.Microseconds() {
					return d * 5 / x
				}
				return d
			}
		}
		until = drained + 2*running
	}
	run := func(length time.Duration) (renewals, waits float64) {
		s.Duration = length.Microseconds()
		r := sim.Run(s, 1)
		return float64(r.Renewals), r.WaitedPct / 100 * float64(r.Requests)
	}
	r0, w0 := run(until) // the same course as the longer one, as far as it goes
	r1, w1 := run(until + span)
	each := span.Seconds() * float64(gateways)
	return point{max(r1-r0, 0) / each, max(math.Round(w1-w0), 0) / each}
}

// gatewaysFor is how many gateways a cell of the table is simulated with.
func gatewaysFor(c company, d float64) int {
	switch {
	case c == alone:
		return 1
	case c == seldom:
		return max(int(math.Round(seldomDemand/d)), 1)
	case d < 0.2:
		return int(math.Round(oftenDemand / d))
	case d < 20:
		return 100
	case d < 1000:
		return 20
	}
	return 10
}

// TestLeases holds the table of leases.txt to the simulation, at points between its rows; with -measure it makes the table.
func TestLeases(t *testing.T) {
	if *measure {
		makeLeases(t)
		return
	}
	for _, test := range []struct {
		gateways    int
		d, x, burst float64
	}{
		{50, 3, 0.65, 60},
		{200, 0.3, 0.3, 600},
		{30, 30, 1.1, 20},
		{70, 7, 1.6, 120},
		{3, 40, 1.15, 10},
		{60, 0.07, 0.7, 300},
		{300, 0.15, 1.3, 120},
		{10, 1, 0.5, 30},
	} {
		p, got := atRest(test.gateways, test.d, test.x, test.burst), renewed(float64(test.gateways), test.d, test.x, test.burst)
		what := fmt.Sprintf("%d gateways, %g a second each, %g times the limit, a burst of %g s", test.gateways, test.d, test.x, test.burst)
		within(t, 1.8, got.renewals, p.renewals, "renewals a second of a lease, %s", what)
		if max(got.waits, p.waits) > 0.05*test.d {
			within(t, 1.8, got.waits, p.waits, "waits a second at a gateway, %s", what)
		}
		t.Logf("%s: %.4f/%.4f, simulated %.4f/%.4f", what, got.renewals, got.waits, p.renewals, p.waits)
	}
}

// The table has all that it is to have, and is written as it is read.
func TestLeasesAreWhole(t *testing.T) {
	for c := range companies {
		for b := range bursts {
			for d := range rates {
				for x := range demands {
					if has := leases[c][b][d][x].renewals > 0; has != simulated(company(c), rates[d], demands[x]) {
						t.Errorf("%s, a burst of %g s, %g a second, %g times the limit: in the table %t", companies[c], bursts[b], rates[d], demands[x], has)
					}
				}
			}
		}
	}
	var out bytes.Buffer
	leases.write(&out)
	if out.String() != leasesText {
		t.Errorf("leases.txt is written otherwise:\n%s", &out)
	}
}

func makeLeases(t *testing.T) {
	type cell struct {
		c    company
		b, x int
		d    int
	}
	var cells []cell
	for c := range companies {
		for b := range bursts {
			for x := range demands {
				for d := range rates {
					if !simulated(company(c), rates[d], demands[x]) {
						continue
					}
					cells = append(cells, cell{company(c), b, x, d})
				}
			}
		}
	}
	table := *leases // what it has is made, and may be left out to be made anew
	var writing sync.Mutex
	var next atomic.Int64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(cells) {
					return
				}
				k := cells[i]
				if table[k.c][k.b][k.d][k.x].renewals > 0 {
					continue
				}
				burst := bursts[k.b]
				if demands[k.x] > 1 {
					burst = min(burst, 600) // to use up more takes hours, and once it is dry what counts is its part of each gateway
				}
				p := atRest(gatewaysFor(k.c, rates[k.d]), rates[k.d], demands[k.x], burst)
				fmt.Fprintf(os.Stderr, "%s, a burst of %g s, %g times the limit, %g a second: %.5f %.5f\n", companies[k.c], bursts[k.b], demands[k.x], rates[k.d], p.renewals, p.waits)
				writing.Lock()
				table[k.c][k.b][k.d][k.x] = p
				var out bytes.Buffer
				table.write(&out)
				if err := os.WriteFile("leases.txt", out.Bytes(), 0o644); err != nil {
					t.Error(err)
				}
				writing.Unlock()
			}
		})
	}
	group.Wait()
}
