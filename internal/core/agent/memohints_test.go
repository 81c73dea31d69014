package agent

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// hintedRequests remembers so many requests, every other of which is of two limits; of the others the tokens do not lodge.
func hintedRequests(tb testing.TB, n int) (r *Registry, requests [][]limit.Attribute) {
	tb.Helper()
	r, set, _ := many(tb, 1)
	r.buckets.Store(int64(n))
	for i := range n {
		a := attributesOf("tenant", "a", "user", fmt.Sprint(i))
		if i%2 == 0 {
			e := entryOn(r)
			e.marks.set(several, true)
			r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
		} else {
			entries := []*Entry{entryOn(r), entryOn(r)}
			r.Remember(a, set, []*Item{&set.Items[0], &set.Items[0]}, entries, 0)
		}
		requests = append(requests, a)
	}
	return r, requests
}

// Of requests among many the hints say where what is needed is, but for a few.
func TestHintsAreOfTheRequest(t *testing.T) {
	const n = 4 * memoHinted
	r, requests := hintedRequests(t, n)
	right := [2]int{}
	for i, a := range requests {
		k := KeyOf(a)
		table := r.memo.table.Load()
		known, plain, _ := recall(r, a)
		if known == nil {
			continue
		}
		want := uintptr(unsafe.Pointer(known))
		if !plain.None() {
			want = uintptr(unsafe.Pointer(plain.tokens))
		}
		if table.hints.address(table.place(k, 0), k)>>hintLine == want>>hintLine {
			right[i%2]++
		}
	}
	for i, n := range right {
		if n < len(requests)/2*8/10 {
			t.Errorf("of %d requests of %d limits the hint is right for %d, want at least eight tenths", len(requests)/2, i+1, n)
		}
	}
}

// What hints say decides nothing: with any others the same is known.
func TestHintsDecideNothing(t *testing.T) {
	r, requests := hintedRequests(t, 2*memoHinted)
	var was []*Resolution
	for _, a := range requests {
		known, _, _ := recall(r, a)
		was = append(was, known)
	}
	h := &r.memo.table.Load().hints
	for _, base := range []uint64{h.base, 0, math.MaxUint64} {
		h.base = base
		for i := range h.of {
			h.of[i].Store(rand.Uint64())
		}
		for i, a := range requests {
			if known, _, _ := recall(r, a); known != was[i] {
				t.Fatalf("%v came to something else", a)
			}
		}
	}
}

// A table of few requests has no hints, for its lines are near.
func TestFewRequestsHaveNoHints(t *testing.T) {
	r, _ := hintedRequests(t, 1000)
	if r.memo.table.Load().hints.of != nil {
		t.Error("1,000 requests have hints")
	}
}
