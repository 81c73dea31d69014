package sim

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

func outages() []Scenario {
	const section = "Outages"
	var out []Scenario
	away := func(name string, agents int, l limit.Limit, cut Cut, after int64, factors ...float64) {
		out = append(out, at(factors, func(f float64) Scenario {
			sc := of(section, name, agents, l, f)
			sc.Duration = cut.To + after
			sc.Faults.Cuts, sc.Faults.Healed = []Cut{cut}, cut.To
			if sc.Promises = []Promise{recovers(20)}; cut.Agents != nil {
				sc.Promises = nil // printed: what those cut off spent is taken out for a while
			}
			return sc
		})...)
	}
	from := func(t, length int64) Span { return Span{t, t + length} }
	half := func(a int) bool { return a%2 == 0 }
	away("server away for 30 s", 100, ordinary, Cut{Span: from(15*second, 30*second)}, 40*second, 0.9, 3)
	away("server silent for 30 s", 100, ordinary, Cut{Span: from(15*second, 30*second), Silent: true}, 40*second, 3)
	away("server away for 10 min", 20, bucketLimit(2_000, time.Second, 4_000), Cut{Span: from(15*second, 10*minute)}, 40*second, 0.9)
	away("half of the agents cut off for 30 s", 100, ordinary, Cut{Span: from(15*second, 30*second), Agents: half, Silent: true}, 40*second, 3)
	held := ordinary
	held.FallbackHold = time.Minute
	away("half of the agents cut off for 30 s, shares held for a minute", 100, held, Cut{Span: from(15*second, 30*second), Agents: half, Silent: true}, 40*second, 3)
	away("10,000 in 10 s, server away for 30 s", 20, windowLimit(10_000, 10*time.Second), Cut{Span: from(15*second, 30*second)}, 55*second, 3)
	return append(out, legitimate(section)...)
}

// legitimate is outages in which no tenant is above its limit.
func legitimate(section string) []Scenario {
	const begins = 40 * second
	var out []Scenario
	add := func(name string, length int64, silent bool, keys int, l limit.Limit, factor float64) {
		sc := of(section, name, 10, l, factor)
		sc.Keys, sc.Key = keys, anyOf(keys)
		sc.Demand = even(float64(l.Rate.Units)*factor*float64(keys), sc.Agents)
		if sc.Faults.Began, sc.Faults.Healed = begins, begins+length; length > 0 {
			sc.Faults.Cuts = []Cut{{Span: Span{begins, begins + length}, Silent: silent}}
		} else {
			sc.Faults.Forgets = []Forget{{At: begins}}
			sc.Faults.Began, sc.Faults.Healed = begins+noticed, begins+noticed
		}
		sc.Duration = sc.Faults.Healed + 15*second
		sc.Promises = lives(2, 1)
		out = append(out, sc)
	}
	sparse, dense := bucketLimit(20, time.Second, 200), bucketLimit(100, time.Second, 100)
	add("server away for 2 s, 100 sparse keys over 10 agents", 2*second, false, 100, sparse, 0.1)
	add("server silent for 20 s, 100 sparse keys over 10 agents", 20*second, true, 100, sparse, 0.1)
	add("server away for 10 s, 20 keys of 100/s over 10 agents", 10*second, false, 20, dense, 0.8)
	add("server silent for 20 s, 20 keys of 100/s over 10 agents", 20*second, true, 20, dense, 0.8)
	killed := func(factor float64) *Scenario {
		add("server killed for 2 s, it forgets 20 keys of 100/s over 10 agents", 2*second, false, 20, dense, factor)
		sc := &out[len(out)-1]
		sc.Faults.Forgets = []Forget{{At: sc.Faults.Healed - noticed, Anew: true}} // which it tells at once
		return sc
	}
	killed(0.8)
	killed(3).Promises = nil // but the bound
	add("the store forgets 100 sparse keys over 10 agents", 0, false, 100, sparse, 0.1)
	add("the store forgets 20 keys of 100/s over 10 agents", 0, false, 20, dense, 0.8)
	return out
}
