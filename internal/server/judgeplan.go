package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/limit"
)

// strangerFor is how long an agent may go on under the default plan after somebody made the tenant, seconds: one that is cut off has
// not heard of it. Whoever is silent for as long is counted as lost.
const strangerFor = 24 * 3600

// history is which plans a tenant ever had; the zero value is of one that nobody made.
type history struct {
	made  int64 // Unix seconds
	plans []string
}

// check says why a row may not have its plan, or nil: an agent must not choose a cheaper one. What its tenant once had it may, for
// an agent that is cut off goes on under that. Without a plan a row is billed by the slot.
func (h *history) check(row *ledger.Row, defaultPlan string) error {
	switch {
	case row.Plan == "" || slices.Contains(h.plans, row.Plan):
		return nil
	case row.Plan == defaultPlan && (h.plans == nil || row.Slot < h.made+strangerFor):
		return nil
	}
	return fmt.Errorf("tenant %s never had plan %s", limit.Quote(row.Tenant), limit.Quote(row.Plan))
}

// plan is check by what is known, and by what is there where that is not enough: a plan may have begun since. Where it cannot find
// out in time it accepts, as of other names.
func (j *Judge) plan(row *ledger.Row, defaultPlan string) error {
	if row.Plan == "" {
		return nil
	}
	j.mu.Lock()
	known := j.plans
	h, ok := known[row.Tenant]
	j.mu.Unlock()
	if ok && h.check(row, defaultPlan) == nil {
		return nil
	}
	if !j.mayRead() {
		return nil
	}
	h, err := j.readHistory(row.Tenant)
	if err != nil {
		_ = j.noteRead(err)
		return nil
	}
	j.mu.Lock()
	if len(known) >= judgedTenants {
		clear(known)
	}
	known[row.Tenant] = h
	j.mu.Unlock()
	return h.check(row, defaultPlan)
}

func (j *Judge) readHistory(tenant string) (h history, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), judgeTimeout)
	defer cancel()
	standings, err := j.store.Standings(ctx, []string{tenant})
	if err != nil {
		return h, err
	}
	for i, s := range standings[0].Subscriptions {
		if i == 0 {
			h.made = s.From
		}
		if !slices.Contains(h.plans, s.Plan) {
			h.plans = append(h.plans, s.Plan)
		}
	}
	return h, nil
}
