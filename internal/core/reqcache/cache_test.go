package reqcache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

func request(pairs ...string) []limit.Attribute {
	var a []limit.Attribute
	for i := 0; i < len(pairs); i += 2 {
		a = append(a, limit.Attribute{Name: pairs[i], Value: pairs[i+1]})
	}
	return a
}

const plenty = 1 << 30

func put(c *Cache[int], a []limit.Attribute, v int) { c.Put(KeyOf(a), a, nil, v, plenty) }

// is returns what a request came to; 0 where that is not known.
func is(c *Cache[int], a []limit.Attribute) int {
	if v, _, _ := c.Get(KeyOf(a), a); v != nil {
		return *v
	}
	return 0
}

// count returns how many requests are known.
func count(c *Cache[int]) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Load().count
}

// settled waits until the table has grown, where it is to.
func settled(c *Cache[int]) {
	for c.growing.Load() {
		runtime.Gosched()
	}
}

// What a request came to is known for its attributes, to the letter and in their order, and for no others.
func TestOfTheSameRequest(t *testing.T) {
	c := New[int]()
	long := strings.Repeat("0123456789", 6)
	mutable := []byte("region")
	requests := [][]limit.Attribute{
		request("tenant", "a"),
		request("tenant", "b"),
		request("tenant", ""),
		request("tenant", "a", "user", ""),
		request("user", "a"),
		request("user", "a", "tenant", "b"),
		request("tenant", "b", "user", "a"),
		request("tenant", "ab", "user", ""),
		request("tenant", "", "user", "ab"),
		request("tenant", "\x01a"),
		request("tenant", "aa"),
		request("tenant", "aaa"),
		request("tenant", "aba"),
		request("tenant", "abcd"),
		request("tenant", "abcdefgh"),
		request("tenant", "abcdefghi"),
		request("tenant", "10.0.0.3"),
		request("tenant", "10.0.0.1"),
		request("tenant", long),
		request("tenant", long[:30]+"x"+long[31:]),
		request("tenant", long, "user", long),
		request("tenant", "a", "user", "b", "ip", "c", "endpoint", "d", "method", "e", "priority", "f", "g", "h", "i", "j"),
		request("tenant", "same"),
		request("tenant"[:5], "same"), // at the same place
		request(unsafe.String(&mutable[0], 6), "a"),
	}
	for i, a := range requests {
		if is(c, a) != 0 {
			t.Fatalf("%v is known before it was remembered", a)
		}
		put(c, a, i+1)
	}
	check := func() {
		t.Helper()
		for i, a := range requests {
			var own []limit.Attribute
			for _, at := range a {
				own = append(own, limit.Attribute{Name: strings.Clone(at.Name), Value: strings.Clone(at.Value)})
			}
			if is(c, own) != i+1 {
				t.Errorf("%v is not known for what it came to", a)
			}
		}
	}
	check()
	// Names and values may be in memory that is written again.
	copy(mutable, "origin")
	if is(c, requests[len(requests)-1]) != 0 {
		t.Error("a request that names another attribute is known")
	}
	copy(mutable, "region")
	check()
	for _, a := range [][]limit.Attribute{
		request("tenant", long+"12345"), // too long
		request("1", "", "2", "", "3", "", "4", "", "5", "", "6", "", "7", "", "8", "", "9", ""),
		nil,
	} {
		put(c, a, 1)
		if v, _, again := c.Get(KeyOf(a), a); v != nil || again {
			t.Errorf("%v is too large to be remembered, and is", a)
		}
	}
}

// Two requests of one key are told apart by their attributes, whatever a hash says of them.
func TestAttributesAreCompared(t *testing.T) {
	c := New[int]()
	a, b := request("tenant", "a"), request("tenant", "b")
	k := KeyOf(a)
	c.Put(k, a, nil, 1, plenty)
	if v, _, _ := c.Get(k, b); v != nil {
		t.Error("a request is decided by what another of its key came to")
	}
	c.Put(k, b, nil, 2, plenty)
	for i, a := range [][]limit.Attribute{a, b} {
		if v, _, _ := c.Get(k, a); v == nil || *v != i+1 {
			t.Errorf("%v is not known for what it came to", a)
		}
	}
}

// What is known of a request says whether its first bucket has a unit.
func TestTellsWhetherTheFirstBucketIsDry(t *testing.T) {
	c := New[int]()
	for name, of := range map[string]struct {
		limit limit.Limit
		dry   bool
	}{
		"counts": {limit.Limit{}, false},
		"cold":   {limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 1}, true},
	} {
		a := request("user", name)
		var b bucket.Bucket
		b.Init(bucket.TermsOf((&limit.Rule{Limit: of.limit}).Hold()), nil, false, 0, 0)
		c.Put(KeyOf(a), a, b.Hot, 1, plenty)
		if v, dry, _ := c.Get(KeyOf(a), a); v == nil || dry != of.dry {
			t.Errorf("%s: known %v, dry %v, want %v", name, v != nil, dry, of.dry)
		}
	}
}

// The cache against a map, over random requests that differ in little.
func TestAgainstAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := New[int]()
	ref := make(map[string]int)
	for n := range 30_000 {
		var a []limit.Attribute
		key := ""
		for range 1 + rng.IntN(3) {
			v := strings.Repeat("ab", 14)[:rng.IntN(28)]
			if len(v) > 0 && rng.IntN(2) == 0 {
				at := rng.IntN(len(v))
				v = v[:at] + "x" + v[at+1:]
			}
			a = append(a, limit.Attribute{Name: []string{"tenant", "user", "region"}[rng.IntN(3)], Value: v})
			key += a[len(a)-1].Name + "=" + v + ";"
		}
		v, _, _ := c.Get(KeyOf(a), a)
		if v != nil && *v != ref[key] {
			t.Fatalf("%v is known for what another came to", a)
		}
		switch {
		case rng.IntN(3) == 0:
			settled(c)
			ref[key] = n + 1
			put(c, a, n+1)
		case v != nil && rng.IntN(64) == 0:
			settled(c)
			if c.Sweep(func(other *int, _ bool) bool { return other != v }); is(c, a) != 0 {
				t.Fatalf("%v is known after it was forgotten", a)
			}
		}
	}
}

// A request is worth remembering when it is seen again.
func TestOnSecondSight(t *testing.T) {
	c := New[int]()
	a := request("tenant", "a")
	for i, want := range []bool{false, true, true} {
		if _, _, again := c.Get(KeyOf(a), a); again != want {
			t.Errorf("sight %d: worth remembering %v, want %v", i+1, again, want)
		}
	}
}

// Most requests that come as often as ten thousand others are remembered by the fourth time, though the table begins small.
func TestComesToKnowTheSeldom(t *testing.T) {
	c := New[int]()
	rng := rand.New(rand.NewPCG(1, 2))
	unknown := 0
	for round := range 4 {
		unknown = 0
		for _, i := range rng.Perm(10_000) {
			a := request("tenant", fmt.Sprint(i))
			v, _, again := c.Get(KeyOf(a), a)
			if v == nil {
				unknown++
			}
			if again && v == nil {
				settled(c)
				put(c, a, i+1)
			}
		}
		t.Logf("round %d: %d of 10000 are not known", round+1, unknown)
	}
	if unknown > 2_000 {
		t.Errorf("the fourth time that ten thousand requests come, %d are not known, want at most 2,000", unknown)
	}
}

// What is remembered is bounded, stays while it is used, and goes when it is not.
func TestIsBounded(t *testing.T) {
	const most = 10_000
	c := New[int]()
	of := func(i int) []limit.Attribute { return request("tenant", "a", "user", fmt.Sprint(i)) }
	for i := range 3 * most {
		settled(c)
		c.Put(KeyOf(of(i)), of(i), nil, i+1, most)
	}
	if n := count(c); n > most || n < most*9/10 {
		t.Errorf("%d requests are remembered, want about %d and no more", n, most)
	}
	known := 0
	for i := range 3 * most {
		if is(c, of(i)) != 0 {
			known++
		}
	}
	if n := count(c); known != n {
		t.Errorf("%d requests are known, %d are remembered", known, n)
	}
	used := func() (n int) {
		for i := range 3 * most {
			if i%100 == 0 && is(c, of(i)) != 0 {
				n++
			}
		}
		return n
	}
	was := used()
	for range 2 * stay {
		c.Sweep(func(*int, bool) bool { return true })
		if n := used(); n != was {
			t.Fatalf("%d of the requests in use are known, %d were", n, was)
		}
	}
	if n, slots := count(c), len(c.table.Load().slots); n != was || slots > 4*leastSlots {
		t.Errorf("%d requests in %d slots are left when %d are in use", n, slots, was)
	}
	c.Sweep(func(*int, bool) bool { return false })
	if n := count(c); n != 0 {
		t.Errorf("%d are left of what is not to be kept", n)
	}
}

// Of requests that name attributes in more ways than there is room for, some are not remembered, and none is known for another.
func TestManyShapes(t *testing.T) {
	c := New[int]()
	known := 0
	for i := range 2 * maxShapes {
		name := fmt.Sprint("attribute-", i)
		put(c, request(name, name), i+1)
	}
	for i := range 2 * maxShapes {
		name := fmt.Sprint("attribute-", i)
		switch v := is(c, request(name, name)); v {
		case 0:
		case i + 1:
			known++
		default:
			t.Errorf("%s is known for what another came to", name)
		}
	}
	if known != maxShapes {
		t.Errorf("requests of %d shapes are known, want %d", known, maxShapes)
	}
}

// While another writes, grows or sweeps, nobody who decides waits.
func TestNobodyWaitsForAWriter(t *testing.T) {
	c := New[int]()
	a := request("tenant", "a")
	put(c, a, 1)
	c.mu.Lock()
	put(c, request("tenant", "b"), 2)
	if is(c, a) != 1 || is(c, request("tenant", "b")) != 0 {
		t.Error("a table that another writes is not as it was")
	}
	c.mu.Unlock()
}

// A cache that is closed remembers nothing more, and nothing of it goes on.
func TestAClosedCacheGrowsNoMore(t *testing.T) {
	c := New[int]()
	for i := range leastSlots {
		put(c, request("user", fmt.Sprint(i)), i+1)
	}
	c.Close()
	if c.growing.Load() {
		t.Error("it grows after it was closed")
	}
	a := request("user", "late")
	if put(c, a, 1); is(c, a) != 0 {
		t.Error("a request is remembered after the cache was closed")
	}
}
