package session

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
)

// collect looks at every bucket: it books what each admitted since the last time, and takes the accounts of their leases. It
// returns those that were idle for so long, and hold nothing, that they are to make room.
func (l *Loop) collect() (idle []*agent.Entry) {
	through, now := l.today().UnixMilli(), l.s.Now()
	idleSince := now - l.idle().Microseconds()
	u := &l.outbox.Usage
	u.Behind = false
	l.accounts.begin()
	l.s.Registry.Each(func(e *agent.Entry) {
		got := u.Collect(e, l.current, now)
		l.accounts.booked(e, got.Booked)
		l.accounts.stands(e, &got.Standing)
		l.count.looked += got.Decided
		if got.Active < idleSince && !got.Leased && !got.Unbooked && !e.Flying {
			idle = append(idle, e)
		}
	})
	l.renewals.Decided(now, l.count.looked)
	l.collectLimbo(now)
	l.accounts.say(l.s)
	l.s.journal.Records().Flush()
	if !u.Behind {
		l.through = max(l.through, through)
	}
	return idle
}

// collectOf is collect of these buckets, and of those that were dropped.
func (l *Loop) collectOf(entries []*agent.Entry) {
	now := l.s.Now()
	for _, e := range entries {
		l.accounts.booked(e, l.outbox.Usage.Collect(e, l.current, now).Booked)
	}
	l.collectLimbo(now)
	l.s.journal.Records().Flush()
}

func (l *Loop) collectLimbo(now int64) {
	u := &l.outbox.Usage
	limbo := l.limbo[:0]
	for _, e := range l.limbo {
		got := u.Collect(e, l.current, now)
		l.accounts.booked(e, got.Booked)
		if got.Unbooked {
			limbo = append(limbo, e)
		}
	}
	clear(l.limbo[len(limbo):])
	l.limbo = limbo
}

// report collects and freezes, unless too many reports wait already: then usage
// goes on being merged. The report that follows a slot's end tells what was collected there: all agents have much to do then.
func (l *Loop) report(now time.Time) {
	var idle []*agent.Entry
	if !l.followsEdge(now) {
		idle = l.collect()
	}
	if l.s.Registry.Version() > 0 && !l.outbox.Full() {
		l.outbox.Freeze(l.through, false)
		l.tidy()
	}
	l.sweep(idle)
	l.calls.Go(l.s.Registry.Sweep)
	l.s.cfg.Tidy()
}

// followsEdge reports whether a report is the one that a slot's end brought about.
func (l *Loop) followsEdge(now time.Time) bool {
	return now.Sub(l.edgeAt) <= l.s.cfg.ReportInterval/4
}

// idle is how long a bucket may be unused: shorter when room gets scarce.
func (l *Loop) idle() time.Duration {
	if l.s.Registry.Buckets() > int64(l.s.cfg.MaxBuckets)*3/4 {
		return min(l.s.cfg.Idle, crowdedIdle)
	}
	return l.s.cfg.Idle
}

// sweep drops the buckets that were found idle, if they still hold nothing.
func (l *Loop) sweep(idle []*agent.Entry) {
	l.sweptAt = l.s.Now()
	for _, e := range idle {
		l.Drop(e)
	}
}

// Drop takes a bucket out if it holds nothing, and reports whether it did.
func (l *Loop) Drop(e *agent.Entry) bool {
	dropped := l.s.Registry.Drop(e, func(e *agent.Entry) {
		got := l.outbox.Usage.Collect(e, l.current, l.s.Now())
		l.accounts.booked(e, got.Booked)
		if got.Unbooked {
			l.limbo = append(l.limbo, e)
		}
	})
	if dropped {
		l.renewals.Remove(e)
		l.count.add(e)
		l.accounts.dropped(e)
	}
	return dropped
}
