package judge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// strangerFor is how many seconds after a tenant was made an agent may still use the default plan for it. An agent that
// is cut off has not heard of the tenant. One that is silent for as long is counted as lost.
const strangerFor = 24 * 3600

// history is the plans that a tenant ever had; the zero value is of a tenant that nobody made.
type history struct {
	made  int64 // Unix seconds
	plans []string
}

// check says why a row may not have its plan, or nil: an agent must not choose a cheaper one. A plan that the tenant
// once had is allowed, because an agent that is cut off still uses it. A row without a plan is billed by its slot.
func (h *history) check(row *ledger.Row, defaultPlan string) error {
	switch {
	case row.Plan == "" || slices.Contains(h.plans, row.Plan):
		return nil
	case row.Plan == defaultPlan && (h.plans == nil || row.Slot < h.made+strangerFor):
		return nil
	}
	return fmt.Errorf("tenant %s never had plan %s", limit.Quote(row.Tenant), limit.Quote(row.Plan))
}

// plan checks a row's plan by what is known, and otherwise by what was looked up for the agent. A plan may have begun
// since the history was read.
func (j *Judge) plan(in *inquiry, row *ledger.Row, defaultPlan string) (lack, error) {
	if row.Plan == "" {
		return lack{}, nil
	}
	if h, ok := j.known.plans.get(row.Tenant); ok && h.check(row, defaultPlan) == nil {
		return lack{}, nil
	}
	if h, ok := in.history(row.Tenant); ok {
		return lack{}, h.check(row, defaultPlan)
	}
	return lack{tenant: row.Tenant, plans: true}, nil
}

func (j *Judge) readHistories(ctx context.Context, in *inquiry, ids []string) error {
	began, known := time.Now(), j.current()
	standings, err := j.store.Standings(ctx, ids)
	if err != nil {
		return err
	}
	if len(standings) != len(ids) {
		return fmt.Errorf("the policy store answered %d of %d tenants", len(standings), len(ids))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	in.begin(began)
	for i, id := range ids {
		var h history
		for n, s := range standings[i].Subscriptions {
			if n == 0 {
				h.made = s.From
			}
			if !slices.Contains(h.plans, s.Plan) {
				h.plans = append(h.plans, s.Plan)
			}
		}
		if h.plans != nil { // that nobody made it ends when somebody does
			known.plans.put(id, h)
		}
		in.histories[id] = h
	}
	return nil
}
