package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Decisions tell of a tenant's limit as the tenant has it, whoever else shares what it says: before there is a bucket, the
// first time, once the request is known, and when it is denied; and so does a handle's.
func TestDecisionsTellOfOverrides(t *testing.T) {
	bubble(t, plans(1, requests(60, 60), limit.Limit{Name: "per-user", Rate: perSecond(1000), Burst: 1000, By: []string{"user"}}), func(t *testing.T, s *fake) {
		own := plans(1, requests(7, 14)).Plans[0].Limits[0]
		s.tenants["own"] = limit.Tenant{ID: "own", Exists: true, Plan: "p", Revision: 1, Overrides: []limit.Limit{own}}
		s.tenants["plain"] = limit.Tenant{ID: "plain", Exists: true, Plan: "p", Revision: 1}
		c := dial(t, s)
		for id, want := range map[string]int64{"own": 7, "plain": 60} {
			check := func(what string, d Decision) {
				t.Helper()
				if d.Limit() != "requests" || d.Details().Quota != want || d.Details().Window != time.Second {
					t.Errorf("%s, %s: by %q, %d in %v, want requests, %d in 1s", id, what, d.Limit(), d.Details().Quota, d.Details().Window, want)
				}
			}
			a := []Attribute{tenant(id), User("u")}
			fresh := c.AllowN(t.Context(), 0, a...)
			check("before there is a bucket", fresh)
			if got := fresh.Details().Remaining; got != map[string]int64{"own": 14, "plain": 60}[id] {
				t.Errorf("%s, before there is a bucket: %d are left, want the whole burst", id, got)
			}
			for _, what := range []string{"at first", "again", "and again", "known"} {
				check(what, c.Allow(t.Context(), a...))
			}
			for i := 0; ; i++ {
				if d := c.AllowN(t.Context(), 3, a...); !d.Allowed {
					check("denied", d)
					break
				} else if i > 100 {
					t.Fatal("is never denied")
				}
			}
			handle, err := c.Limiter(t.Context(), a...)
			if err != nil {
				t.Fatal(err)
			}
			check("by a handle", handle.AllowN(t.Context(), 1))
		}
		shut(t, c)
	})
}
