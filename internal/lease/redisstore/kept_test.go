package redisstore

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is kept takes no more than its bound, by its own count and by the heap's, and what was used least lately goes first.
func TestTheShelfIsBounded(t *testing.T) {
	const most = 16 << 20
	for _, c := range []struct{ holders, buckets int }{{1, 100_000}, {100, 4_000}} {
		s := newShelf(most)
		heap := func() int64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before, first := heap(), ""
		for i := range c.buckets {
			k := newKept(fmt.Sprint("requests/tenant-", i), 0)
			k.leave(strings.Clone(strings.Repeat("b", 120)))
			for h := range c.holders {
				k.record(fmt.Sprint("gateway-", h), strings.Clone(strings.Repeat("r", 90)))
			}
			if first == "" {
				first = k.key
			} else if k := s.take(first); k != nil {
				s.put(k) // it is in use
			} else {
				t.Fatalf("%d holders: after %d buckets the one in use is gone", c.holders, i)
			}
			s.put(k)
		}
		took := heap() - before
		if s.size > most || s.size < most*9/10 {
			t.Errorf("%d holders: %d bytes kept, want up to %d", c.holders, s.size, most)
		}
		if took > most {
			t.Errorf("%d holders: %d bytes of the heap, want no more than %d", c.holders, took, most)
		}
		n := len(s.byKey)
		t.Logf("%d holders: %d buckets, %d bytes of the heap for each, %d counted", c.holders, n, took/int64(n), s.size/n)
		if n == c.buckets || n != s.order.Len() {
			t.Errorf("%d holders: %d of %d buckets kept, %d in order", c.holders, n, c.buckets, s.order.Len())
		}
		for s.order.Len() > 0 {
			s.take(s.order.Back().Value.(*kept).key)
		}
		if s.size != 0 {
			t.Errorf("%d holders: %d bytes of nothing", c.holders, s.size)
		}
	}
}

// A bucket that changed is counted as it is.
func TestKeptIsCounted(t *testing.T) {
	k := newKept("key", 0)
	size := k.size
	k.leave("state")
	k.record("a", "one")
	k.record("a", "of another length")
	k.record("b", "two")
	k.leave("st")
	if want := size + 2 + len("of another length") + len("two") + 2*recordSize; k.size != want {
		t.Errorf("got %d bytes, want %d", k.size, want)
	}
	k.drop("a")
	k.drop("a")
	k.drop("b")
	k.leave("")
	if k.size != size {
		t.Errorf("got %d bytes of nothing, want %d", k.size, size)
	}
}

// A node's time goes on from when its answer was there, for as long after the question as is stated, and is then asked for.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocks()
		want := func(what string, now int64) {
			t.Helper()
			if got := c.now(nil); got != now {
				t.Errorf("%s: got %d, want %d", what, got, now)
			}
		}
		want("before any answer", 0)
		asked := time.Now()
		time.Sleep(50 * time.Millisecond)
		c.learn(nil, told{1_000_000, asked, time.Now()})
		want("at the answer", 1_000_000)
		time.Sleep(100 * time.Millisecond)
		want("later", 1_100_000)
		c.learn(nil, told{500_000, time.Now(), time.Now()})
		want("of a clock that was set", 500_000)
		time.Sleep(clockLife)
		want("at last", 500_000+clockLife.Microseconds())
		time.Sleep(time.Millisecond)
		want("too late", 0)
		asked = time.Now()
		time.Sleep(clockLife + 1)
		c.learn(nil, told{1, asked, time.Now()})
		want("of an answer that took too long", 0)
	})
}
