package agent

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

func attributesOf(pairs ...string) []limit.Attribute {
	var a []limit.Attribute
	for i := 0; i < len(pairs); i += 2 {
		a = append(a, limit.Attribute{Name: pairs[i], Value: pairs[i+1]})
	}
	return a
}

// entryOn is a bucket that the registry does not have.
func entryOn(r *Registry) *Entry {
	e := &Entry{Bucket: Bucket{at: new(hot)}}
	s := newScope()
	s.kind = &kind{registry: r}
	e.from.Store(&s.scoped)
	return e
}

// remember remembers a request of one limit, which meets a bucket of its own, and returns that.
func remember(r *Registry, set *Set, a []limit.Attribute) *Entry {
	e := entryOn(r)
	r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
	return e
}

// What a request came to is known for its attributes, to the letter and in their order, and for no others.
func TestRecallIsOfTheSameRequest(t *testing.T) {
	r, set, _ := many(t, 1)
	long := strings.Repeat("0123456789", 6)
	mutable := []byte("region")
	requests := [][]limit.Attribute{
		attributesOf("tenant", "a"),
		attributesOf("tenant", "b"),
		attributesOf("tenant", ""),
		attributesOf("tenant", "a", "user", ""),
		attributesOf("user", "a"),
		attributesOf("user", "a", "tenant", "b"),
		attributesOf("tenant", "b", "user", "a"),
		attributesOf("tenant", "ab", "user", ""),
		attributesOf("tenant", "aa"),
		attributesOf("tenant", "aaa"),
		attributesOf("tenant", "aba"),
		attributesOf("tenant", "abcd"),
		attributesOf("tenant", "abcdefgh"),
		attributesOf("tenant", "abcdefg"),
		attributesOf("tenant", "abcdefghi"),
		attributesOf("tenant", "user0001"), // its bits hold those of the next
		attributesOf("tenant", "user0000"),
		attributesOf("tenant", "10.0.0.3"),
		attributesOf("tenant", "10.0.0.1"),
		attributesOf("tenant", long[:16]),
		attributesOf("tenant", long[:17]),
		attributesOf("tenant", long),
		attributesOf("tenant", long[:30]+"x"+long[31:]),
		attributesOf("tenant", long, "user", long),
		attributesOf("tenant", long, "user", long[:20]+"x"+long[21:]),
		attributesOf("tenant", "a", "user", "b", "ip", "c", "endpoint", "d", "method", "e", "priority", "f", "g", "h", "i", "j"),
		attributesOf("tenant", long, "user", long, "endpoint", long, "ip", long),
		attributesOf("tenant", "same"),
		attributesOf("tenant"[:5], "same"), // at the same place
		attributesOf("tenant"[:1], "same"),
		attributesOf(unsafe.String(&mutable[0], 6), "a"),
	}
	var entries []*Entry
	for _, a := range requests {
		if known, _, _ := recall(r, a); known != nil {
			t.Fatalf("%v is known before it was remembered", a)
		}
		entries = append(entries, remember(r, set, a))
	}
	check := func() {
		t.Helper()
		for i, a := range requests {
			var own []limit.Attribute
			for _, at := range a {
				own = append(own, limit.Attribute{Name: strings.Clone(at.Name), Value: strings.Clone(at.Value)})
			}
			if known, _, _ := recall(r, own); known == nil || known.Entry(0) != entries[i] {
				t.Errorf("%v is not known for what it came to", a)
			}
		}
	}
	check()
	// Names and values may be in memory that is written again.
	copy(mutable, "origin")
	if known, _, _ := recall(r, requests[len(requests)-1]); known != nil {
		t.Error("a request that names another attribute is known")
	}
	copy(mutable, "region")
	check()
	for _, a := range [][]limit.Attribute{
		attributesOf("tenant", long+"12345"), // too long
		attributesOf(strings.Repeat("tenant", 50), "a"),
		attributesOf("1", "", "2", "", "3", "", "4", "", "5", "", "6", "", "7", "", "8", "", "9", ""),
	} {
		remember(r, set, a)
		if known, _, again := recall(r, a); known != nil || again && len(a) > memoAttributes {
			t.Errorf("%v is too large to be remembered, and is", a)
		}
	}
}

// While the memo is swept no request waits for it, neither one of a new bucket nor one that is to be remembered or forgotten.
func TestNobodyWaitsForASweep(t *testing.T) {
	r, set, requests, entries := lodgers(t, 2, 3)
	known, _, _ := recall(r, requests[0])
	entries[0].marks.set(dead, true)
	r.memo.mu.Lock() // as one that is under way
	r.memo.long.Add(1)
	swept, asked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swept)
		r.Sweep()
	}()
	go func() {
		defer close(asked)
		for range 100 {
			runtime.Gosched() // until the sweep has begun
		}
		r.Remember(attributesOf("tenant", "b"), set, []*Item{&set.Items[0]}, entries[1:], 0)
		r.Forget(known)
		if _, _, err := r.Learn("b"); err != nil {
			t.Error(err)
		}
	}()
	waits := func() bool {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range 1000 { // which do not pile up while the machine does something else, or the process is stopped
			select {
			case <-asked:
				return false
			case <-tick.C:
			}
		}
		return true
	}
	if waits() {
		t.Error("a request waits for a sweep")
	}
	r.memo.long.Add(-1)
	r.memo.mu.Unlock()
	<-asked
	<-swept
}

// A memo against a map, over random requests that differ in little.
func TestRecallAgainstAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r, set, _ := many(t, 1)
	ref := make(map[string]*Entry)
	for range 30_000 {
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
		if known, _, _ := recall(r, a); known != nil && known.Entry(0) != ref[key] {
			t.Fatalf("%v is known for what another came to", a)
		}
		if rng.IntN(3) == 0 {
			ref[key] = remember(r, set, a)
		} else if known, _, _ := recall(r, a); known != nil && rng.IntN(8) == 0 {
			known.Entry(0).marks.set(dead, true)
			r.Forget(known)
			if known, _, _ := recall(r, a); known != nil {
				t.Fatalf("%v is known after it was forgotten", a)
			}
		}
	}
}

// A request is worth remembering when it is seen again.
func TestRecallOnSecondSight(t *testing.T) {
	r, _, _ := many(t, 1)
	a := attributesOf("tenant", "a")
	for i, want := range []bool{false, true, true} {
		if _, _, again := recall(r, a); again != want {
			t.Errorf("sight %d: worth remembering %v, want %v", i+1, again, want)
		}
	}
}

// Most requests that come as often as ten thousand others are remembered by the fourth time, though the table begins small.
func TestMemoComesToKnowTheSeldom(t *testing.T) {
	r, set, _ := many(t, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	unknown := 0
	for round := range 4 {
		unknown = 0
		for _, i := range rng.Perm(10_000) {
			a := attributesOf("tenant", fmt.Sprint(i))
			known, _, again := recall(r, a)
			if known == nil {
				unknown++
			}
			if again && known == nil {
				remember(r, set, a)
			}
		}
		t.Logf("round %d: %d of 10000 are not known", round+1, unknown)
	}
	if unknown > 2_000 {
		t.Errorf("the fourth time that ten thousand requests come, %d are not known, want at most 2,000", unknown)
	}
}

// What is remembered is bounded, stays while it is used, and goes when it is not.
func TestMemoIsBounded(t *testing.T) {
	unraced.Only(t)
	r, set, _ := many(t, 1)
	request := func(i int) []limit.Attribute { return attributesOf("tenant", "a", "user", fmt.Sprint(i)) }
	count := func() int { return r.memo.table.Load().count }
	for i := range 3 * memoFloor {
		remember(r, set, request(i))
	}
	if n := count(); n > memoFloor || n < memoFloor*9/10 {
		t.Errorf("%d requests are remembered, want about %d and no more", n, memoFloor)
	}
	slots := len(r.memo.table.Load().groups) * memoWays
	if slots > 4*memoFloor {
		t.Errorf("the table has room for %d, want at most %d", slots, 4*memoFloor)
	}
	known := 0
	for i := range 3 * memoFloor {
		if k, _, _ := recall(r, request(i)); k != nil {
			known++
		}
	}
	if n := count(); known != n {
		t.Errorf("%d requests are known, %d are remembered", known, n)
	}
	r.buckets.Store(memoFloor)
	for i := range memoEach * memoFloor {
		remember(r, set, request(i))
	}
	if n := count(); n < memoEach*memoFloor*9/10 {
		t.Errorf("%d requests are remembered of %d, with as many buckets", n, memoEach*memoFloor)
	}
	used := func() int {
		n := 0
		for i := range 100 {
			if k, _, _ := recall(r, request(i)); k != nil {
				n++
			}
		}
		return n
	}
	was := used()
	for range 2 * memoStay {
		r.Sweep()
		if n := used(); n != was {
			t.Fatalf("%d of the requests in use are known, %d were", n, was)
		}
	}
	if n, groups := count(), len(r.memo.table.Load().groups); n > 100 || groups > 4*memoGroups {
		t.Errorf("%d requests in %d groups are left when 100 are in use", n, groups)
	}
}

// A request that was put elsewhere, for its groups were full, is known again once it was remembered anew, though others of
// its groups are gone by then.
func TestRecallFindsWhatOthersMadeRoomFor(t *testing.T) {
	const n = 10_000
	r, set, requests, entries := lodgers(t, n, 3)
	for i := 0; i < n; i += 4 {
		if known, _, _ := recall(r, requests[i]); known != nil {
			entries[i].marks.set(dead, true)
			r.Forget(known)
		}
	}
	missed := 0
	for i, a := range requests {
		if known, _, _ := recall(r, a); known != nil || entries[i].Dead() {
			continue
		}
		missed++
		r.Remember(a, set, []*Item{&set.Items[0]}, entries[i:i+1], 0)
		if known, plain, _ := recall(r, a); known == nil || known.Entry(0) != entries[i] || !plain.Take(3) && !entries[i].Take(3) {
			t.Fatalf("request %d is not known for its bucket's three units, though it was remembered", i)
		}
	}
	if missed == 0 {
		t.Error("all were known where they had been: this proves nothing")
	}
	table, count := r.memo.table.Load(), 0
	table.each(func(uint32, int, *Resolution) { count++ })
	if table.count != count {
		t.Errorf("%d requests are remembered, and %d counted", count, table.count)
	}
	t.Logf("%d of %d had lost their place", missed, n-n/4)
}

// Most requests are in their first group, where the first look finds them.
func TestMemoFindsMostAtFirst(t *testing.T) {
	for _, n := range []int{300, 1000, 1500, 10_000} {
		r, set, _ := many(t, 1)
		for i := range n {
			remember(r, set, attributesOf("tenant", "a", "user", fmt.Sprint(i)))
		}
		table := r.memo.table.Load()
		first := 0
		table.each(func(i uint32, _ int, known *Resolution) {
			if i == table.place(known.is, 0) {
				first++
			}
		})
		if first < n*8/10 {
			t.Errorf("%d of %d requests are found at first, want at least eight tenths", first, n)
		}
	}
}

// The halves of a key are independent, and tell apart requests that differ in little: of half a million each half,
// and what is compared of the second, agrees in no more than chance has it.
func TestMemoKeysTellApart(t *testing.T) {
	unraced.Only(t)
	var keys []Key
	add := func(pairs ...string) {
		k := KeyOf(attributesOf(pairs...))
		if k.none() {
			t.Fatal(pairs)
		}
		keys = append(keys, k)
	}
	for i := range 100_000 {
		v := fmt.Sprint(i)
		add("tenant", v)
		add("tenant", v, "user", "")
		add("tenant", "", "user", v)
		add("tenant", "a value of more than sixteen bytes, "+v+", and then some")
		add("tenant", fmt.Sprintf("%08d", i), "user", fmt.Sprintf("%08d", i))
	}
	for n := range 65 {
		add("tenant", strings.Repeat("\x00", n))
		for at := range n {
			v := []byte(strings.Repeat("\x00", n))
			for bit := range 8 {
				v[at] = 1 << bit
				add("tenant", string(v))
			}
			add("tenant", strings.Repeat("\x00", at), "user", strings.Repeat("\x00", n-at))
		}
	}
	for what, c := range map[string]struct {
		of   func(Key) uint64
		most int
	}{
		"the first half":           {func(k Key) uint64 { return k.key }, 0},
		"the second half":          {func(k Key) uint64 { return k.more }, 0},
		"32 bits of the first":     {func(k Key) uint64 { return k.key >> 32 }, 100},
		"32 others":                {func(k Key) uint64 { return k.key & 0xffff_ffff }, 100},
		"what is compared besides": {func(k Key) uint64 { return k.more >> 32 }, 100},
		"what tells the place":     {func(k Key) uint64 { return k.more & 0xffff_ffff }, 100},
	} {
		seen := make(map[uint64]bool)
		same := 0
		for _, k := range keys {
			if seen[c.of(k)] {
				same++
			}
			seen[c.of(k)] = true
		}
		if same > c.most { // some 31 pairs of half a million agree in 32 bits by chance
			t.Errorf("%s: %d of %d keys are another's, want at most %d", what, same, len(keys), c.most)
		}
	}
}

// Of requests that name attributes in more ways than there is room for, some are not remembered, and none is known for another.
func TestMemoOfManyShapes(t *testing.T) {
	r, set, _ := many(t, 1)
	entries := make(map[string]*Entry)
	for i := range 2 * memoShapes {
		name := fmt.Sprint("attribute-", i)
		entries[name] = remember(r, set, attributesOf(name, name))
	}
	known := 0
	for name, e := range entries {
		if k, plain, _ := recall(r, attributesOf(name, name)); k != nil {
			known++
			if k.Entry(0) != e || plain.tokens != e.tokens() {
				t.Errorf("%s is known for what another came to", name)
			}
		}
	}
	if known > memoShapes || known < memoShapes*9/10 { // a few have the place of another by chance
		t.Errorf("requests of %d shapes are known, want %d, or a few less", known, memoShapes)
	}
}

// A memo that is asked in vain is set aside, and tried again later, less and less often.
func TestMemoStepsAside(t *testing.T) {
	r, set, _ := many(t, 1)
	i := 0
	vain := func() (asked int) {
		for r.memo.table.Load() != nil {
			i++
			asked++
			if asked > 10_000_000 {
				t.Fatal("it is asked for ever")
			}
			recall(r, attributesOf("tenant", "a", "id", fmt.Sprint(i)))
		}
		return asked
	}
	rests := func() (n int) {
		for r.memo.table.Load() == nil {
			r.Sweep()
			n++
		}
		return n
	}
	for _, want := range []int{1, 2, 4, 8} {
		asked := vain()
		if n := rests(); n != want {
			t.Errorf("after %d requests in vain it is not asked for %d sweeps, want %d", asked, n, want)
		}
	}
	// What pays stays, however many are in vain beside it. Which requests are counted their hashes say, which are others
	// in each process: of both kinds as many are drawn as there are on average.
	draw := func(name string, n int) (list [][]limit.Attribute) {
		counted := 0
		for i := 0; len(list) < n; i++ {
			a := attributesOf("tenant", "a", name, fmt.Sprint(i))
			switch hash := KeyOf(a); {
			case hash.sampled() && counted < n/memoSample:
				counted++
			case hash.sampled() || len(list)-counted == n-n/memoSample:
				continue
			}
			list = append(list, a)
		}
		return list
	}
	remembered, vainly := draw("user", 512), draw("id", 512)
	for _, a := range remembered {
		remember(r, set, a)
	}
	for i := range 200_000 {
		recall(r, remembered[i%len(remembered)])
		if i%2 == 0 {
			recall(r, vainly[i/2%len(vainly)])
		}
	}
	if r.memo.table.Load() == nil {
		t.Error("a memo that pays is set aside")
	}
}

// A tenant whose requests are all known stays in use.
func TestRecallKeepsTheTenant(t *testing.T) {
	r, _, _ := many(t, 1)
	r.Inform([]limit.Tenant{{ID: "a", Exists: true, Plan: "p", Suspended: true}})
	r.Inform([]limit.Tenant{{ID: "a", Exists: true, Plan: "p"}})
	set := r.Find("a")
	if set == nil {
		t.Fatal("no such tenant")
	}
	a := attributesOf("tenant", "a")
	remember(r, set, a)
	for range 2 * memoStay {
		if known, _, _ := recall(r, a); known == nil {
			t.Fatal("not known")
		}
		r.Sweep()
	}
	if r.Find("a") != set {
		t.Error("a tenant in use was forgotten")
	}
}

// What is replaced or forgotten is not known any more, and other tenants' is.
func TestRecallAfterAChange(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Registry)
		a, b   bool // known after it
	}{
		{"nothing new of a tenant", func(r *Registry) { r.Inform([]limit.Tenant{{ID: "a", Exists: true, Plan: "p"}}) }, true, true},
		{"another tenant", func(r *Registry) {
			_, _, _ = r.Learn("c")
			r.Inform([]limit.Tenant{{ID: "c", Exists: true, Plan: "p"}})
		}, true, true},
		{"a tenant changed", func(r *Registry) {
			r.Inform([]limit.Tenant{{ID: "a", Exists: true, Plan: "p", Suspended: true}})
		}, false, true},
		{"a tenant switched off", func(r *Registry) { r.Switch(limit.Switches{Denied: []string{"b"}}) }, true, false},
		{"tenants forgotten", func(r *Registry) {
			for range 4 { // of both, only a goes on being used
				recall(r, attributesOf("tenant", "a"))
				r.Each(func(e *Entry) { r.Drop(e, func(*Entry) {}) })
				r.Sweep()
			}
		}, true, false},
		{"the policy", func(r *Registry) { r.Adopt(r.rules) }, false, false},
		{"a shadow version", func(r *Registry) { r.Try(r.rules) }, false, false},
	} {
		r, _, _ := many(t, 1)
		if _, _, err := r.Learn("b"); err != nil {
			t.Fatal(err)
		}
		r.Inform([]limit.Tenant{{ID: "b", Exists: true, Plan: "p"}})
		sets := map[string]*Set{}
		for _, id := range []string{"a", "b"} {
			sets[id] = r.Find(id)
			remember(r, sets[id], attributesOf("tenant", id))
		}
		c.change(r)
		for id, want := range map[string]bool{"a": c.a, "b": c.b} {
			if known, _, _ := recall(r, attributesOf("tenant", id)); (known != nil) != want {
				t.Errorf("%s: what %s came to is known: %v, want %v", c.what, id, known != nil, want)
			}
			if !want {
				remember(r, sets[id], attributesOf("tenant", id))
				if known, _, _ := recall(r, attributesOf("tenant", id)); known != nil {
					t.Errorf("%s: what %s came to before is remembered", c.what, id)
				}
			}
		}
	}
}

// Requests look and remember while policies, tenants and switches change: none that begins after a
// change is decided by what was before.
func TestRecallUnderChange(t *testing.T) {
	r := NewRegistry(1000)
	policy := func(version int64) *limit.Rules {
		rules, err := limit.CompilePolicy(&limit.Policy{Version: version, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{
			{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: version, Per: 1e9}, Burst: 1},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	const tenants = 8
	r.Adopt(policy(1))
	name := func(i int) string { return fmt.Sprintf("tenant-%d", i) }
	learn := func() {
		for i := range tenants {
			if _, _, err := r.Learn(name(i)); err != nil {
				t.Fatal(err)
			}
			r.Inform([]limit.Tenant{{ID: name(i), Exists: true, Plan: "p"}})
		}
	}
	learn()
	var version, stale, hits, stop atomic.Int64
	var off [tenants]atomic.Int64 // switched off, for good
	version.Store(1)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			for stop.Load() == 0 {
				i := rng.IntN(tenants)
				a := attributesOf("tenant", name(i), "user", fmt.Sprint(rng.IntN(50)))
				least, dead := version.Load(), off[i].Load()
				known, _, _ := recall(r, a)
				if known == nil {
					set := r.Find(name(i))
					if set == nil || set.Refusal != NotRefused {
						continue
					}
					e, err := r.Touch(set, &set.List, 0, a, 1)
					if err == nil {
						r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
					}
					continue
				}
				hits.Add(1)
				if known.Item(0).Rule.Limit.Rate.Units < least || dead != 0 {
					stale.Add(1)
				}
				if known.Entry(0).Tenant() != name(i) {
					t.Errorf("%s is decided by a bucket of %s", name(i), known.Entry(0).Tenant())
				}
			}
		})
	}
	var denied []string
	for v := int64(2); v < 400; v++ {
		r.Adopt(policy(v))
		version.Store(v)
		for hits.Load() < v*50 { // between changes some are decided
			r.Inform([]limit.Tenant{{ID: name(0), Exists: true, Plan: "p", Revision: hits.Load()}})
		}
		if v%100 == 0 {
			i := int(v / 100)
			denied = append(denied, name(i))
			r.Switch(limit.Switches{Denied: denied})
			off[i].Store(1)
		}
		r.Each(func(e *Entry) { r.Drop(e, func(*Entry) {}) })
		r.Sweep()
		learn()
	}
	stop.Store(1)
	all.Wait()
	if stale.Load() > 0 {
		t.Errorf("%d of %d requests were decided by what had been replaced", stale.Load(), hits.Load())
	}
}

// benchRequest is a request as gateways have them.
func benchRequest(i int) []limit.Attribute {
	return attributesOf(
		"tenant", fmt.Sprintf("t-%08x", uint32(i/100)*2654435761),
		"user", fmt.Sprintf("u-%08x-%04x", uint32(i)*2246822519, i&0xffff),
		"endpoint", "GET /items/17",
		"ip", fmt.Sprintf("10.%d.%d.%d", 100+i&127, 100+i>>7&127, 100+i>>14&127))
}

// recall is Recall of a request by its attributes.
func recall(r *Registry, a []limit.Attribute) (known *Resolution, plain Cell, again bool) {
	return r.Recall(KeyOf(a), a)
}

// BenchmarkRecall looks up what one of 1,000 requests came to before.
func BenchmarkRecall(b *testing.B) {
	r, set, _ := many(b, 1)
	requests := make([][]limit.Attribute, 1000)
	for i := range requests {
		requests[i] = benchRequest(i)
		remember(r, set, requests[i])
	}
	b.Run("known", func(b *testing.B) {
		s := uint32(1)
		for b.Loop() {
			s = s*1664525 + 1013904223
			recall(r, requests[s>>8%1000])
		}
	})
	b.Run("unknown", func(b *testing.B) {
		a := attributesOf("tenant", "a", "user", "nobody of them", "endpoint", "GET /items/17", "ip", "10.1.2.3")
		for b.Loop() {
			recall(r, a)
		}
	})
}

// BenchmarkPlanChange replaces a set of which nothing is known, beside 16,384 requests that are: they go the long way meanwhile.
func BenchmarkPlanChange(b *testing.B) {
	r, set, _ := many(b, 1)
	for i := range memoFloor {
		remember(r, set, benchRequest(i))
	}
	gone := &Set{List: List{hash: set.hash + 1<<60}}
	for b.Loop() {
		r.memo.pause(gone)
		r.memo.resume()
	}
}
