package bucket

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// stockOf is what requests touch, where it is no bucket's.
func stockOf(h *Hot) *stock {
	s := &stock{Hot: h}
	s.shared.Store(&unshared)
	return s
}

// Requests take, are refused, hold and put back, while the owner credits, folds
// and takes units out: in the end every unit is accounted for, exactly, and on
// the way no unit is counted as admitted that was put back.
func TestCellCountsExactly(t *testing.T) {
	c := stockOf(new(Hot))
	var mu sync.Mutex // stands for the bucket's
	var admitted, refused, put atomic.Int64
	var requests sync.WaitGroup
	stop := make(chan struct{})
	for g := range 8 {
		requests.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for range 40_000 {
				n := 1 + rng.Int64N(3)*rng.Int64N(2)
				hold := rng.IntN(3) == 0
				if hold {
					c.pending.Add(n)
				}
				switch ok := take(&c.tokens, n); {
				case ok && hold && rng.IntN(2) == 0:
					c.back.Add(n)
					put.Add(n)
				case ok:
					admitted.Add(n)
				default:
					mu.Lock()
					c.refused.Add(n) // as Ask does
					mu.Unlock()
					refused.Add(n)
				}
				if hold {
					c.pending.Add(-n)
				}
			}
		})
	}
	var owner sync.WaitGroup
	owner.Go(func() {
		rng := rand.New(rand.NewPCG(99, 2))
		var last int64
		for {
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			switch rng.IntN(4) {
			case 0:
				c.fold()
			case 1:
				c.credit(-rng.Int64N(20))
			default:
				c.credit(rng.Int64N(200))
			}
			got, most := c.admitted(), admitted.Load()+8*3
			if got > most {
				// A request counts after it took: at most one each is on the way.
				t.Errorf("admitted is %d, at most %d were", got, most)
			}
			if got > last {
				last = got
			}
			mu.Unlock()
		}
	})
	requests.Wait()
	close(stop)
	owner.Wait()
	left := c.fold()
	if got, want := c.admitted(), admitted.Load(); got != want {
		t.Errorf("admitted is %d, want %d", got, want)
	}
	if got, want := c.refused.Load(), refused.Load(); got != want {
		t.Errorf("denied is %d, want %d", got, want)
	}
	if got, want := c.credited(), admitted.Load()+left; got != want {
		t.Errorf("credited %d, want what was admitted and is left, %d", got, want)
	}
	if put.Load() == 0 {
		t.Error("nothing was ever put back: the test lost its point")
	}
}

// A refused request for many units leaves what is there for the next one.
func TestLargeRefusalDeniesNobodyElse(t *testing.T) {
	c := stockOf(new(Hot))
	c.credit(5)
	if take(&c.tokens, 6) {
		t.Fatal("took 6 of 5")
	}
	for i := range 5 {
		if !take(&c.tokens, 1) {
			t.Fatalf("unit %d was denied after a refused request for 6", i)
		}
	}
	if take(&c.tokens, 1) {
		t.Error("took a sixth unit of 5")
	}
}

// BenchmarkCellNeighbours takes from buckets that lie side by side, each from its own
// processor: of the first ones, what requests touch fills a cache line, or neighbours would slow each other down.
func BenchmarkCellNeighbours(b *testing.B) {
	var cells [64]*Hot
	for i := range cells {
		cells[i] = newHot(true)
		cells[i].tokens.Store(endless)
	}
	var next atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		c := cells[next.Add(1)%64]
		for pb.Next() {
			take(&c.tokens, 1)
		}
	})
}
