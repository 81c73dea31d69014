package client

import (
	"errors"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What was used already is booked for a tenant that is suspended or switched off, and while the server is away; once it is back the debt is paid
// first, by whoever asks.
func TestBook(t *testing.T) {
	bubble(t, plans(1, hourly("requests", 100)), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		s.tenants["b"] = limit.Tenant{ID: "b", Exists: true, Plan: "p", Revision: 1}
		s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
		c := dial(t, s, WithReportInterval(50*time.Millisecond))
		book := func(n int64, id string) {
			t.Helper()
			if err := c.Book(t.Context(), Request{Units: n, Attributes: []Attribute{tenant(id)}}); err != nil {
				t.Errorf("%d units of %s: %v", n, id, err)
			}
		}
		for _, id := range []string{"a", "b"} {
			if d := c.Allow(t.Context(), tenant(id)); !d.Allowed {
				t.Errorf("%s: %+v %s", id, d, d.Reason)
			}
		}
		book(10, "a/b")
		time.Sleep(time.Second)
		s.tenant(limit.Tenant{ID: "b", Exists: true, Plan: "p", Suspended: true, Revision: 2})
		time.Sleep(time.Second)
		if d := c.Allow(t.Context(), tenant("b")); d.Reason != ReasonSuspended {
			t.Errorf("a suspended tenant: %+v", d)
		}
		book(20, "b")
		s.flip(limit.Switches{Denied: []string{"a"}})
		time.Sleep(time.Second)
		book(1, "a")
		s.flip(limit.Switches{})
		s.set(func(s *fake) { s.down = true })
		time.Sleep(time.Hour) // leases end, or go on
		book(150, "a")
		s.set(func(s *fake) { s.down = false })
		time.Sleep(10 * time.Second)
		if d := c.Allow(t.Context(), tenant("a")); d.Allowed {
			t.Error("allowed while there is a debt")
		}
		var why *NotBookedError
		for name, r := range map[string]Request{"below 0": {Units: -1, Attributes: []Attribute{tenant("a")}}, "too much": {Units: limit.MaxUnits + 1, Attributes: []Attribute{tenant("a")}}} {
			if err := c.Book(t.Context(), Request{Units: 1, Attributes: []Attribute{tenant("b")}}, r); !errors.As(err, &why) || why.Reason != ReasonInvalid {
				t.Errorf("%s: got %v, want nothing booked: invalid", name, err)
			}
		}
		shut(t, c)
		if err := c.Book(t.Context(), Request{Units: 1, Attributes: []Attribute{tenant("a")}}); !errors.As(err, &why) || why.Reason != ReasonClosed {
			t.Errorf("after the end: %v", err)
		}
		if got, want := s.billed(nil), int64(2+10+20+1+150); got != want {
			t.Errorf("the ledger has %d units, want %d: %+v", got, want, s.allRows())
		}
	})
}
