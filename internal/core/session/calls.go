package session

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// patience is how long a Renew call may take: several times as long as calls took of
// late, so that a lost message delays a lease's renewal by no more than the store keeps
// its share. A server that is slow is given more with each call that was not answered. Calls took less while there was
// less to renew: one is given what the window lets it take as well, with all that is under way before it.
func (l *Loop) patience() time.Duration {
	if l.roundTrip == 0 {
		return l.s.cfg.RenewTimeout // the first, which has to connect
	}
	d := max(8*time.Duration(l.roundTrip)*time.Microsecond, time.Duration(l.window.most())*time.Microsecond, minPatience)
	return min(d, l.s.cfg.RenewTimeout)
}

type renewResult struct {
	trip    *trip
	took    int64 // microseconds
	batch   []*agent.Entry
	tenants []*agent.Tenant
	resp    *quotav1.RenewResponse
	err     error
}

// send composes a Renew call, for which there was so much room, and starts it.
func (l *Loop) send(batch []*agent.Entry, tenants []*agent.Tenant, room int, final bool) {
	s, now := l.s, l.s.Now()
	idle := now - max(s.cfg.Idle, 2*s.cfg.ReportInterval).Microseconds() // use is noticed at reports
	req := &quotav1.RenewRequest{Agent: s.cfg.Agent, Epoch: s.epoch, PolicyVersion: s.Registry.Version(), Strain: int32(math.Round(l.strain.now(now)))}
	// One piece of memory for all: there are thousands a second.
	messages := make([]quotav1.Renewal, len(batch))
	req.Renewals = make([]*quotav1.Renewal, len(batch))
	values := make([]string, 0, len(batch))
	for i, e := range batch {
		e.Flying = true
		p := &messages[i]
		r := e.Compose(now, idle, final, int64(req.Strain))
		r.Travels(l.roundTrip / 2)
		wire.WriteRenewal(p, &r)
		first := len(values)
		values = e.AppendValues(values)
		p.Limit, p.Tenant, p.Values, p.Shadow = e.Limit(), e.Tenant(), values[first:len(values):len(values)], e.Shadow()
		if e.Overage() {
			p.Kind = quotav1.Renewal_KIND_OVERAGE
		}
		req.Renewals[i] = p
	}
	for _, t := range tenants {
		req.Tenants = append(req.Tenants, t.ID())
	}
	l.count.renewCalls++
	l.count.renewals += int64(len(batch))
	l.count.tenants += int64(len(tenants))
	l.flying++
	trip := l.window.sent(now, len(batch), room)
	l.lastSent = now
	l.calls.Add(1)
	patience := l.patience()
	go func() {
		defer l.calls.Done()
		ctx, cancel := context.WithTimeout(l.ctx, patience)
		defer cancel()
		resp, err := s.api.Renew(ctx, req)
		if err == nil {
			err = wire.CheckRenewResponse(req, resp)
		}
		l.renewed <- renewResult{trip, s.Now() - now, batch, tenants, resp, err}
	}()
}

func (l *Loop) onRenewed(r renewResult) {
	l.flying--
	l.roundTrip += (r.took - l.roundTrip) / 4
	now := l.s.Now()
	if r.err != nil {
		l.count.renewFailed++
		l.window.failed(r.trip)
		l.contact(r.err)
		for _, e := range r.batch {
			l.unanswered(e, now)
		}
		l.s.Registry.AskAgain(r.tenants)
		return
	}
	l.window.answered(r.trip, r.took)
	l.strain.note(now, float64(l.roundTrip)/float64(l.window.target()), float64(len(l.pressing)+len(l.ready))/l.window.size)
	l.contact(nil)
	for i, e := range r.batch {
		e.Flying = false
		a := wire.GrantFromProto(r.resp.Grants[i])
		switch {
		case a.Err == nil:
			if e.Lost() {
				e.SetLost(false)
			}
			got := e.Answer(now, a.Grant, hunger)
			l.count.overshoot.add(&l.count.decided, e, beyond{outage: got.Beyond})
			l.accounts.answered(e, &got, &a.Grant)
			Serve(got.Served)
			if e.Yielded() && l.drop(e) {
				continue
			}
			if !e.Orphan() {
				l.sched.Follow(e, &got.Plan)
				continue
			}
			Serve(e.Dismiss())
		case errors.Is(a.Err, wire.ErrUnknown):
			if errors.Is(a.Err, lease.ErrInvalid) {
				l.refused(e, a.Err)
			}
			e.Forget()
			if e.Orphan() {
				Serve(e.Dismiss())
				break
			}
			// The server has another policy or another plan of the tenant: it is pushed,
			// and asked for besides.
			heard(e, now)
			if id := e.Tenant(); id != "" {
				l.s.Registry.Ask(id)
			}
		case errors.Is(a.Err, lease.ErrStale):
			e.Skip(now)
			heard(e, now)
		default:
			l.unanswered(e, now)
		}
		if e.Orphan() && l.drop(e) {
			continue
		}
		l.schedule(e, now)
	}
	if len(r.tenants) > 0 {
		var infos []limit.Tenant
		if now > l.askAt+2*lastRetry.Microseconds() {
			l.askFails = 0 // what was left out was answered meanwhile
		}
		var left []*agent.Tenant
		for i, p := range r.resp.Tenants {
			if p.GetId() == "" { // its store is away, or cannot make it out
				if l.askFails == 0 && len(left) == 0 {
					l.s.log.Warn("the server cannot look up tenants at present", "tenant", r.tenants[i].ID())
				}
				left = append(left, r.tenants[i])
				continue
			}
			t, err := wire.TenantFromProto(p)
			if err != nil || t.ID != r.tenants[i].ID() {
				l.s.log.Warn("the server's answer about a tenant is not valid", "tenant", r.tenants[i].ID(), "error", err)
				left = append(left, r.tenants[i])
				continue
			}
			infos = append(infos, t)
		}
		if len(left) > 0 && len(l.unresolved) == 0 {
			l.askFails++
			l.askAt = now + retry.In(l.askFails, firstRetry, lastRetry).Microseconds()
		}
		l.unresolved = append(l.unresolved, left...)
		l.inform(infos)
	}
}

// refused logs a renewal that broke a bound, which is a fault of this client or of the server, every refusedEvery at most.
func (l *Loop) refused(e *agent.Entry, err error) {
	if t := time.Now(); t.Sub(l.refusedAt) >= refusedEvery {
		l.refusedAt = t
		l.s.log.Error("the server refuses a renewal as not valid; its bucket begins anew", "limit", e.Limit(), "tenant", e.Tenant(), "error", err)
	}
}

// hunger is how long those who wait and were brought nothing go without asking again, in microseconds, by how often that was so.
func hunger(times int32) int64 { return retry.In(int(times), firstHunger, lastHunger).Microseconds() }

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

// contact keeps count of calls that fail, and says when the server is lost.
func (l *Loop) contact(err error) {
	s := l.s
	l.reached(err)
	if err == nil {
		l.fails, l.nextTry = 0, 0
		if s.Lost.Swap(false) {
			s.log.Info("contact with the server again")
		}
		return
	}
	if l.fails == 0 {
		l.since = time.Now()
	}
	l.fails++
	l.nextTry = s.Now() + untilLost(retry.In(l.fails, firstRetry, lastRetry), time.Since(l.since)).Microseconds()
	if time.Since(l.since) >= lostAfter && !s.Lost.Swap(true) {
		s.log.Warn("contact with the server lost", "error", err)
		l.window.lost()
		l.ease()
		now := s.Now()
		s.Registry.Each(func(e *agent.Entry) {
			if e.Urgent() {
				l.urgent = append(l.urgent, e)
			}
		})
		for _, e := range l.urgent {
			Serve(e.Fail(now))
		}
		clear(l.urgent)
		l.urgent = l.urgent[:0]
	}
}

// untilLost shortens the wait for the next try, where calls have failed for so long, so that the try which says that all
// is lost comes soon after lostAfter, whatever chance made of the waits before: who waits is decided by on_outage then,
// and not denied because the longest wait was over first.
func untilLost(wait, failing time.Duration) time.Duration {
	if left := lostAfter - failing; left > 0 && wait > left {
		return left + retry.Jitter(lostAfter/8, 1)
	}
	return wait
}

// heard notes that a bucket's renewal was answered, if not with a lease: it is in contact. Who waits goes on waiting, and it is
// asked for again after a while, soon where it was given up as lost.
func heard(e *agent.Entry, now int64) {
	line := e.Line()
	if e.Lost() {
		e.SetLost(false)
		line.Fails = 0
	}
	line.Since = 0
	line.Fails++
	line.Retry = now + retry.In(int(line.Fails), 2*firstRetry, lastRetry).Microseconds()
	e.SetLine(line)
}

// unanswered notes that a bucket's renewal was not answered. After a while
// nobody waits for it any more: it is decided as in an outage.
func (l *Loop) unanswered(e *agent.Entry, now int64) {
	line := e.Line()
	e.Flying = false
	if line.Since == 0 {
		line.Since = now
	}
	line.Fails++
	line.Retry = now + untilLost(retry.In(int(line.Fails), firstRetry, lastRetry), time.Duration(now-line.Since)*time.Microsecond).Microseconds()
	e.SetLine(line)
	if now-line.Since >= lostAfter.Microseconds() || l.s.Lost.Load() {
		e.SetLost(true)
		Serve(e.Fail(now))
	}
	l.schedule(e, now)
}
