package books

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Reconcile compares servers' records, agents' accounts and the ledger. What this server noted is written first; other
// servers' notes are at most tallyEvery old.
func (s *Service) Reconcile(ctx context.Context, req *quotav1.ReconcileRequest) (*quotav1.ReconcileResponse, error) {
	q := ledger.ReconcileQuery{Agent: req.Agent, Epoch: req.Epoch, N: rpc.Page(req.PageSize)}
	var err error
	if q.After, err = accountOf(req.PageToken); err != nil {
		return nil, err
	}
	if err := s.tally.Flush(ctx); err != nil {
		return nil, rpc.LedgerError(err)
	}
	resp := &quotav1.ReconcileResponse{}
	for {
		found, err := s.books.Reconcile(ctx, q)
		if err != nil {
			return nil, rpc.LedgerError(err)
		}
		for i := range found {
			if r := reconciledProto(&found[i]); !req.Differing || len(r.Differences) > 0 {
				resp.Limits = append(resp.Limits, r)
			}
		}
		if len(found) < q.N {
			return resp, nil
		}
		q.After = found[len(found)-1].ID
		if len(resp.Limits) > 0 {
			resp.NextPageToken = pageAfter(q.After)
			return resp, nil
		}
	}
}

// pageAfter names where a page ended; accountOf reads it back.
func pageAfter(id ledger.AccountID) string {
	return base64.RawURLEncoding.EncodeToString([]byte(id.Epoch.Agent + "\x00" + strconv.FormatInt(id.Epoch.Epoch, 10) + "\x00" + id.Limit))
}

func accountOf(page string) (id ledger.AccountID, err error) {
	if page == "" {
		return id, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(page)
	parts := strings.Split(string(raw), "\x00")
	if err == nil && len(parts) == 3 {
		id.Epoch.Agent, id.Limit = parts[0], parts[2]
		id.Epoch.Epoch, err = strconv.ParseInt(parts[1], 10, 64)
	}
	if err != nil || len(parts) != 3 {
		return id, fmt.Errorf("%w: page is none of an answer's", fault.ErrInvalid)
	}
	return id, nil
}

func reconciledProto(r *ledger.Reconciled) *quotav1.Reconciled {
	p := &quotav1.Reconciled{
		Agent: r.ID.Epoch.Agent, Epoch: r.ID.Epoch.Epoch, Limit: r.ID.Limit, State: r.State, Settled: r.Settled,
		Recorded: &quotav1.RecordedLeases{
			Granted: r.Recorded.Granted, Unrun: r.Recorded.Unrun, Returned: r.Recorded.Returned, Spent: r.Recorded.Spent,
		},
	}
	if s := r.Said; s != nil {
		p.Expired = s.Expired()
		p.Said = &quotav1.LeaseAccount{
			Limit: r.ID.Limit, Granted: s.Granted, Unrun: s.Unrun, Returned: s.Returned, Told: s.Told, Spent: s.Spent,
			Beyond: s.Beyond, Held: s.Held, Booked: s.Booked,
		}
	}
	for _, d := range r.Differences() {
		p.Differences = append(p.Differences, &quotav1.LeaseDifference{Name: d.Name, Of: d.Of, Units: d.Units, Fault: d.Fault()})
	}
	return p
}
