package likely

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// Each amount is in a bucket whose upper edge is at most an eighth above it, and buckets follow one another.
func TestBuckets(t *testing.T) {
	for b := range buckets {
		if got := bucketOf(upper(b)); got != b {
			t.Errorf("the upper edge %d of bucket %d is in bucket %d", upper(b), b, got)
		}
		if b+1 < buckets && bucketOf(upper(b)+1) != b+1 {
			t.Errorf("%d, above bucket %d, is in bucket %d", upper(b)+1, b, bucketOf(upper(b)+1))
		}
	}
	if upper(buckets-1) < Largest {
		t.Errorf("the last bucket ends at %d, below %d", upper(buckets-1), int64(Largest))
	}
	for range 100_000 {
		n := rand.Int64N(1 << rand.IntN(30))
		if up := upper(bucketOf(n)); up < n || up > n+n/8 {
			t.Fatalf("%d is in a bucket up to %d; want at most an eighth more", n, up)
		}
	}
}

// model is the sketch's rule, by all amounts: each weighs half of one that came HalfLife later.
type model []int64

// quantile returns the least amount that so much of the weight does not exceed.
func (m model) quantile(q float64) int64 {
	type weighed struct {
		n      int64
		weight float64
	}
	all, sum := make([]weighed, len(m)), 0.0
	for i, n := range m {
		all[i] = weighed{n, math.Exp2(float64(i-len(m)) / HalfLife)}
		sum += all[i].weight
	}
	slices.SortFunc(all, func(a, b weighed) int { return cmp.Compare(a.n, b.n) })
	rank := q * sum
	for _, w := range all {
		if rank -= w.weight; rank <= 0 {
			return w.n
		}
	}
	return all[len(all)-1].n
}

// Whatever is observed, an answer is between the quantile of all sorted amounts and an eighth above it.
func TestQuantilesOfASketch(t *testing.T) {
	for name, draw := range map[string]func(r *rand.Rand, i int) int64{
		"uniform":     func(r *rand.Rand, _ int) int64 { return r.Int64N(5000) },
		"heavy tail":  func(r *rand.Rand, _ int) int64 { return int64(min(100*math.Pow(r.Float64(), -1/1.1), Largest)) },
		"log-normal":  func(r *rand.Rand, _ int) int64 { return int64(min(math.Exp(5+1.5*r.NormFloat64()), Largest)) },
		"two models":  func(r *rand.Rand, _ int) int64 { return 20 + 8000*r.Int64N(2) + r.Int64N(30) },
		"a change":    func(r *rand.Rand, i int) int64 { return 1000*int64(1+i/700%2*9) + r.Int64N(500) },
		"always 0":    func(*rand.Rand, int) int64 { return 0 },
		"always most": func(*rand.Rand, int) int64 { return Largest },
	} {
		for seed := range uint64(2) {
			r := rand.New(rand.NewPCG(seed, 1))
			var s sketch
			var m model
			for i := range 12_000 { // beyond a scaling back
				n := draw(r, i)
				m = append(m, n)
				s.observe(n)
				if _, ok := s.quantile(950_000); ok != (i+1 >= Needed) {
					t.Fatalf("%s: after %d amounts it says something: %v", name, i+1, ok)
				}
				if i%1097 != 0 && i != Needed || i < Needed {
					continue
				}
				for _, ppm := range []int64{500_000, 900_000, 950_000, 999_000} {
					got, _ := s.quantile(ppm)
					q, off := float64(ppm)/1e6, 2e-6 // weights are rounded
					least, most := m.quantile(q-off), m.quantile(q+off)
					if got < least || got > most+most/8 {
						t.Fatalf("%s, seed %d: after %d amounts %d millionths is %d; want %d to %d and an eighth", name, seed, i+1, ppm, got, least, most)
					}
				}
			}
		}
	}
}

// The counts fade: after two half-lives of dearer requests their median is the answer.
func TestASketchFollowsAChange(t *testing.T) {
	var s sketch
	for range 5000 {
		s.observe(100)
	}
	for range HalfLife - 20 {
		s.observe(1000)
	}
	if n, _ := s.quantile(500_000); n != 103 {
		t.Errorf("before a half-life the median is %d, want that of before", n)
	}
	for range 40 {
		s.observe(1000)
	}
	if n, _ := s.quantile(500_000); n != 1023 {
		t.Errorf("after a half-life the median is %d, want the new one", n)
	}
}

// A table forgets the key that was used longest ago, and what it had.
func TestATableIsBounded(t *testing.T) {
	var table Table
	key := func(i int) Key { return Key{fmt.Sprint("tenant-", i%64), "tokens", fmt.Sprint(i)} } // 16 of each
	for i := range MaxKeys {
		for range Needed {
			table.Observe(key(i), int64(i))
		}
	}
	if n, ok := table.Quantile(key(0), 950_000); !ok || n != 0 { // now used last
		t.Errorf("key 0: %d %v", n, ok)
	}
	table.Observe(key(MaxKeys), 5)
	if n := held(&table); n != MaxKeys || table.keys != n {
		t.Errorf("%d keys, want %d", n, MaxKeys)
	}
	for i, want := range map[int]bool{0: true, 1: false, 2: true, MaxKeys: false} {
		if _, ok := table.Quantile(key(i), 950_000); ok != want {
			t.Errorf("key %d says something: %v, want %v", i, ok, want)
		}
	}
	for range Needed - 1 {
		table.Observe(key(MaxKeys), 5)
	}
	if n, ok := table.Quantile(key(MaxKeys), 999_000); !ok || n != 5 {
		t.Errorf("a key in another's room: %d %v, want 5", n, ok)
	}
	if n, ok := (&Table{}).Quantile(key(0), 500_000); ok {
		t.Errorf("an empty table says %d", n)
	}
	table.Observe(Key{"odd", "", ""}, -5)
	table.Observe(Key{"odd", "", ""}, 1<<62)
}

// held counts the keys that a table has.
func held(t *Table) (n int) {
	for _, of := range t.of {
		n += len(of)
	}
	return n
}

// A tenant at its bound loses what it did not use for longest, and no other tenant loses anything.
func TestATenantIsBounded(t *testing.T) {
	var table Table
	mine, other := func(i int) Key { return Key{"evil", "tokens", fmt.Sprint(i)} }, Key{"acme", "tokens", "small"}
	teach := func(k Key) {
		for range Needed {
			table.Observe(k, 9)
		}
	}
	teach(other)
	for i := range 10 * MaxKeys {
		teach(mine(i))
	}
	if n := len(table.of["evil"]); n != TenantKeys || table.keys != TenantKeys+1 {
		t.Errorf("a tenant has %d keys of %d, want %d", n, table.keys, TenantKeys)
	}
	last := 10*MaxKeys - 1
	for k, want := range map[Key]bool{other: true, mine(last): true, mine(last - TenantKeys + 1): true, mine(last - TenantKeys): false} {
		if _, ok := table.Quantile(k, 950_000); ok != want {
			t.Errorf("%v says something: %v, want %v", k, ok, want)
		}
	}
	for i := range MaxKeys { // tenants with a key each: those of before are used least
		table.Observe(Key{fmt.Sprint(i), "tokens", ""}, 1)
	}
	if len(table.of) != MaxKeys || table.keys != MaxKeys {
		t.Errorf("%d tenants, %d keys; want %d", len(table.of), table.keys, MaxKeys)
	}
}

// A request that was ended counts where it cost no less than most do, and not at all while nothing is known.
func TestObserveLeast(t *testing.T) {
	var table Table
	k := Key{"acme", "tokens", "small"}
	for range 2 * Needed {
		table.ObserveLeast(k, 950_000, 4096)
	}
	if n, ok := table.Quantile(k, 950_000); ok || table.keys > 0 {
		t.Errorf("what nobody knows is %d, of %d keys", n, table.keys)
	}
	for range Needed {
		table.Observe(k, 100)
	}
	for range HalfLife {
		table.ObserveLeast(k, 950_000, 95) // 100 is in the bucket of 96 to 103
	}
	if n, _ := table.Quantile(k, 500_000); n != 103 {
		t.Errorf("after many that were ended below, half cost at most %d, want 103", n)
	}
	for range 2 * Needed {
		table.ObserveLeast(k, 950_000, 96)
	}
	for range 2 * Needed {
		table.ObserveLeast(k, 950_000, 1<<62)
	}
	if n, _ := table.Quantile(k, 950_000); n != Largest {
		t.Errorf("after many that were ended above, 95 %% cost at most %d, want %d", n, Largest)
	}
	if n, _ := table.Quantile(k, 500_000); n != 103 {
		t.Errorf("after some that were ended above, half cost at most %d, want 103", n)
	}
}

// Many use one table at once; run with the race detector.
func TestATableIsShared(t *testing.T) {
	var table Table
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 2000 {
				k := Key{fmt.Sprint(i % 50), "tokens", fmt.Sprint(i % (MaxKeys + 10))}
				table.Observe(k, int64(g))
				if n, ok := table.Quantile(k, 990_000); ok && n > 8 {
					t.Errorf("%d of amounts of at most 7", n)
				}
			}
		})
	}
	all.Wait()
	if n := held(&table); n != MaxKeys || table.keys != n {
		t.Errorf("%d keys, want %d", n, MaxKeys)
	}
}

func BenchmarkReservation(b *testing.B) {
	var table Table
	k := Key{"acme", "tokens", "small"}
	r := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		table.Observe(k, r.Int64N(4000))
		table.Quantile(k, 950_000)
	}
}
