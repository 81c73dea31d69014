package statements

import (
	"context"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// memberTries is how often a statement with members is read anew because a block came meanwhile.
const memberTries = 5

// maxLagging bounds the agents that a statement names.
const maxLagging = 100

// together reads the usage of a statement, all as of one block. It covers its tenant, and the members that the tenant
// pays for in the period or paid for in an earlier one. While usage of a member paid for in the period is incomplete,
// the statement is too.
func (s *Service) together(ctx context.Context, in *billing.Input, home *terms.Household) (ledger.SealedSums, error) {
	in.Elsewhere, _, _ = home.Payers.Elsewhere(in.Tenant, in.Tenant)
	var members []billing.Input
	for i := range home.Members {
		of := &home.Members[i]
		m := billing.Input{Tenant: of.ID, Cycle: in.Cycle, Period: in.Period, Since: in.Since, Subscriptions: of.Subscriptions, Earlier: in.Earlier}
		m.Elsewhere, _, _ = home.Payers.Elsewhere(in.Tenant, of.ID)
		if m.Pays(in.Period) || slices.ContainsFunc(in.Earlier, m.Pays) {
			members = append(members, m)
		}
	}
again:
	for range memberTries {
		sums, err := s.usage(ctx, in)
		if err != nil {
			return sums, err
		}
		in.Members = nil
		for _, m := range members {
			got, err := s.usage(ctx, &m)
			if err != nil {
				return sums, err
			}
			if got.Block != sums.Block {
				continue again
			}
			in.Members = append(in.Members, m)
			if !m.Pays(in.Period) {
				continue
			}
			if got.Complete.Before(sums.Complete) {
				sums.Complete = got.Complete
			}
			sums.Lagging = append(sums.Lagging, got.Lagging...)
			sums.Lost.Merge(got.Lost)
		}
		slices.Sort(sums.Lagging)
		sums.Lagging = slices.Compact(sums.Lagging)
		sums.Lagging = sums.Lagging[:min(len(sums.Lagging), maxLagging)]
		return sums, nil
	}
	return ledger.SealedSums{}, fmt.Errorf("%w: blocks are sealed sooner than tenant %s and the %d tenants that it pays for are read; try again", fault.ErrConflict, in.Tenant, len(members))
}
