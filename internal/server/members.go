package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/fault"
	"github.com/f4ee788f/quota/internal/ledger"
)

// memberTries is how often a statement with members is read anew because a block came meanwhile.
const memberTries = 5

// maxLagging bounds the agents that a statement names.
const maxLagging = 100

// together reads what a statement is made of, and the tenants below that its tenant pays for, all
// as of one block. What is not complete of one is not of the statement.
func (s *statementService) together(ctx context.Context, in *billing.Input) (ledger.SealedSums, error) {
	all, err := s.policy.Members(ctx, in.Tenant)
	if err != nil {
		return ledger.SealedSums{}, err
	}
again:
	for range memberTries {
		sums, err := s.usage(ctx, in)
		if err != nil {
			return sums, err
		}
		in.Members = nil
		for i := range all {
			m := billing.Input{Tenant: all[i].ID, Cycle: in.Cycle, Period: in.Period, Since: in.Since, Subscriptions: all[i].Subscriptions, Earlier: in.Earlier}
			got, err := s.usage(ctx, &m)
			if err != nil {
				return sums, err
			}
			if got.Block != sums.Block {
				continue again
			}
			in.Members = append(in.Members, m)
			if got.Complete.Before(sums.Complete) {
				sums.Complete = got.Complete
			}
			sums.Lagging = append(sums.Lagging, got.Lagging...)
		}
		slices.Sort(sums.Lagging)
		sums.Lagging = slices.Compact(sums.Lagging)
		sums.Lagging = sums.Lagging[:min(len(sums.Lagging), maxLagging)]
		return sums, nil
	}
	return ledger.SealedSums{}, fmt.Errorf("%w: blocks are sealed sooner than tenant %s and the %d tenants that it pays for are read; try again", fault.ErrConflict, in.Tenant, len(all))
}
