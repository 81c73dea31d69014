package bucket

import (
	"math/rand/v2"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What is given back are units that nobody was told of, and no others: not after a renewal or a report, nor of the window
// before, nor beyond the lease, nor above what the trickle fills up to.
func TestRefundIsOfWhatNobodyWasToldOf(t *testing.T) {
	const second = 1_000_000
	flow := func() *Bucket {
		b := Of(bucketOf(100, 10))
		again(b, second, 1, lease.Grant{Tokens: 20, TTL: 10 * second, Trickle: 2 * limit.Micro, Pile: 2})
		return b
	}
	for _, c := range []struct {
		name string
		of   func() *Bucket
		do   func(b *Bucket)
		now  int64
		n    int64
		want int64
	}{
		{"all of it", flow, func(b *Bucket) { ask(b, second, 9, false) }, second, 9, 9},
		{"a part", flow, func(b *Bucket) { ask(b, second, 9, false) }, second, 4, 4},
		{"more than was taken", flow, func(b *Bucket) { ask(b, second, 9, false) }, second, 30, 9},
		{"of nothing", flow, func(b *Bucket) {}, second, 3, 0},
		{"less than nothing", flow, func(b *Bucket) { ask(b, second, 9, false) }, second, -3, 0},
		{"the trickle came meanwhile", flow, func(b *Bucket) { ask(b, second, 9, false) }, 3 * second, 9, 7}, // to 22, its room
		{"the store was told", flow, func(b *Bucket) { ask(b, second, 9, false); b.Renew(2*second, false); ask(b, second, 3, false) }, 2 * second, 9, 3},
		{"the ledger was told", flow, func(b *Bucket) { ask(b, second, 9, false); collect(b); ask(b, second, 3, false) }, second, 9, 3},
		{"a request may put some back", flow, func(b *Bucket) { b.Hold(4); ask(b, second, 4, false); ask(b, second, 5, false) }, second, 9, 5},
		{"some are reserved", flow, func(b *Bucket) {
			b.Hold(4)
			ask(b, second, 4, false)
			b.Reserve(4, b.Window())
			ask(b, second, 5, false)
		}, second, 9, 5},
		{"the lease is over", func() *Bucket {
			b := Of(bucketOf(100, 10))
			again(b, second, 1, lease.Grant{Tokens: 20, TTL: 10 * second})
			return b
		}, func(b *Bucket) { ask(b, second, 9, false) }, 12 * second, 9, 0},
		{"no lease", func() *Bucket { return Of(bucketOf(100, 10)) }, func(b *Bucket) { b.Admit(5) }, second, 5, 0},
		{"it only counts", func() *Bucket { return Of(&limit.Limit{Name: "counts"}) }, func(b *Bucket) { ask(b, second, 9, false) }, second, 12, 9},
		{"it only counts, and the ledger was told", func() *Bucket { return Of(&limit.Limit{Name: "counts"}) }, func(b *Bucket) { ask(b, second, 9, false); collect(b); ask(b, second, 2, false) }, second, 12, 2},
		{"slots", func() *Bucket { return Of(&limit.Limit{Name: "s", Algorithm: limit.Concurrency, Slots: 9}) }, func(b *Bucket) { b.Admit(2) }, second, 2, 0},
		{"of the window before", func() *Bucket {
			b := Of(&limit.Limit{Name: "w", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: 10e9}})
			b.Apply(second, lease.Grant{
				Number: b.Renew(second, false).Number, Tokens: 20, Next: 30, TTL: 10 * second, Reset: second, ValidFrom: 90 * second, ValidUntil: 100 * second,
			})
			return b
		}, func(b *Bucket) {
			ask(b, second, 9, false)
			b.Ask(b.beginAt+1, 31, false, false) // goes over to the next
			ask(b, b.beginAt+1, 3, false)
		}, 3 * second, 12, 3},
	} {
		b := c.of()
		c.do(b)
		before := b.stock.admitted()
		got, _ := b.Refund(c.now, c.n, false)
		if now := b.stock.admitted(); got != c.want || before-now != got {
			t.Errorf("%s: %d units are back, and admitted are %d after %d; want %d back", c.name, got, now, before, c.want)
		}
	}
}

// Units that are back pay a debt first, and serve those that wait their turn.
func TestRefundPaysAndServes(t *testing.T) {
	const second = 1_000_000
	b := Of(bucketOf(100, 10))
	again(b, second, 1, lease.Grant{Tokens: 20, TTL: 10 * second})
	b.Settle(0, 23, 0, nil) // all 20, and a debt of 3
	if got, _ := b.Refund(second, 5, false); got != 5 || b.Drain() != 2 {
		t.Errorf("5 units back after a debt of 3: %d, and not 2 left", got)
	}
	b = Of(bucketOf(100, 10))
	again(b, second, 1, lease.Grant{Tokens: 20, TTL: 10 * second, Trickle: 1, Pile: 20})
	ask(b, second, 20, false)
	if _, room := b.Join(&Waiter{Units: 4}); !room {
		t.Fatal("no room to wait")
	}
	if got, served := b.Refund(second, 5, false); got != 5 || len(served) != 1 {
		t.Errorf("%d back serve %d, want the one who waits for 4", got, len(served))
	}
}

// Units billed at a tenant below come off both counts.
func TestRefundBelow(t *testing.T) {
	const second = 1_000_000
	b := Of(bucketOf(100, 10))
	again(b, second, 1, lease.Grant{Tokens: 20, TTL: 10 * second})
	b.Inherit(9)
	ask(b, second, 9, false)
	ask(b, second, 2, false)
	if got, _ := b.Refund(second, 4, true); got != 4 {
		t.Errorf("%d back, want 4", got)
	}
	if got, _ := b.Refund(second, 4, false); got != 2 {
		t.Errorf("%d back of its own, want the 2 taken", got)
	}
	b.Inherit(1)
	ask(b, second, 1, false)
	collect(b)
	if got, _ := b.Refund(second, 9, true); got != 0 {
		t.Errorf("%d back of what is booked, want 0", got)
	}
	if admitted, _, own := b.Counts(); admitted != 6 || own != 0 {
		t.Errorf("%d admitted and %d its own, want 6 and 0", admitted, own)
	}
}

// Whatever is given back when, no count that others were told of falls, and what is out of the bucket is never more than it has.
func TestRefundsOfAnyHistory(t *testing.T) {
	backs := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 46))
		l := bucketOf(1000, 1)
		l.Rate.Per = 366 * 86400e9 / 2
		b, store, now := Of(l), memstore.New(), int64(1_000_000)
		spec := lease.Spec{Algorithm: limit.TokenBucket, Units: 1, Period: l.Rate.Per.Microseconds(), Burst: 1000}
		var told, taken, back, collected int64
		renew := func(final, lost bool) {
			q := b.Renew(now, final)
			q.Key, q.Holder, q.Spec, q.Now = "k", "gw-1", spec, 1e15+now
			if q.Admitted < told || q.Held < 0 {
				t.Fatalf("seed %d: told of %d admitted after %d, and %d held", seed, q.Admitted, told, q.Held)
			}
			told = q.Admitted
			a := store.Renew(t.Context(), []lease.Renewal{q})[0]
			if a.Err != nil {
				t.Fatalf("seed %d: %v", seed, a.Err)
			}
			if !lost {
				for _, w := range b.Apply(now, a.Grant) {
					w.Done(w.Verdict())
				}
			}
		}
		for range 300 {
			now += r.Int64N(4_000) // so that no lease ends: what it held then would be void
			switch n := 1 + r.Int64N(20); r.IntN(6) {
			case 0, 1:
				got := b.Take(n)
				if !got && b.Ask(now, n, false, false).Outcome == Wait {
					w := &Waiter{Units: n, Done: func(v Verdict) { got = v.Outcome == Admitted }}
					b.Enqueue(w)
					renew(false, false)
					if !got {
						b.Abandon(w, true)
					}
				}
				if got {
					taken += n
				}
			case 2, 3:
				got, _ := b.Refund(now, n, false)
				if back += got; got > 0 {
					backs++
				}
			case 4:
				if b.State(now).Live {
					renew(false, r.IntN(5) == 0)
				}
			case 5:
				a, _ := collect(b)
				collected += a
			}
			if net := taken - back; net < told || net < collected || net+b.State(now).Tokens > 1000 {
				t.Fatalf("seed %d: %d taken and %d back, %d told, %d collected and %d here", seed, taken, back, told, collected, b.State(now).Tokens)
			}
		}
		renew(false, false) // what was lost with an answer is told
		renew(true, false)
		other := lease.Renewal{Key: "k", Holder: "gw-2", Spec: spec, Now: 1e15 + now, Number: 1, Began: 1}
		g := store.Renew(t.Context(), []lease.Renewal{other})[0].Grant
		if got, want := g.Remaining, 1000-(taken-back); got != want {
			t.Errorf("seed %d: the bucket has %d left, want %d", seed, got, want)
		}
	}
	if backs < 1000 {
		t.Errorf("something was given back %d times", backs)
	}
}

// Units that a switch admitted are no one's stock, whether reserved or not: those given back serve nobody.
func TestRefundOfWhatASwitchAdmitted(t *testing.T) {
	const second = 1_000_000
	for name, admit := range map[string]func(b *Bucket){
		"asked for": func(b *Bucket) { b.Admit(80) },
		"reserved": func(b *Bucket) {
			b.Hold(80)
			b.Admit(80)
			b.SettleAdmitted(80, 80, b.Window(), nil)
		},
		"more than was reserved": func(b *Bucket) {
			b.Hold(50)
			b.Admit(50)
			b.SettleAdmitted(50, 80, b.Window(), nil)
		},
		"less than was reserved": func(b *Bucket) {
			b.Hold(90)
			b.Admit(90)
			b.SettleAdmitted(90, 80, b.Window(), nil)
		},
	} {
		b := Of(&limit.Limit{Name: "w", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: 10e9}})
		b.Apply(second, lease.Grant{
			Number: b.Renew(second, false).Number, Tokens: 20, TTL: 10 * second, Reset: 8 * second, ValidFrom: 90 * second, ValidUntil: 100 * second,
		})
		admit(b)
		back, _ := b.Refund(2*second, 80, false)
		spent := 0
		for b.Ask(2*second, 1, false, false).Outcome == Admitted {
			spent++
		}
		if back != 80 || spent != 20 {
			t.Errorf("%s: %d back, and %d spent of a lease of 20", name, back, spent)
		}
	}
}
