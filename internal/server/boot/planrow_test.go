package boot_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const toggledText = `
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 1000/hour, burst: 2000, meter: requests}
  enterprise:
    limits:
      - {name: requests, by: [tenant], rate: 1000000/second, meter: requests}
tenants:
  - {id: acme, plan: free}
`

// toggler is a gateway of acme's, and what it admitted by plan.
type toggler struct {
	*node
	c        *client.Client
	admitted map[string]int64
}

func (g *toggler) ask(units int64, plan string) bool {
	g.t.Helper()
	if !g.c.AllowN(g.t.Context(), units, client.Tenant("acme")).Allowed {
		return false
	}
	g.admitted[plan] += units
	return true
}

// change gives acme a plan and waits until the gateway has it, asking for nothing: what is under way while a plan
// changes may be booked under either.
func (g *toggler) change(plan string) {
	g.t.Helper()
	if _, err := g.admin().SetTenantPlan(g.t.Context(), &quotav1.SetTenantPlanRequest{Id: "acme", Plan: plan}); err != nil {
		g.t.Fatal(err)
	}
	quota := map[string]int64{"free": 1000, "enterprise": 1_000_000}[plan]
	eventually(g.t, "the gateway has plan "+plan, func() bool {
		return g.c.AllowN(g.t.Context(), 0, client.Tenant("acme")).Details().Quota == quota
	})
}

// A tenant goes up and down again, or down and up, within minutes: each unit is billed under the plan that admitted it,
// whichever its slot began with, and none is in quarantine.
func TestWhatAPlanAdmittedIsBilledUnderIt(t *testing.T) {
	for _, way := range [][]string{{"free", "enterprise", "free"}, {"enterprise", "free", "enterprise"}} {
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			n := start(t, embedded(t, toggledText))
			g := &toggler{n, n.agent("gw-0", patient...), map[string]int64{}}
			for _, plan := range way {
				g.change(plan)
				units := map[string]int64{"free": 100, "enterprise": 60_000}[plan]
				eventually(t, fmt.Sprintf("%d units are admitted under %s", units, plan), func() bool { return g.ask(units, plan) })
			}
			if err := g.c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			var billed map[string]int64
			statements := quotav1.NewStatementServiceClient(n.dial(n.key))
			eventually(t, "all is billed", func() bool {
				preview, err := statements.PreviewStatement(t.Context(), &quotav1.PreviewStatementRequest{Tenant: "acme"})
				if err != nil {
					t.Fatal(err)
				}
				s, err := billing.Decode([]byte(preview.Statement.Document), preview.Statement.Digest)
				if err != nil {
					t.Fatal(err)
				}
				billed = map[string]int64{}
				for _, term := range s.Terms {
					for _, u := range term.Used {
						billed[term.Plan] += u.Admitted
					}
				}
				return billed["free"]+billed["enterprise"] >= g.admitted["free"]+g.admitted["enterprise"]
			}, func() any { return []any{billed, g.admitted} })
			if !maps.Equal(billed, g.admitted) {
				t.Errorf("billed %v, admitted %v", billed, g.admitted)
			}
		})
	}
}
