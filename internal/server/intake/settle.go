package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// lastAccountTimeout bounds how long an agent's end waits for its account to be written.
const lastAccountTimeout = 2 * time.Second

// settleBudget is in bytes of reports, which bounds their rows too. Each report counts reportBytes more.
var settleBudget = authn.Allowance{Burst: 256 << 20, Rate: 8 << 20, What: "bytes of reports"}

// reportBytes is what a report costs besides its rows: a heartbeat is not free.
const reportBytes = 4 << 10

// Settle moves reports into the ledger. The ledger joins concurrent calls into one
// commit, bounds what waits for it, and answers ErrUnavailable beyond the bound.
func (s *Service) Settle(ctx context.Context, req *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	reports := make([]ledger.Report, len(req.Reports))
	principal := authn.PrincipalOf(ctx)
	for i, p := range req.Reports {
		if err := authn.SpeaksFor(ctx, p.Agent); err != nil {
			return nil, err
		}
		if err := s.settling.Take(authn.PrincipalOf(ctx), p.Agent, len(p.Payload)+reportBytes); err != nil {
			return nil, err
		}
		r, err := wire.ReportFromProto(p)
		if err != nil {
			// An invalid digest fits no content: the ledger keeps the report and fences its epoch.
			r, err = wire.ReportFromProto(&quotav1.Report{
				Agent: p.Agent, Epoch: p.Epoch, Seq: p.Seq, TotalBefore: p.TotalBefore, TotalAfter: p.TotalAfter,
				Payload: p.Payload, Digest: make([]byte, len(r.Digest)), ThroughMs: p.ThroughMs, Closed: p.Closed, Unsealed: p.Unsealed,
			})
		}
		if err != nil {
			return nil, err
		}
		if err := bar(ctx, principal.Scope, &r); err != nil {
			return nil, err
		}
		r.Key = principal.Key()
		reports[i] = r
	}
	if a := req.GetAccounts(); a != nil && authn.SpeaksFor(ctx, a.Agent) == nil {
		ownAccounts(principal.Scope, a)
		s.tally.Say(wire.AccountsFromProto(a))
	}
	resp := &quotav1.SettleResponse{Receipts: make([]*quotav1.Receipt, len(reports))}
	if len(reports) == 0 {
		return resp, nil
	}
	start := time.Now()
	receipts, err := s.settled(ctx, reports)
	s.metrics.settle.Observe(time.Since(start).Seconds())
	if err == nil && len(receipts) != len(reports) {
		err = fmt.Errorf("the ledger answered %d of %d reports", len(receipts), len(reports))
	}
	if err != nil {
		// After any error no report counts as stored, and all may be sent again.
		return nil, fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	for i := range receipts {
		resp.Receipts[i] = wire.ReceiptToProto(receipts[i])
		s.metrics.receipts.WithLabelValues(rpc.StatusLabel(resp.Receipts[i].Status)).Inc()
	}
	if reports[len(reports)-1].Closed && req.GetAccounts() != nil && s.tally != nil {
		// This is the agent's last account, which nobody sends again. If this server lost it, reconciliation would
		// report lost replies. If writing fails, it is written with the rest, and logged.
		c, cancel := context.WithTimeout(ctx, lastAccountTimeout)
		_ = s.tally.Flush(c)
		cancel()
	}
	resp.Ledger = s.name.say(ctx)
	return resp, nil
}

// settled settles reports in the ledger. It looks up what could not be judged, and tries those reports once more. A
// report that still cannot be judged is Unavailable, and its agent keeps it. So nothing unknown becomes an entry, and
// no usage is lost. An agent that names much that is unknown waits for it alone.
func (s *Service) settled(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	drawn := s.over.Check(ctx, reports)
	receipts, err := s.ledger.Settle(ctx, reports)
	if err != nil || s.judge == nil || len(receipts) != len(reports) {
		return receipts, err
	}
	drawn.Note(receipts)
	unchecked := make(map[ledger.Epoch]error) // nil where all is known now; what is behind such a report waits for it
	var again []ledger.Report
	var at []int
	for i := range receipts {
		r := &reports[i]
		e := ledger.Epoch{Agent: r.Agent, Epoch: r.Epoch}
		failed, waits := unchecked[e]
		if drawn.Waits(i) {
			s.metrics.unchecked.Inc()
			continue
		}
		if !receipts[i].Unchecked && !(waits && receipts[i].Status == ledger.Ahead) || failed != nil {
			continue
		}
		rows, err := ledger.DecodeRows(r.Payload)
		if err == nil {
			err = s.judge.Learn(ctx, r.Key, r.Agent, rows)
		}
		if unchecked[e] = err; err != nil {
			s.metrics.unchecked.Inc()
			receipts[i].Message = err.Error()
			continue
		}
		again, at = append(again, *r), append(at, i)
	}
	if len(again) == 0 {
		return receipts, nil
	}
	drawn = s.over.Check(ctx, again)
	second, err := s.ledger.Settle(ctx, again)
	for i := range again {
		s.judge.Done(again[i].Agent)
	}
	if err != nil || len(second) != len(again) {
		return receipts, nil //nolint:nilerr // the first answers hold
	}
	drawn.Note(second)
	for i := range second {
		receipts[at[i]] = second[i]
	}
	return receipts, nil
}
