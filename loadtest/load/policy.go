package load

import (
	"fmt"
	"strings"
)

// Meter is the meter of a load's policy.
const Meter = "requests"

// namedTenants bounds the tenants that a policy names: a document names at most so many.
// The rest have the default plan.
const namedTenants = 10_000

// Policy is a document for a load of that many tenants: a fifth of them on a plan
// that a fast load saturates, three tenths on one that it comes near, and half on one
// that it does not reach.
func Policy(tenants int) string {
	var b strings.Builder
	b.WriteString(`default_plan: enterprise
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 500/second, burst: 1000, meter: requests}
  paid:
    limits:
      - {name: requests, by: [tenant], rate: 5000/second, burst: 10000, meter: requests}
  enterprise:
    limits:
      - {name: requests, by: [tenant], rate: 1000000/second, burst: 2000000, meter: requests}
tenants:
`)
	for i := range min(tenants, namedTenants) {
		plan := "enterprise"
		switch i % 10 {
		case 1, 6:
			plan = "free"
		case 2, 4, 8:
			plan = "paid"
		}
		fmt.Fprintf(&b, "  - {id: %s, plan: %s}\n", Tenant(i), plan)
	}
	return b.String()
}
