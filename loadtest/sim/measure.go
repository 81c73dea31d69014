package sim

import (
	"math"
	"slices"

	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	bin      = 10 * millisecond // units are counted in bins for errors
	settling = 2 * second       // shares are found out; the promise begins here, and anew after a silence
	silence  = 5 * second       // without a request, leases have been given back
	stretch  = 10 * second      // the promise is kept in every one
	near     = 100 * millisecond
	samples  = 180 // points of a chart
)

// Result is the result of a scenario. Requests may cost several units: all counts but those of requests are in units.
type Result struct {
	Scenario *Scenario

	Requests int64
	Arrivals int64
	Admitted int64
	Ideal    int64

	// ErrorPct is 100 × (admitted − ideal) ÷ ideal over the run. WorstPct is the largest in size over any 10 s after
	// the first two seconds, or over any window.
	ErrorPct, WorstPct float64
	// CamePct is WorstPct of the requests that came in those 10 s, whenever they were admitted;
	// BeyondPct only of the 10 s that differ by more than the largest request.
	CamePct, BeyondPct float64
	// Of windowed limits, the units by which any whole window differs at most.
	WindowApart int64
	AtEdge      int64 // units of requests within a round trip of a window's end, either way
	// HopPct and HopCamePct are WorstPct and CamePct of one limiter that is asked over the network (hop.go).
	HopPct, HopCamePct float64
	// OverBound counts admissions that went above the bound in a window of 1, 2 or 10 s, or
	// in an aligned window; Over is the largest admitted ÷ bound seen, 1 being at the
	// bound; OverTenth the same of windows of 0.1 s.
	OverBound       int
	Over, OverTenth float64

	// Renewed buckets and calls, and per hundred requests.
	Renewals, Calls       int64
	RenewedPct, CalledPct float64

	WaitedPct float64 // requests that waited, of a hundred
	AgainPct  float64 // likewise, after their agent's first answer for their bucket
	WaitP99   int64   // of all requests, those that did not wait included; microseconds
	EdgeP99   int64   // likewise, of those within 0.1 s after a window's edge
	ColdTrips int     // most answers that a request of a bucket without a lease waited for

	SpreadPct float64 // between the agents that admitted most and least, of the mean
	Tenfold   float64 // what the first agent admitted ÷ the mean of the others
	Recovered int64   // after Faults.Healed, until no 10 s is off by more than 1 %; microseconds; -1 for never
	// AwayPct is the error from Faults.Began until Faults.Healed, AfterPct that of the 10 s from a second after it.
	AwayPct, AfterPct float64
	Forgotten         int64 // tokens out when the store forgot their buckets
	Lost              int64 // tokens in the cells of agents that crashed

	Series []Sample
}

// Sample is a point of the chart: what happened since the one before, and what is out now.
type Sample struct{ Admitted, Ideal, Renewals, Out int64 }

// course is the units that were admitted, and those that the ideal limiter admits, by bin.
type course struct{ got, want []int64 }

func newCourse(bins int) course { return course{make([]int64, bins), make([]int64, bins)} }

// measure counts a run, and runs the ideal limiters beside it.
type measure struct {
	w      *world
	ideals []any // by key: an ideal, or one that is queueing
	bounds []*bound

	when, came course // by when units were admitted, and by when those requests came
	largest    int64  // units of the largest request
	hop        *hop   // nil without
	total      Sample // so far, for samples
	last       Sample
	step       int64
	series     []Sample

	requests, arrivals int64
	renewals, calls    int64
	byPlace            []int64
	seen               int64   // the last arrival
	begins             []int64 // the first ones after a silence
	waits, edgeWaits   []int64
	nearEdge           int64 // requests
	atEdge             int64 // units of requests within a round trip of a window's end, either way
	coldTrips          int
	again              int64 // requests that waited after their agent's first answer for their bucket
	lost               int64
}

func newMeasure(w *world) *measure {
	sc := w.sc
	n := int((sc.Duration+maxWait)/bin) + 1
	m := &measure{
		w: w, when: newCourse(n), came: newCourse(n), byPlace: make([]int64, sc.Agents),
		ideals: make([]any, sc.keys()), bounds: make([]*bound, sc.keys()),
		step: max(sc.Duration/samples, bin),
	}
	for i := range m.ideals {
		m.ideals[i] = newIdeal(&sc.Limit, sc.Agents, w.epoch)
		m.bounds[i] = newBound(sc, w.epoch)
	}
	if sc.Hop {
		m.hop = newHop(w, n)
	}
	return m
}

func (m *measure) arrival(place int, r request) {
	m.requests++
	m.arrivals += r.units
	m.largest = max(m.largest, r.units)
	if m.hop != nil {
		m.hop.ask(r)
	}
	if m.w.now-m.seen > silence {
		m.begins = append(m.begins, m.w.now)
	}
	m.seen = m.w.now
	if m.isNearEdge() {
		m.nearEdge++
	}
	if m.isAtEdge() {
		m.atEdge += r.units
	}
	switch i := m.ideals[r.key].(type) {
	case queueing:
		if at, ok := i.begins(m.w.epoch+m.w.now, r.lasts); ok {
			m.w.at(at-m.w.epoch, func() { m.wanted(r) })
		}
	case ideal:
		if i.take(m.w.epoch+m.w.now, r.units) {
			m.wanted(r)
		}
	}
}

// wanted notes that the ideal limiter lets a request begin now.
func (m *measure) wanted(r request) {
	m.when.want[m.w.now/bin] += r.units
	m.came.want[r.at/bin] += r.units
	m.total.Ideal += r.units
}

// finish notes that a request with a slot has ended.
func (m *measure) finish(r request) { m.bounds[r.key].finish(r.units) }

func (m *measure) admit(place int, r request) {
	m.when.got[m.w.now/bin] += r.units
	m.came.got[r.at/bin] += r.units
	m.total.Admitted += r.units
	m.byPlace[place] += r.units
	m.bounds[r.key].admit(m.w.now, r.units)
}

func (m *measure) renew(n int) {
	m.renewals += int64(n)
	m.total.Renewals += int64(n)
}

// waited notes a request that waited for so many answers.
func (m *measure) waited(r request, d int64, cold bool, answers int) {
	m.waits = append(m.waits, d)
	if m.isNear(r.at) {
		m.edgeWaits = append(m.edgeWaits, d)
	}
	if cold {
		m.coldTrips = max(m.coldTrips, answers)
	} else {
		m.again++
	}
}

func (m *measure) isNearEdge() bool { return m.isNear(m.w.now) }

// isNear reports whether a window has just begun, the first of the run left out.
func (m *measure) isNear(t int64) bool {
	if !m.w.sc.Limit.Algorithm.Windowed() {
		return false
	}
	begin, _ := windowAt(m.w.sc.Limit.Rate, m.w.epoch+t)
	since := m.w.epoch + t - begin
	return since < near && begin > m.w.epoch
}

// isAtEdge reports whether a message sent now may arrive in another window. It also reports whether one that arrives
// now may have been sent in another.
func (m *measure) isAtEdge() bool {
	if !m.w.sc.Limit.Algorithm.Windowed() {
		return false
	}
	at, trip := m.w.epoch+m.w.now, m.w.sc.Faults.roundTrip()
	begin, end := windowAt(m.w.sc.Limit.Rate, at)
	return at-begin < trip || end-at < trip
}

func (m *measure) sample(out int64) {
	m.series = append(m.series, Sample{
		Admitted: m.total.Admitted - m.last.Admitted, Ideal: m.total.Ideal - m.last.Ideal,
		Renewals: m.total.Renewals - m.last.Renewals, Out: out,
	})
	m.last = m.total
}

func (m *measure) result() Result {
	r := Result{
		Scenario: m.w.sc, Requests: m.requests, Arrivals: m.arrivals, Renewals: m.renewals, Calls: m.calls,
		Admitted: m.total.Admitted, Ideal: m.total.Ideal, ColdTrips: m.coldTrips,
		AtEdge: m.atEdge, Forgotten: m.w.store.forgotten, Lost: m.lost, Series: m.series,
	}
	requests := math.Max(float64(m.requests), 1)
	r.ErrorPct = pct(r.Admitted, r.Ideal)
	r.RenewedPct = 100 * float64(m.renewals) / requests
	r.CalledPct = 100 * float64(m.calls) / requests
	r.WaitedPct = 100 * float64(len(m.waits)) / requests
	r.AgainPct = 100 * float64(m.again) / requests
	r.WaitP99 = p99(m.waits, m.requests)
	r.EdgeP99 = p99(m.edgeWaits, m.nearEdge)
	r.WorstPct, r.CamePct, r.BeyondPct = m.worst(m.when, 0), m.worst(m.came, 0), m.worst(m.came, m.largest)
	if m.hop != nil {
		r.HopPct = m.worst(course{m.hop.when, m.when.want}, 0)
		r.HopCamePct = m.worst(course{m.hop.came, m.came.want}, 0)
	}
	r.WindowApart = m.windowApart()
	r.SpreadPct, r.Tenfold = m.fairness()
	r.Recovered = m.recovered()
	if f := &m.w.sc.Faults; f.Healed > 0 {
		r.AwayPct = m.between(f.Began, f.Healed)
		r.AfterPct = m.between(f.Healed+second, f.Healed+11*second)
	}
	for _, b := range m.bounds {
		r.OverBound += b.over
		r.Over = math.Max(r.Over, b.most)
		r.OverTenth = math.Max(r.OverTenth, b.mostTenth)
	}
	return r
}

func pct(got, want int64) float64 {
	if want == 0 {
		if got == 0 {
			return 0
		}
		return 100
	}
	return 100 * float64(got-want) / float64(want)
}

// p99 is the 99th percentile of n values; values that are not given are zero.
func p99(given []int64, n int64) int64 {
	slices.Sort(given)
	above := n / 100 // so many may be larger
	if int64(len(given)) <= above {
		return 0
	}
	return given[int64(len(given))-1-above]
}

// worst is the largest error over any 10 s after the first two seconds. Of a windowed limit it is over any whole
// window, because no limit promises when in its window a unit is admitted. A difference of no more than within units
// counts as none.
func (m *measure) worst(c course, within int64) float64 {
	var worst float64
	take := func(p float64, apart int64) {
		if math.Abs(p) > math.Abs(worst) && max(apart, -apart) > within {
			worst = p
		}
	}
	if m.w.sc.Limit.Algorithm.Windowed() {
		m.eachWindow(c, func(got, want int64) { take(pct(got, want), got-want) })
		return worst
	}
	m.eachStretch(c, settling, func(_ int64, p float64, apart int64) { take(p, apart) })
	return worst
}

// windowApart is the largest difference of any whole window, in units.
func (m *measure) windowApart() (most int64) {
	m.eachWindow(m.when, func(got, want int64) { most = max(most, got-want, want-got) })
	return most
}

// eachWindow calls f with the units of each window of a windowed limit that ended in the run.
func (m *measure) eachWindow(c course, f func(got, want int64)) {
	if !m.w.sc.Limit.Algorithm.Windowed() {
		return
	}
	var got, want int64
	for i := range c.got[:m.w.sc.Duration/bin] {
		got += c.got[i]
		want += c.want[i]
		at := m.w.epoch + int64(i)*bin
		if _, end := windowAt(m.w.sc.Limit.Rate, at); at+bin >= end {
			f(got, want)
			got, want = 0, 0
		}
	}
}

// eachStretch calls f with the error of every 10 s that begins at from or later, in percent and in units. The
// percentage is of a second's worth of the rate at least. Where the ideal limiter admits next to nothing, one late unit
// would be any error otherwise.
func (m *measure) eachStretch(c course, from int64, f func(begin int64, pct float64, apart int64)) {
	const span = int(stretch / bin)
	least := 1.0
	if l := &m.w.sc.Limit; l.Slots == 0 {
		least = math.Max(float64(l.Rate.Units)/l.Rate.Per.Seconds()*float64(m.w.sc.keys()), 1)
	}
	var got, want int64
	first := int(from / bin)
	for i := first; i < int(m.w.sc.Duration/bin); i++ {
		got += c.got[i]
		want += c.want[i]
		if i-first >= span {
			got -= c.got[i-span]
			want -= c.want[i-span]
		}
		if i-first >= span-1 && !m.beginning(int64(i-span+1)*bin) && !m.beginning(int64(i+1)*bin) {
			f(int64(i-span+1)*bin, 100*float64(got-want)/math.Max(float64(want), least), got-want)
		}
	}
}

// beginning reports whether demand began less than two seconds before t, after a silence.
func (m *measure) beginning(t int64) bool {
	i, _ := slices.BinarySearch(m.begins, t)
	return i > 0 && t-m.begins[i-1] < settling
}

// recovered is how long after healing the last 10 s began that were off by more than 1 %.
func (m *measure) recovered() int64 {
	healed := m.w.sc.Faults.Healed
	if healed == 0 {
		return 0
	}
	var after, last int64
	m.eachStretch(m.when, healed, func(begin int64, p float64, _ int64) {
		if l := &m.w.sc.Limit; l.Algorithm == limit.FixedWindow {
			if edge, _ := windowAt(l.Rate, m.w.epoch+begin); m.w.epoch+begin-edge >= bin {
				return // no limit promises when in its window a unit is admitted
			}
		}
		last = begin - healed
		if math.Abs(p) > 1 {
			after = begin - healed + bin
		}
	})
	if after > last {
		return -1
	}
	return after
}

// between is the error of the requests that came between two times.
func (m *measure) between(from, to int64) float64 {
	var got, want int64
	for i := from / bin; i < min(to, m.w.sc.Duration)/bin; i++ {
		got += m.came.got[i]
		want += m.came.want[i]
	}
	return pct(got, want)
}

// fairness compares what the agents admitted.
func (m *measure) fairness() (spread, tenfold float64) {
	if len(m.byPlace) < 2 {
		return 0, 0
	}
	least, most, sum := m.byPlace[0], m.byPlace[0], int64(0)
	for _, n := range m.byPlace {
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	if sum == 0 {
		return 0, 0
	}
	others := float64(sum-m.byPlace[0]) / float64(len(m.byPlace)-1)
	return 100 * float64(most-least) * float64(len(m.byPlace)) / float64(sum), float64(m.byPlace[0]) / math.Max(others, 1)
}
