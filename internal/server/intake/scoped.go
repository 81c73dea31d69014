package intake

import (
	"context"
	"fmt"
	"slices"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/authn"
)

// bar sends the rows of a report that the key does not cover to quarantine. It fails if that cannot be found out now.
func bar(ctx context.Context, s *authn.Scope, r *ledger.Report) error {
	if s == nil {
		return nil
	}
	rows, err := ledger.DecodeRows(r.Payload)
	if err != nil {
		return nil //nolint:nilerr // the ledger keeps it whole
	}
	var ids []string
	seen := make(map[string]authn.Reach)
	for i := range rows {
		if _, ok := seen[rows[i].Tenant]; !ok {
			seen[rows[i].Tenant] = authn.Outside
			ids = append(ids, rows[i].Tenant)
		}
	}
	for i, is := range s.Reach(ctx, ids) {
		if is == authn.Undecided {
			return fmt.Errorf("%w: whether key %s is for tenant %s cannot be found out now", fault.ErrUnavailable, s.Key, limit.Quote(ids[i]))
		}
		seen[ids[i]] = is
	}
	r.Barred = func(row *ledger.Row) error {
		switch {
		case seen[row.Tenant] == authn.Above && row.Admitted == 0 && row.Overage == 0: // a limit of an ancestor denied the key's tenant
		case seen[row.Tenant] != authn.Within:
			return s.NotFor(row.Tenant)
		case !s.HasLimit(row.Limit):
			return s.NotForLimit(row.Limit)
		}
		return nil
	}
	return nil
}

// ownAccounts leaves out accounts of limits that the key does not cover.
func ownAccounts(s *authn.Scope, a *quotav1.LeaseAccounts) {
	if s != nil {
		a.Limits = slices.DeleteFunc(a.Limits, func(l *quotav1.LeaseAccount) bool { return !s.HasLimit(l.Limit) })
	}
}
