package agent

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

func many(tb testing.TB, n int) (*Registry, *Set, []string) {
	r := NewRegistry(4 * n)
	p := &limit.Policy{Version: 1, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{{Name: "per-user", Algorithm: limit.TokenBucket, By: []string{"user"}, Rate: limit.Rate{Units: 1, Per: 1e9}, EpsilonPPM: limit.DefaultEpsilonPPM}}}}}
	rules, err := limit.CompilePolicy(p)
	if err != nil {
		tb.Fatal(err)
	}
	r.Adopt(rules)
	if _, _, err := r.Learn("a"); err != nil {
		tb.Fatal(err)
	}
	r.Unasked(1)
	r.Inform([]limit.Tenant{{ID: "a", Exists: true, Plan: "p"}})
	set := r.Find("a")
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%08x-%04x", uint32(i)*2654435761, i&0xffff)
		e, err := r.Touch(set, &set.List, 0, []limit.Attribute{{Name: "user", Value: keys[i]}}, 1)
		if err != nil {
			tb.Fatal(err)
		}
		e.Apply(2, lease.Grant{Number: e.Renew(1, false).Number, Tokens: 1 << 50, TTL: 600_000_000})
	}
	return r, set, keys
}

// BenchmarkFind finds one of 100,000 buckets by its value and takes a unit, beside
// a plain map of the same keys.
func BenchmarkFind(b *testing.B) {
	r, set, keys := many(b, 100_000)
	m := make(map[string]*atomic.Int64)
	for _, k := range keys {
		m[k] = new(atomic.Int64)
	}
	b.Run("registry", func(b *testing.B) {
		s := uint32(1)
		for b.Loop() {
			s = s*1664525 + 1013904223
			e := r.Entry(&set.List, 0, []limit.Attribute{{Name: "tenant", Value: "a"}, {Name: "user", Value: keys[(s>>4)%100_000]}})
			if !e.Take(1) {
				b.Fatal("denied")
			}
		}
	})
	b.Run("map", func(b *testing.B) {
		s := uint32(1)
		for b.Loop() {
			s = s*1664525 + 1013904223
			m[keys[(s>>4)%100_000]].Add(-1)
		}
	})
}
