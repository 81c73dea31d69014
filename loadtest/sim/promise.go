package sim

import (
	"fmt"
	"math"
)

// Promise is a figure that a scenario must not exceed.
type Promise struct {
	What   string
	Figure func(*Result) float64
	Most   float64
}

// Broken is a promise that a run did not keep.
type Broken struct {
	What         string
	Figure, Most float64
}

func (b Broken) String() string { return fmt.Sprintf("%s %.2f, at most %g", b.What, b.Figure, b.Most) }

// Broken returns the promises that the run did not keep. The bound is every
// scenario's.
func (r *Result) Broken() []Broken {
	var out []Broken
	for _, p := range append([]Promise{neverOver}, r.Scenario.Promises...) {
		if f := p.Figure(r); f > p.Most+1e-9 {
			out = append(out, Broken{p.What, f, p.Most})
		}
	}
	return out
}

var neverOver = Promise{"admissions above the bound", func(r *Result) float64 { return float64(r.OverBound) }, 0}

// wrong bounds the error over the run and in every 10 s or window. It counts the units admitted in it, and the requests
// that came in it.
func wrong(most float64) []Promise {
	return []Promise{
		{"error over the run, %", func(r *Result) float64 { return math.Abs(r.ErrorPct) }, most},
		{"error in the worst 10 s, %", func(r *Result) float64 { return math.Abs(r.WorstPct) }, most},
		{"error in the worst 10 s as they came, %", func(r *Result) float64 { return math.Abs(r.CamePct) }, most},
	}
}

// wrongLarge is wrong for large requests: one request alone is more than the allowed error of 10 s. Of the requests
// that came in 10 s, one may be decided otherwise.
func wrongLarge(most float64) []Promise {
	return []Promise{
		wrong(most)[0],
		{"error in the worst 10 s as they came, beyond one request, %", func(r *Result) float64 { return math.Abs(r.BeyondPct) }, most},
	}
}

// dense are the costs of buckets with a thousand requests a second and more on each agent.
var dense = []Promise{
	{"calls, % of decisions", func(r *Result) float64 { return r.CalledPct }, 0.1},
	{"renewals, % of decisions", func(r *Result) float64 { return r.RenewedPct }, 0.5},
}

// sparse is for buckets that are asked for far less than their limit: requests find tokens, for few renewals.
func sparse(again, renewals float64) []Promise {
	return []Promise{
		{"requests that wait after the first answer, %", func(r *Result) float64 { return r.AgainPct }, again},
		{"renewals, % of decisions", func(r *Result) float64 { return r.RenewedPct }, renewals},
	}
}

// sparing is for a server that is asked for too much: it must save renewals, which is its purpose.
var sparing = Promise{"renewals, % of decisions", func(r *Result) float64 { return r.RenewedPct }, 1}

// apart is for small limits and quotas: units more or less than the ideal limiter.
func apart(units float64) Promise {
	return Promise{"units apart", func(r *Result) float64 { return math.Abs(float64(r.Admitted - r.Ideal)) }, units}
}

// exactly is for quotas: the run and every whole window admit what the ideal limiter does, to the unit. Requests
// within a round trip of an edge do not count: the limiter's clock says into which window they fall.
var exactly = []Promise{
	{"units apart in a window", func(r *Result) float64 { return float64(r.WindowApart) }, 0},
	{"units apart beyond those at edges", func(r *Result) float64 {
		return math.Max(math.Abs(float64(r.Admitted-r.Ideal))-float64(r.AtEdge), 0)
	}, 0},
}

// short is for a quota whose tokens went down with an agent.
var short = Promise{"units short beyond those of lost agents", func(r *Result) float64 {
	return math.Max(float64(r.Ideal-r.Admitted-r.Lost), float64(r.Admitted-r.Ideal))
}, 0}

// fair is for equal demand on every agent, ten thousand admitted on each.
var fair = Promise{"spread of the agents' shares, %", func(r *Result) float64 { return r.SpreadPct }, 5}

// tenfold is for a first agent with ten times the demand of the others.
var tenfold = Promise{"off ten times the others' share, %", func(r *Result) float64 { return math.Abs(r.Tenfold-10) * 10 }, 5}

// noEdge lets requests at an edge wait for two round trips: until the next window has begun by any clock, and for an answer.
var noEdge = Promise{"p99 wait at an edge, ms", func(r *Result) float64 { return float64(r.EdgeP99) / 1000 }, 4}

var oneTrip = Promise{"round trips of a cold key", func(r *Result) float64 { return float64(r.ColdTrips) }, 1}

// recovers bounds the seconds after healing until every 10 s is right within 1 %.
func recovers(seconds float64) Promise {
	return Promise{"seconds until right within 1 %", func(r *Result) float64 {
		if r.Recovered < 0 {
			return math.Inf(1)
		}
		return float64(r.Recovered) / float64(second)
	}, seconds}
}

// lives bounds the requests that are denied in an outage although no limit is exceeded, and those a second after it.
func lives(away, after float64) []Promise {
	return []Promise{
		{"denied in the outage, %", func(r *Result) float64 { return -r.AwayPct }, away},
		{"denied in the 10 s from a second after it, %", func(r *Result) float64 { return -r.AfterPct }, after},
	}
}
