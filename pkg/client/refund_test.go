package client

import (
	"errors"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What is given back can be spent again, at each limit that took it, and the ledger has what was spent in all. What was
// reported stays.
func TestRefund(t *testing.T) {
	user := hourly("per-user", 90)
	user.By, user.Meter = []string{"user"}, ""
	bubble(t, plans(1, hourly("requests", 100), user), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
		c := dial(t, s, WithReportInterval(time.Second))
		spend := func(id string, n int64, want bool) {
			t.Helper()
			if d := c.AllowN(t.Context(), n, tenant(id), User("u")); d.Allowed != want {
				t.Errorf("%d units of %s: %+v by %s", n, id, d, d.Limit())
			}
		}
		refund := func(id string, n int64, want bool) {
			t.Helper()
			if whole, err := c.Refund(t.Context(), Request{Units: n, Attributes: []Attribute{tenant(id), User("u")}}); err != nil || whole != want {
				t.Errorf("%d units of %s given back: %t, %v, want %t", n, id, whole, err, want)
			}
		}
		spend("a/b", 1, true) // the lease
		spend("a/b", 80, true)
		refund("a/b", 30, true)
		refund("a", 3, false) // a's own limit took nothing of a user, and what its tenant took is not billed there
		spend("a/b", 45, false)
		spend("a/b", 30, true)
		refund("a/b", 1000, false) // but 30: the denial asked the server, which was told of 51
		time.Sleep(2 * time.Second)
		refund("a/b", 30, false)
		var why *NotBookedError
		if whole, err := c.Refund(t.Context(), Request{Units: 5, Attributes: []Attribute{tenant("nobody")}}); whole || !errors.As(err, &why) || why.Reason != ReasonNoPlan {
			t.Errorf("of nobody: %t, %v", whole, err)
		}
		if _, err := c.Refund(t.Context(), Request{Units: -1, Attributes: []Attribute{tenant("a")}}); !errors.As(err, &why) || why.Reason != ReasonInvalid {
			t.Errorf("below 0: %v", err)
		}
		shut(t, c)
		for id, want := range map[string]int64{"a/b": 51, "a": 0} {
			if got := s.billed(func(r ledger.Row) bool { return r.Tenant == id }); got != want {
				t.Errorf("%s is billed %d units, want %d: %+v", id, got, want, s.allRows())
			}
		}
	})
}

// A limit gets back what it makes of the costs, rounded down: the rest still costs what it costs.
func TestRefundOfCosts(t *testing.T) {
	bubble(t, costly(100, 1000, 10_000, 500), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		c := dial(t, s, WithReportInterval(time.Second))
		of := func(in, out int64) Request {
			return costing(0, []Cost{{"in", in}, {"out", out}}, []Attribute{tenant("a"), model("small")})
		}
		for _, q := range []Request{of(1, 1), of(0, 100)} { // 60 units by model, 450 of the sum
			if d := c.Decide(t.Context(), q); !d.Allowed {
				t.Fatalf("%+v by %s", d, d.Limit())
			}
		}
		if whole, err := c.Refund(t.Context(), of(0, 31)); !whole || err != nil { // 18.6 and 139.5
			t.Errorf("%t, %v", whole, err)
		}
		shut(t, c)
		for meter, want := range map[string]int64{"requests": 0, "out": 1 + 69, "sum": 6 + 450 - 139, "model": 1 + 60 - 18} {
			if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != want {
				t.Errorf("meter %s has %d units, want %d", meter, got, want)
			}
		}
	})
}
