package boot_test

import (
	"fmt"
	"testing"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// BenchmarkRenew is one agent's call over loopback, leases in memory: what the
// server adds to the lease store's step.
func BenchmarkRenew(b *testing.B) {
	for _, buckets := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			n := start(b, embedded(b, policyText))
			client := n.leases()
			req := &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1, PolicyVersion: 1}
			for i := range buckets {
				req.Renewals = append(req.Renewals, &quotav1.Renewal{Limit: "requests", Tenant: fmt.Sprintf("t%d", i), Began: 1})
			}
			b.ReportAllocs()
			var number int64
			for b.Loop() {
				number++
				for _, r := range req.Renewals {
					r.Number = number
				}
				if _, err := client.Renew(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
