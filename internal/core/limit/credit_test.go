package limit

import (
	"math"
	"testing"
	"time"
)

// There is credit where all agents together keep within three sixteenths of epsilon, and the limit gains it within seven
// seconds. Limits that are exact, paced or counted in windows give none unless they say so.
func TestCredit(t *testing.T) {
	perSecond := func(units, burst int64) Limit {
		return Limit{Algorithm: TokenBucket, Rate: Rate{Units: units, Per: time.Second}, Burst: burst, EpsilonPPM: DefaultEpsilonPPM}
	}
	with := func(change func(*Limit)) Limit {
		l := perSecond(100, 1000)
		change(&l)
		return l
	}
	for name, c := range map[string]struct {
		of   Limit
		want Credit
	}{
		"a hundred a second, a burst of ten seconds": {perSecond(100, 1000), Credit{1, 10}},
		"a large one":              {perSecond(10_000, 20_000), Credit{1, 281}},
		"a small burst":            {perSecond(10_000, 19), Credit{}},
		"a small limit":            {perSecond(20, 20), Credit{1, 0}},
		"by the hour":              {with(func(l *Limit) { l.Rate.Per, l.Burst = time.Hour, 200 }), Credit{1, 0}},
		"ten thousand an hour":     {with(func(l *Limit) { l.Rate, l.Burst = Rate{Units: 10_000, Per: time.Hour}, 20_000 }), Credit{1, 19}},
		"a small epsilon":          {with(func(l *Limit) { l.EpsilonPPM = 10_000 }), Credit{1, 2}},
		"none":                     {with(func(l *Limit) { l.FirstTouch = TouchAsk }), Credit{}},
		"strict":                   {with(func(l *Limit) { l.Enforcement, l.EpsilonPPM = Strict, 0 }), Credit{}},
		"soft":                     {with(func(l *Limit) { l.Enforcement = Soft }), Credit{}},
		"a lockout":                {with(func(l *Limit) { l.Lockout = time.Minute }), Credit{}},
		"paced":                    {with(func(l *Limit) { l.Algorithm = LeakyBucket }), Credit{}},
		"a window":                 {with(func(l *Limit) { l.Algorithm, l.Burst = FixedWindow, 0 }), Credit{}},
		"slots":                    {Limit{Algorithm: Concurrency, Slots: 1000}, Credit{}},
		"nothing but counted":      {Limit{FirstTouch: TouchAdmit}, Credit{}},
		"whatever the limit":       {with(func(l *Limit) { l.FirstTouch = TouchAdmit }), Credit{8, math.MaxInt64}},
		"whatever the small limit": {with(func(l *Limit) { l.FirstTouch, l.Burst = TouchAdmit, 5 }), Credit{1, math.MaxInt64}},
		"a calendar month, admit": {with(func(l *Limit) {
			l.FirstTouch, l.Algorithm, l.Rate = TouchAdmit, FixedWindow, Rate{Units: 40, Calendar: Month}
		}), Credit{4, math.MaxInt64}},
	} {
		h := (&Rule{Limit: c.of}).Hold()
		got := h.Credit()
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		for _, agents := range []int64{0, 1, got.Agents, got.Agents + 1} {
			want := uint8(0)
			if got.Agents == math.MaxInt64 || 1 <= agents && agents <= got.Agents {
				want = got.Units
			}
			if n := got.Of(agents); n != want {
				t.Errorf("%s: of %d agents each has %d, want %d", name, agents, n, want)
			}
		}
	}
}
