package load

import (
	"runtime"
	"sync"
)

// tally is the sums of a run's records.
type tally struct {
	seconds  []second // since the load began
	admitted []int64  // by tenant, over all
	denied   []int64

	// These are of the bins compared.
	decisions, taken int64
	ideal            int64
	// These are of the tenants that were denied at least once, or would ideally have been.
	scarceTaken, scarceIdeal  int64
	apart                     int64 // Σ |admitted − ideal|, tenant by tenant
	saturated, idealSaturated int   // tenants denied at least once, and those that would ideally have been

	windows, tested, over int64 // of the whole load: all, those in which more was asked than the bound, and those above it
}

// second is one second of a load.
type second struct{ admitted, denied int64 }

// seriesBytes bounds the memory of the series made at a time.
const seriesBytes = 512 << 20

// replay counts everything from records: over the whole load by tenant, and in the bins [from, to) against the ideal.
func (l *load) replay(records [][]record, bins, from, to int) *tally {
	tenants := len(l.quotas)
	t := &tally{admitted: make([]int64, tenants), denied: make([]int64, tenants), seconds: make([]second, bins*binLen/1e6+1)}
	procs := runtime.GOMAXPROCS(0)
	block := min(max(seriesBytes/(8*bins*procs), 1), (tenants+procs-1)/procs)
	var mu sync.Mutex
	var group sync.WaitGroup
	next := 0
	for range procs {
		group.Go(func() {
			for {
				mu.Lock()
				first := next
				next += block
				mu.Unlock()
				if first >= tenants {
					return
				}
				part := l.replayBlock(records, first, min(first+block, tenants), bins, from, to)
				mu.Lock()
				t.add(part, first)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return t
}

func (t *tally) add(o *tally, first int) {
	copy(t.admitted[first:], o.admitted)
	copy(t.denied[first:], o.denied)
	for i, s := range o.seconds {
		t.seconds[i].admitted += s.admitted
		t.seconds[i].denied += s.denied
	}
	t.decisions += o.decisions
	t.taken += o.taken
	t.ideal += o.ideal
	t.scarceTaken += o.scarceTaken
	t.scarceIdeal += o.scarceIdeal
	t.apart += o.apart
	t.windows += o.windows
	t.tested += o.tested
	t.over += o.over
	t.saturated += o.saturated
	t.idealSaturated += o.idealSaturated
}

// overWindows are the windows held to the bound, in bins: 1, 2 and 10 seconds.
var overWindows = []int{1_000_000 / binLen, 2_000_000 / binLen, 10_000_000 / binLen}

func (l *load) replayBlock(records [][]record, first, end, bins, from, to int) *tally {
	n := end - first
	t := &tally{admitted: make([]int64, n), denied: make([]int64, n), seconds: make([]second, bins*binLen/1e6+1)}
	cells := make([]uint32, 2*bins*n)
	series := make([]series, n)
	for i := range series {
		series[i].arrived, cells = cells[:bins:bins], cells[bins:]
		series[i].admitted, cells = cells[:bins:bins], cells[bins:]
		series[i].quotas = l.quotas[first+i]
	}
	for _, rs := range records {
		for i := range rs {
			rs[i].each(l.track, func(tenant uint32, at int64, admitted bool) {
				if k := int(tenant) - first; k >= 0 && k < n {
					s, bin := &series[k], min(int(at/binLen), bins-1)
					s.arrived[bin]++
					if admitted {
						s.admitted[bin]++
					}
				}
			})
		}
	}
	for i := range series {
		s := &series[i]
		t.count(s, i, from, to)
	}
	return t
}

func (t *tally) count(s *series, i, from, to int) {
	arrived, admitted := int64(0), int64(0)
	for bin := range s.arrived {
		a, d := int64(s.admitted[bin]), int64(s.arrived[bin]-s.admitted[bin])
		second := &t.seconds[bin*binLen/1e6]
		second.admitted += a
		second.denied += d
		t.admitted[i] += a
		t.denied[i] += d
		if bin >= from && bin < to {
			arrived += a + d
			admitted += a
		}
	}
	t.decisions += arrived
	t.taken += admitted
	if admitted < arrived {
		t.saturated++
	}
	ideal := s.ideal(from, to)
	t.ideal += ideal
	if ideal < arrived {
		t.idealSaturated++
	}
	if ideal < arrived || admitted < arrived {
		t.scarceTaken += admitted
		t.scarceIdeal += ideal
	}
	t.apart += max(admitted-ideal, ideal-admitted)
	for _, w := range overWindows {
		t.windows += max(int64(len(s.admitted)-w+1), 0)
		tested, over := s.over(w)
		t.tested += tested
		t.over += over
	}
}
