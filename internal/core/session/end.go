package session

import (
	"context"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/recovery"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// How a client ends.

// close ends decisions, gives leases back and settles, within ctx.
func (l *Loop) close(ctx context.Context) error {
	s := l.s
	s.Closed.Store(true)
	s.Special.Store(true)
	s.Registry.Close()
	s.cfg.Expire(time.Now(), true)
	s.cfg.Changed()
	l.giveUp(ctx)
	// From here no cell admits: what requests under way have taken is all there is.
	for !l.quiet() && ctx.Err() == nil {
		l.wait(ctx, time.Millisecond)
	}
	// The last account is whole once the leases that went back are answered for.
	for until := time.Now().Add(lastWords); l.renewals.Flying() > 0 && !s.Lost.Load() && time.Now().Before(until) && ctx.Err() == nil; {
		l.wait(ctx, time.Until(until))
	}
	l.freezeAll()
	defer func() {
		for l.renewals.Flying() > 0 && ctx.Err() == nil { // leases that go back
			l.wait(ctx, time.Second)
		}
	}()
	for {
		s := l.outbox.State()
		if s.Reports == 0 && len(l.past) == 0 && (!l.looking.under || ctx.Err() != nil) { // the next start looks again
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %s: %w", recovery.ErrUnsettled, l.unsettled(&s), context.Cause(ctx))
		}
		l.settle(time.Now())
		if pause := time.Until(l.settleAt); l.settling || pause > 0 || l.looking.under {
			l.wait(ctx, max(pause, 50*time.Millisecond))
		}
		if l.outbox.State().Reports == 0 && l.outbox.Usage.Rows() > 0 {
			l.freezeAll() // an epoch that was fenced gave rows back, or one that ended left them
		}
	}
	if s := l.outbox.State(); s.AsideUnits > 0 {
		return fmt.Errorf("%w: %d units in %d reports of a fenced epoch", recovery.ErrUnsettled, s.AsideUnits, s.AsideReports)
	}
	return nil
}

// unsettled says what becomes of what is left.
func (l *Loop) unsettled(s *usage.OutboxState) string {
	past := recovery.UnitsOf(l.past)
	switch k := l.s.journal; {
	case k == nil:
		return fmt.Sprintf("%d units in %d reports were not acknowledged, and are lost for want of a journal", s.Units, s.Reports)
	case k.Records().Fault() != nil:
		return fmt.Sprintf("%d units in %d reports were not acknowledged, and are lost with the journal; %d of earlier starts are kept", s.Units, s.Reports, past)
	}
	return fmt.Sprintf("%d units in %d reports, kept in the journal for the next start", s.Units+past, s.Reports)
}

// freezeAll freezes all usage there is, as the epoch's last reports. An epoch that
// has ended takes none of it: it stays for the next.
func (l *Loop) freezeAll() {
	for l.s.Registry.Version() > 0 {
		l.collect()
		whole := !l.outbox.Usage.Behind
		l.outbox.Freeze(l.through, whole)
		if whole || l.outbox.Usage.Rows() > 0 {
			return
		}
	}
}

// wait lets calls come back, for a time.
func (l *Loop) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case r := <-l.renewed:
		l.onRenewed(r)
	case r := <-l.settled:
		l.onSettled(r)
	case r := <-l.looked:
		l.onLooked(r)
	case <-l.watched: // of no interest any more
	case <-l.filed:
	case f := <-l.s.asks:
		f(l)
	case <-l.s.wake:
	case <-ctx.Done():
	case <-t.C:
	}
}

// giveUp returns every lease. It drains the cells, so that nothing more can be admitted, and tells the server, also
// what was spent of leases that have lapsed. That takes half of the time at most: the rest is for usage. Requests that
// wait are denied.
func (l *Loop) giveUp(ctx context.Context) {
	s := l.s
	var all []*agent.Entry
	s.Registry.Each(func(e *agent.Entry) { all = append(all, e) })
	for l.renewals.Flying() > 0 && ctx.Err() == nil {
		l.wait(ctx, time.Second)
	}
	now := s.Now()
	var leased []*agent.Entry
	for _, e := range all {
		bucket.Serve(e.Dismiss())
		e.Flying = false
		if e.State(now).Live || e.Untold() {
			leased = append(leased, e)
		} else {
			e.Drain()
		}
	}
	end, _ := ctx.Deadline() // Close sets one
	ctx, cancel := context.WithTimeout(ctx, time.Until(end)/2)
	defer cancel()
	l.renewals.GiveUp(leased)
	for ctx.Err() == nil {
		next := l.renewals.Step(s.Now())
		if l.renewals.Returning() == 0 {
			return
		}
		l.wait(ctx, s.until(next))
	}
	l.renewals.Lapse() // nobody takes them
}

// quiet reports whether no request is between taking and deciding.
func (l *Loop) quiet() bool {
	quiet := true
	l.s.Registry.Each(func(e *agent.Entry) {
		if e.Urgent() {
			bucket.Serve(e.Dismiss()) // it began to wait just before the end
		}
		quiet = quiet && e.Quiet()
	})
	return quiet
}
