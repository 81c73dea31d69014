package session

import (
	"math/rand/v2"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
)

// The lease store forgot something: leases that it granted before live on here, for minutes, beside
// what it grants to others. Renewed, they are declared to it. Those of a plan's change are spread likewise; of a great many
// leases a server has more to do than in the time that these take.
const (
	anewOver = 300 * time.Millisecond // that renewals are spread over, at least,
	anewEach = 50 * time.Microsecond  // and for each of them;
	anewMost = 5 * time.Second        // less than the store takes its buckets to be suspect for
)

// redeclare has all leases renewed, unless that was done for this loss or a later one. What the first server says is
// how things are: of leases from before nobody knows here.
func (l *Loop) redeclare(forgot int64) {
	was := l.forgot
	l.forgot = max(l.forgot, forgot)
	if was == 0 || forgot <= was {
		return
	}
	now := l.s.Now()
	var leased []*agent.Entry
	l.s.Registry.Each(func(e *agent.Entry) {
		if e.Flying || e.State(now).Live {
			leased = append(leased, e)
		}
	})
	over := min(anewOver+time.Duration(len(leased))*anewEach, anewMost).Microseconds()
	for _, e := range leased {
		line := e.Line()
		if at := now + 1 + rand.Int64N(over); line.Force == 0 || at < line.Force {
			line.Force = at
			e.SetLine(line)
			l.schedule(e, now)
		}
	}
	if len(leased) > 0 {
		l.s.log.Warn("the lease store forgot leases; all are renewed", "leases", len(leased), "within", time.Duration(over)*time.Microsecond)
	}
}
