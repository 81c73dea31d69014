package agent

import (
	"sync"
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// Of denials that are certain none is lost or counted twice as they come to be counted apart, and then they leave the cell
// alone; those of a bucket whose cell outlives the process stay in it.
func TestDenialsAreCountedApart(t *testing.T) {
	for _, durable := range []bool{false, true} {
		b := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 1})
		b.durable = durable
		b.Apply(1, lease.Grant{Number: b.Renew(1, false).Number, TTL: 1_000_000, DenyFor: 1_000_000})
		if b.Take(1) || b.Slow(2, 1, false).Outcome != Denied {
			t.Fatal("not denied")
		}
		const each, callers = 10_000, 4
		collected := int64(0)
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					if _, ok := b.Shut(3); !ok {
						t.Error("not denied for certain")
						return
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
		if in := b.cell.refused.Load(); durable != (in == each*callers+1) {
			t.Errorf("durable %v: the cell has %d of %d denials", durable, in, each*callers+1)
		}
		was := b.cell.refused.Load()
		b.Shut(3)
		if moved := b.cell.refused.Load() != was; moved != durable {
			t.Errorf("durable %v: one more is counted in the cell: %v", durable, moved)
		}
	}
}
