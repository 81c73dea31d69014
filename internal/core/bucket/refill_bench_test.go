package bucket

import (
	"math/rand"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// BenchmarkRefill finds the cell empty of one of many buckets: their leases are of all sizes and ages, so that no two
// buckets look alike, and they come in an order that memory does not have.
func BenchmarkRefill(b *testing.B) {
	const buckets, asks = 1 << 14, 6
	r := rand.New(rand.NewSource(1))
	now := int64(86_400_000_000)
	var all []*Bucket
	for range buckets {
		all = append(all, Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10}, Burst: 1000}))
	}
	r.Shuffle(buckets, func(i, j int) { all[i], all[j] = all[j], all[i] })
	lend := func() {
		for _, of := range all {
			collect(of)
			at := now + r.Int63n(5_000_000)
			p := of.Renew(at, false)
			at += r.Int63n(3000)
			room := int64(16 << r.Intn(10))
			of.Apply(at, lease.Grant{Number: p.Number, Tokens: room, TTL: 20_000_000 + r.Int63n(40_000_000),
				Trickle: room * (1000 + r.Int63n(100_000)), Pile: room, Remaining: r.Int63n(1 << r.Intn(20)), Reset: r.Int63n(60_000_000), Generation: 1})
		}
		now += 6_000_000
	}
	asked, refused := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if asked%(buckets*asks) == 0 {
			b.StopTimer()
			lend()
			b.StartTimer()
		}
		of := all[asked%buckets]
		asked++
		now += 100
		of.tokens.Store(of.tokens.Load() & 1)
		if of.Ask(now, 1, false, false).Outcome != Admitted {
			refused++
		}
	}
	if refused*50 > asked && asked > buckets {
		b.Errorf("%d of %d were refused: that is no refill", refused, asked)
	}
}
