package agent

import (
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What a request that found its bucket dry saw of where the rest is, the next one has brought; and one that has units brings nothing.
func TestHintsOfADryBucket(t *testing.T) {
	r, set, _ := many(t, 1)
	l := &limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100}
	e := &Entry{Bucket: *NewBucket(l)}
	e.scope().kind = &kind{registry: r}
	a := attributesOf("tenant", "a", "user", "u")
	key := KeyOf(a)
	r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
	known, plain, _ := recall(r, a)
	sought, ok := r.Sought(key)
	if known == nil || plain.None() || !ok || sought.known != known {
		t.Fatal("a bucket without units is not seen to be dry")
	}
	same := func(when string, shut bool, want ...unsafe.Pointer) {
		t.Helper()
		known.FoundDry()
		known.WasShut(shut)
		for part, at := range want {
			if got := known.lodge[part].Load(); got != int64(uintptr(at)) {
				t.Errorf("%s: hint %d is %x, want %x", when, part, got, uintptr(at))
			}
		}
		for step := range Steps {
			sought.Near(step) // which reads nothing of them
		}
	}
	terms := func() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(e.goesBy()), hintTerms) }
	same("nothing of it is seldom", false, unsafe.Pointer(&e.scope().scoped), unsafe.Pointer(e.scope()), terms())

	now := int64(1_000_000)
	e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: 60_000_000, DenyFor: 5_000})
	if e.Slow(now, 1, false).Outcome != Denied {
		t.Fatal("it does not deny")
	}
	s := e.seldom()
	same("it was asked, and denied", false, unsafe.Pointer(&s.scoped), unsafe.Pointer(e.scope()), terms())
	for range mostUses + 1 {
		e.Slow(now, 1, false)
	}
	if s.book.Load() == nil {
		t.Fatal("the book does not stay open")
	}
	same("its book stays open", false, unsafe.Pointer(&s.scoped), unsafe.Pointer(e.scope()), unsafe.Pointer(s.book.Load()))
	same("it denied for certain", true, unsafe.Pointer(&s.scoped), nil, nil)

	now += 1_000_000
	e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: 60_000_000, DenyFor: 50_000_000})
	if e.Slow(now, 1, false).Outcome != Denied || !plain.Shut() {
		t.Fatal("its tokens do not say that it denies")
	}
	if s, ok := r.Sought(key); !ok || s.Until() != (now+50_000_000)>>shutGrain<<shutGrain {
		t.Errorf("that tokens say all that a denial needs is not seen: %t, until %d", ok, s.Until())
	}

	now += 1_000_000
	e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: 60_000_000, Tokens: 10})
	if _, ok := r.Sought(key); ok {
		t.Error("a bucket with units is taken for dry")
	}
	if !plain.Take(1) {
		t.Error("its units are not where the request looks")
	}
}
