package sim

import (
	"time"

	"github.com/f4ee788f/quota/internal/limit"
)

// Scenario is one limit, some agents and their demand, and what the network does.
type Scenario struct {
	Name     string
	Agents   int
	Limit    limit.Limit
	Duration int64
	// Demand is an agent's requests a second at a time; Varies says that it changes.
	Demand func(agent int, now int64) float64
	Varies bool
	// Steady scenarios are held to the tighter promise.
	Steady bool
	// Dense buckets, a thousand requests a second on each agent, are held to few renewals.
	Dense bool
	// Small limits are compared in units over the run: at most one apart.
	Small bool
	// Loss and Duplicate are chances for each message, each way.
	Loss, Duplicate float64
	// Away reports whether the server is out of reach.
	Away func(now int64) bool
	// Unguarded gives each agent a bucket of its own, so that nothing is summed: a
	// control, which has to break the bound.
	Unguarded bool
	// MaxErrorPct is what the scenario must hold over the run and in every 10 s.
	MaxErrorPct float64
}

func bucketLimit(units int64, per time.Duration, burst int64) limit.Limit {
	return limit.Limit{
		Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: units, Per: per}, Burst: burst,
		EpsilonPPM: limit.DefaultEpsilonPPM,
	}
}

func windowLimit(units int64, per time.Duration) limit.Limit {
	return limit.Limit{
		Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: units, Per: per},
		EpsilonPPM: limit.DefaultEpsilonPPM,
	}
}

func never(int64) bool { return false }

// even splits a demand evenly over n agents.
func even(total float64, n int) func(int, int64) float64 {
	return func(int, int64) float64 { return total / float64(n) }
}

// Scenarios are those that `make sim` runs.
func Scenarios() []Scenario {
	base := func(name string, agents int, l limit.Limit, demand func(int, int64) float64) Scenario {
		return Scenario{Name: name, Agents: agents, Limit: l, Duration: 60 * second, Demand: demand, Away: never, MaxErrorPct: 5}
	}
	l := bucketLimit(10_000, time.Second, 20_000)
	steady := func(name string, agents int, l limit.Limit, factor float64) Scenario {
		rate := float64(l.Rate.Units) / l.Rate.Per.Seconds()
		s := base(name, agents, l, even(rate*factor, agents))
		s.Steady = true
		s.MaxErrorPct = 1
		return s
	}
	dense := func(name string, factor float64) Scenario {
		s := steady(name, 20, bucketLimit(40_000, time.Second, 80_000), factor)
		s.Dense = true
		return s
	}
	small := func(name string, agents int, l limit.Limit, factor float64) Scenario {
		s := steady(name, agents, l, factor)
		s.Steady, s.Small, s.Duration = false, true, 600*second
		if l.Rate.Per > time.Minute {
			s.Duration = 3 * 3600 * second
		}
		return s
	}
	moving := base("moving 0.9x", 100, l, func(a int, now int64) float64 {
		// Every two seconds another tenth of the agents has all of the demand.
		if int(now/(2*second))%10 == a%10 {
			return 9_000.0 / 10
		}
		return 0
	})
	moving.Varies = true
	moving3 := base("moving 3x", 100, l, func(a int, now int64) float64 {
		if int(now/(2*second))%10 == a%10 {
			return 30_000.0 / 10
		}
		return 0
	})
	moving3.Varies = true
	loss := steady("loss 5%, 0.9x", 100, l, 0.9)
	loss.Loss, loss.Duplicate = 0.05, 0.05
	loss3 := steady("loss 5%, 3x", 100, l, 3)
	loss3.Loss, loss3.Duplicate = 0.05, 0.05
	loss.MaxErrorPct, loss3.MaxErrorPct, loss.Steady, loss3.Steady = 5, 5, false, false
	away := steady("server away 30 s, 0.9x", 100, l, 0.9)
	away.Away = func(now int64) bool { return now >= 15*second && now < 45*second }
	away.MaxErrorPct, away.Steady = 5, false
	away3 := steady("server away 30 s, 3x", 100, l, 3)
	away3.Away = away.Away
	away3.MaxErrorPct, away3.Steady = 5, false
	// Agent a has a share that falls as 1 ÷ (a+1): the first has a fifth of the demand.
	zipf := func(name string, factor float64) Scenario {
		return base(name, 100, l, func(a int, _ int64) float64 {
			const harmonic = 5.187377518 // of 100
			return 10_000 * factor / (float64(a+1) * harmonic)
		})
	}
	strict := l
	strict.EpsilonPPM = 0
	windowAway := base("window 10000/10s, server away 30 s, 0.9x", 20, windowLimit(10_000, 10*time.Second), even(900, 20))
	windowAway.Away = away.Away
	windowAway3 := base("window 10000/10s, server away 30 s, 3x", 20, windowLimit(10_000, 10*time.Second), even(3_000, 20))
	windowAway3.Away = away.Away
	return []Scenario{
		steady("steady 0.9x", 100, l, 0.9),
		steady("steady 3x", 100, l, 3),
		moving, moving3,
		loss, loss3,
		away, away3,
		dense("dense 0.9x, 1,800/s an agent", 0.9),
		dense("dense 0.5x, 1,000/s an agent", 0.5),
		dense("dense 3x, 6,000/s an agent", 3),
		steady("steady 0.9x, one agent", 1, l, 0.9),
		steady("steady 3x, one agent", 1, l, 3),
		steady("steady 0.9x, 10 tokens an agent and term", 100, bucketLimit(1_000, time.Second, 2_000), 0.9),
		steady("steady 3x, 10 tokens an agent and term", 100, bucketLimit(1_000, time.Second, 2_000), 3),
		zipf("zipf 0.9x", 0.9),
		zipf("zipf 3x", 3),
		base("1,000 agents, 3x", 1000, l, even(30_000, 1000)),
		steady("strict 3x", 100, strict, 3),
		steady("window 10000/10s, 0.9x", 20, windowLimit(10_000, 10*time.Second), 0.9),
		steady("window 10000/10s, 3x", 20, windowLimit(10_000, 10*time.Second), 3),
		windowAway, windowAway3,
		small("small 5/minute, 3x", 10, bucketLimit(5, time.Minute, 5), 3),
		small("small 100/hour, 3x", 10, bucketLimit(100, time.Hour, 200), 3),
		small("small 60/minute, 1.5x", 10, bucketLimit(60, time.Minute, 60), 1.5),
	}
}
