package agent

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// bytesPerBucket bounds what a bucket with a live lease takes beyond its key: the aim is
// 128, see docs/performance.md.
const bytesPerBucket = 616

// What a live bucket takes on the heap, in the registry's table and in the schedule.
func TestBytesPerBucket(t *testing.T) {
	const n = 50_000
	r, set, keys := many(t, 1)
	_ = keys
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
	var s Schedule
	for i, v := range values {
		e, err := r.Touch(set, &set.List, 0, []limit.Attribute{{Name: "user", Value: v}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		number := e.Renew(1000, false).Number
		e.Apply(2000, lease.Grant{Number: number, Tokens: 10, TTL: 10_000_000, Trickle: 1000, Pile: 5})
		s.Set(e, int64(10_000+i))
	}
	each := (heap() - before) / n
	key := uint64(len(values[0]))
	t.Logf("%d bytes beyond a key of %d; an entry %d, the rest of it %d", each-key, key, unsafe.Sizeof(Entry{}), unsafe.Sizeof(rest{}))
	if each-key > bytesPerBucket {
		t.Errorf("a live bucket takes %d bytes beyond its key, want at most %d", each-key, bytesPerBucket)
	}
	runtime.KeepAlive(r)
	runtime.KeepAlive(&s)
}

// The span that buckets without one of their own share is never written: each test is looked after.
func TestMain(m *testing.M) {
	code := m.Run()
	if noSpan != (span{}) {
		fmt.Printf("the shared span was written: %+v\n", noSpan)
		code = 1
	}
	os.Exit(code)
}
