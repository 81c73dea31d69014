package ledger

import (
	"fmt"
	"testing"
	"time"
)

// What is admitted under two plans is two keys, and a key of before rows had plans stays the same.
func TestKeyHasPlan(t *testing.T) {
	r := Row{Tenant: "acme", Limit: "requests", Meter: "requests", Version: 3, Attributes: "user=1"}
	const was = "f06855868c27d123"
	if got := fmt.Sprintf("%x", KeyOf(&r))[:16]; got != was {
		t.Errorf("without a plan: key %s, want %s", got, was)
	}
	keys := map[Key]string{KeyOf(&r): ""}
	for _, plan := range []string{"free", "paid"} {
		r.Plan = plan
		if other, ok := keys[KeyOf(&r)]; ok {
			t.Errorf("plans %q and %q have one key", other, plan)
		}
		keys[KeyOf(&r)] = plan
	}
}

// A row whose plan differs is judged anew. Otherwise an agent could hide a plan that its tenant never had
// behind one that it has.
func TestEachPlanIsJudged(t *testing.T) {
	rows := []Row{
		{Slot: 300, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 3, Plan: "free", Admitted: 1},
		{Slot: 300, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 3, Plan: "gold", Admitted: 2},
	}
	asked := map[string]bool{}
	rules := Rules{Now: time.Unix(400, 0), Window: Window{To: 1 << 40}, Accept: func(_ string, r Row) error {
		asked[r.Plan] = true
		return nil
	}}
	NewIntake([]Report{NewReport("a", 1, 1, 0, rows, 400_000, false)}, rules)
	if !asked["free"] || !asked["gold"] {
		t.Errorf("asked of %v, want of both plans", asked)
	}
}
