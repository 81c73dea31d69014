package sim

import (
	"math"

	"github.com/f4ee788f/quota/internal/limit"
)

const bin = 10_000 // microseconds: arrivals and admissions are counted in bins

// Result is what a scenario came to.
type Result struct {
	Name     string
	Agents   int
	Arrivals int64
	Admitted int64
	Ideal    int64
	Denied   int64
	Renewals int64
	// ErrorPct is 100 × (admitted − ideal) ÷ ideal over the run, WorstPct the
	// largest in size over any 10 s after the first two seconds, or over any window.
	ErrorPct float64
	WorstPct float64
	// OverBound counts windows of 1, 2 and 10 s above the bound; Over the largest
	// admitted ÷ bound seen, 1 being at the bound.
	OverBound int
	Over      float64
	// RenewedPct is renewals per hundred arrivals, WaitedPct requests that waited.
	RenewedPct float64
	WaitedPct  float64
}

// measure counts a run, and runs the ideal limiter beside it.
type measure struct {
	sc       Scenario
	got      []int64 // admitted by bin
	want     []int64 // admitted by the ideal limiter
	arrivals int64
	deny     int64
	waits    int64
	renewals int64

	level  float64 // the ideal bucket's, in tokens
	last   int64
	window int64
}

func newMeasure(sc Scenario) *measure {
	n := int(sc.Duration/bin) + 1
	m := &measure{sc: sc, got: make([]int64, n), want: make([]int64, n)}
	m.level = float64(sc.Limit.Burst)
	m.window = -1
	return m
}

func (m *measure) arrival(now int64) {
	m.arrivals++
	if m.ideal(now) {
		m.want[now/bin]++
	}
}

// ideal is the one central limiter: a plain token bucket, or a window's counter.
func (m *measure) ideal(now int64) bool {
	l := &m.sc.Limit
	per := l.Rate.Per.Microseconds()
	if l.Algorithm == limit.FixedWindow {
		if w := (epoch + now) / per; w != m.window {
			m.window, m.level = w, float64(l.Rate.Units)
		}
	} else {
		m.level = math.Min(float64(l.Burst), m.level+float64(now-m.last)*float64(l.Rate.Units)/float64(per))
		m.last = now
	}
	if m.level < 1 {
		return false
	}
	m.level--
	return true
}

func (m *measure) admitted(now int64) { m.got[now/bin]++ }
func (m *measure) denied()            { m.deny++ }
func (m *measure) waited(int64)       { m.waits++ }

func (m *measure) result() Result {
	r := Result{Name: m.sc.Name, Agents: m.sc.Agents, Arrivals: m.arrivals, Denied: m.deny, Renewals: m.renewals}
	for i := range m.got {
		r.Admitted += m.got[i]
		r.Ideal += m.want[i]
	}
	r.ErrorPct = pct(r.Admitted, r.Ideal)
	r.RenewedPct = 100 * float64(m.renewals) / math.Max(float64(m.arrivals), 1)
	r.WaitedPct = 100 * float64(m.waits) / math.Max(float64(m.arrivals), 1)
	if !m.sc.Small {
		m.worst(&r)
	}
	m.bound(&r)
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

// worst compares every 10 s after the first two seconds; of a windowed limit each
// whole window, because when in its window a unit is admitted is not what it promises.
func (m *measure) worst(r *Result) {
	if m.sc.Limit.Algorithm == limit.FixedWindow {
		m.worstWindow(r)
		return
	}
	const span = int(10 * second / bin)
	from := int(2 * second / bin)
	var got, want int64
	for i := from; i < len(m.got)-1; i++ {
		got += m.got[i]
		want += m.want[i]
		if i-from >= span {
			got -= m.got[i-span]
			want -= m.want[i-span]
		}
		if i-from >= span-1 {
			if p := pct(got, want); math.Abs(p) > math.Abs(r.WorstPct) {
				r.WorstPct = p
			}
		}
	}
}

func (m *measure) worstWindow(r *Result) {
	n := int(m.sc.Limit.Rate.Per.Microseconds() / bin)
	for start := 0; start+n < len(m.got); start += n {
		var got, want int64
		for i := start; i < start+n; i++ {
			got += m.got[i]
			want += m.want[i]
		}
		if p := pct(got, want); math.Abs(p) > math.Abs(r.WorstPct) {
			r.WorstPct = p
		}
	}
}

// bound checks every window against the bound of docs/error-bound.md.
func (m *measure) bound(r *Result) {
	l := &m.sc.Limit
	eps := 1 + float64(l.EpsilonPPM)/1e6
	per := l.Rate.Per.Microseconds()
	if l.Algorithm == limit.FixedWindow {
		sums := make(map[int64]int64)
		for i, n := range m.got {
			sums[(epoch+int64(i)*bin)/per] += n
		}
		for _, n := range sums {
			over := float64(n) / (eps * float64(l.Rate.Units))
			r.Over = math.Max(r.Over, over)
			if over > 1 {
				r.OverBound++
			}
		}
		return
	}
	for _, w := range []int64{1, 2, 10} {
		span := int(w * second / bin)
		most := eps * (float64(l.Rate.Units)*float64(w*second)/float64(per) + float64(l.Burst))
		var n int64
		for i := range m.got {
			n += m.got[i]
			if i >= span {
				n -= m.got[i-span]
			}
			over := float64(n) / most
			r.Over = math.Max(r.Over, over)
			if over > 1 {
				r.OverBound++
			}
		}
	}
}
