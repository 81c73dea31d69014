package session

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/renewal"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// The loop is the owner of its renewals: it carries their calls and keeps their books.

// refusedEvery is the least time between two logs of renewals that break a bound.
const refusedEvery = 10 * time.Second

// renewResult is what came of a Renew call.
type renewResult struct {
	call *renewal.Call
	took int64 // microseconds
	resp *quotav1.RenewResponse
	err  error
}

// Send makes a call, beside the loop.
func (l *Loop) Send(c *renewal.Call) {
	s, sent := l.s, l.s.Now()
	req := l.request(c)
	l.calls.Add(1)
	l.count.tenants += int64(len(c.Tenants))
	go func() {
		defer l.calls.Done()
		ctx, cancel := context.WithTimeout(l.ctx, c.Patience)
		defer cancel()
		resp, err := s.api.Renew(ctx, req)
		if err == nil {
			err = wire.CheckRenewResponse(req, resp)
		}
		l.renewed <- renewResult{c, s.Now() - sent, resp, err}
	}()
}

// request writes a call as a message. Its parts are in one piece of memory: there are thousands a second.
func (l *Loop) request(c *renewal.Call) *quotav1.RenewRequest {
	s := l.s
	req := &quotav1.RenewRequest{
		Agent: s.cfg.Agent, Epoch: s.epoch, PolicyVersion: s.Registry.Version(), Strain: int32(c.Strain),
		Renewals: make([]*quotav1.Renewal, len(c.Entries)),
	}
	messages := make([]quotav1.Renewal, len(c.Entries))
	values := make([]string, 0, len(c.Entries))
	for i, e := range c.Entries {
		p := &messages[i]
		wire.WriteRenewal(p, &c.Renewals[i])
		first := len(values)
		values = e.AppendValues(values)
		p.Limit, p.Tenant, p.Values, p.Shadow = e.Limit(), e.Tenant(), values[first:len(values):len(values)], e.Shadow()
		if e.Overage() {
			p.Kind = quotav1.Renewal_KIND_OVERAGE
		}
		req.Renewals[i] = p
	}
	for _, t := range c.Tenants {
		req.Tenants = append(req.Tenants, t.ID())
	}
	return req
}

func (l *Loop) onRenewed(r renewResult) {
	now := l.s.Now()
	l.reached(r.err)
	if r.err != nil {
		l.renewals.Failed(now, r.call, r.took, r.err)
		l.s.Registry.AskAgain(r.call.Tenants)
		return
	}
	l.s.Registry.Fleet(l.fleet.heard(time.Now(), r.resp.Agents))
	l.renewals.Answered(now, r.call, r.took, func(i int) lease.Answer { return wire.GrantFromProto(r.resp.Grants[i]) })
	if len(r.call.Tenants) > 0 {
		l.inform(l.questions.answered(l.s.log, now, r.call.Tenants, r.resp.Tenants))
		l.ready()
	}
}

// Questions returns the tenants that a call is to ask for.
func (l *Loop) Questions(now int64) (tenants []*agent.Tenant, next int64) {
	return l.questions.due(l.s.Registry, now)
}

// Contact says whether the server is in contact.
func (l *Loop) Contact(lost bool, why error) {
	l.s.Lost.Store(lost)
	if lost {
		l.s.log.Warn("contact with the server lost", "error", why)
	} else {
		l.s.log.Info("contact with the server again")
	}
}

// Granted accounts for a new lease, and for the one that it ended.
func (l *Loop) Granted(e *agent.Entry, a *bucket.Answered, g *lease.Grant) {
	l.accounts.answered(e, a, g)
}

// Exceeded counts by how much a limit may have been exceeded.
func (l *Loop) Exceeded(e *agent.Entry, by renewal.Excess) {
	l.count.overshoot.add(&l.count.decided, e, by)
}

// Refused logs a renewal that broke a bound, which is a fault of this client or of the server.
func (l *Loop) Refused(e *agent.Entry, why error) {
	if t := time.Now(); t.Sub(l.refusedAt) >= refusedEvery {
		l.refusedAt = t
		l.s.log.Error("the server refuses a renewal as not valid; its bucket begins anew",
			"limit", e.Limit(), "tenant", e.Tenant(), "error", why)
	}
}
