package agent

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/internal/core/usage"
	"github.com/f4ee788f/quota/internal/core/wheel"
)

// bytesPerBucket bounds what a bucket with a live lease takes beyond its key. The aim is 300 (docs/performance.md), and what is
// within 15 % of it is left.
const bytesPerBucket = 345

// What a live bucket takes on the heap, in the registry's table and in the schedule: one that was just granted its first
// lease, and one that has been in use on an agent that runs for a month.
func TestBytesPerBucket(t *testing.T) {
	unraced.Only(t)
	for _, c := range []struct {
		name string
		from int64
		live func(e *Entry, now int64, r *rand.Rand) int64
	}{
		{"leased", 1_000_000, func(e *Entry, now int64, _ *rand.Rand) int64 {
			e.Apply(now+1_000, lease.Grant{Number: e.Renew(now, false).Number, Tokens: 10, TTL: 10_000_000, Trickle: 1000, Pile: 5})
			return now
		}},
		{"in use for long", 30 * 86_400_000_000, busy},
	} {
		t.Run(c.name, func(t *testing.T) {
			each, key := bytesOf(t, c.from, c.live)
			t.Logf("%d bytes beyond a key of %d; an entry %d", each-key, key, unsafe.Sizeof(Entry{}))
			if each-key > bytesPerBucket {
				t.Errorf("a live bucket takes %d bytes beyond its key, want at most %d", each-key, bytesPerBucket)
			}
		})
	}
}

// busy is some renewals of a bucket that is asked for more than it has now and then, and collected from.
func busy(e *Entry, now int64, r *rand.Rand) int64 {
	var u usage.Usage
	u.Collect(e, 0, now)
	for range 4 {
		number := e.Renew(now, false).Number
		now += 500 + r.Int64N(3_000)
		e.Apply(now, lease.Grant{
			Number: number, Tokens: 50 + r.Int64N(2_000), TTL: 2_000_000 + r.Int64N(100_000_000), Trickle: r.Int64N(2_000_000_000), Pile: 1 + r.Int64N(300),
			Remaining: r.Int64N(200_000), Reset: r.Int64N(60_000_000), Generation: 1 + r.Int64N(4), Fallback: r.Int64N(2_000_000_000),
		})
		for range r.IntN(3) {
			now += r.Int64N(1_000_000)
			e.Take(1 + r.Int64N(100))
			e.Ask(now, 1, false, false)
		}
		u.Collect(e, 0, now)
		now += r.Int64N(1_000_000)
		e.Plan(now)
	}
	e.Take(1)
	return now
}

// bytesOf returns what one of many buckets takes, and what its key does.
func bytesOf(t *testing.T, from int64, live func(e *Entry, now int64, r *rand.Rand) int64) (each, key uint64) {
	const n = 50_000
	r, set, _ := many(t, 1)
	var values []string
	for i := range n {
		values = append(values, fmt.Sprintf("u-%08x-%04x", uint32(i)*2654435761, i&0xffff))
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r.max = 2 * n
	before := heap()
	var s wheel.Wheel[Entry, *Entry]
	s.Pop(from)
	rng := rand.New(rand.NewPCG(8, 8))
	for i, v := range values {
		e, err := r.Touch(set, &set.List, 0, []limit.Attribute{{Name: "user", Value: v}}, from)
		if err != nil {
			t.Fatal(err)
		}
		now := live(e, from+rng.Int64N(100_000_000), rng)
		s.Set(e, now+int64(i)+1)
	}
	each = (heap() - before) / n
	runtime.KeepAlive(r)
	runtime.KeepAlive(&s)
	return each, uint64(len(values[0]))
}
