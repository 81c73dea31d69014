package agent

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/reqcache"
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
	s := &Scope{kind: &kind{registry: r}}
	s.now.Store(bucket.TermsOf((&limit.Rule{Limit: limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100}}).Hold()))
	return newEntry(s, "", 1, nil, nil, true, 0)
}

// remember remembers a request of one limit, which meets a bucket of its own, and returns that.
func remember(r *Registry, set *Set, a []limit.Attribute) *Entry {
	e := entryOn(r)
	r.Remember(reqcache.KeyOf(a), a, set, []*match.Item{&set.Items[0]}, []*Entry{e}, 0)
	return e
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
	for range 30 {
		if known, _ := recall(r, a); known == nil {
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
			if known, _ := recall(r, attributesOf("tenant", id)); (known != nil) != want {
				t.Errorf("%s: what %s came to is known: %v, want %v", c.what, id, known != nil, want)
			}
			if !want {
				remember(r, sets[id], attributesOf("tenant", id))
				if known, _ := recall(r, attributesOf("tenant", id)); known != nil {
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
				known, _ := recall(r, a)
				if known == nil {
					set := r.Find(name(i))
					if set == nil || set.Refusal != NotRefused {
						continue
					}
					e, err := r.Touch(set, &set.List, 0, a, 1)
					if err == nil {
						r.Remember(reqcache.KeyOf(a), a, set, []*match.Item{&set.Items[0]}, []*Entry{e}, 0)
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
func recall(r *Registry, a []limit.Attribute) (known *Resolution, again bool) {
	known, _, again = r.Recall(reqcache.KeyOf(a), a)
	return known, again
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
