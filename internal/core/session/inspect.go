package session

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// What tests and benchmarks of package client see of a session, mostly in Ask.

// Lives returns the journal's lives: the session's own, and those that were not settled when it began.
func (s *Session) Lives() []*journal.Life {
	lives := []*journal.Life{s.journal.Life}
	for _, p := range s.journal.Past {
		lives = append(lives, p.Life)
	}
	return lives
}

// Collect books what each bucket admitted since the last time.
func (l *Loop) Collect() { l.collect() }

// Sweep is Collect, and drops the buckets that were idle for long.
func (l *Loop) Sweep() { l.sweep(l.collect()) }

// Usage returns the rows that wait to be reported, and up to when nothing is missing in them, Unix milliseconds.
func (l *Loop) Usage() (rows *usage.Usage, through int64) { return &l.outbox.Usage, l.through }

// Waiting returns the buckets that wait for a place in a call.
func (l *Loop) Waiting() []*agent.Entry {
	return l.renewals.Pending()
}

// Report reports, and waits until that is settled.
func (l *Loop) Report() {
	l.report(time.Now())
	for l.settle(time.Now()); l.settling; {
		l.onSettled(<-l.settled)
	}
}

// Renew renews what is due after the time given went by, and waits for the answers. It returns how many were.
func (l *Loop) Renew(passes time.Duration) (renewals int64) {
	l.s.began = l.s.began.Add(-passes)
	l.s.Registry.CountFrom(l.s.began)
	was := l.renewals.Counts().Renewals
	l.renewals.Step(l.s.Now())
	for l.renewals.Flying() > 0 {
		l.onRenewed(<-l.renewed)
	}
	return l.renewals.Counts().Renewals - was
}
