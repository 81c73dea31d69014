package table

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

type item struct{ key uint64 }

// lookup finds a plain number, of which many collide.
func lookup(t *Table[item], key uint64) *item {
	return t.Find(key%97, func(p *item) bool { return p.key == key })
}

// A table against a map, over a random history of inserts and removals.
func TestTableAgainstAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	tab, ref := New(func(p *item) uint64 { return p.key % 97 }), make(map[uint64]*item)
	for step := range 50_000 {
		key := r.Uint64N(600)
		if p, ok := ref[key]; !ok {
			p = &item{key: key}
			ref[key] = p
			tab.Insert(key%97, p)
		} else if r.IntN(3) > 0 {
			tab.Remove(key%97, p)
			delete(ref, key)
		}
		probe := r.Uint64N(600)
		if got, want := lookup(tab, probe), ref[probe]; got != want {
			t.Fatalf("step %d: key %d is %p, want %p", step, probe, got, want)
		}
		if tab.Len() != len(ref) {
			t.Fatalf("step %d: %d live, want %d", step, tab.Len(), len(ref))
		}
	}
	seen := 0
	for p := range tab.All() {
		seen++
		if ref[p.key] != p {
			t.Errorf("each shows key %d, which is not there", p.key)
		}
	}
	if seen != len(ref) {
		t.Errorf("each shows %d entries, want %d", seen, len(ref))
	}
	for _, p := range ref {
		tab.Remove(p.key%97, p)
	}
	for p := range tab.parts {
		for i := range *tab.parts[p].groups.Load() {
			if tags := (*tab.parts[p].groups.Load())[i].tags.Load(); tags >= onePassed {
				t.Errorf("group %d of an empty table was passed by %d entries", i, tags/onePassed)
			}
		}
	}
}

// Readers run beside a writer that grows and shrinks the table: what is never
// removed is always found, unless the table is just being replaced, and what is found
// is what was looked for.
func TestTableReadersBesideAWriter(t *testing.T) {
	tab := New(func(p *item) uint64 { return p.key % 97 })
	for k := range uint64(50) {
		tab.Insert(k%97, &item{key: k})
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for !stop.Load() {
				k := r.Uint64N(50)
				p := lookup(tab, k)
				if p == nil || p.key != k {
					t.Errorf("key %d is %v, want its entry", k, p)
					return
				}
			}
		})
	}
	for round := range 300 {
		var added []*item
		for k := range uint64(200) {
			p := &item{key: 1000 + k + uint64(round)*200}
			added = append(added, p)
			tab.Insert(p.key%97, p)
		}
		for _, p := range added {
			tab.Remove(p.key%97, p)
		}
	}
	stop.Store(true)
	wg.Wait()
}

// Where far more have one hash than a group can say went past it, all are found, and none that was taken out.
func TestTableOfOneHash(t *testing.T) {
	unraced.Only(t)
	const n = 3_000
	tab, all := New(func(*item) uint64 { return 97 }), make([]*item, n)
	for i := range all {
		all[i] = &item{key: uint64(i)}
		tab.Insert(97, all[i])
	}
	for i := 0; i < n; i += 2 {
		if !tab.Remove(97, all[i]) {
			t.Fatalf("%d is not there to be taken out", i)
		}
	}
	for i, p := range all {
		got := tab.Find(97, func(p *item) bool { return p.key == uint64(i) })
		if want := map[bool]*item{true: p}[i%2 == 1]; got != want {
			t.Fatalf("%d is %p, want %p", i, got, want)
		}
	}
}

// Of a million entries no insert reads more than a small part.
func TestGrowthIsOfAPart(t *testing.T) {
	unraced.Only(t)
	const n = 1_000_000
	read, most := 0, 0
	tab := New(func(p *item) uint64 {
		read++
		return p.key
	})
	items := make([]item, n)
	for i := range items {
		items[i].key = uint64(i) * 0x9e37_79b9_7f4a_7c15
		read = 0
		tab.Insert(items[i].key, &items[i])
		most = max(most, read)
	}
	if most > 2*n/Parts {
		t.Errorf("an insert read %d entries, want at most %d", most, 2*n/Parts)
	}
}
