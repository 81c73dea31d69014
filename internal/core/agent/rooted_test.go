package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// planned is a registry whose plans say the same, so that their buckets go on when a tenant changes from one to the other, beside a
// limit for every tenant.
func planned(t *testing.T) *Registry {
	t.Helper()
	rate := limit.Rate{Units: 100, Per: time.Second}
	own := []limit.Limit{{Name: "requests", By: []string{"tenant"}, Rate: rate, Burst: 100, Meter: "requests"}}
	rules, err := limit.CompilePolicy(&limit.Policy{
		Version: 1, DefaultPlan: "free", Plans: []limit.Plan{{Name: "free", Limits: own}, {Name: "paid", Limits: own}},
		Limits: []limit.Limit{{Name: "calls", By: []string{"endpoint", "tenant"}, Rate: rate, Burst: 100, Meter: "calls"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(100)
	r.Adopt(rules)
	return r
}

// tell is what the owner does with news of tenants.
func tell(r *Registry, u *usage.Usage, tenants ...limit.Tenant) {
	var theirs []*Entry
	if r.Differ(tenants, func(e *Entry) { theirs = append(theirs, e) }) {
		for _, e := range theirs {
			u.Collect(e, 300, 1)
		}
	}
	r.Inform(tenants)
}

// admit has each limit of a tenant admit n units.
func admit(t *testing.T, r *Registry, tenant string, n int64) {
	t.Helper()
	s := r.Find(tenant)
	for i := range s.Items {
		e, err := r.Touch(s, &s.List, i, []limit.Attribute{{Name: "tenant", Value: tenant}, {Name: "endpoint", Value: "/a"}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if e.Tenant() == "" || e.Tenant() == tenant { // not an ancestor's
			spend(t, e, n)
		}
	}
}

// spend takes units of a bucket, with a lease of as many.
func spend(t *testing.T, e *Entry, n int64) {
	t.Helper()
	e.Apply(1, lease.Grant{Number: e.Renew(1, false).Number, Tokens: n, TTL: 10_000_000})
	if !e.Take(n) {
		t.Fatalf("%d units were not admitted", n)
	}
}

func bookedRows(r *Registry, u *usage.Usage) (all []string) {
	r.Each(func(e *Entry) { u.Collect(e, 300, 1) })
	for _, row := range u.Take() {
		all = append(all, fmt.Sprintf("%s %s %s", row.Tenant, row.Limit, row.Plan))
	}
	return all
}

// What a tenant was admitted under a plan is booked under it, of its own limits and of those for every tenant, also where
// both plans say the same and the bucket goes on, and of a tenant that nobody made under the default plan.
func TestUsageHasThePlanThatAdmittedIt(t *testing.T) {
	r, u := planned(t), &usage.Usage{}
	for _, id := range []string{"acme", "nobody"} {
		if _, _, err := r.Learn(id); err != nil {
			t.Fatal(err)
		}
	}
	tell(r, u, limit.Tenant{ID: "acme", Exists: true, Plan: "free", Revision: 1}, limit.Tenant{ID: "nobody"})
	admit(t, r, "acme", 10)
	admit(t, r, "nobody", 5)
	tell(r, u, limit.Tenant{ID: "acme", Exists: true, Plan: "paid", Revision: 2})
	admit(t, r, "acme", 60_000)
	tell(r, u, limit.Tenant{ID: "acme", Exists: true, Plan: "free", Revision: 3})
	want := []string{"acme calls free", "acme calls paid", "acme requests free", "acme requests paid", "nobody calls free", "nobody requests free"}
	if got := bookedRows(r, u); !slices.Equal(got, want) {
		t.Errorf("rows of\n     %v\nwant %v", got, want)
	}
}

// A change that waits until a parent is known does not move what was admitted before it.
func TestAChangeThatWaitsForAParentIsCollectedBefore(t *testing.T) {
	r, u := planned(t), &usage.Usage{}
	if _, _, err := r.Learn("acme"); err != nil {
		t.Fatal(err)
	}
	tell(r, u, limit.Tenant{ID: "acme", Exists: true, Plan: "free", Revision: 1})
	tell(r, u, limit.Tenant{ID: "acme", Exists: true, Plan: "paid", Parent: "org", Revision: 2})
	admit(t, r, "acme", 10) // by what held before: the parent is not known yet
	tell(r, u, limit.Tenant{ID: "org", Exists: true, Plan: "paid", Revision: 1})
	admit(t, r, "acme", 10)
	got := bookedRows(r, u)
	if want := []string{"acme calls free", "acme calls paid", "acme requests free", "acme requests paid"}; !slices.Equal(got, want) {
		t.Errorf("rows of\n     %v\nwant %v", got, want)
	}
}

// A tenant is known for as long as a bucket of a limit for every tenant may still have usage of it.
func TestATenantStaysWhileItsUsageMay(t *testing.T) {
	r, u := planned(t), &usage.Usage{}
	if _, _, err := r.Learn("acme"); err != nil {
		t.Fatal(err)
	}
	tell(r, u, limit.Tenant{ID: "acme", Exists: true, Plan: "paid", Revision: 1})
	admit(t, r, "acme", 10)
	var root *Entry
	r.Each(func(e *Entry) {
		u.Collect(e, 300, 1)
		if e.rootedIn() == "" {
			e.Apply(2, lease.Grant{Number: e.Renew(2, true).Number})
			r.Drop(e, func(*Entry) {})
		} else {
			root = e
		}
	})
	u.Take()
	sweep := func() {
		for range forgotten + 2 {
			r.Sweep()
		}
	}
	sweep()
	e := root
	spend(t, e, 7)
	u.Collect(e, 300, 1)
	if rows := u.Take(); len(rows) != 1 || rows[0] != (ledger.Row{Slot: 300, Tenant: "acme", Limit: "calls", Meter: "calls", Version: 1, Plan: "paid", Attributes: "endpoint=/a", Admitted: 7}) {
		t.Errorf("after a while without use: %+v, want it under paid", rows)
	}
	e.Apply(2, lease.Grant{Number: e.Renew(2, true).Number})
	r.Drop(e, func(e *Entry) { u.Collect(e, 300, 1) })
	if sweep(); r.Tenants() != 0 || len(r.rooted) != 0 {
		t.Errorf("%d tenants are known, and %d have buckets, want none", r.Tenants(), len(r.rooted))
	}
}
