package explore

import (
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// The limits are small, so that a unit too many shows.
var (
	tokens        = limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 4, Per: time.Second}, Burst: 4, EpsilonPPM: 50_000}
	dense         = limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 20, Per: time.Second}, Burst: 20, EpsilonPPM: 50_000, FirstTouch: limit.TouchAsk}
	wide          = within(dense, 250_000)
	denseStrict   = within(dense, 0)
	leaky         = limit.Limit{Algorithm: limit.LeakyBucket, Rate: limit.Rate{Units: 20, Per: time.Second}, Burst: 4, EpsilonPPM: 50_000}
	window        = limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 20, Per: 4 * time.Second}, EpsilonPPM: 50_000}
	windowStrict  = within(window, 0)
	longWindow    = limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 20, Per: 40 * time.Second}, EpsilonPPM: 50_000}
	sliding       = limit.Limit{Algorithm: limit.SlidingWindow, Rate: limit.Rate{Units: 6, Per: 4 * time.Second}, EpsilonPPM: 50_000}
	slidingStrict = limit.Limit{Algorithm: limit.SlidingWindow, Rate: limit.Rate{Units: 40, Per: 2 * time.Second}, Enforcement: limit.Strict}
	log           = limit.Limit{Algorithm: limit.SlidingWindowLog, Rate: limit.Rate{Units: 3, Per: 4 * time.Second}}
	slots         = limit.Limit{Algorithm: limit.Concurrency, Slots: 3}
	manySlots     = limit.Limit{Algorithm: limit.Concurrency, Slots: 6}
	queued        = limit.Limit{Algorithm: limit.Concurrency, Slots: 3, Queue: 10}
)

// within returns the limit with another epsilon.
func within(l limit.Limit, epsilonPPM int64) limit.Limit {
	if l.EpsilonPPM = epsilonPPM; epsilonPPM == 0 {
		l.Enforcement = limit.Strict
	}
	return l
}

// both returns events of either of two agents.
func both(f ...func(int) event) (events []event) {
	for _, one := range f {
		events = append(events, one(0), one(1))
	}
	return events
}

// and joins events.
func and(events []event, more ...event) []event { return slices.Concat(events, more) }

func asks(n int64) func(int) event { return func(i int) event { return ask(i, n) } }

// astray has calls go astray, one at a time.
func astray(n int64, more ...event) []event {
	return and(both(asks(n), asks(1), lost, mute, slow, late, stray, doubled), more...)
}

// work has agents that are busy, and calls that are late or come twice.
func work(more ...event) []event {
	return and(both(asks(45), late, doubled), and([]event{
		busy(500_000, 3, 0), busy(500_000, 3, 1), busy(500_000, 2, 0, 1), pass(500_000),
	}, more...)...)
}

// settings are what is explored.
func settings() []*setting {
	edges := []event{edge(-500_000), edge(-50_000), edge(50_000)}
	return []*setting{
		{name: "token bucket", limit: tokens, agents: 2, depth: 4, events: astray(6, large(0, 3), large(1, 3), pass(250_000), pass(second), forget())},
		{
			name: "token bucket, a server hangs", limit: tokens, agents: 2, depth: 5,
			events: and(both(asks(6), hang, mend, reach, again, answer, fail), pass(250_000), pass(second), forget()),
		},
		{
			name: "token bucket, three agents", limit: tokens, agents: 3, depth: 5,
			events: []event{ask(0, 6), ask(1, 6), ask(2, 6), late(0), doubled(1), stray(2), pass(250_000), pass(second)},
		},
		{name: "dense", limit: dense, agents: 2, depth: 4, events: work()},
		{name: "dense, strict", limit: denseStrict, agents: 2, depth: 4, events: work()},
		{name: "dense, wide", limit: wide, agents: 2, depth: 4, events: work(mute(0), mute(1))},
		{name: "leaky", limit: leaky, agents: 2, depth: 4, events: work()},
		{name: "window", limit: window, agents: 2, depth: 4, events: astray(30, edges...)},
		{name: "window, strict", limit: windowStrict, agents: 2, depth: 4, events: astray(30, edges...)},
		{
			name: "window, leased ahead", limit: window, agents: 2, depth: 4,
			first:  []event{edge(-500_000), busy(200_000, 2, 0)},
			events: and(both(asks(30), asks(1), lost, mute, late), edge(-50_000), edge(50_000)),
		},
		{
			name: "window, forgotten", limit: longWindow, agents: 2, depth: 5,
			events: and(both(asks(30), asks(1)), forget(), pass(300_000), pass(2*second)),
		},
		{name: "sliding", limit: sliding, agents: 2, depth: 4, events: astray(8, edge(-500_000), edge(1000), edge(2*second), forget())},
		{name: "log", limit: log, agents: 2, depth: 4, events: astray(4, pass(second), pass(3*second), forget())},
		{name: "slots", limit: slots, agents: 2, depth: 4, events: astray(4, and(both(end), pass(250_000), pass(second), forget())...)},
		{name: "slots, queued", limit: queued, agents: 2, depth: 4, events: astray(4, and(both(end), pass(250_000), pass(second), forget())...)},
		{
			name: "slots, given back", limit: manySlots, agents: 2, depth: 4, first: []event{ask(0, 4)},
			events: and(both(asks(6)), endAll(0), end(0), slow(0), late(0), pass(100_000), pass(500_000)),
		},
		{name: "dense, strict, an answer is lost", limit: denseStrict, agents: 2, depth: 4, events: work(mute(0))},
		{
			name: "dense, strict, answers are lost", limit: denseStrict, agents: 2, depth: 5,
			events: and(both(asks(45), deafen), pass(second)),
		},
		{
			name: "dense, strict, at length", limit: denseStrict, agents: 2, depth: 5,
			events: and(both(asks(45)), busy(500_000, 3, 0), busy(500_000, 3, 0, 1)),
		},
		{
			name: "dense, strict, a server hangs", limit: denseStrict, agents: 2, depth: 5,
			events: and(both(asks(45), hang, mend), busy(500_000, 3, 0, 1)),
		},
		{
			name: "sliding, strict, busy", limit: slidingStrict, agents: 2, depth: 5,
			events: and(both(asks(60), late), busy(500_000, 3, 0), busy(500_000, 3, 0, 1), pass(second)),
		},
		{
			name: "log, exact", limit: log, agents: 2, depth: 5, exact: true,
			events: and(both(asks(4), slow), pass(second), pass(3*second)),
		},
		{
			name: "window, outage", limit: window, agents: 2, depth: 5,
			events: and(both(asks(30), asks(1)), blackout(), light(), edge(-500_000), edge(50_000)),
		},
		{
			name: "window, strict, the server hangs", limit: windowStrict, agents: 2, depth: 5,
			events: and(both(asks(30), asks(1)), hangAll(), goesOn(), edge(-200_000), edge(50_000)),
		},
		{
			name: "window, strict, outage", limit: windowStrict, agents: 2, depth: 5,
			events: and(both(asks(30), asks(1)), blackout(), light(), edge(-millisecond), edge(50_000)),
		},
		{
			name: "window, strict, one agent is cut off", limit: windowStrict, agents: 2, depth: 5,
			events: and(both(asks(30), asks(1), sever, mend), edge(50_000)),
		},
		{
			name: "dense, a failover", limit: dense, agents: 2, depth: 5, untold: true, fallsBack: true,
			events: and(both(asks(45)), fallBack(), busy(500_000, 3, 0), busy(500_000, 3, 1), pass(500_000)),
		},
		{
			name: "slots, a failover", limit: slots, agents: 2, depth: 5, untold: true, fallsBack: true,
			events: and(both(asks(4), end), fallBack(), pass(250_000), pass(second)),
		},
		{
			name: "log, a failover", limit: log, agents: 2, depth: 5, untold: true, fallsBack: true,
			events: and(both(asks(4)), fallBack(), pass(second), pass(3*second)),
		},
	}
}

// known are settings in which the bound does not hold, each with why. One that holds fails the test: it goes to settings
// then.
func known() []*setting {
	return []*setting{
		// Agents find at different times that they are out of contact: one has its larger fallback before another gives
		// its trickle up.
		{
			name: "dense, outage", limit: dense, agents: 2, depth: 5,
			events: and(both(asks(45)), busy(500_000, 3, 0), busy(500_000, 3, 0, 1), busy(2*second, 2, 0, 1), blackout(), light()),
		},
		// Until it renews, a holder draws what the store forgot and lends to another, besides the burst.
		{name: "dense, forgotten", limit: dense, agents: 2, depth: 4, events: work(forget())},
	}
}
