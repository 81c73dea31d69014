package main

// policy is the demo's own: rates by the second, so that a few seconds show them.
const policy = `# The demo's policy: a bucket per tenant, refilled by the second.
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 20/second, burst: 40, meter: requests}
  paid:
    limits:
      - {name: requests, by: [tenant], rate: 100/second, burst: 200, meter: requests}
  enterprise:
    limits:
      - {name: requests, by: [tenant], rate: 10000/second, burst: 20000, meter: requests}
tenants:
  - {id: ada, plan: free}
  - {id: bell, plan: paid}
  - {id: curie, plan: enterprise}
`

const meter = "requests"

// tenants are the policy's, with the plan that each begins under.
var tenants = []tenant{{id: "ada", plan: "free"}, {id: "bell", plan: "paid"}, {id: "curie", plan: "enterprise"}}

type tenant struct{ id, plan string }

// changed changes to another plan half-way.
var changed = tenant{id: "ada", plan: "paid"}

// names are the tenants' ids.
func names() []string {
	ids := make([]string, len(tenants))
	for i, t := range tenants {
		ids[i] = t.id
	}
	return ids
}
