package agent

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// tenancy is a policy and tenants that a registry was told of, all of it, beside what the registry made of them.
type tenancy struct {
	t       *testing.T
	rng     *rand.Rand
	policy  *limit.Policy
	tenants map[string]limit.Tenant
	r       *Registry
}

// limit returns one of a few limits of that name: most differ in rate and burst alone.
func (w *tenancy) limit(name string) limit.Limit {
	l := limit.Limit{Name: name, Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1 + w.rng.Int64N(3), Per: time.Second}, Burst: 5 * (1 + w.rng.Int64N(3)), Meter: name}
	switch w.rng.IntN(8) {
	case 0:
		l.By = []string{"user"}
	case 1:
		l.Rate, l.Burst = limit.Rate{}, 0
	case 2:
		l.Enforcement, l.OveragePPM = limit.Soft, 500_000
	case 3:
		l.Match = []limit.Match{{Attribute: "endpoint", Patterns: []string{"/a*"}}}
	}
	return l
}

func (w *tenancy) adopt() Changes {
	w.policy = &limit.Policy{Version: w.policy.Version + 1, Limits: []limit.Limit{w.limit("top")}, DefaultPlan: "p0"}
	for i := range 2 {
		p := limit.Plan{Name: fmt.Sprint("p", i)}
		for _, name := range []string{"a", "b", "c"} {
			if w.rng.IntN(6) > 0 {
				p.Limits = append(p.Limits, w.limit(name))
			}
		}
		w.policy.Plans = append(w.policy.Plans, p)
	}
	rules, err := limit.CompilePolicy(w.policy)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.r.Adopt(rules)
}

// change changes a tenant, or has the server say the same of it again.
func (w *tenancy) change(id string) Changes {
	was, ok := w.tenants[id]
	now := was
	if !ok || w.rng.IntN(4) > 0 {
		now = limit.Tenant{ID: id, Exists: w.rng.IntN(5) > 0, Plan: fmt.Sprint("p", w.rng.IntN(2)), Revision: was.Revision + w.rng.Int64N(2), Suspended: w.rng.IntN(9) == 0}
		if id != "root" && w.rng.IntN(2) == 0 {
			now.Parent = "root"
		}
		for _, name := range []string{"a", "b", "own"} {
			if w.rng.IntN(3) == 0 {
				now.Overrides = append(now.Overrides, w.limit(name))
			}
		}
	}
	w.tenants[id] = now
	w.r.Learn(id)
	c := w.r.Inform([]limit.Tenant{now})
	for _, asked := range w.r.Unasked(10) { // the parent
		if said, ok := w.tenants[asked.ID()]; ok {
			w.r.Inform([]limit.Tenant{said})
		}
	}
	return c
}

// want is what a tenant's requests are to be held by, by tenant and name.
func (w *tenancy) want(t limit.Tenant) map[string]limit.Limit {
	want := make(map[string]limit.Limit)
	for _, l := range w.policy.Limits {
		want["/"+l.Name] = l
	}
	own, _ := w.policy.TenantLimits(t)
	for _, l := range own {
		want[t.ID+"/"+l.Name] = l
	}
	if t.Parent != "" {
		above, _ := w.policy.TenantLimits(w.tenants[t.Parent])
		for _, l := range above {
			if !l.CountsOnly() {
				want[t.Parent+"/"+l.Name] = l
			}
		}
	}
	return want
}

// check compares what a tenant's set says, and what its buckets go by, and touches those that there are not yet.
func (w *tenancy) check(step int, t limit.Tenant) {
	s := w.r.Find(t.ID)
	if s == nil {
		w.t.Fatalf("step %d: %s is not known", step, t.ID)
	}
	if refused := t.Suspended || t.Parent != "" && w.tenants[t.Parent].Suspended; refused != (s.Refusal == Suspended) {
		w.t.Fatalf("step %d: %s is refused with %v, want suspended %v", step, t.ID, s.Refusal, refused)
	} else if refused {
		return
	}
	want := w.want(t)
	for i := range s.Items {
		h := s.Held(&s.Items[i])
		key, got := h.Tenant+"/"+h.Rule.Limit.Name, h.Rule.Limit
		got.Rate, got.Burst = h.Rate, h.Burst
		if !reflect.DeepEqual(got, want[key]) {
			w.t.Fatalf("step %d: %s is held by %s, which says\n%+v, want\n%+v", step, t.ID, key, got, want[key])
		}
		delete(want, key)
		e, err := w.r.Touch(s, &s.List, i, []limit.Attribute{{Name: "tenant", Value: t.ID}, {Name: "user", Value: "u"}, {Name: "endpoint", Value: "/ab"}}, 1)
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Held() != h || e.State(0).Capacity != got.Burst || e.Tenant() != h.Tenant || e.Limit() != got.Name {
			w.t.Fatalf("step %d: the bucket of %s goes by %+v and holds %d, want %+v", step, key, e.Held(), e.State(0).Capacity, got)
		}
		beyond, err := w.r.Beyond(e, 1)
		if got.Enforcement != limit.Soft || got.CountsOnly() {
			if err == nil {
				w.t.Fatalf("step %d: %s admits above itself", step, key)
			}
		} else if o := got.Overage(); err != nil || beyond.State(0).Capacity != o.Burst || beyond.Held().Rate != o.Rate {
			w.t.Fatalf("step %d: above %s: %+v, %v, want %+v", step, key, beyond.Held(), err, o)
		}
	}
	for key := range want {
		w.t.Fatalf("step %d: %s is not held by %s", step, t.ID, key)
	}
}

// Whatever tenants share with each other and with their plan, after any changes of plans and tenants each is held by the
// limits that it has, and its buckets go by them.
func TestTenantsHaveTheirLimits(t *testing.T) {
	for seed := range uint64(40) {
		w := &tenancy{t: t, rng: rand.New(rand.NewPCG(seed, 5)), policy: &limit.Policy{}, tenants: make(map[string]limit.Tenant), r: NewRegistry(1000)}
		ids := []string{"root", "one", "two", "of a name so long that it is not kept in place"}
		for _, id := range ids { // before any policy, too
			w.change(id)
		}
		for step := range 60 {
			var c Changes
			if step == 0 || w.rng.IntN(4) == 0 {
				c = w.adopt()
			} else {
				c = w.change(ids[w.rng.IntN(len(ids))])
			}
			seen := make(map[*Entry]bool)
			for _, e := range append(c.Changed, c.Orphaned...) {
				if seen[e] {
					t.Fatalf("seed %d step %d: the bucket of %s is named twice", seed, step, e.Limit())
				}
				seen[e] = true
			}
			for _, id := range ids {
				w.check(step, w.tenants[id])
			}
		}
	}
}

// A tenant whose limit is its plan's but for rate and burst keeps neither a limit nor a rule of its own, and nothing of a
// policy that is no more in force.
func TestOverridesAreKeptInFewBytes(t *testing.T) {
	each := limit.Limit{Name: "requests", By: []string{"tenant"}, Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10, Per: time.Second}, Burst: 20}
	policy := func(version int64) *limit.Rules {
		rules, err := limit.CompilePolicy(&limit.Policy{Version: version, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{each}}}})
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	r := NewRegistry(100)
	first := policy(1)
	r.Adopt(first)
	own := each
	own.Burst = 7
	for _, id := range []string{"a", "b"} {
		r.Learn(id)
		r.Inform([]limit.Tenant{{ID: id, Exists: true, Plan: "p", Overrides: []limit.Limit{own}}})
	}
	rule := first.Find(&limit.Tenant{ID: "x", Exists: true, Plan: "p"}, "requests")
	check := func(rule *limit.Rule) {
		t.Helper()
		for _, id := range []string{"a", "b"} {
			if got := r.find(id); got.overrides[0].like != &rule.Limit || got.Set().Items[0].Rule != rule || got.Set().scopes[0].held().Rule != rule {
				t.Errorf("%s has a limit or a rule of its own", id)
			}
		}
	}
	check(rule)
	if a, b := r.Find("a"), r.Find("b"); a.List.List != b.List.List || a.Held(&a.Items[0]).Burst != 7 {
		t.Errorf("two tenants of a plan share nothing, or have its burst: %+v", a.Held(&a.Items[0]))
	}
	second := policy(2)
	r.Adopt(second)
	check(second.Find(&limit.Tenant{ID: "x", Exists: true, Plan: "p"}, "requests"))
}

// All that the server says of a tenant is kept, and is another tenant's word if any of it differs.
func TestWhatIsSaidOfATenantIsKept(t *testing.T) {
	kind := reflect.TypeFor[limit.Tenant]()
	for i := range kind.NumField() {
		said := limit.Tenant{ID: "a"}
		was := infoOf(&said)
		switch v := reflect.ValueOf(&said).Elem().Field(i); v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int64:
			v.SetInt(1)
		case reflect.Slice:
			v.Set(reflect.ValueOf([]limit.Limit{{Name: "x", Burst: 7}}))
		default:
			t.Fatalf("how is a %s set?", v.Type())
		}
		tenant := newTenant(said.ID)
		tenant.info = infoOf(&said)
		got, _ := tenant.tenant(nil)
		if len(got.Overrides) == 0 {
			got.Overrides = nil
		}
		if !reflect.DeepEqual(got, said) {
			t.Errorf("%s: got %+v, want %+v", kind.Field(i).Name, got, said)
		}
		if kind.Field(i).Name != "ID" && !was.news(&said) {
			t.Errorf("another %s is no news", kind.Field(i).Name)
		}
		if tenant.news(&said) {
			t.Errorf("the same with %s is news", kind.Field(i).Name)
		}
	}
}
