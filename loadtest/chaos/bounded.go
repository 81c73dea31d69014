package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/loadtest/gateway"
)

// after is how long a loss or a cut may show. It is a term, after which every lease has been renewed or is void, and
// the slots of the store's ring.
const after = 11 * time.Second

// bounded holds every limit to its bound. In a window without a documented fault that is the bound itself. Each loss of
// data in reach of the window adds one bound: a burst, and the rate for a term. All agents that were out of contact add
// one together, because their trickles are at most the rate.
func (s *site) bounded(counts *gateway.Counts) error {
	var errs []error
	for _, t := range subjects {
		allowance := gateway.Allowance{Rate: t.rate, Burst: t.burst, Epsilon: epsilon}
		windows := []time.Duration{time.Second, 2 * time.Second, 10 * time.Second}
		if t.window > 0 {
			windows = []time.Duration{t.window}
			allowance = gateway.Allowance{Rate: t.rate / t.window.Seconds(), Epsilon: epsilon}
		}
		for _, w := range windows {
			bound := (1 + epsilon) * (allowance.Rate*w.Seconds() + allowance.Burst)
			var clean, any peak
			for _, p := range sums(counts.Admitted[t.tenant], w, t.window > 0) {
				p.more = s.exposed(p.from, p.from.Add(w))
				if p.more == 0 && p.units > clean.units {
					clean = p
				}
				if p.units > any.units {
					any = p
				}
				if float64(p.units) > bound*float64(1+p.more) {
					errs = append(errs, fmt.Errorf("%s: %d admitted in %v from %v, bound %.0f and %d more of it", t.tenant, p.units, w, p.from.Sub(s.began).Round(time.Millisecond), bound, p.more))
				}
			}
			s.say("%-6s in %3v: at most %5d of %5.0f where no fault excuses it; with faults %5d (%d bounds more)", t.tenant, w, clean.units, bound, any.units, any.more)
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.say("WRONG: %v", err)
		return err
	}
	return nil
}

// peak is the units of one window.
type peak struct {
	from  time.Time
	units int64
	more  int // bounds that faults in reach allow besides
}

// sums is the units of every window of that length, begun at each bin. If aligned, only windows aligned with the clock
// count, as a limit's own are. A unit counts in a window if it was both asked and known to be admitted in it. Nobody
// outside knows when it was decided between the two, which on a busy machine is long.
func sums(units []gateway.Unit, window time.Duration, aligned bool) (list []peak) {
	if len(units) == 0 {
		return nil
	}
	slices.SortFunc(units, func(a, b gateway.Unit) int { return cmp.Compare(a.Known, b.Known) })
	step := gateway.BinLength.Microseconds()
	if aligned {
		step = window.Microseconds()
	}
	length, last, next := window.Microseconds(), units[len(units)-1].Known, 0
	for from := (units[0].Known - length) / step * step; from <= last; from += step {
		for next < len(units) && units[next].Known < from {
			next++
		}
		p := peak{from: time.UnixMicro(from)}
		for _, u := range units[next:] {
			if u.Known >= from+length {
				break
			}
			if u.Asked >= from {
				p.units++
			}
		}
		list = append(list, p)
	}
	return list
}

// exposed returns how many additional bounds the faults in reach of a window allow.
func (s *site) exposed(from, to time.Time) (n int) {
	parted := 0
	for _, e := range s.exposures {
		if !e.from.Before(to) || !e.to.IsZero() && !from.Before(e.to.Add(after)) {
			continue
		}
		if e.why == dataLost {
			n++
		} else {
			parted = 1
		}
	}
	return n + parted
}
