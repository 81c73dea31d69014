package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
)

// Whatever a bucket went through, its renewal is one that the server takes: it would refuse all of a call's for one that is not.
func TestRenewalsAreWithinBounds(t *testing.T) {
	const now, hour = 3_600_000_000_000, 3_600_000_000
	window := limit.Limit{Name: "l", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: time.Hour}}
	open, slots := *bucketOf(limit.MaxUnits, 1), *slotsLimit(limit.MaxUnits, 0)
	open.OnOutage, slots.OnOutage = limit.OutageOpen, limit.OutageOpen
	granted := func(b *Bucket, g lease.Grant) {
		g.Number, g.TTL = b.Renew(now, false).Number, 1_000_000
		b.Apply(now, g)
	}
	for _, c := range []struct {
		name  string
		limit *limit.Limit
		do    func(b *Bucket)
	}{
		{"reservations of a window that was left and is back", &window, func(b *Bucket) {
			hourly := lease.Grant{Tokens: 20, ValidFrom: now, ValidUntil: now + hour, Reset: hour}
			granted(b, hourly)
			reserve := func(n int64) {
				if !b.Take(n) {
					t.Fatal("denied")
				}
				b.Reserve(n, b.Window())
			}
			reserve(10)
			granted(b, lease.Grant{Tokens: 20}) // a policy of another algorithm
			reserve(5)
			granted(b, hourly) // it was rolled back
			reserve(3)
			b.Settle(10, 0, now, nil)
		}},
		{"more reserved in an outage than any bucket has", &open, func(b *Bucket) {
			for range 3 {
				if v := b.Ask(now, limit.MaxUnits, true, false); v.Outcome != Admitted {
					t.Fatalf("%+v", v)
				}
				b.Reserve(limit.MaxUnits, b.Window())
			}
		}},
		{"more slots given out in an outage than there are", &slots, func(b *Bucket) {
			for range 3 {
				if v := b.Ask(now, limit.MaxUnits, true, false); v.Outcome != Admitted {
					t.Fatalf("%+v", v)
				}
			}
		}},
		{"a stock that trickled in beside a full one", bucketOf(limit.MaxUnits, 1), func(b *Bucket) {
			granted(b, lease.Grant{Tokens: limit.MaxUnits, Trickle: 1e15, Pile: 1000})
			b.Ask(now+1_000_000, 1, false, false)
		}},
		{"more denied than can be said", bucketOf(limit.MaxUnits, 1), func(b *Bucket) {
			granted(b, lease.Grant{DenyFor: hour})
			for range 1 << 4 {
				b.refused.Add(1 << 50)
				granted(b, lease.Grant{DenyFor: hour})
			}
		}},
		{"more denied at once than can be said", bucketOf(limit.MaxUnits, 1), func(b *Bucket) {
			b.refused.Add(1 << 54)
		}},
		{"more admitted than can be said", bucketOf(limit.MaxUnits, 1), func(b *Bucket) {
			for range 1 << 4 {
				b.Admit(1 << 50)
				granted(b, lease.Grant{})
			}
			b.Admit(7)
			if r := b.Renew(now, false); r.Admitted-r.Told != 7 {
				t.Errorf("told of %d admitted after %d, want 7 more", r.Admitted, r.Told)
			}
		}},
		{"more admitted at once than can be said", bucketOf(limit.MaxUnits, 1), func(b *Bucket) { b.Admit(1 << 54) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := Of(c.limit)
			c.do(b)
			for range 2 {
				r := b.Renew(now+1_000, false)
				r.Key, r.Holder = "k", "gw"
				r.Spec = lease.Spec{Algorithm: limit.TokenBucket, Units: 1, Period: 1_000_000, Burst: 1}
				if err := r.Check(); err != nil {
					t.Error(err)
				}
				p := wire.RenewalToProto(r)
				p.Limit = "l"
				if err := wire.CheckRenewal(p); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
