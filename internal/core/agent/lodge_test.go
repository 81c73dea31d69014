package agent

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// lodgers remembers so many requests, each of a bucket of its own that has so many units.
func lodgers(tb testing.TB, n int, units int64) (r *Registry, set *Set, requests [][]limit.Attribute, entries []*Entry) {
	tb.Helper()
	r, set, _ = many(tb, 1)
	r.buckets.Store(int64(n))
	for i := range n {
		requests = append(requests, attributesOf("tenant", "a", "user", fmt.Sprint(i)))
		e := entryOn(r)
		e.at.tokens.Store(units * Unit)
		r.Remember(requests[i], set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
		entries = append(entries, e)
	}
	return r, set, requests, entries
}

func lodging(entries []*Entry) (n int) {
	for _, e := range entries {
		if e.has(lodged) {
			n++
		}
	}
	return n
}

// allHome fails the test unless each bucket has its units at home.
func allHome(t *testing.T, entries []*Entry, units int64) {
	t.Helper()
	for i, e := range entries {
		if e.has(lodged) || unitsOf(&e.at.tokens) != units {
			t.Fatalf("bucket %d has %d units at home, want %d", i, unitsOf(&e.at.tokens), units)
		}
	}
}

// Of many requests that are remembered, the tokens of nearly all lodge, and no table has hints for the few others.
func TestMostTokensLodge(t *testing.T) {
	const n = 3 * memoHinted
	r, _, requests, entries := lodgers(t, n, 3)
	if got := lodging(entries); got < n*98/100 {
		t.Errorf("the tokens of %d of %d lodge, want all but a few", got, n)
	}
	if r.memo.table.Load().hints.of != nil {
		t.Error("there are hints, and little to say")
	}
	forgotten := 0
	for i, a := range requests {
		known, plain, _ := recall(r, a)
		if known == nil { // all its groups were full, and another was put in its place: one of a million
			forgotten++
			plain = Cell{entries[i].tokens()}
		}
		if plain.tokens != entries[i].tokens() || !plain.Take(2) || plain.Take(2) || plain.moved() {
			t.Fatalf("request %d is not of its bucket's three units", i)
		}
		if entries[i].Take(2) || !entries[i].Take(1) { // as a request does that is not remembered
			t.Fatalf("bucket %d has not the unit that is left", i)
		}
	}
	if forgotten > n/1000 {
		t.Errorf("%d of %d requests are forgotten, want hardly any", forgotten, n)
	}
}

// A way lodges tokens once; when too many have, the table is replaced, and they lodge again.
func TestTokensLodgeAgain(t *testing.T) {
	const n = 1000
	r, set, requests, entries := lodgers(t, n, 3)
	slots := memoWays * len(r.memo.table.Load().groups)
	for i := range n {
		known, _, _ := recall(r, requests[i])
		if known == nil { // a way came free in a group that was full as the request was put elsewhere
			r.Remember(requests[i], set, []*Item{&set.Items[0]}, entries[i:i+1], 0)
			if known, _, _ = recall(r, requests[i]); known == nil {
				t.Fatalf("request %d is not known, though it was remembered just now", i)
			}
		}
		entries[i].marks.set(dead, true)
		r.Forget(known)
		entries[i] = entryOn(r)
		r.Remember(requests[i], set, []*Item{&set.Items[0]}, entries[i:i+1], 0)
	}
	was, spentWays := lodging(entries), r.memo.table.Load().spent
	if spentWays < n*9/10 || was > slots-spentWays {
		t.Fatalf("of %d ways %d are spent, and in %d are tokens", slots, spentWays, was)
	}
	r.memo.sweep()
	if got := lodging(entries); got < n*95/100 {
		t.Errorf("the tokens of %d of %d lodge after a sweep, %d before, want nearly all", got, n, was)
	}
}

// What several requests come to, or requests of several limits, is at home from then on.
func TestTokensOfSeveralAreAtHome(t *testing.T) {
	r, set, requests, entries := lodgers(t, 2, 3)
	r.Remember(attributesOf("tenant", "a", "user", "0", "endpoint", "e"), set, []*Item{&set.Items[0]}, entries[:1], 0)
	r.Remember(attributesOf("tenant", "a", "user", "1", "endpoint", "e"), set, []*Item{&set.Items[0], &set.Items[0]}, []*Entry{entries[1], entryOn(r)}, 0)
	allHome(t, entries, 3)
	for i, a := range requests {
		if known, plain, _ := recall(r, a); known == nil || plain.tokens != &entries[i].at.tokens || !plain.Take(3) {
			t.Errorf("request %d has not its bucket's units", i)
		}
		r.Remember(a, set, []*Item{&set.Items[0]}, entries[i:i+1], 0)
		if entries[i].has(lodged) {
			t.Errorf("the tokens of bucket %d are moved to and fro", i)
		}
	}
}

// ofThree remembers so many requests of three limits each: two buckets of their own, with so many units each, and between them one that ten share.
func ofThree(tb testing.TB, n int, units int64) (r *Registry, remember func(i int), requests [][]limit.Attribute, own, all []*Entry) {
	tb.Helper()
	r, set, _ := many(tb, 1)
	r.buckets.Store(int64(2 * n))
	items := []*Item{&set.Items[0], &set.Items[0], &set.Items[0]}
	remember = func(i int) { r.Remember(requests[i], set, items, all[3*i:3*i+3], 0) }
	for i := range n {
		requests = append(requests, attributesOf("tenant", "a", "user", fmt.Sprint(i)))
		a, b := entryOn(r), entryOn(r)
		a.at.tokens.Store(units * Unit)
		b.at.tokens.Store(units * Unit)
		if i%10 == 0 {
			all = append(all, a, entryOn(r), b)
			all[3*i+1].at.tokens.Store(1 << 40)
		} else {
			all = append(all, a, all[3*(i-1)+1], b)
		}
		own = append(own, a, b)
		remember(i)
	}
	return r, remember, requests, own, all
}

// Of many requests of several limits the tokens of those buckets lodge that no other comes to, and the request reads a line for them all.
func TestTokensOfSeveralLimitsLodge(t *testing.T) {
	const n = 3 * memoHinted
	r, _, requests, own, all := ofThree(t, n, 3)
	if got := lodging(own); got < 2*n*98/100 {
		t.Errorf("the tokens of %d of %d lodge, want all but a few", got, 2*n)
	}
	if r.memo.table.Load().hints.of == nil {
		t.Error("there are no hints, though no tokens lodge where requests look first")
	}
	for i, a := range requests {
		known, plain, _ := recall(r, a)
		if known == nil {
			continue
		}
		if uintptr(unsafe.Pointer(known))%64 != 0 {
			t.Fatal("a resolution is not where a cache line begins")
		}
		for j, e := range all[3*i : 3*i+3] {
			if within := known.at[j].Load() == &known.lodge[j]; within == (j == 1) || known.at[j].Load() != e.tokens() {
				t.Fatalf("request %d, limit %d: the tokens lodge: %v", i, j, within)
			}
		}
		if !plain.None() || known.Take(2) != 3 || known.Take(2) != 0 {
			t.Fatalf("request %d is not of its buckets' three units", i)
		}
		if own[2*i+1].Take(2) || !own[2*i+1].Take(1) || known.Take(1) != 2 {
			t.Fatalf("request %d was not refused for its third limit", i)
		}
	}
	r.memo.begin()
	for i, e := range own {
		if e.has(lodged) {
			t.Fatalf("the tokens of bucket %d are where nobody looks", i)
		}
	}
}

// What requests touch besides tokens is at home, and so are the tokens of such buckets.
func TestTokensOfWhatIsAnnouncedAreAtHome(t *testing.T) {
	for name, c := range map[string]struct {
		item Item
		mark uint32
		want bool
	}{
		"of nothing":   {want: true},
		"of Hold":      {item: Item{Hold: true}},
		"of Inherit":   {item: Item{Inherited: true}},
		"of slots":     {item: Item{Slots: true}},
		"of a journal": {mark: durable},
		"of a handle":  {mark: several},
	} {
		t.Run(name, func(t *testing.T) {
			r, set, _ := many(t, 1)
			e := entryOn(r)
			e.marks.set(c.mark, true)
			entries := []*Entry{entryOn(r), e, entryOn(r), entryOn(r)}
			r.Remember(attributesOf("tenant", "a"), set, []*Item{&set.Items[0], &c.item, &set.Items[0], &set.Items[0]}, entries, 0)
			known, _, _ := recall(r, attributesOf("tenant", "a"))
			for i, e := range entries {
				want := c.want && i == 1 || !c.item.Slots && (i == 0 || i == 2)
				if e.has(lodged) != want || e.tokens() != known.at[i].Load() {
					t.Errorf("limit %d lodges: %v", i, !want)
				}
			}
			if c.item.Hold {
				if entries[0].tokens().Store(Unit); known.Take(1) != 1 || e.at.pending.Load() != 1 || e.Quiet() {
					t.Error("what is announced is not where the owner looks")
				}
			}
		})
	}
}

// So it is where a request of several limits, that is known, is remembered for other buckets than before.
func TestTokensOfSeveralAreAtHomeHoweverTheyCame(t *testing.T) {
	r, set, requests, entries := lodgers(t, 1, 3)
	both := attributesOf("tenant", "a", "user", "0", "endpoint", "e")
	items := []*Item{&set.Items[0], &set.Items[0]}
	other := entryOn(r)
	r.Remember(both, set, items, []*Entry{entryOn(r), other}, 0)
	if !entries[0].has(lodged) {
		t.Fatal("the tokens of what one request alone came to are at home")
	}
	r.Remember(both, set, items, []*Entry{entries[0], other}, 0)
	allHome(t, entries, 3)
	if known, _, _ := recall(r, both); known == nil || known.Entry(0) != entries[0] || known.at[0].Load().Load() != 3*Unit {
		t.Error("the request of both limits is not known for the bucket's three units")
	}
	if _, plain, _ := recall(r, requests[0]); plain.tokens != &entries[0].at.tokens {
		t.Error("the other goes by where its bucket's tokens are not")
	}
}

// A request that two remember at once, as its first ones do, has its tokens lodge as that which one remembers.
func TestTokensOfARequestRememberedTwiceLodge(t *testing.T) {
	r, set, requests, entries := lodgers(t, 2, 3)
	was, _, _ := recall(r, requests[0])
	r.Remember(requests[0], set, []*Item{&set.Items[0]}, entries[:1], 0)
	if known, plain, _ := recall(r, requests[0]); known != was || !entries[0].has(lodged) || plain.tokens != entries[0].tokens() {
		t.Error("the tokens are at home")
	}
	dead := entries[1]
	entries[1] = entryOn(r)
	r.Remember(requests[1], set, []*Item{&set.Items[0]}, entries[1:], 0)
	if known, _, _ := recall(r, requests[1]); known == nil || known.Entry(0) != entries[1] || dead.has(lodged) {
		t.Error("a request is known for the bucket that it came to before")
	}
}

// What a handle once held stays at home: one that is late subtracts from what is there without a look, as often as it likes.
func TestTokensOfWhatAHandleHeldAreAtHome(t *testing.T) {
	r, set, requests, entries := lodgers(t, 2, 3)
	late := entries[0]
	late.Pin()
	stock := late.Stock()
	late.Unpin()
	for _, remember := range []func(){
		func() { r.Remember(requests[0], set, []*Item{&set.Items[0]}, entries[:1], 0) },
		r.memo.begin,
		func() { r.Remember(requests[0], set, []*Item{&set.Items[0]}, entries[:1], 0) },
	} {
		remember()
		if late.has(lodged) || stock.Load() != 3*Unit {
			t.Fatal("the tokens lodge, and a handle has their home in hand")
		}
	}
	for range 1<<(lodgeTraces-1) + 1 {
		stock.Add(-Unit)
	}
	if late.Take(1) || unitsOf(entries[1].tokens()) != 3 {
		t.Error("what a handle was refused is another bucket's")
	}
}

// Of two requests of one bucket the first may have been there when nothing lodged: the next table knows that they are two.
func TestTokensOfSeveralAreAtHomeInTheNextTable(t *testing.T) {
	r, set, requests, entries := lodgers(t, 1, 3)
	r.memo.mu.Lock()
	r.memo.sendHomeLocked(entries[0])
	r.memo.mu.Unlock()
	r.Remember(attributesOf("tenant", "a", "user", "0", "endpoint", "e"), set, []*Item{&set.Items[0]}, entries, 0)
	r.memo.mu.Lock()
	r.memo.resizeLocked(r.memo.table.Load(), memoGroups)
	r.memo.mu.Unlock()
	allHome(t, entries, 3)
	if _, plain, _ := recall(r, requests[0]); plain.None() || plain.moved() || !entries[0].has(several) {
		t.Error("a request goes by where its bucket's tokens are not")
	}
}

// A journal's cells are where a crash leaves them.
func TestTokensOfAJournalAreAtHome(t *testing.T) {
	r, set, _ := many(t, 1)
	c := new(cell)
	e := entryOn(r)
	e.at = &c.hot
	e.marks.set(durable, true)
	r.Remember(attributesOf("tenant", "a"), set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
	if _, plain, _ := recall(r, attributesOf("tenant", "a")); e.has(lodged) || plain.tokens != &c.tokens {
		t.Error("the tokens are not in the cell")
	}
}

// When a memo goes, all that lodges in it comes home.
func TestTokensComeHome(t *testing.T) {
	for name, end := range map[string]func(*Registry){
		"it begins anew":  func(r *Registry) { r.memo.begin() },
		"it is set aside": func(r *Registry) { r.memo.setAside(r.memo.table.Load()); r.memo.sweep() },
		"requests stay away": func(r *Registry) {
			for range memoStay + 1 {
				r.memo.sweep()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _, entries := lodgers(t, 1000, 3)
			if lodging(entries) == 0 {
				t.Fatal("none lodge")
			}
			end(r)
			allHome(t, entries, 3)
		})
	}
}

// moves is how often tokens are moved under load: requests come for as long as that lasts, however fast they are.
const moves = 5_000

// moved moves tokens, all or those of one bucket, three times of eight, and reports whether it did.
func (m *memo) moved(rng *rand.Rand, of *Entry) bool {
	switch rng.IntN(8) {
	case 0:
		m.begin()
	case 1:
		m.mu.Lock()
		if t := m.table.Load(); t != nil { // it may not pay, where so many are not known
			m.resizeLocked(t, memoGroups<<rng.IntN(3))
		}
		m.mu.Unlock()
	case 2:
		m.mu.Lock()
		m.sendHomeLocked(of)
		m.mu.Unlock()
	default:
		return false
	}
	return true
}

// While tokens move all the time, each unit of each bucket is taken once, and by the bucket's own requests.
func TestTokensMoveUnderLoad(t *testing.T) {
	const buckets, units = 40, 200_000
	r, set, requests, entries := lodgers(t, buckets, units)
	var taken [buckets]atomic.Int64
	var granted [buckets]int64
	for i := range granted {
		granted[i] = units
	}
	var over atomic.Bool
	var askers sync.WaitGroup
	for g := range 2 * runtime.GOMAXPROCS(0) {
		askers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for !over.Load() {
				i := rng.IntN(buckets)
				known, plain, _ := recall(r, requests[i])
				if known == nil && rng.IntN(8) == 0 {
					r.Remember(requests[i], set, []*Item{&set.Items[0]}, entries[i:i+1], 0)
				}
				if known != nil && plain.Take(1) || (known == nil || plain.moved()) && entries[i].Take(1) {
					taken[i].Add(1)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range moves {
		i := rng.IntN(buckets)
		if e := entries[i]; !r.memo.moved(rng, e) { // as its owner does
			e.mu.Lock()
			st := e.stock()
			st.credit(1)
			granted[i] += st.credit(-1) // which it fell short of
			e.mu.Unlock()
		}
	}
	over.Store(true)
	askers.Wait()
	for i, e := range entries {
		had := taken[i].Load()
		e.mu.Lock()
		left := unitsOf(e.tokens())
		e.mu.Unlock()
		if had+left != granted[i] || had == 0 {
			t.Errorf("bucket %d had %d units: %d were taken and %d are left", i, granted[i], had, left)
		}
	}
}

// So it is with requests of several limits, which put back what they took where another bucket refuses.
func TestTokensOfSeveralLimitsMoveUnderLoad(t *testing.T) {
	const asked, units = 20, 100_000
	r, remember, requests, own, _ := ofThree(t, asked, units)
	var taken [asked]atomic.Int64
	granted, folded := make([]int64, len(own)), make([]int64, len(own))
	for i := range granted {
		granted[i] = units
	}
	var over atomic.Bool
	var askers sync.WaitGroup
	for g := range 2 * runtime.GOMAXPROCS(0) {
		askers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for !over.Load() {
				i := rng.IntN(asked)
				known, _, _ := recall(r, requests[i])
				if known == nil {
					if rng.IntN(8) == 0 {
						remember(i)
					}
					continue
				}
				switch had := known.Take(1); had {
				case 3:
					taken[i].Add(1)
				default:
					for j := range had {
						known.Entry(j).PutBack(1)
					}
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range moves {
		i := rng.IntN(len(own))
		if e := own[i]; !r.memo.moved(rng, e) {
			e.mu.Lock()
			st := e.stock()
			st.folded = folded[i]
			granted[i] += 1 + st.credit(1)
			folded[i] = st.folded
			e.mu.Unlock()
		}
	}
	over.Store(true)
	askers.Wait()
	for i, e := range own {
		had := taken[i/2].Load()
		e.mu.Lock()
		left := unitsOf(e.tokens()) + e.at.back.Load() - folded[i]
		e.mu.Unlock()
		if had+left != granted[i] || had == 0 {
			t.Errorf("bucket %d had %d units: %d were taken and %d are left", i, granted[i], had, left)
		}
	}
}
