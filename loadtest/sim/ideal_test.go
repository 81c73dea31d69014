package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// The limiters compared with, on cases worked out by hand. All begin at an edge.
func TestIdeal(t *testing.T) {
	with := func(a limit.Algorithm, units int64, per time.Duration, burst int64) limit.Limit {
		return limit.Limit{Algorithm: a, Rate: limit.Rate{Units: units, Per: per}, Burst: burst}
	}
	type asked struct {
		at, units int64
		want      bool
	}
	const ms = millisecond
	for _, c := range []struct {
		name  string
		limit limit.Limit
		asked []asked
	}{
		{"token bucket", with(limit.TokenBucket, 2, time.Second, 3), []asked{
			{0, 3, true}, {0, 1, false}, {499 * ms, 1, false}, {500 * ms, 1, true},
			{10 * second, 4, false}, {10 * second, 3, true}, // no more than the burst
		}},
		{"fixed window", with(limit.FixedWindow, 3, 10*time.Second, 0), []asked{
			{9 * second, 2, true}, {9 * second, 2, false}, {9 * second, 1, true}, {10*second - 1, 1, false}, {10 * second, 3, true},
		}},
		// 5 before. At 13 s seven tenths of them count, 3.5: 3 make 6.5 of 7, and one more would make 7.5.
		{"sliding window", with(limit.SlidingWindow, 7, 10*time.Second, 0), []asked{
			{1 * second, 5, true}, {1 * second, 3, false}, {13 * second, 3, true}, {13 * second, 1, false},
			{13*second + 999*ms, 1, false}, {14 * second, 1, true}, // 4 + 5 × 0.6 = 7
			{35 * second, 7, true},                          // nothing in the window before
			{45 * second, 4, false}, {45 * second, 3, true}, // 7 × 0.5 of the window before
		}},
		{"sliding window log", with(limit.SlidingWindowLog, 3, 10*time.Second, 0), []asked{
			{0, 1, true}, {4 * second, 2, true}, {5 * second, 1, false}, {10*second - 1, 1, false}, {10 * second, 1, true},
			{10 * second, 1, false}, {14 * second, 2, true}, {14 * second, 1, false},
		}},
		// One each 100 ms, and two may come at once.
		{"leaky bucket", with(limit.LeakyBucket, 10, time.Second, 2), []asked{
			{0, 1, true}, {0, 1, true}, {0, 1, false}, {99 * ms, 1, false}, {100 * ms, 1, true}, {150 * ms, 1, false},
			{200 * ms, 1, true}, {2 * second, 3, false}, {2 * second, 2, true},
		}},
		{"leaky bucket without a burst", with(limit.LeakyBucket, 10, time.Second, 0), []asked{
			{0, 1, true}, {50 * ms, 1, false}, {100 * ms, 1, true},
		}},
	} {
		begin := start.UnixMicro()
		i := newIdeal(&c.limit, 4, begin).(ideal)
		for n, a := range c.asked {
			if got := i.take(begin+a.at, a.units); got != a.want {
				t.Errorf("%s, %d: %d units after %v: got %v, want %v", c.name, n, a.units, time.Duration(a.at)*time.Microsecond, got, a.want)
			}
		}
	}
}

// Those in which requests wait, likewise: when each begins, -1 for one that is denied.
func TestIdealQueues(t *testing.T) {
	for _, c := range []struct {
		name     string
		limit    limit.Limit
		at, last []int64
		want     []int64
	}{
		{"one each 100, two agents with a place each", limit.Limit{
			Algorithm: limit.LeakyBucket, Rate: limit.Rate{Units: 10_000, Per: time.Second}, Burst: 1, Queue: 1,
		}, []int64{0, 10, 20, 30, 100, 110, 1000}, nil, []int64{0, 100, 200, -1, 300, -1, 1000}},
		{"two slots", limit.Limit{Algorithm: limit.Concurrency, Slots: 2},
			[]int64{0, 10, 20, 60, 100, 110}, []int64{100, 50, 1, 70, 5, 1}, []int64{0, 10, -1, 60, 100, 110}},
		// The third waits for the second's slot, the fourth for the first's; the fifth finds both places taken.
		{"two slots, two agents with a place each", limit.Limit{Algorithm: limit.Concurrency, Slots: 2, Queue: 1},
			[]int64{0, 10, 20, 30, 40, 60}, []int64{100, 50, 70, 10, 1, 5}, []int64{0, 10, 60, 100, -1, 110}},
	} {
		i := newIdeal(&c.limit, 2, 0).(queueing)
		var got []int64
		for n, at := range c.at {
			lasts := int64(0)
			if c.last != nil {
				lasts = c.last[n]
			}
			begins, ok := i.begins(at, lasts)
			if !ok {
				begins = -1
			}
			got = append(got, begins)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
