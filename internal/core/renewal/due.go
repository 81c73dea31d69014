package renewal

import (
	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
)

const (
	maxCalls  = 8       // under way
	maxBatch  = 4096    // renewals of a call
	maxProbe  = 256     // renewals of a call while the server is out of contact
	nearby    = 100_000 // µs from now within which renewals may go with one that is due
	maxNear   = 1024    // buckets that are looked at for that
	minGather = 1_000   // µs; see Renewer.gather
	maxGather = 100_000
	lookEvery = 5_000 // µs between looks at what is due while no call can go
)

// Step sends what is due, and returns when to call it again: at once with what comes in before, or at that time.
func (r *Renewer) Step(now int64) (next int64) {
	then := r.givesUp(now)
	return min(r.step(now), then)
}

func (r *Renewer) step(now int64) (next int64) {
	if r.ending {
		return r.giveBack(now)
	}
	return min(r.ask(now), r.renew(now))
}

// ask sends questions about tenants, apart from renewals: requests wait for the answers, which do not need the lease
// store. Out of contact they go with the call that tries the server.
func (r *Renewer) ask(now int64) (next int64) {
	q := &r.asks
	switch {
	case q.flying >= maxCalls:
		return bucket.Never // an answer comes first
	case now < r.contact.next:
		return r.contact.next
	case r.Lost():
		return bucket.Never
	case q.flying > 0 && now-q.last < q.gather():
		return q.last + q.gather()
	}
	tenants, next := r.cfg.Owner.Questions(now)
	if len(tenants) == 0 {
		return next
	}
	q.flying, q.last = q.flying+1, now
	r.count.Calls++
	r.cfg.Owner.Send(&Call{Tenants: tenants, Strain: r.told(now), Patience: r.patience(q, 0)})
	return min(next, now+q.gather())
}

// renew sends the renewals that are due.
func (r *Renewer) renew(now int64) (next int64) {
	for {
		room := r.window.room(now)
		switch {
		case r.calls.flying >= maxCalls, r.Lost() && r.calls.flying > 0:
			return r.pause(now, bucket.Never) // an answer comes first
		case room == 0:
			return r.pause(now, r.window.next())
		case now < r.contact.next:
			return r.pause(now, r.contact.next)
		case r.Lost():
			room = min(room, maxProbe)
		case r.calls.flying > 0 && now-r.calls.last < r.calls.gather():
			return r.pause(now, r.calls.last+r.calls.gather())
		}
		batch := r.take(now, room)
		if len(batch) > 0 && !r.Lost() {
			batch = r.fill(batch, room, now)
		}
		if len(batch) == 0 && !r.Lost() {
			return r.due.Next()
		}
		r.send(now, batch, room, false)
	}
}

// pause returns when to look again where no call can go before then. What is due is looked at all the same: windows
// end, leases end, and requests are served in their turn.
func (r *Renewer) pause(now, then int64) int64 {
	if then <= now+lookEvery {
		return then
	}
	for e := r.due.Pop(now); e != nil; e = r.due.Pop(now) {
		plan, renew := r.look(e, now)
		if !renew {
			continue
		}
		if !e.Ready {
			e.Ready = true
			r.ready = append(r.ready, e)
		}
		r.due.Set(e, plan.Meanwhile)
	}
	return min(then, max(r.due.Next(), now+lookEvery))
}

// take returns the buckets to renew now, at most limit. At most three quarters are those that requests asked for,
// while others are due: neither waits for all of the other.
func (r *Renewer) take(now int64, limit int) []*agent.Entry {
	batch := r.takeFrom(&r.asked, (*agent.Entry).Dequeue, now, nil, limit-limit/4)
	batch = r.takeFrom(&r.ready, func(e *agent.Entry) { e.Ready = false }, now, batch, limit)
	for len(batch) < limit {
		e := r.due.Pop(now)
		if e == nil {
			break
		}
		batch = r.visit(e, now, batch)
	}
	return r.takeFrom(&r.asked, (*agent.Entry).Dequeue, now, batch, limit)
}

// takeFrom moves the first of a list into a batch of at most limit. leaves is called for each that leaves the list.
func (r *Renewer) takeFrom(list *[]*agent.Entry, leaves func(*agent.Entry), now int64, batch []*agent.Entry, limit int) []*agent.Entry {
	all, n := *list, 0
	for ; n < len(all) && len(batch) < limit; n++ {
		e := all[n]
		leaves(e)
		if !e.Dead() {
			r.due.Remove(e)
			batch = r.visit(e, now, batch)
		}
	}
	*list = behind(all, n)
	return batch
}

// behind returns what is behind the first n, in the same memory unless that was much and is empty now.
func behind(all []*agent.Entry, n int) []*agent.Entry {
	rest := copy(all, all[n:])
	if rest == 0 && cap(all) > maxBatch {
		return nil
	}
	clear(all[rest:])
	return all[:rest]
}

// visit looks at a bucket that is not in the wheel, and adds it to the batch or puts it into the wheel.
func (r *Renewer) visit(e *agent.Entry, now int64, batch []*agent.Entry) []*agent.Entry {
	plan, renew := r.look(e, now)
	if !renew {
		return batch
	}
	if plan.Line.Force > 0 {
		force(e, 0)
	}
	e.Flying = true // from here on: another reason to look at it finds it so
	r.follow(e, &plan)
	return append(batch, e)
}

// look does what is due at a bucket that is not in the wheel, and reports whether it is to be renewed now. If not, it
// is put into the wheel.
func (r *Renewer) look(e *agent.Entry, now int64) (plan bucket.Plan, renew bool) {
	served, late, plan := e.Visit(now, r.Lost() || e.Lost())
	bucket.Serve(served)
	if late > 0 {
		r.cfg.Owner.Exceeded(e, Excess{Late: late})
	}
	if e.Flying || plan.Renew() > now {
		r.follow(e, &plan)
		return plan, false
	}
	if at := plan.Line.Force; at > 0 && at <= now && !e.Orphan() && plan.Idle {
		force(e, 0)
		return plan, false // nothing is leased: the next request asks anyway
	}
	return plan, true
}

// fill adds buckets to a batch whose renewal is near. They renew together from then on: a call costs the server more
// than a renewal does.
func (r *Renewer) fill(batch []*agent.Entry, limit int, now int64) []*agent.Entry {
	near := r.due.Near(now+nearby, maxNear, r.near[:0])
	for _, e := range near {
		if len(batch) >= limit || e.Flying || e.Orphan() || !e.Soon(now) {
			continue
		}
		if line := e.Line(); line.Force == 0 && line.Retry == 0 {
			r.due.Remove(e)
			e.Flying = true
			batch = append(batch, e)
		}
	}
	clear(near)
	r.near = near
	return batch
}
