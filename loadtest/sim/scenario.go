package sim

import (
	"math/rand/v2"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Times are microseconds of virtual time.
const (
	millisecond = int64(1_000)
	second      = int64(1_000_000)
	minute      = 60 * second
	hour        = 60 * minute
)

// Scenario is one limit, some agents and their demand, what goes wrong, and what
// is promised all the same.
type Scenario struct {
	Name     string
	Section  string // of the report
	Agents   int
	Keys     int // buckets of the limit; 0 for one
	Limit    limit.Limit
	Start    time.Time // of the run, by the server's clock; zero for an edge of all short windows
	Duration int64

	Demand func(agent int, now int64) float64 // an agent's requests a second
	Varies bool                               // Demand changes with time
	Key    func(r *rand.Rand, agent int) int  // whose bucket a request falls into; nil for the first
	Units  func(r *rand.Rand) int64           // what a request costs; nil for one
	Lasts  func(r *rand.Rand) int64           // how long a request keeps its slot

	Faults   Faults
	Promises []Promise
	Catches  string // the fault that this scenario is kept for
	Missed   string // why a promise does not hold yet; empty while all of them do

	Hop bool // print what one limiter asked over the network comes to
	// Steady and Dense say which of the last line's figures it counts for.
	Steady bool
	// Counted is as how many agents the server counts them, to share credit; 0 for all: a control.
	Counted int
	// Unguarded gives each agent a bucket of its own, so that nothing is summed: a
	// control, which has to break the bound.
	Unguarded bool
}

// Faults are what the network, the store, clocks and processes do.
type Faults struct {
	Loss, Duplicate float64               // chances for each message, each way
	RoundTrip       int64                 // of a call, on average; 0 for 2 ms
	Strain          int64                 // that all agents say they have, of a server with more to do than this bucket
	Cuts            []Cut                 // agents out of contact
	Forgets         []Forget              // the store loses buckets
	Untold          bool                  // and nobody tells agents of that: a control
	Clock           func(now int64) int64 // what the store's clock is ahead by
	Skew            func(agent int) int64 // what an agent's clock is ahead by
	Pauses          func(agent int) []Span
	Churn           Churn
	Crashes         []Crash
	Began           int64 // when what Healed ends began
	Healed          int64 // when all is well again, for measuring recovery; 0 for never
}

// Span is a time from From, until To.
type Span struct{ From, To int64 }

func (s Span) holds(now int64) bool { return s.From <= now && now < s.To }

// Cut keeps agents and server apart. Calls are refused at once, or never answered.
type Cut struct {
	Span
	Agents func(agent int) bool // nil for all
	Silent bool
}

// Forget drops the buckets for which Keys holds, all where it is nil.
type Forget struct {
	At   int64
	Keys func(key int) bool
	Anew bool // it is another store, which knows that it began then, and not of what was before
}

// Churn has every so often one agent leave and a new one take its place, in turn.
type Churn struct {
	Every int64
	Crash bool // it leaves without a word
}

// Crash ends an agent without a word, and nobody takes its place.
type Crash struct {
	At    int64
	Agent int
}

// queues reports whether requests wait their turn.
func (sc *Scenario) queues() bool { return sc.Limit.Queue > 0 }

func (sc *Scenario) keys() int { return max(sc.Keys, 1) }

// roundTrip is that of a call, on average.
func (f *Faults) roundTrip() int64 { return max(f.RoundTrip, 2*millisecond) }

// reachable reports whether the agent's calls arrive, and if not, whether they are
// refused at once.
func (f *Faults) reachable(agent int, now int64) (ok, refused bool) {
	for _, c := range f.Cuts {
		if c.holds(now) && (c.Agents == nil || c.Agents(agent)) {
			return false, !c.Silent
		}
	}
	return true, false
}

// keyed is the attribute that tells the limit's buckets apart.
const keyed = "user"

// rules are a policy of the limit alone.
func (sc *Scenario) rules() *limit.Rules {
	l := sc.Limit
	l.By = []string{keyed}
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Limits: []limit.Limit{l}})
	if err != nil {
		panic(err) // scenarios are ours
	}
	return rules
}
