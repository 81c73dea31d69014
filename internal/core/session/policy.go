package session

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
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
	agents   int32        // that there are; 0 for no news
}

func (l *Loop) onWatched(e watchEvent) {
	if l.reached(e.failed); e.failed != nil {
		return
	}
	s, policies := l.s, e.rules != nil || e.trial != nil
	s.Registry.Fleet(l.fleet.heard(time.Now(), e.agents))
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
			l.revive()
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
	if leases, over := l.renewals.Declare(s.Now(), e.forgot); leases > 0 {
		s.log.Warn("the lease store forgot leases; all are renewed", "leases", leases, "within", over)
	}
}

// revive asks for the tenants that the journal's last life ended with, so that their requests do not have to.
func (l *Loop) revive() {
	if k := l.s.journal; k != nil {
		for _, id := range k.Tenants[:min(len(k.Tenants), l.s.cfg.MaxBuckets/2)] {
			_, _, _ = l.s.Registry.Learn(id) // what finds no room is asked for when it is needed
		}
		k.Tenants = nil
	}
	l.ready()
}

// ready says that the session is known, once the policy and all tenants asked for are.
func (l *Loop) ready() {
	if !l.known && l.s.Registry.Version() > 0 && l.s.Registry.Learning() == 0 {
		l.known = true
		close(l.s.known)
	}
}

// inform takes what the server says of tenants.
func (l *Loop) inform(infos []limit.Tenant) {
	var theirs []*agent.Entry
	change := l.s.Registry.Differ(infos, func(e *agent.Entry) { theirs = append(theirs, e) })
	if change {
		l.collectOf(theirs) // what was admitted until here is of the plan before
	}
	changes := l.s.Registry.Inform(infos)
	if change {
		l.apply(changes)
	}
}

// changeOver is the time over which the leases of changed limits are renewed: not all agents' at once.
const changeOver = 300 * time.Millisecond

// apply carries out what a change means for buckets.
func (l *Loop) apply(ch agent.Changes) {
	now := l.s.Now()
	l.s.Registry.FollowJournal()
	l.s.cfg.Changed()
	l.renewals.RenewWithin(now, changeOver.Microseconds(), ch.Changed...)
	for _, e := range ch.Orphaned {
		bucket.Serve(e.Dismiss())
	}
	l.renewals.RenewWithin(now, 0, ch.Orphaned...)
}
