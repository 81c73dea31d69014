package statements

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/rpc"
)

// maxWithheldTold is how many tenants a refusal names.
const maxWithheldTold = 10

// withheld notes in the input what is in quarantine from slots before the period's end that the tenant pays for, its
// own and its members'. Earlier periods count too, because what is released from them comes with this statement. It is
// read after the usage: once that is complete, no more usage of the period goes into quarantine.
func (s *Service) withheld(ctx context.Context, in *billing.Input) ([]ledger.Withheld, error) {
	parts := paidParts(in, in.Period.To)
	for i := range in.Members {
		parts = append(parts, paidParts(&in.Members[i], in.Period.To)...)
	}
	all, err := s.books.Withheld(ctx, parts)
	if err != nil {
		return nil, rpc.LedgerError(err)
	}
	in.Quarantined = nil
	for _, w := range all {
		if in.Quarantined == nil {
			in.Quarantined = &billing.Quarantined{}
		}
		in.Quarantined.Rows += w.Rows
		in.Quarantined.Units = saturated(in.Quarantined.Units, w.Units)
	}
	return all, nil
}

// paidParts are the slots before a time that are on the input's statement. Slots that others pay for are on theirs.
func paidParts(of *billing.Input, before int64) []ledger.Part {
	parts := []ledger.Part{}
	from := int64(math.MinInt64)
	for _, r := range of.Elsewhere {
		if r.From >= before {
			break
		}
		if r.From > 0 { // 0 is the beginning of all slots
			parts = append(parts, ledger.Part{Tenant: of.Tenant, From: from, To: r.From})
		}
		from = r.To
	}
	if from < before {
		parts = append(parts, ledger.Part{Tenant: of.Tenant, From: from, To: before})
	}
	return parts
}

// saturated is a sum of counts that ends at ledger.MaxSum.
func saturated(a, b int64) int64 {
	if a > ledger.MaxSum-b {
		return ledger.MaxSum
	}
	return a + b
}

// tellWithheld says which tenants have how much in quarantine.
func tellWithheld(all []ledger.Withheld) string {
	var told []string
	for i, w := range all {
		switch {
		case i == maxWithheldTold:
			return strings.Join(told, ", ") + fmt.Sprintf(" and %d tenants more", len(all)-i)
		case w.Tenant == "":
			told = append(told, fmt.Sprintf("%d rows of an earlier release, which may be anybody's", w.Rows))
		default:
			told = append(told, fmt.Sprintf("%d rows of tenant %s with %d units", w.Rows, w.Tenant, w.Units))
		}
	}
	return strings.Join(told, ", ")
}
