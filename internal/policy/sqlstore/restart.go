package sqlstore

import (
	"context"
	"fmt"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy"
)

// restarts warns of plans whose price changes while tenants have them. Any change of a price, even of its fee alone,
// begins a term in which tiers and packages count from the first unit again.
func (t *tx) restarts(ctx context.Context, before, doc *policy.Document) (warnings []string, err error) {
	if before == nil {
		return nil, nil
	}
	for _, p := range doc.Policy(0).Plans {
		was, is := before.Price(p.Name), doc.Price(p.Name)
		if was == nil || is == nil || was.String() == is.String() || !counts(was) || !counts(is) {
			continue
		}
		var n int64
		if err := t.QueryRowContext(ctx, "SELECT count(*) FROM tenants WHERE plan = $1", p.Name).Scan(&n); err != nil {
			return nil, unavailable("count tenants", err)
		}
		if n > 0 {
			warnings = append(warnings, fmt.Sprintf("warning: plan %s: its tiers and packages count anew from this change on, in the period under way of %d tenants", p.Name, n))
		}
	}
	return warnings, nil
}

// counts reports whether a unit's cost depends on the number of units before it.
func counts(p *billing.Price) bool {
	for i := range p.Meters {
		if m := &p.Meters[i]; m.Mode != billing.Graduated || len(m.Tiers) > 1 {
			return true
		}
	}
	return false
}
