package session

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/recovery"
	"github.com/f4ee788f/quota/internal/core/retry"
)

const (
	// lookEach is how soon the journal is gone through again at most because the ledger has another
	// name: it takes some seconds for each gigabyte.
	lookEach = time.Minute
	// askPatience is how long reports wait for a ledger that takes reports and cannot be asked how far it is. Then
	// what it has forgotten is given up.
	askPatience = 3 * time.Minute
)

// looking is what a client knows of its journal's reports in the ledger.
type looking struct {
	under   bool                   // a look is under way
	at      time.Time              // when the next may begin for a name's sake
	why     *forgot                // what waits for a look: the latest that was found; nil for nothing
	whyAt   time.Time              // when the next look may begin because something waits
	since   time.Time              // when something began to wait for the look that is under way, while reports are answered
	enough  chan struct{}          // closed when that is too long; nil once it is
	ledger  string                 // that has what can be had
	lacking map[ledger.Epoch]int64 // as the last look found it

	reports, units int64 // sent again and settled
	forgotten      recovery.Forgotten
}

// forgot is an epoch of which the ledger waits for what it had acknowledged.
type forgot struct {
	epoch   ledger.Epoch
	reached recovery.Reached
	next    int64 // that it waits for
	units   int64 // from there to what was reached
}

type lookResult struct {
	recovery.Resent
	err error
}

// wentBack looks for receipts by which the ledger has forgotten what it acknowledged. It takes them out of the answer
// if the journal may have those reports. What waits goes on waiting, and is sent once those are settled again.
func (l *Loop) wentBack(r *settleResult) {
	at, next, ok := r.from.Forgotten(r.sent, r.receipts)
	if !ok {
		return
	}
	head := &r.sent[at]
	f := forgot{ledger.Epoch{Agent: head.Agent, Epoch: head.Epoch}, recovery.Reached{Seq: head.Seq - 1, Total: head.Before}, next, head.Before - r.receipts[at].Total}
	if l.s.journal == nil {
		l.looking.forgotten.Add(f.epoch, f.units)
		return
	}
	if l.looking.lacking[f.epoch] == next {
		return
	}
	r.receipts = r.receipts[:at]
	k, now := &l.looking, time.Now()
	switch {
	case !k.under && now.Before(k.whyAt):
	case !k.under:
		k.why = &f
		l.look()
	case k.since.IsZero():
		k.why, k.since = &f, now
	default:
		k.why = &f
		if now.Sub(k.since) >= askPatience && k.enough != nil {
			close(k.enough)
			k.enough = nil
		}
	}
}

// named looks at the ledger's name in an answer. A ledger with another name may have forgotten reports of epochs that
// have ended, which no further report would show.
func (l *Loop) named(name string) {
	if l.s.journal != nil && name != "" && name != l.looking.ledger && !time.Now().Before(l.looking.at) {
		l.look()
	}
}

// look has the journal gone through, beside the loop.
func (l *Loop) look() {
	k := &l.looking
	if k.under {
		return
	}
	k.under, k.since, k.enough = true, time.Time{}, make(chan struct{})
	known := make(map[ledger.Epoch]recovery.Reached)
	if k.why != nil {
		known[k.why.epoch] = k.why.reached
	}
	look := recovery.Resender{Dir: l.s.journal.Dir, Agent: l.s.cfg.Agent, API: l.s.api, Log: l.s.log, Enough: k.enough}
	l.calls.Add(1)
	go func() {
		defer l.calls.Done()
		r, err := look.Run(l.ctx, known)
		l.looked <- lookResult{r, err}
	}()
}

func (l *Loop) onLooked(r lookResult) {
	k := &l.looking
	why, next := k.why, time.Now().Add(retry.Jitter(lookEach, 0.1))
	k.under, k.why, k.at = false, nil, next
	if why != nil {
		k.whyAt = next
	}
	k.reports, k.units = k.reports+r.Reports, k.units+r.Units
	if r.err != nil {
		if l.ctx.Err() != nil {
			return
		}
		l.s.log.Error("what the ledger may have forgotten cannot be sent again", "error", r.err)
		if why != nil { // it must not wait for ever
			k.forgotten.Add(why.epoch, why.units)
			k.lacking = map[ledger.Epoch]int64{why.epoch: why.next}
		}
	} else {
		k.ledger, k.lacking = r.Ledger, r.Lacking
		k.forgotten.Merge(r.Forgotten)
	}
	l.settleFails, l.settleAt = 0, time.Time{} // what waited behind it
}
