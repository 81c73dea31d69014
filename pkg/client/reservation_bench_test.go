package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// BenchmarkReservation is what a reservation of two limits costs, and each Use of it, without and with a journal.
func BenchmarkReservation(b *testing.B) {
	second := limit.Limit{Name: "second", Rate: perSecond(1_000_000_000), Burst: 1_000_000_000}
	s := newFake(b, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1_000_000_000), Burst: 1_000_000_000, Meter: "requests"}, second))
	s.tenants["a"] = limit.Tenant{ID: "a", Exists: true, Plan: "p", Revision: 1}
	s.chunk = 100_000_000
	defer s.stop()
	for name, opts := range map[string][]Option{"none": nil, "journal": {WithJournal(b.TempDir())}} {
		c, err := Dial(b.Context(), "passthrough:fake", append(opts, WithDialer(s.dial), WithTenantShare(100), WithFirstWait(time.Minute))...)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("reserve and commit/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, d := c.Reserve(b.Context(), 10, tenant("a"))
				if r == nil {
					b.Fatalf("%+v", d)
				}
				if err := r.Commit(7); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("use/"+name, func(b *testing.B) {
			b.ReportAllocs()
			r, _ := c.ReserveRequest(b.Context(), Request{Units: 10, Attributes: []Attribute{tenant("a")}, Expires: time.Hour})
			n := int64(0)
			for b.Loop() {
				n = min(n+1, limit.MaxUnits)
				if err := r.Use(n); err != nil {
					b.Fatal(err)
				}
			}
		})
		_ = c.Close(b.Context())
	}
}
