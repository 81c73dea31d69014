package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

type settleResult struct {
	from     *agent.Outbox
	sent     []ledger.Report
	receipts []ledger.Receipt
	ledger   string // that answered
	err      error
}

// settle sends frozen reports, one call at a time.
func (l *Loop) settle(now time.Time) {
	if l.settling || now.Before(l.settleAt) {
		return
	}
	from, life := l.outbox, l.s.keeper.own()
	if len(l.past) > 0 { // what was before comes first
		from, life = l.past[0].outbox, l.past[0].life
	}
	reports := from.Next(maxSend, maxSendBytes)
	if len(reports) == 0 {
		return
	}
	sent := append([]ledger.Report(nil), reports...)
	var accounts *quotav1.LeaseAccounts
	if from == l.outbox {
		accounts = l.accounts.said // of leases of earlier lives nobody knows any more
	}
	l.settling = true
	l.count.settleCalls++
	l.calls.Add(1)
	go func() {
		defer l.calls.Done()
		ctx, cancel := context.WithTimeout(l.ctx, settleTimeout)
		defer cancel()
		r := settleResult{from: from, sent: sent}
		if life != nil {
			r.err = life.Sync() // a report that was sent must not be made anew, in other words
		}
		if r.err == nil {
			r.receipts, r.ledger, r.err = settle(ctx, l.s.api, sent, accounts)
		}
		l.settled <- r
	}()
}

// settle sends reports, and returns what was said of each, and by which ledger.
func settle(ctx context.Context, api quotav1.LeaseServiceClient, reports []ledger.Report, accounts *quotav1.LeaseAccounts) ([]ledger.Receipt, string, error) {
	req := &quotav1.SettleRequest{Accounts: accounts}
	for i := range reports {
		req.Reports = append(req.Reports, wire.ReportToProto(reports[i]))
	}
	resp, err := api.Settle(ctx, req)
	if err == nil {
		err = wire.CheckSettleResponse(req, resp)
	}
	if err != nil {
		return nil, "", err
	}
	receipts := make([]ledger.Receipt, len(resp.Receipts))
	for i, p := range resp.Receipts {
		receipts[i] = wire.ReceiptFromProto(p)
	}
	return receipts, resp.Ledger, nil
}

// Epochs under which reports go on, where the one that they were of takes no more, are chosen so that none is given to two
// lives, and copies of a life that say the same take the same. That nothing is settled twice does not rest on that: the
// ledger lets one epoch go on from another (ledger.Origin).
//
//   - what a life left goes on under the next number, never the clock's: whoever settles another copy of it sends the same
//     bytes under the same numbers, and all of it is acknowledged.
//   - a life that is alive goes on at the clock's time, that a twin which shares its epoch has another, and at least
//     stride later, which leaves the numbers between to those who settle what it leaves.
//   - the next life begins journal.Apart later at least.

// stride is more epochs than what a life left ever goes on under: each is one refusal by the ledger.
const stride = 1 << 10

// nextEpoch is what a client's own reports go on under.
func nextEpoch(o *agent.Outbox) int64 { return max(o.State().Epoch+stride, newEpoch(time.Now())) }

// leftEpoch is what the reports that a life left go on under.
func leftEpoch(o *agent.Outbox) int64 { return o.State().Epoch + 1 }

func (l *Loop) onSettled(r settleResult) {
	l.settling = false
	progress := false
	if r.err != nil {
		l.looking.since = time.Time{}
	} else {
		l.named(r.ledger)
		l.recall(&r)
		var fault *agent.Fault
		next := nextEpoch
		if r.from != l.outbox {
			next = leftEpoch
		}
		progress, fault = r.from.Receive(r.sent, r.receipts, next(r.from))
		if fault != nil {
			progress = true
			l.s.log.Error("the ledger takes no more reports of this epoch; going on under a new one",
				"epoch", fault.Report.Epoch, "seq", fault.Report.Seq, "next_epoch", fault.Epoch,
				"reports_aside", fault.Aside, "said", fault.Receipt.Message)
		}
	}
	if len(l.past) > 0 && r.from == l.past[0].outbox {
		l.recover()
	}
	if progress {
		l.settleFails, l.settleAt = 0, time.Time{}
		return
	}
	l.count.settleFailed++
	l.settleFails++
	l.settleAt = time.Now().Add(retryIn(l.settleFails, 50*time.Millisecond, settleRetry))
	if l.settleFails == 5 {
		l.s.log.Warn("usage waits to be settled", "error", r.why(), "reports", r.from.State().Reports)
	}
}

// why is why nothing of it is settled: what the call failed with, or what was said of the first report that waits.
func (r *settleResult) why() error {
	if r.err != nil {
		return r.err
	}
	for i := range r.receipts {
		said := r.receipts[i].Message
		switch r.receipts[i].Status {
		case ledger.Settled, ledger.Already:
			continue
		case ledger.Unavailable:
			return fmt.Errorf("the ledger is unavailable: %s", cmp.Or(said, "it does not say why"))
		default:
			return fmt.Errorf("the ledger does not take report %d: %s", r.sent[i].Seq, cmp.Or(said, "it does not say why"))
		}
	}
	return errors.New("the ledger acknowledges reports, and none that wait")
}
