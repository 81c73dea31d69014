package session

import (
	"math/rand/v2"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/retry"
)

// watchEvent is what the server pushed.
type watchEvent struct {
	failed   error // nothing was: the call failed
	rules    *limit.Rules
	tenants  []limit.Tenant
	switches *limit.Switches
	refresh  bool
	trial    *limit.Rules // the shadow version, one of version 0 for none; nil for no news
	forgot   int64        // the lease store may have forgotten leases of before; 0 for no news
}

func (l *Loop) onWatched(e watchEvent) {
	if l.reached(e.failed); e.failed != nil {
		return
	}
	s, policies := l.s, e.rules != nil || e.trial != nil
	if e.rules != nil {
		l.collect() // what was admitted until here is of the version before
		first := s.Registry.Version() == 0
		l.apply(s.Registry.Adopt(e.rules))
		if slot := e.rules.Policy.Slot; slot >= time.Second && slot != l.slot {
			l.slot = slot
			l.current = l.slotOf(l.today())
			s.journal.Records().Slot(l.current)
		}
		s.log.Info("policy in force", "version", e.rules.Policy.Version)
		if first {
			close(s.known)
			l.sign, l.reportAt = true, time.Now().Add(retry.Jitter(min(s.cfg.ReportInterval, time.Second), 1))
		}
	}
	if e.trial != nil && e.trial.Policy.Version != s.Registry.Trial() {
		l.collect() // what would have been denied until here is of the version before
		if e.trial.Policy.Version == 0 {
			e.trial = nil
		}
		l.apply(s.Registry.Try(e.trial))
		s.log.Info("shadow policy changed", "version", s.Registry.Trial())
	}
	if policies {
		l.count.named = s.Registry.Named()
	}
	if len(e.tenants) > 0 {
		l.inform(e.tenants)
	}
	if e.switches != nil {
		l.remote = *e.switches
		l.flip("switches changed")
	}
	if e.refresh {
		s.Registry.Refresh()
	}
	l.redeclare(e.forgot)
}

// apply carries out what a change means for buckets.
func (l *Loop) apply(ch agent.Changes) {
	now := l.s.Now()
	l.s.Registry.FollowJournal()
	l.s.cfg.Changed()
	for _, e := range ch.Changed {
		// Within a second, and not all agents at once.
		force(e, now+rand.Int64N(300_000)+1)
		l.schedule(e, now)
	}
	for _, e := range ch.Orphaned {
		force(e, now+1)
		Serve(e.Dismiss())
		l.schedule(e, now)
	}
}
