package client

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// A budget of tokens by the minute, and streams that want three times as much: their lengths have a heavy tail.
const (
	budget     = 120_000 // tokens a minute
	minutes    = 6
	mostTokens = 4096 // what each stream says
	extension  = 128
	chunk      = 32 // tokens that a stream passes on at once
)

// way is how a gateway reserves.
type way struct {
	name   string
	first  int64 // tokens reserved at first
	likely bool  // less, where that is likely
	counts bool  // it counts afterwards, and is never extended
}

// outcome is what became of a way's streams.
type outcome struct {
	spent, used, over  int64 // tokens: all, and those within and above the budgets of the minutes
	served, cut, asked int
}

func (o *outcome) percent(tokens int64) float64 { return 100 * float64(tokens) / (minutes * budget) }

func (o *outcome) cuts() float64 { return 100 * float64(o.cut) / float64(o.served) }

// stream is one request. It returns what it cost, and its tokens by the window that they were reserved in.
func (w *way) stream(t *testing.T, c *Client, tokens int64) (cost int64, cut bool, of map[int64]int64, served bool) {
	window := func() int64 { return time.Now().Unix() / 60 }
	of = map[int64]int64{}
	last := window()
	r, d := c.ReserveRequest(t.Context(), costing(1, []Cost{{"out", w.first}}, []Attribute{tenant("a"), model("m")}))
	if !d.Allowed {
		return 0, false, nil, false
	}
	type part struct{ window, tokens int64 }
	parts := []part{{last, r.Reserved("out")}}
	for cost < tokens {
		time.Sleep(chunk * time.Second / 50)
		next := min(cost+chunk, tokens)
		for next > r.Reserved("out") && !w.counts {
			if last = window(); !r.Extend(t.Context(), 0, Cost{"out", extension}).Allowed {
				cut = true
				break
			}
			parts = append(parts, part{last, extension})
		}
		if cut {
			break
		}
		cost = next
	}
	if err := r.Commit(1, Cost{"out", cost}); err != nil {
		t.Error(err)
	}
	left := cost
	for _, p := range parts {
		of[p.window] += min(left, p.tokens)
		left -= min(left, p.tokens)
	}
	of[parts[len(parts)-1].window] += left
	return cost, cut, of, true
}

// run has streams come at random, and counts what they spend.
func (w *way) run(t *testing.T) (o outcome) {
	l := limit.Limit{Name: "out", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: budget, Per: time.Minute, Calendar: limit.Minute}, Burst: budget, Meter: "out"}
	l.Cost.Weights = []limit.Weight{{Cost: "out", Micros: limit.Micro}}
	p := plans(1, l)
	p.Plans[0].Limits[0].Enforcement, p.Plans[0].Limits[0].EpsilonPPM = limit.Strict, 0
	p.Costs = []string{"out"}
	if w.likely {
		p.Likely = []limit.Likely{{Cost: "out", QuantilePPM: 950_000, By: "model"}}
	}
	bubble(t, p, func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReservationTime(10*time.Minute))
		random := rand.New(rand.NewPCG(3, 7))
		var all sync.WaitGroup
		var mu sync.Mutex
		windows := map[int64]int64{}
		end := time.Now().Add(minutes * time.Minute)
		for time.Now().Before(end) {
			tokens := int64(min(60*math.Pow(1-random.Float64(), -1/1.1), mostTokens)) // 95 % below 915, 293 on average
			o.asked++
			all.Go(func() {
				cost, cut, of, served := w.stream(t, c, tokens)
				mu.Lock()
				defer mu.Unlock()
				o.spent += cost
				for window, n := range of {
					windows[window] += n
				}
				if served {
					o.served++
				}
				if cut {
					o.cut++
				}
			})
			time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / 20))
		}
		all.Wait()
		for window, n := range windows {
			o.over += max(n-budget, 0)
			if window < end.Unix()/60 {
				o.used += min(n, budget)
			}
		}
		shut(t, c)
		if got := s.billed(nil); got != o.spent {
			t.Errorf("%s: %d tokens are billed, %d were streamed", w.name, got, o.spent)
		}
	})
	return o
}

// What is likely uses the budget as well as a small extension does, and cuts few streams. The most leaves much of it
// unused, and counting afterwards overspends. The figures are those of docs/sdk.md.
func TestWhatReservingTheLikelyGains(t *testing.T) {
	unraced.Only(t) // of figures; TestLikelyIsShared races
	run := func(w way) outcome {
		o := w.run(t)
		t.Logf("%-14s %5.1f %% used, %4.1f %% over, %d of %d streams served, %4.1f %% of them cut",
			w.name, o.percent(o.used), o.percent(o.over), o.served, o.asked, o.cuts())
		return o
	}
	most := run(way{name: "the most", first: mostTokens})
	likely := run(way{name: "95 %", first: mostTokens, likely: true})
	small := run(way{name: "one extension", first: extension})
	after := run(way{name: "count after", first: 1, counts: true})
	if most.over+likely.over+small.over > 0 || after.percent(after.over) < 30 {
		t.Errorf("above the budget are %d, %d, %d and %d tokens; want none where they are reserved", most.over, likely.over, small.over, after.over)
	}
	if u := likely.percent(likely.used); u < 95 || u < 1.4*most.percent(most.used) {
		t.Errorf("%.1f %% are used with what is likely, %.1f %% with the most; want 95 %%, and 1.4 times as much", u, most.percent(most.used))
	}
	if most.cut > 0 || likely.cuts() > 0.6*small.cuts() {
		t.Errorf("%d streams are cut with the most, and %.1f %% with what is likely; want none, and far less than %.1f %%", most.cut, likely.cuts(), small.cuts())
	}
}
