package sim

import (
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
)

// What internal/core/session's loop does with calls, with its figures.
const (
	maxCalls     = 8
	maxBatch     = 4096
	maxProbe     = 256
	minGather    = 1 * millisecond
	maxGather    = 100 * millisecond
	lostAfter    = 400 * millisecond
	firstRetry   = 20 * millisecond
	lastRetry    = second
	firstHunger  = millisecond
	lastHunger   = 200 * millisecond
	renewTimeout = 2 * second
	minPatience  = 250 * millisecond
	// waking is how long a loop takes to notice that it is wanted.
	waking = 100
)

// loop sends a gateway's renewals, many in one call.
type loop struct {
	g         *gateway
	queue     []*line // due
	roused    int64   // when it looks at the queue next; 0 for not at all
	flying    int
	lastSent  int64
	roundTrip int64
	fails     int
	failing   int64 // since when
	nextTry   int64
	lost      bool
	leaving   bool
}

// plan makes sure that the bucket is looked at when it is due.
func (l *line) plan() {
	due := l.dueAt()
	if due == bucket.Never {
		return
	}
	if due >= l.due {
		return
	}
	l.due = due
	if due == l.g.w.now {
		l.look()
		return
	}
	l.g.w.at(due, func() {
		l.g.run(func() {
			if l.due == due {
				l.look()
			}
		})
	})
}

// dueAt is when to look at the bucket next: for a renewal, or while one is under way
// for requests whose turn comes.
func (l *line) dueAt() int64 {
	due := l.bucket.Turn(l.g.clock())
	if !l.flying && !l.ready {
		due = min(due, l.renewAt())
	}
	if due == bucket.Never {
		return due
	}
	return max(l.g.at(due), l.g.w.now)
}

// renewAt is when its renewal is due, by the gateway's clock.
func (l *line) renewAt() int64 {
	due := l.bucket.Due(l.g.clock())
	if due == bucket.Never {
		return due
	}
	if l.forced > 0 {
		due = min(due, l.forced+l.g.skew)
	}
	return max(due, l.retryAt+l.g.skew)
}

// look does what it is time for, and queues the bucket for the next call if it is due.
func (l *line) look() {
	now := l.g.clock()
	l.due = bucket.Never
	served, _ := l.bucket.Tick(now, l.g.loop.lost || l.lost)
	serve(served)
	if l.flying || l.ready || l.renewAt() > now {
		l.plan()
		return
	}
	l.push()
}

func (l *line) push() {
	l.ready = true
	l.g.loop.queue = append(l.g.loop.queue, l)
	l.g.loop.rouse()
}

// rouse has the loop look at its queue soon.
func (p *loop) rouse() { p.rouseAt(p.g.w.now + waking) }

func (p *loop) rouseAt(t int64) {
	if p.roused != 0 && p.roused <= t {
		return
	}
	p.roused = t
	p.g.w.at(t, func() {
		p.g.run(func() {
			if p.roused == t {
				p.roused = 0
				p.step()
			}
		})
	})
}

// step sends what is due, as Loop.renewDue of internal/core/session does.
func (p *loop) step() {
	now := p.g.w.now
	for len(p.queue) > 0 || p.lost {
		most := maxBatch
		switch {
		case p.flying >= maxCalls, p.lost && p.flying > 0:
			return // an answer rouses the loop
		case now < p.nextTry:
			p.rouseAt(p.nextTry)
			return
		case p.lost:
			most = maxProbe
		case p.flying > 0 && now-p.lastSent < p.gather():
			p.rouseAt(p.lastSent + p.gather())
			return
		}
		n := min(most, len(p.queue))
		batch := append([]*line(nil), p.queue[:n]...)
		p.queue = append(p.queue[:0], p.queue[n:]...)
		p.send(batch)
	}
}

func (p *loop) gather() int64 { return min(max(minGather, p.roundTrip), maxGather) }

// patience is how long a call may take: several times as long as calls took of late.
func (p *loop) patience() int64 {
	if p.roundTrip == 0 {
		return renewTimeout
	}
	return min(max(8*p.roundTrip, minPatience), renewTimeout)
}

// send makes one call: its request and its answer may each be lost, or come twice.
func (p *loop) send(batch []*line) {
	g, w := p.g, p.g.w
	sent, now := w.now, g.clock()
	renewals := make([]lease.Renewal, len(batch))
	for i, l := range batch {
		l.ready, l.flying, l.forced = false, true, 0
		l.bucket.Expire(now, p.lost || l.lost)
		renewals[i] = l.bucket.RenewStrained(now, p.leaving || l.bucket.Unused(), w.sc.Faults.Strain)
		renewals[i].Travels(p.roundTrip / 2)
	}
	w.m.calls++
	w.m.renew(len(batch))
	p.flying++
	p.lastSent = sent
	over := false
	end := func(answers []lease.Answer) {
		g.run(func() {
			if !over {
				over = true
				p.ended(batch, answers, w.now-sent)
			}
		})
	}
	f := &w.sc.Faults
	ok, refused := f.reachable(g.place, w.now)
	if refused {
		w.after(millisecond, func() { end(nil) })
		return
	}
	w.after(p.patience(), func() { end(nil) })
	copies := 1
	if chance(w.network, f.Duplicate) {
		copies = 2
	}
	for range copies {
		if !ok || chance(w.network, f.Loss) {
			continue
		}
		w.after(w.latency(), func() {
			answers := make([]lease.Answer, len(batch))
			for i, l := range batch {
				answers[i] = w.store.renew(bucketID{l.key, g.place}, g.name, renewals[i])
			}
			if ok, _ := f.reachable(g.place, w.now); !ok || chance(w.network, f.Loss) {
				return
			}
			w.after(w.latency(), func() { end(answers) })
		})
	}
}

// ended puts the answers to use; nil where the call failed.
func (p *loop) ended(batch []*line, answers []lease.Answer, took int64) {
	p.flying--
	p.roundTrip += (took - p.roundTrip) / 4
	p.contact(answers != nil)
	for i, l := range batch {
		l.flying = false
		if answers == nil || answers[i].Err != nil {
			l.unanswered()
			continue
		}
		l.answers++
		l.fails, l.retryAt, l.lost = 0, 0, false
		served := l.bucket.Apply(p.g.clock(), answers[i].Grant)
		serve(served)
		if len(served) > 0 || !l.bucket.Pressed() {
			l.hungry = 0
		} else {
			l.hungry++
			l.retryAt = p.g.w.now + p.g.retryIn(l.hungry, firstHunger, lastHunger)
		}
		if p.leaving && l.bucket.State(p.g.clock()).Live {
			l.push()
			continue
		}
		l.plan()
	}
	p.rouse()
}

// contact keeps count of calls that fail, and says when the server is lost.
func (p *loop) contact(ok bool) {
	now := p.g.w.now
	if ok {
		p.fails, p.nextTry, p.lost = 0, 0, false
		return
	}
	if p.fails == 0 {
		p.failing = now
	}
	p.fails++
	p.nextTry = now + p.g.retryIn(p.fails, firstRetry, lastRetry)
	if now-p.failing < lostAfter || p.lost {
		return
	}
	p.lost = true
	for _, l := range p.g.held {
		if l != nil && l.bucket.Urgent() {
			serve(l.bucket.Fail(p.g.clock()))
		}
	}
}

// unanswered notes that a renewal had no answer, and asks again later.
func (l *line) unanswered() {
	now := l.g.w.now
	if l.fails == 0 {
		l.failing = now
	}
	l.fails++
	l.retryAt = now + l.g.retryIn(l.fails, firstRetry, lastRetry)
	if now-l.failing >= lostAfter || l.g.loop.lost {
		l.lost = true
		serve(l.bucket.Fail(l.g.clock()))
	}
	if l.g.loop.leaving {
		return // its lease ends by itself
	}
	l.plan()
}

// retryIn is how long to wait after so many failures, with jitter.
func (g *gateway) retryIn(fails int, first, last int64) int64 {
	d := min(first<<min(fails-1, 16), last)
	return d/2 + g.w.network.Int64N(d/2+1)
}
