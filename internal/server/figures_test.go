package server_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// standing makes a world stand still: while it is on no store answers, and nobody asks for anything. The clock goes on.
type standing struct {
	on      atomic.Bool
	settled atomic.Int64 // calls that settled
}

// standingLeases is a forgetful lease store that stands still.
type standingLeases struct {
	*forgetful
	*standing
}

func (s *standingLeases) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	if !s.on.Load() {
		return s.forgetful.Renew(ctx, renewals)
	}
	return unanswered(renewals)
}

// unanswered is what a lease store that is away answers.
func unanswered(renewals []lease.Renewal) []lease.Answer {
	answers := make([]lease.Answer, len(renewals))
	for i := range answers {
		answers[i].Err = lease.ErrUnavailable
	}
	return answers
}

// standingLedger is a ledger that stands still.
type standingLedger struct {
	worldLedger
	*standing
}

func (l *standingLedger) Settle(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	if l.on.Load() {
		return nil, ledger.ErrUnavailable
	}
	l.settled.Add(1)
	return l.worldLedger.Settle(ctx, reports)
}

func (l *standingLedger) Usage(ctx context.Context, q ledger.Query) (ledger.Usage, error) {
	if l.on.Load() {
		return ledger.Usage{}, ledger.ErrUnavailable
	}
	return l.worldLedger.Usage(ctx, q)
}

func (l *standingLedger) Ping(ctx context.Context) error {
	if l.on.Load() {
		return ledger.ErrUnavailable
	}
	return l.worldLedger.Ping(ctx)
}

// A month's quota is forgotten when a good part of it is used and not settled yet, and a second later all stands still
// for longer than a silent agent is waited for. Nobody could settle in that time: when all goes on, what the ledger
// said before is not taken for all that was used, and it is waited for those who have to say more. Who is silent then
// as well is waited for no longer than otherwise.
func TestAQuotaIsNotRebuiltInTimeThatNobodyLived(t *testing.T) {
	t.Run("all settle", func(t *testing.T) { testStandstill(t, false) })
	t.Run("one is silent", func(t *testing.T) { testStandstill(t, true) })
}

func testStandstill(t *testing.T, silent bool) {
	inWorld(t, noon, `
plans: {p: {limits: [{name: calls, algorithm: fixed_window, rate: 2000/month, meter: calls}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		still := new(standing)
		s := newForgetful()
		w.stop()
		w.leases, w.ledger = &standingLeases{forgetful: s, standing: still}, &standingLedger{w.ledger, still}
		w.start()
		time.Sleep(time.Minute) // all was well for long
		gone, stays := w.gateway("gone"), w.gateway("stays")
		total := allow(600, acme(), gone) + allow(1, acme(), stays)
		w.shut(gone)
		for reports := still.settled.Load() + 2; still.settled.Load() < reports; {
			time.Sleep(10 * time.Millisecond)
		}
		// It settles no more for nine seconds.
		if total += allow(599, acme(), stays); total != 1200 {
			t.Errorf("admitted %d of 1200, far below the quota", total)
		}
		if silent {
			_, err := quotav1.NewLeaseServiceClient(w.dial()).Renew(t.Context(), &quotav1.RenewRequest{Agent: "silent", Epoch: 1, Renewals: []*quotav1.Renewal{
				{Limit: "calls", Tenant: "acme", Number: 1, Began: 1, Waiting: 100},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		s.forget()
		drive := func(d time.Duration) {
			for range d / (20 * time.Millisecond) {
				total += allow(10, acme(), stays)
				time.Sleep(20 * time.Millisecond)
			}
		}
		drive(time.Second)
		before := total
		if total <= 1200 || total > 2000 {
			t.Errorf("admitted %d before the ledger could say what was used, want what was leased and epsilon", total)
		}
		still.on.Store(true)
		time.Sleep(45 * time.Second)
		still.on.Store(false)
		if drive(25 * time.Second); silent && total > before+5 {
			t.Errorf("admitted %d more while an agent was waited for", total-before)
		}
		drive(25 * time.Second)
		if total < 2000 || total > 2010 {
			t.Errorf("admitted %d in all, want 2000, and little more", total)
		}
		w.shut(stays)
	})
}
