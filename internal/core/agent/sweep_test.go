package agent

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A tenant that holds buckets, though no request of it is matched (a handle has them), keeps its
// ancestors: what is said of them goes on to be heard, and their buckets stay one.
func TestAncestorsStayWithBuckets(t *testing.T) {
	token := func(name string, match ...limit.Match) limit.Limit {
		return limit.Limit{Name: name, Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1, Per: 1e9}, Burst: 10, Match: match}
	}
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Plans: []limit.Plan{
		{Name: "root", Limits: []limit.Limit{token("orders", limit.Match{Attribute: "endpoint", Patterns: []string{"/orders"}})}},
		{Name: "child", Limits: []limit.Limit{token("all")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(1000)
	r.Adopt(rules)
	learn := func(id string) {
		r.Learn(id)
		for range 2 { // the parent is asked for once the child is known
			for _, asked := range r.Unasked(10) {
				info := limit.Tenant{ID: asked.ID(), Exists: true, Plan: "child", Parent: "parent"}
				if info.ID == "parent" {
					info.Plan, info.Parent = "root", ""
				}
				r.Inform([]limit.Tenant{info})
			}
		}
	}
	touch := func(id, name string) *Entry {
		s := r.Find(id)
		for i := range s.Items {
			if s.Items[i].Rule.Limit.Name == name {
				e, err := r.Touch(s, &s.List, i, attributesOf("tenant", id, "endpoint", "/orders"), 1)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
		t.Fatalf("%s has no limit %s", id, name)
		return nil
	}
	learn("one")
	touch("one", "all")
	for range 5 {
		r.Sweep()
	}
	first := touch("one", "orders")
	learn("two")
	if touch("two", "orders") != first {
		t.Error("two buckets of one limit of the parent's")
	}
	r.Inform([]limit.Tenant{{ID: "parent", Exists: true, Plan: "root", Suspended: true, Revision: 9}})
	if s := r.Find("one"); s.Refusal != Suspended {
		t.Error("the parent is suspended, its child is not")
	}
}

// A sweep of many tenants holds up nobody: others are learnt meanwhile.
func TestNobodyWaitsForASweep(t *testing.T) {
	const n = 300_000
	r := NewRegistry(2 * n)
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Plans: []limit.Plan{{Name: "p"}}})
	if err != nil {
		t.Fatal(err)
	}
	r.Adopt(rules)
	for i := range n {
		if _, _, err := r.Learn(fmt.Sprint("tenant-", i)); err != nil {
			t.Fatal(err)
		}
	}
	most := 0
	for range 20 { // in one of which both have a processor
		var swept atomic.Bool
		var done sync.WaitGroup
		done.Go(func() {
			defer swept.Store(true)
			r.Sweep()
		})
		for !r.sweeping.Load() && !swept.Load() {
			runtime.Gosched()
		}
		learnt := 0
		for ; !swept.Load(); learnt++ {
			if _, _, err := r.Learn("tenant-0"); err != nil {
				t.Fatal(err)
			}
		}
		done.Wait()
		most = max(most, learnt)
	}
	if most < 5 {
		t.Errorf("%d tenants were learnt while others were swept, want 5 at least", most)
	}
}

// While another policy is put in force for many tenants, the registry answers others.
func TestAPolicyOfManyTenantsHoldsUpNobody(t *testing.T) {
	const tenants = 50_000
	version := func(n int64) *limit.Rules {
		rules, err := limit.CompilePolicy(&limit.Policy{Version: n, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{
			{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: n, Per: 1e9}, Burst: 10},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	r := NewRegistry(2 * tenants)
	r.Adopt(version(1))
	var said []limit.Tenant
	for i := range tenants {
		said = append(said, limit.Tenant{ID: fmt.Sprint("t-", i), Exists: true, Plan: "p"})
		if _, _, err := r.Learn(said[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	r.Inform(said)
	var done atomic.Bool
	go func() {
		r.Adopt(version(2))
		done.Store(true)
	}()
	answers := 0
	for !done.Load() {
		if r.Off("t-1"); r.Version() == 2 {
			answers++
		}
		runtime.Gosched()
	}
	if answers < 3 {
		t.Errorf("the registry answered %d times while a policy was put in force for %d tenants", answers, tenants)
	}
	for i := range said {
		if got := r.Find(said[i].ID); got.Held(&got.Items[0]).Rate.Units != 2 {
			t.Fatalf("%s goes by the policy before", said[i].ID)
		}
	}
}
