package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Sections of the report, in their order.
var sections = []string{
	"Steady demand", "Dense buckets", "Far below the limit", "Uneven and changing demand", "Small limits", "Windows and quotas",
	"Sliding windows and logs", "Leaky buckets and slots",
	"Strict limits and large requests", "Agents that come, go and stand still", "Network", "Outages", "Store and clocks",
}

// Scenarios are those that `make sim` runs, in the order of the report.
func Scenarios() []Scenario {
	all := slices.Concat(steadyDemand(), denseBuckets(), changingDemand(), smallLimits(), windows(), slidingWindows(), pacedAndSlots(),
		strictAndLarge(), agentsComeAndGo(), network(), outages(), storeAndClocks())
	for i := range all {
		all[i].Missed, all[i].Catches = missed[all[i].Name], catches[all[i].Name]
	}
	return all
}

// missed are the scenarios that do not keep a promise, and why.
var missed = map[string]string{
	"strict, 10 agents, a burst of 100, 1.1 ×": "what trickles while a renewal is under way is nobody's",
}

func bucketLimit(units int64, per time.Duration, burst int64) limit.Limit {
	return limit.Limit{
		Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: units, Per: per}, Burst: burst,
		EpsilonPPM: limit.DefaultEpsilonPPM,
	}
}

func windowLimit(units int64, per time.Duration) limit.Limit {
	l := bucketLimit(units, per, 0)
	l.Algorithm = limit.FixedWindow
	return l
}

// ordinary is the limit of most scenarios: over a hundred agents, a hundred a second on each.
var ordinary = bucketLimit(10_000, time.Second, 20_000)

// of is a scenario with a demand of factor times the limit's rate, evenly spread.
func of(section, name string, agents int, l limit.Limit, factor float64) Scenario {
	rate := float64(l.Rate.Units) / l.Rate.Per.Seconds()
	return Scenario{
		Section: section, Name: fmt.Sprintf("%s, %g ×", name, factor), Agents: agents, Limit: l, Duration: 60 * second,
		Demand: even(rate*factor, agents), Promises: wrong(5),
	}
}

// even splits a demand evenly over n agents.
func even(total float64, n int) func(int, int64) float64 {
	return func(int, int64) float64 { return total / float64(n) }
}

// at makes a scenario for each of several demands.
func at(factors []float64, make func(factor float64) Scenario) []Scenario {
	var out []Scenario
	for _, f := range factors {
		out = append(out, make(f))
	}
	return out
}

func steadyDemand() []Scenario {
	var out []Scenario
	for _, fleet := range []struct {
		agents  int
		factors []float64
	}{{1, []float64{3}}, {10, []float64{0.9, 3}}, {100, []float64{0.9, 1.1, 3, 10}}, {1000, []float64{1.1}}} {
		out = append(out, at(fleet.factors, func(f float64) Scenario {
			agents, name := fleet.agents, fmt.Sprintf("%d agents", fleet.agents)
			if agents == 1 {
				name = "1 agent"
			}
			sc := of("Steady demand", name, agents, ordinary, f)
			sc.Duration, sc.Steady, sc.Promises = 30*second, agents < 1000, wrong(1)
			if agents == 1000 {
				sc.Promises = wrong(5) // 10 tokens a second on each, 5 a term
			}
			return sc
		})...)
	}
	return out
}

func denseBuckets() []Scenario {
	sc := of("Dense buckets", "20 agents of 40,000/s", 20, bucketLimit(40_000, time.Second, 80_000), 0.5)
	sc.Duration, sc.Steady, sc.Promises = 30*second, true, slices.Concat(wrong(1), dense)
	return []Scenario{sc}
}

func changingDemand() []Scenario {
	const section = "Uneven and changing demand"
	out := at([]float64{1.1}, func(f float64) Scenario {
		sc := of(section, "zipf over 100 agents", 100, ordinary, f)
		const harmonic = 5.187377518 // of 100: the first agent has a fifth of all
		sc.Demand = func(a int, _ int64) float64 { return 10_000 * f / (float64(a+1) * harmonic) }
		return sc
	})
	out = append(out, at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "moves to another tenth of the agents every 2 s", 100, ordinary, f)
		sc.Varies = true
		sc.Demand = func(a int, now int64) float64 {
			if int(now/(2*second))%10 == a%10 {
				return 10_000 * f / 10
			}
			return 0
		}
		return sc
	})...)
	out = append(out, at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "on for 3 s, off for 3 s", 100, ordinary, f)
		sc.Varies = true
		sc.Demand = func(_ int, now int64) float64 {
			if now/(3*second)%2 == 0 {
				return 10_000 * f / 100
			}
			return 0
		}
		return sc
	})...)
	out = append(out, beside(section, "half have long leases, the others begin after 100 s", 20, 0.7))
	burst := of(section, "a burst of 2 s after 13 s of silence", 100, ordinary, 10)
	burst.Varies = true
	burst.Demand = func(_ int, now int64) float64 {
		if now%(15*second) >= 13*second {
			return 1_000
		}
		return 0
	}
	equal := of(section, "equal demand: shares", 100, bucketLimit(40_000, time.Second, 80_000), 3)
	equal.Promises = append(wrong(1), fair)
	ten := of(section, "one agent with ten times the others' demand", 100, ordinary, 3)
	ten.Demand = func(a int, _ int64) float64 {
		if a == 0 {
			return 30_000 * 10 / 109.
		}
		return 30_000 / 109.
	}
	ten.Promises = append(wrong(5), tenfold)
	cold := of(section, "20 agents, 500 keys, sparse", 20, bucketLimit(100, time.Second, 200), 0.02)
	cold.Keys = 500
	cold.Demand = even(1_000, 20) // of all keys together
	cold.Key = anyOf(500)
	cold.Promises = append(wrong(1), oneTrip)
	out = append(out, burst, equal, ten, cold)
	for _, tokens := range []int64{100, 1_000} {
		out = append(out, at([]float64{0.9, 3}, func(f float64) Scenario {
			sc := of(section, fmt.Sprintf("moves to another of 10 agents every 2 s, a burst of %d", tokens), 10, bucketLimit(1_000, time.Second, tokens), f)
			sc.Varies = true
			sc.Demand = func(a int, now int64) float64 {
				if int(now/(2*second))%10 == a {
					return 1_000 * f
				}
				return 0
			}
			return sc
		})...)
	}
	return append(out, farBelow()...)
}

// farBelow are buckets that are asked for far less than their limit.
func farBelow() []Scenario {
	below := func(name string, agents, keys int, l limit.Limit, each float64, duration int64, promises ...Promise) Scenario {
		sc := of("Far below the limit", name, agents, l, 0)
		sc.Name, sc.Keys, sc.Key, sc.Duration = name, keys, anyOf(keys), duration
		sc.Demand = even(each*float64(keys*agents), agents)
		sc.Promises = append(wrong(1)[:1], promises...)
		return sc
	}
	return []Scenario{
		below("500 keys of 100/s, 0.2/s on each of 10 agents", 10, 500, bucketLimit(100, time.Second, 200), 0.2, 10*minute, sparse(0.5, 3)...),
		below("100 keys of 1,000 an hour, 10 an hour on each of 10 agents", 10, 100, bucketLimit(1_000, time.Hour, 2_000), 10/3600., 12*hour, sparse(0.5, 15)...),
		below("200 keys of 100,000/s, 100/s on one agent", 1, 200, bucketLimit(100_000, time.Second, 1_000_000), 100, 20*second, sparse(0.1, 0.3)...),
	}
}

// beside has one half of the agents ask steadily for a part of the rate, so that their leases grow to minutes. From
// 100 s on the others ask for three times the rate.
func beside(section, name string, agents int, steadily float64) Scenario {
	sc := of(section, fmt.Sprintf("%d agents, %s", agents, name), agents, ordinary, steadily)
	sc.Varies, sc.Duration = true, 160*second
	sc.Demand = func(a int, now int64) float64 {
		switch {
		case a%2 == 0:
			return 10_000 * steadily / float64(agents/2)
		case now < 100*second:
			return 0
		}
		return 30_000 / float64(agents/2)
	}
	return sc
}

// anyOf picks one of n keys, each as likely.
func anyOf(n int) func(*rand.Rand, int) int {
	return func(r *rand.Rand, _ int) int { return r.IntN(n) }
}

func smallLimits() []Scenario {
	small := func(name string, agents int, l limit.Limit, factor float64, duration int64, promises ...Promise) Scenario {
		sc := of("Small limits", name, agents, l, factor)
		sc.Duration, sc.Promises = duration, promises
		return sc
	}
	// A token or less a second on each agent, with bursts of two seconds, ten and a minute. A token on each of a
	// hundred agents is much of ten seconds' rate.
	sparse := []Scenario{
		small("43/s over 100 agents, a burst of 10 s", 100, bucketLimit(43, time.Second, 430), 1.5, 2*minute, wrong(5)...),
	}
	// Each agent has many tokens of the burst, and few of the rate. Terms are long while there is plenty, and when it
	// ends many agents still go on by themselves.
	for _, rate := range []int64{30, 500} {
		sparse = append(sparse, small(fmt.Sprintf("%d/s over 100 agents, a burst of two minutes", rate), 100, bucketLimit(rate, time.Second, rate*120), 1.5, 10*minute, wrong(5)...))
	}
	return append([]Scenario{
		small("5 a minute over 10 agents", 10, bucketLimit(5, time.Minute, 5), 3, 10*minute, apart(1)),
		small("60 a minute over 10 agents", 10, bucketLimit(60, time.Minute, 60), 1.5, 10*minute, apart(1)),
		small("100 an hour over 100 agents", 100, bucketLimit(100, time.Hour, 200), 10, 3*hour, apart(1)),
		small("1,000/s over 100 agents", 100, bucketLimit(1_000, time.Second, 2_000), 3, minute, wrong(1)...),
		small("plenty, 300/s over 100 sparse agents, a burst of a minute", 100, bucketLimit(300, time.Second, 18_000), 0.3, 10*minute, wrong(1)...),
	}, sparse...)
}

func windows() []Scenario {
	const section = "Windows and quotas"
	out := at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "10,000 in 10 s over 20 agents", 20, windowLimit(10_000, 10*time.Second), f)
		sc.Steady, sc.Promises = true, wrong(1)
		return sc
	})
	out = append(out, at([]float64{3}, func(f float64) Scenario {
		return of(section, "1,000 in 1 s over 20 agents", 20, windowLimit(1_000, time.Second), f)
	})...)

	// The last two minutes of a month, and half a minute of the next.
	monthly := windowLimit(200_000, 30*24*time.Hour)
	monthly.Rate.Calendar = limit.Month
	quota := of(section, "a month's quota, used up", 100, monthly, 0)
	quota.Name = "a month's 200,000 used up over 100 agents"
	quota.Start = time.Date(2025, 10, 31, 23, 58, 0, 0, time.UTC)
	quota.Duration = 150 * second
	quota.Demand = even(3_000, 100)
	quota.Promises = exactly
	lost := quota
	lost.Name = "the same, one agent lost"
	lost.Duration = 110 * second
	lost.Faults.Crashes = []Crash{{At: 30 * second, Agent: 7}}
	lost.Promises = []Promise{short}

	// Ten requests a second of each key on each agent, and one.
	edge := of(section, "1,000 keys over 100 agents, across an edge", 100, windowLimit(20_000, 10*time.Second), 0.5)
	edge.Keys, edge.Key = 1000, anyOf(1000)
	edge.Start, edge.Duration = start.Add(-5*time.Second), 8*second
	edge.Demand = even(1_000_000, 100)
	edge.Promises = append(wrong(5), noEdge)
	sparse := of(section, "1,000 keys over 100 agents, sparse, across edges", 100, windowLimit(2_000, 10*time.Second), 0.5)
	sparse.Keys, sparse.Key, sparse.Duration = 1000, anyOf(1000), 25*second
	sparse.Demand = even(100_000, 100)
	sparse.Promises = wrong(5)
	return append(out, quota, lost, edge, sparse)
}

func slidingWindows() []Scenario {
	const section = "Sliding windows and logs"
	sliding := windowLimit(10_000, 10*time.Second)
	sliding.Algorithm = limit.SlidingWindow
	out := at([]float64{3}, func(f float64) Scenario {
		return of(section, "sliding, 10,000 in 10 s over 20 agents", 20, sliding, f)
	})
	sliding.Rate.Units = 100
	// There are many keys, so that the start of one of them is no matter of luck.
	out = append(out, at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "sliding, 50 keys of 100 in 10 s over 10 agents", 10, sliding, f)
		sc.Keys, sc.Key = 50, anyOf(50)
		sc.Demand = even(50*10*f, 10)
		return sc
	})...)
	log := windowLimit(5, time.Minute)
	log.Algorithm = limit.SlidingWindowLog
	sc := of(section, "log, 5 a minute over 10 agents", 10, log, 3)
	sc.Duration, sc.Promises = 10*minute, []Promise{apart(0)}
	return append(out, sc)
}

func pacedAndSlots() []Scenario {
	const section = "Leaky buckets and slots"
	leaky := bucketLimit(1_000, time.Second, 1)
	leaky.Algorithm, leaky.Queue = limit.LeakyBucket, 20
	out := at([]float64{3}, func(f float64) Scenario {
		return of(section, "leaky, 1,000/s over 10 agents", 10, leaky, f)
	})
	slots := func(name string, n, queue int64, f float64) Scenario {
		sc := slotScenario(section, name, n, queue, f)
		sc.Hop = n < 100
		return sc
	}
	out = append(out, at([]float64{0.9, 2}, func(f float64) Scenario { return slots("50 slots over 10 agents", 50, 0, f) })...)
	out = append(out, at([]float64{2}, func(f float64) Scenario { return slots("50 slots over 10 agents, with queues", 50, 5, f) })...)
	return append(out, at([]float64{0.9}, func(f float64) Scenario {
		sc := slots("2,500 slots over 10 agents", 2_500, 0, f)
		sc.Duration, sc.Promises = 30*second, slices.Concat(wrong(5), dense)
		return sc
	})...)
}

func strictAndLarge() []Scenario {
	const section = "Strict limits and large requests"
	strict := ordinary
	strict.EpsilonPPM, strict.Enforcement = 0, limit.Strict
	out := at([]float64{3}, func(f float64) Scenario {
		return of(section, "strict, 100 agents", 100, strict, f)
	})
	small := bucketLimit(1_000, time.Second, 100)
	small.EpsilonPPM, small.Enforcement = 0, limit.Strict
	out = append(out, at([]float64{0.9, 1.1}, func(f float64) Scenario {
		return of(section, "strict, 10 agents, a burst of 100", 10, small, f)
	})...)
	moving := changingDemand()[1]
	moving.Section, moving.Name, moving.Limit = section, "strict, moves every 2 s, 3 ×", strict
	out = append(out, moving)
	large := func(name string, l limit.Limit, mean float64, units func(*rand.Rand) int64, promises []Promise) {
		out = append(out, at([]float64{3}, func(f float64) Scenario {
			sc := of(section, name, 20, l, f)
			sc.Units, sc.Promises, sc.Hop = units, promises, true
			sc.Demand = even(f*float64(l.Rate.Units)/mean, 20)
			return sc
		})...)
	}
	fixed := func(n int64) func(*rand.Rand) int64 { return func(*rand.Rand) int64 { return n } }
	large("requests of 500 of 1,000", bucketLimit(1_000, time.Second, 1_000), 500, fixed(500), wrongLarge(5))
	large("single ones, and 1 of 100 of up to 900, of 1,000", bucketLimit(1_000, time.Second, 1_000), 5.495, func(r *rand.Rand) int64 {
		if r.IntN(100) > 0 {
			return 1
		}
		return 1 + r.Int64N(900)
	}, wrongLarge(5))
	return out
}

func agentsComeAndGo() []Scenario {
	const section = "Agents that come, go and stand still"
	out := at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "one of 100 leaves and one joins each second", 100, ordinary, f)
		sc.Faults.Churn = Churn{Every: second}
		sc.Promises = wrong(10)
		return sc
	})
	out = append(out, at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "one of 100 crashes and one joins each second", 100, ordinary, f)
		sc.Faults.Churn = Churn{Every: second, Crash: true}
		sc.Promises = wrong(10)
		return sc
	})...)
	out = append(out, at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "ten of 100 stand still for 3 s of each 10 s", 100, ordinary, f)
		sc.Faults.Pauses = func(a int) []Span {
			if a >= 10 {
				return nil
			}
			var out []Span
			for t := 10*second + int64(a)*second; t < 50*second; t += 10 * second {
				out = append(out, Span{t, t + 3*second})
			}
			return out
		}
		return sc
	})...)
	return append(out, at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "agents' clocks off by up to 10 s", 100, ordinary, f)
		sc.Faults.Skew = func(a int) int64 { return int64(a%21-10) * second }
		return sc
	})...)
}

func network() []Scenario {
	const section = "Network"
	out := at([]float64{3}, func(f float64) Scenario {
		sc := of(section, "5 % lost, 5 % twice", 100, ordinary, f)
		sc.Faults.Loss, sc.Faults.Duplicate = 0.05, 0.05
		sc.Promises = wrong(10)
		return sc
	})
	far := of(section, "round trips of 1000 ms", 100, ordinary, 3)
	far.Faults.RoundTrip = second
	far.Promises = nil // printed
	out = append(out, far)
	// Leases of a server that is asked for too much last longer. These show the cost.
	for _, l := range []struct {
		name     string
		limit    limit.Limit
		run      int64
		strain   int64
		factor   float64
		promises []Promise
	}{
		{"a strained server", ordinary, minute, lease.MaxStrain, 1.1, []Promise{wrong(1)[0], sparing}},
		{"a strained server, 100/s, a burst of two minutes", bucketLimit(100, time.Second, 12_000), 10 * minute, lease.MaxStrain, 3, wrong(1)[:1]},
		// Costly renewals cause a strain of four at most.
		{"renewals are dear, 400/s, a burst of 1 s", bucketLimit(400, time.Second, 400), 10 * minute, 4, 1.1, wrong(2)[:1]},
	} {
		sc := of(section, fmt.Sprintf("%s, %d times", l.name, l.strain), 100, l.limit, l.factor)
		sc.Duration, sc.Faults.Strain = l.run, l.strain
		sc.Promises = l.promises // the worst 10 s are printed
		out = append(out, sc)
	}
	return out
}

func storeAndClocks() []Scenario {
	const section = "Store and clocks"
	var out []Scenario
	add := func(name string, keys int, faults Faults, promises ...Promise) {
		out = append(out, at([]float64{3}, func(f float64) Scenario {
			sc := of(section, name, 100, ordinary, f)
			sc.Faults = faults
			if keys > 1 {
				sc.Limit = bucketLimit(1_000, time.Second, 2_000)
				sc.Agents, sc.Keys, sc.Key = 20, keys, anyOf(keys)
				sc.Demand = even(1_000*f*float64(keys), sc.Agents)
			}
			if promises != nil {
				sc.Promises = promises
			}
			return sc
		})...)
	}
	add("the store forgets everything", 1, Faults{Forgets: []Forget{{At: 20 * second}}, Healed: 20 * second}, recovers(20))
	third := func(key int) bool { return key%3 == 0 }
	add("one of three shards forgets, 9 keys", 9, Faults{Forgets: []Forget{{At: 20 * second, Keys: third}}, Healed: 20 * second}, recovers(20))
	// Leases of two minutes live when the store forgets, and others want all the rate from then on.
	long := beside(section, "half have long leases, the store forgets once as the others begin", 20, 0.7)
	long.Duration = 250 * second
	long.Faults.Forgets, long.Faults.Healed = []Forget{{At: 100 * second}}, 100*second
	long.Promises = []Promise{recovers(20)}
	out = append(out, long)
	leap := func(by int64) func(int64) int64 {
		return func(now int64) int64 {
			if now < 20*second {
				return 0
			}
			return by
		}
	}
	add("a promoted store is 10 min ahead", 1, Faults{Clock: leap(10 * minute)})
	add("a promoted store is 10 min behind", 1, Faults{Clock: leap(-10 * minute)})
	// Nobody is answered until there is a new master, and all terms are over by then.
	failover := []Cut{{Span: Span{17 * second, 20 * second}}}
	add("after 3 s without one, a promoted store is 10 min ahead", 1, Faults{Cuts: failover, Clock: leap(10 * minute), Healed: 20 * second}, recovers(20))
	add("the store's clock leaps 30 s ahead and back every second", 1, Faults{Clock: func(now int64) int64 { return 30 * second * (now / second % 2) }})
	return out
}
