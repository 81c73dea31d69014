package agent

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// shutBucket denies one unit for certain.
func shutBucket(t *testing.T, at *cell) *Bucket {
	t.Helper()
	b := newBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 1}, at)
	b.Apply(1, lease.Grant{Number: b.Renew(1, false).Number, TTL: 1_000_000, DenyFor: 1_000_000})
	if b.Take(1) || b.Slow(2, 1, false).Outcome != Denied {
		t.Fatal("not denied")
	}
	return b
}

// Of denials that are certain none is lost or counted twice as they come to be counted apart, and then they leave the cell
// alone; those of a bucket whose cell outlives the process stay in it.
func TestDenialsAreCountedApart(t *testing.T) {
	for _, durable := range []bool{false, true} {
		var at *cell
		if durable {
			at = new(cell)
		}
		b := shutBucket(t, at)
		const each, callers = 10_000, 4
		collected := int64(0)
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for i := range each {
					if _, ok := b.Shut(3); !ok {
						t.Error("not denied for certain")
						return
					}
					if c == 0 && i == each/2 && !durable {
						b.countApart() // if nobody was in another's way before
					}
				}
			})
		}
		for range 100 {
			_, d := b.Collect()
			collected += d
		}
		all.Wait()
		_, d := b.Collect()
		if collected += d; collected != each*callers+1 {
			t.Errorf("durable %v: collected %d denials, want %d", durable, collected, each*callers+1)
		}
		if in := deniedOf(b); durable != (in == each*callers+1) {
			t.Errorf("durable %v: the cell has %d of %d denials", durable, in, each*callers+1)
		}
		was := deniedOf(b)
		b.Shut(3)
		if moved := deniedOf(b) != was; moved != durable {
			t.Errorf("durable %v: one more is counted in the cell: %v", durable, moved)
		}
	}
}

// Denials that are in nobody's way stay in the cell, and those of two processors at once do not.
func TestDenialsAreCountedApartWhereTheyMeet(t *testing.T) {
	b := shutBucket(t, nil)
	apart := func() bool {
		s := b.seldom()
		return s != nil && s.denials.Load() != nil
	}
	for range 10 * denialsFrom {
		b.Shut(3)
	}
	if apart() || deniedOf(b) != 10*denialsFrom+1 {
		t.Errorf("of one caller's denials the cell has %d of %d", deniedOf(b), 10*denialsFrom+1)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // or nobody is in another's way
	end := time.Now().Add(20 * time.Second)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for !apart() && time.Now().Before(end) {
				for range 10_000 {
					b.Shut(3)
				}
			}
		})
	}
	if all.Wait(); !apart() {
		t.Error("denials of two callers at once are counted in one place")
	}
}

// So are those that tokens count, and none is lost.
func TestDenialsThatTokensCountAreCountedApartWhereTheyMeet(t *testing.T) {
	r, set, _ := many(t, 1)
	e := &Entry{Bucket: *shutBucket(t, nil)}
	e.scope().kind = &kind{registry: r}
	a := attributesOf("tenant", "a", "user", "u")
	r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
	known, plain, _ := recall(r, a)
	if e.Slow(3, 1, false).Outcome != Denied || !plain.Shut() {
		t.Fatal("the tokens do not say that there are none")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	end := time.Now().Add(20 * time.Second)
	apart := func() bool {
		s := e.seldom()
		return s != nil && s.denials.Load() != nil
	}
	var all sync.WaitGroup
	var denied atomic.Int64
	for range 2 {
		all.Go(func() {
			for !apart() && time.Now().Before(end) {
				for range 1000 {
					if _, ok := known.Shut(0, plain, 3); ok || e.Slow(3, 1, false).Outcome == Denied {
						denied.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	if !apart() {
		t.Error("denials of two callers at once are counted by the tokens")
	}
	e.Slow(3, 1, false)
	before := e.seldom().denials.Load().sum()
	if v, ok := known.Shut(0, plain, 3); !ok || v.RetryAfter < 999_998 || v.RetryAfter > 999_998+1<<shutGrain {
		t.Errorf("apart: %+v, %t", v, ok)
	}
	if e.seldom().denials.Load().sum() != before+1 {
		t.Error("one more is not counted apart")
	}
	if _, n := e.Collect(); n != denied.Load()+4 {
		t.Errorf("%d denials are collected, want %d", n, denied.Load()+4)
	}
}
