package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/recovery"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/usage"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

type settleResult struct {
	from     *usage.Outbox
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
	from, life := l.outbox, l.s.life()
	if len(l.past) > 0 { // what was before comes first
		from, life = l.past[0].Outbox, l.past[0].Life
	}
	reports := from.Next(recovery.MaxSend, recovery.MaxSendBytes)
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
		ctx, cancel := context.WithTimeout(l.ctx, recovery.SettleTimeout)
		defer cancel()
		r := settleResult{from: from, sent: sent}
		if life != nil {
			r.err = life.Sync() // a report that was sent must not be made anew, in other words
		}
		if r.err == nil {
			r.receipts, r.ledger, r.err = recovery.Settle(ctx, l.s.api, sent, accounts)
		}
		l.settled <- r
	}()
}

// nextEpoch is what a session's own reports go on under.
func nextEpoch(o *usage.Outbox) int64 {
	return max(o.State().Epoch+recovery.Stride, recovery.NewEpoch(time.Now()))
}

func (l *Loop) onSettled(r settleResult) {
	l.settling = false
	progress := false
	if r.err != nil {
		l.looking.since = time.Time{}
	} else {
		l.named(r.ledger)
		l.wentBack(&r)
		var fault *usage.Fault
		next := nextEpoch
		if r.from != l.outbox {
			next = recovery.LeftEpoch
		}
		progress, fault = r.from.Receive(r.sent, r.receipts, next(r.from))
		if fault != nil {
			progress = true
			l.s.log.Error("the ledger takes no more reports of this epoch; going on under a new one",
				"epoch", fault.Report.Epoch, "seq", fault.Report.Seq, "next_epoch", fault.Epoch,
				"reports_aside", fault.Aside, "said", fault.Receipt.Message)
		}
	}
	if len(l.past) > 0 && r.from == l.past[0].Outbox {
		l.recover()
	}
	if progress {
		l.settleFails, l.settleAt = 0, time.Time{}
		return
	}
	l.count.settleFailed++
	l.settleFails++
	l.settleAt = time.Now().Add(retry.In(l.settleFails, 50*time.Millisecond, recovery.SettleRetry))
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
