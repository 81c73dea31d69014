package session

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
)

// Which buckets are renewed, and when.

// renewDue sends what is due and returns how long the loop may sleep.
func (l *Loop) renewDue() time.Duration {
	s := l.s
	for {
		now := s.Now()
		limit := l.window.room(now)
		switch {
		case l.flying >= maxCalls, s.Lost.Load() && l.flying > 0:
			return l.pause(now, bucket.Never) // an answer wakes the loop
		case limit == 0:
			return l.pause(now, l.window.next())
		case now < l.nextTry:
			return l.pause(now, l.nextTry)
		case s.Lost.Load():
			limit = min(limit, maxProbe)
		case l.flying > 0 && now-l.lastSent < l.gather():
			return l.pause(now, l.lastSent+l.gather())
		}
		batch := l.due(now, limit)
		if len(batch) > 0 && !s.Lost.Load() {
			batch = l.fill(batch, limit, now)
		}
		if len(l.unresolved) > 0 && now >= l.askAt {
			l.s.Registry.AskAgain(l.unresolved)
			l.unresolved = nil
		}
		tenants := s.Registry.Unasked(maxAsk)
		if len(batch) == 0 && len(tenants) == 0 && !s.Lost.Load() {
			next := l.sched.Next()
			if len(l.unresolved) > 0 {
				next = min(next, l.askAt)
			}
			if next == bucket.Never {
				return time.Hour
			}
			return time.Duration(max(next-now, 0)) * time.Microsecond
		}
		l.send(batch, tenants, limit, false)
	}
}

// pause returns how long the loop may sleep that sends nothing before then. What is due meanwhile is looked at all the same: those who
// wait their turn, and windows and leases that end, do not wait for a call.
func (l *Loop) pause(now, then int64) time.Duration {
	if then > now+lookEvery {
		l.lookAtDue(now)
		then = min(then, max(l.sched.Next(), now+lookEvery))
	}
	if then == bucket.Never {
		return time.Hour
	}
	return time.Duration(then-now) * time.Microsecond
}

// lookAtDue looks at all buckets that are due. Those that are to be renewed wait for a call.
func (l *Loop) lookAtDue(now int64) {
	for e := l.sched.Pop(now); e != nil; e = l.sched.Pop(now) {
		plan, renew := l.lookAt(e, now)
		if !renew {
			continue
		}
		if !e.Ready {
			e.Ready = true
			l.ready = append(l.ready, e)
		}
		l.sched.Set(e, plan.Meanwhile())
	}
}

// due takes out the buckets that are to be renewed now, at most limit: three quarters of them such as requests asked for, while
// there are as many, so that neither waits for all of the other.
func (l *Loop) due(now int64, limit int) []*agent.Entry {
	batch := l.takePressing(now, nil, limit-limit/4)
	batch = l.take(&l.ready, func(e *agent.Entry) { e.Ready = false }, now, batch, limit)
	for len(batch) < limit {
		e := l.sched.Pop(now)
		if e == nil {
			break
		}
		batch = l.visit(e, now, batch)
	}
	return l.takePressing(now, batch, limit)
}

// takePressing adds buckets that requests asked for to a batch of at most limit.
func (l *Loop) takePressing(now int64, batch []*agent.Entry, limit int) []*agent.Entry {
	return l.take(&l.pressing, (*agent.Entry).Dequeue, now, batch, limit)
}

// take adds the first of those who wait to a batch of at most limit; it calls left for each that waits no more.
func (l *Loop) take(waiting *[]*agent.Entry, left func(*agent.Entry), now int64, batch []*agent.Entry, limit int) []*agent.Entry {
	all, n := *waiting, 0
	for ; n < len(all) && len(batch) < limit; n++ {
		e := all[n]
		left(e)
		if !e.Dead() {
			l.sched.Remove(e)
			batch = l.visit(e, now, batch)
		}
	}
	*waiting = behind(all, n)
	return batch
}

// behind returns what is behind the first n, in the same memory unless that was a great deal and is empty.
func behind(all []*agent.Entry, n int) []*agent.Entry {
	rest := copy(all, all[n:])
	if rest == 0 && cap(all) > maxBatch {
		return nil
	}
	clear(all[rest:])
	return all[:rest]
}

// ease puts the buckets that requests asked for into the schedule: while the server is out of contact nobody waits for it.
func (l *Loop) ease() {
	now := l.s.Now()
	for _, e := range l.pressing {
		e.Dequeue()
		if !e.Dead() {
			l.sched.Set(e, now)
		}
	}
	l.pressing = behind(l.pressing, len(l.pressing))
}

// visit looks at a bucket that is not in the schedule: it is put there, or added to the batch.
func (l *Loop) visit(e *agent.Entry, now int64, batch []*agent.Entry) []*agent.Entry {
	plan, renew := l.lookAt(e, now)
	if !renew {
		return batch
	}
	if plan.Line.Force > 0 {
		force(e, 0)
	}
	e.Flying = true // from here: another reason to look at it finds it so
	l.sched.Follow(e, &plan)
	return append(batch, e)
}

// lookAt looks at a bucket that is not in the schedule, and reports whether it is to be renewed now. If not, it is put there.
func (l *Loop) lookAt(e *agent.Entry, now int64) (plan bucket.Plan, renew bool) {
	served, late, plan := e.Visit(now, l.s.Lost.Load() || e.Lost())
	Serve(served)
	l.count.overshoot.add(&l.count.decided, e, beyond{late: late})
	if e.Flying || plan.Renew() > now {
		l.sched.Follow(e, &plan)
		return plan, false
	}
	if at := plan.Line.Force; at > 0 && at <= now && !e.Orphan() && plan.Idle() {
		force(e, 0)
		return plan, false // nothing is leased: the next request asks anyway
	}
	return plan, true
}

// fill adds to a batch the buckets whose renewal is near. It lets them renew together from then on: a call costs
// the server more than a renewal does.
func (l *Loop) fill(batch []*agent.Entry, limit int, now int64) []*agent.Entry {
	near := l.sched.Near(now+nearby, maxNear, l.near[:0])
	for _, e := range near {
		if len(batch) >= limit || e.Flying || e.Orphan() || !e.Soon(now) {
			continue
		}
		if line := e.Line(); line.Force == 0 && line.Retry == 0 {
			l.sched.Remove(e)
			e.Flying = true
			batch = append(batch, e)
		}
	}
	clear(near)
	l.near = near
	return batch
}

// gather is how long renewals wait for company while a call is under way, in
// microseconds: about as long as a call takes, so that the busier the server is,
// the more each call carries; and a call that hangs holds up none of the others.
func (l *Loop) gather() int64 { return min(max(minGather, l.roundTrip), maxGather) }
