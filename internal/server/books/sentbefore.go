package books

import (
	"context"
	"errors"
	"strings"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/rpc"
)

// sentBefore is the correction that a key was used for; the zero value is none. A repetition is compared with it, and
// not judged by today's policy, tenant and months of the ledger: its caller only missed the answer.
type sentBefore struct {
	rows  []ledger.Row
	entry ledger.EntryID
}

func (s *Service) sentBefore(ctx context.Context, key string) (there sentBefore, err error) {
	if strings.IndexByte(key, 0) >= 0 { // it is refused, and Postgres takes no such text
		return there, nil
	}
	k, err := s.books.CorrectionOf(ctx, key)
	if errors.Is(err, ledger.ErrNotFound) {
		return there, nil
	}
	if err != nil {
		return there, rpc.LedgerError(err)
	}
	there.entry = k.Entry
	there.rows, err = k.Entries()
	return there, err
}

// complete gives rows the version and plan that the earlier sending gave them. It leaves them as they are, and returns
// false, if nothing was sent before, or if other rows were.
func (b *sentBefore) complete(rows []ledger.Row) bool {
	if len(b.rows) == 0 {
		return false
	}
	type named struct {
		slot                             int64
		tenant, limit, meter, attributes string
	}
	of := func(r *ledger.Row) named { return named{r.Slot, r.Tenant, r.Limit, r.Meter, r.Attributes} }
	there := make(map[named][]*ledger.Row, len(b.rows))
	for i := range b.rows {
		there[of(&b.rows[i])] = append(there[of(&b.rows[i])], &b.rows[i])
	}
	full := make([]ledger.Row, len(rows))
	for i, r := range rows {
		var was *ledger.Row
		for _, o := range there[of(&r)] {
			if r.Version != 0 && r.Version != o.Version || r.Plan != "" && r.Plan != o.Plan {
				continue
			}
			if was != nil { // of several, by rows that said more
				return false
			}
			was = o
		}
		if was == nil {
			return false
		}
		r.Version, r.Plan = was.Version, was.Plan
		full[i] = r
	}
	copy(rows, full)
	return true
}
