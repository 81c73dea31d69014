package terms

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
)

// At every time a tenant has one payer, who pays for itself then; what changes leaves the past as it was, and the
// future as it was asked for; and each time is on the statement of one tenant alone.
func TestPayers(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	for range 300 {
		p := make(Payers)
		tenants := []string{"a", "b", "c", "d", "e"} // each is paid by one before it, so there is no circle
		now := int64(0)
		for range 20 {
			now += 300 * r.Int64N(5)
			i := r.IntN(len(tenants))
			tenant, payer := tenants[i], tenants[r.IntN(i+1)]
			from := now + 300*r.Int64N(2)*r.Int64N(9)
			before := p.direct(tenant)
			p[tenant] = append(p[tenant], p.Change(tenant, payer, now, from)...)
			for at := int64(0); at < from+6000; at += 300 {
				want := payer
				if at < from {
					want = directAt(before, min(at, now))
				}
				if got := directAt(p.direct(tenant), at); got != want {
					t.Fatalf("seed %d: at %d %s is paid by %s, want %s: at %d asked for %s from %d: %+v", seed, at, tenant, got, want, now, payer, from, p[tenant])
				}
			}
			if more := p.Change(tenant, payer, now, from); len(more) > 0 {
				t.Fatalf("seed %d: asked for twice: %+v", seed, more)
			}
		}
		for _, tenant := range tenants {
			all := p.Of(tenant)
			if all[0].From != 0 || all[len(all)-1].To != forever {
				t.Fatalf("seed %d: %+v is not all time", seed, all)
			}
			for i := 1; i < len(all); i++ {
				if all[i].From != all[i-1].To || all[i].From%billing.Grid != 0 {
					t.Fatalf("seed %d: %+v has a gap", seed, all)
				}
			}
			for at := int64(0); at < now+6000; at += 300 {
				want := tenant
				for directAt(p.direct(want), at) != want {
					want = directAt(p.direct(want), at)
				}
				on := 0
				for _, payer := range tenants {
					in := &billing.Input{}
					in.Elsewhere, _, _ = p.Elsewhere(payer, tenant)
					if in.Pays(billing.Period{From: at, To: at + 300}) {
						on++
					}
				}
				if got, _ := p.At(tenant, at); got != want || on != 1 {
					t.Fatalf("seed %d: at %d %s pays for %s, want %s; it is on %d statements", seed, at, got, tenant, want, on)
				}
			}
		}
	}
}

func directAt(all []Paid, at int64) string {
	for _, part := range all {
		if at >= part.From && at < part.To {
			return part.Payer
		}
	}
	return "nobody"
}

// Tenants in a circle are refused; where they are in one all the same, each has a payer.
func TestPayersInACircle(t *testing.T) {
	p := Payers{"a": {{"a", 1, 0, "b"}}, "b": {{"b", 1, 600, "a"}}}
	for id := range p {
		if err := p.Check(id); err == nil {
			t.Errorf("%s: no error", id)
		}
		if got, _ := p.At(id, 900); got != "a" && got != "b" {
			t.Errorf("%s is paid by %q", id, got)
		}
	}
	if got, since := p.At("a", 599); got != "b" || since != 0 {
		t.Errorf("before the circle: %s since %d", got, since)
	}
}

func TestNextSlot(t *testing.T) {
	for in, want := range map[time.Time]int64{time.Unix(600, 0): 600, time.Unix(600, 1): 900, time.Unix(899, 999_999_999): 900, time.Unix(0, 0): 0} {
		if got := NextSlot(in); got != want {
			t.Errorf("%s: %d, want %d", fmt.Sprint(in.UnixNano()), got, want)
		}
	}
}
