package agent

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// BenchmarkBook opens and closes a book that is packed, as each look at a bucket does.
func BenchmarkBook(b *testing.B) {
	of := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10}, Burst: 100})
	r := of.Renew(86_400_000_000, false)
	of.Apply(86_400_001_234, lease.Grant{Number: r.Number, Tokens: 1000, TTL: 10_000_000, Trickle: 5_123_456, Pile: 30, Remaining: 12345, Reset: 34_567_890, Generation: 3})
	b.ReportAllocs()
	for b.Loop() {
		of.Due(86_400_002_000)
	}
}

// BenchmarkDenied denies what nothing makes certain, under the mutex.
func BenchmarkDenied(b *testing.B) {
	of := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10}, Burst: 100})
	r := of.Renew(1_000_000, false)
	of.Apply(1_001_000, lease.Grant{Number: r.Number, TTL: 10_000_000, DenyFor: 5_000_000})
	b.ReportAllocs()
	for b.Loop() {
		if of.Slow(1_002_000, 2, false).Outcome != Denied {
			b.Fatal("not denied")
		}
	}
}

// BenchmarkCollect collects from a bucket that nobody used.
func BenchmarkCollect(b *testing.B) {
	of := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10}, Burst: 100})
	r := of.Renew(1_000_000, false)
	of.Apply(1_001_000, lease.Grant{Number: r.Number, TTL: 10_000_000, Tokens: 10})
	for b.Loop() {
		of.Collect()
	}
}
