package load

// binLen is the grain of the comparison: arrivals of one bin meet the ideal limiter at once.
const binLen = 10_000 // microseconds

// change is a quota from a time on.
type change struct {
	bin   int
	quota Quota
}

// series is what one tenant asked for and was admitted, by bin from when the load began.
type series struct {
	arrived, admitted []uint32
	quotas            []change // in order of time, the first from bin 0
}

// ideal is the units that one central limiter would have admitted of the same arrivals, in the bins [from, to). It is a
// token bucket that begins full.
func (s *series) ideal(from, to int) (units int64) {
	q, next := s.quotas[0].quota, 1
	level := float64(q.Burst)
	for i, n := range s.arrived[:to] {
		for next < len(s.quotas) && s.quotas[next].bin <= i {
			by := s.quotas[next].quota.Burst - q.Burst
			q = s.quotas[next].quota
			level = max(level+float64(by), 0) // what was used stays used
			next++
		}
		level = min(level+q.Rate*binLen/1e6, float64(q.Burst))
		take := min(int64(n), int64(level))
		level -= float64(take)
		if i >= from {
			units += take
		}
	}
	return units
}

// over counts windows of so many bins against the limit's bound, (1 + ε) × (rate × window + burst). tested is those in
// which more was asked, for no others can break the bound; over is those in which more was admitted. While a change is
// on its way, a second each side, the larger of both limits holds.
func (s *series) over(window int) (tested, over int64) {
	asked, sum := int64(0), int64(0)
	for i, units := range s.admitted {
		asked += int64(s.arrived[i])
		sum += int64(units)
		if i >= window {
			asked -= int64(s.arrived[i-window])
			sum -= int64(s.admitted[i-window])
		}
		if i < window-1 {
			continue
		}
		bound := (1 + Epsilon) * s.most(i-window+1, i)
		if float64(asked) > bound {
			tested++
		}
		if float64(sum) > bound {
			over++
		}
	}
	return tested, over
}

// settling is how long a change of plan may take until it is in force everywhere.
const settling = 1_000_000 / binLen

func (s *series) most(first, last int) float64 {
	length := float64(last-first+1) * binLen / 1e6
	most := 0.0
	for i, c := range s.quotas {
		ends := i+1 < len(s.quotas) && s.quotas[i+1].bin+settling < first
		if !ends && c.bin-settling <= last {
			most = max(most, c.quota.Rate*length+float64(c.quota.Burst))
		}
	}
	return most
}
