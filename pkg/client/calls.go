package client

import (
	"context"
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// renewDue sends what is due and returns how long the loop may sleep.
func (l *loop) renewDue() time.Duration {
	c := l.c
	for {
		now := c.now()
		limit := maxBatch
		switch {
		case l.flying >= maxCalls:
			return time.Hour // an answer wakes the loop
		case now < l.nextTry:
			return time.Duration(l.nextTry-now) * time.Microsecond
		case c.lost.Load() && l.flying > 0:
			return time.Hour
		case c.lost.Load():
			limit = maxProbe
		case l.flying > 0 && now-l.lastSent < l.gather():
			return time.Duration(l.gather()-(now-l.lastSent)) * time.Microsecond
		}
		var batch []*agent.Entry
		for len(batch) < limit {
			e := l.sched.Pop(now)
			if e == nil {
				break
			}
			served, late, plan := e.Visit(now, c.lost.Load() || e.Lost())
			serve(served)
			l.count.excess.add(&l.count.decided, e, beyond{late: late})
			if e.Flying || plan.Renew() > now {
				l.sched.Set(e, plan.Look(e.Flying))
				continue
			}
			if at := plan.Line.Force; at > 0 {
				force(e, 0)
				if at <= now && !e.Orphan() && plan.Idle() {
					continue // nothing is leased: the next request asks anyway
				}
			}
			batch = append(batch, e)
		}
		if len(batch) > 0 && !c.lost.Load() {
			batch = l.company(batch, limit, now)
		}
		if len(l.unresolved) > 0 && now >= l.askAt {
			l.c.reg.AskAgain(l.unresolved)
			l.unresolved = nil
		}
		tenants := c.reg.Unasked(maxAsk)
		if len(batch) == 0 && len(tenants) == 0 && !c.lost.Load() {
			next := l.sched.Next()
			if len(l.unresolved) > 0 {
				next = min(next, l.askAt)
			}
			if next == agent.Never {
				return time.Hour
			}
			return time.Duration(max(next-now, 0)) * time.Microsecond
		}
		l.send(batch, tenants, false)
	}
}

// company adds to a batch the buckets whose renewal is near. It lets them renew together from then on: a call costs
// the server more than a renewal does.
func (l *loop) company(batch []*agent.Entry, limit int, now int64) []*agent.Entry {
	near := l.sched.Near(now+nearby, maxNear, l.near[:0])
	for _, e := range near {
		if len(batch) >= limit || e.Flying || e.Orphan() || !e.Soon(now) {
			continue
		}
		if line := e.Line(); line.Force == 0 && line.Retry == 0 {
			l.sched.Remove(e)
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
func (l *loop) gather() int64 { return min(max(minGather, l.roundTrip), maxGather) }

// patience is how long a Renew call may take: several times as long as calls took of
// late, so that a lost message delays a lease's renewal by no more than the store keeps
// its share. A server that is slow is given more with each call that was not answered.
func (l *loop) patience() time.Duration {
	if l.roundTrip == 0 {
		return l.c.cfg.renewTimeout // the first, which has to connect
	}
	d := max(8*time.Duration(l.roundTrip)*time.Microsecond, minPatience)
	return min(d, l.c.cfg.renewTimeout)
}

type renewResult struct {
	took    int64 // microseconds
	batch   []*agent.Entry
	tenants []*agent.Tenant
	resp    *quotav1.RenewResponse
	err     error
}

// send composes a Renew call and starts it.
func (l *loop) send(batch []*agent.Entry, tenants []*agent.Tenant, final bool) {
	c, now := l.c, l.c.now()
	idle := now - max(c.cfg.idle, 2*c.cfg.reportInterval).Microseconds() // use is noticed at reports
	req := &quotav1.RenewRequest{Agent: c.cfg.agent, Epoch: c.epoch, PolicyVersion: c.reg.Version()}
	// One piece of memory for all: there are thousands a second.
	messages := make([]quotav1.Renewal, len(batch))
	req.Renewals = make([]*quotav1.Renewal, len(batch))
	values := make([]string, 0, len(batch))
	for i, e := range batch {
		e.Flying = true
		p := &messages[i]
		r := e.Compose(now, idle, final)
		wire.WriteRenewal(p, &r)
		first := len(values)
		values = e.AppendValues(values)
		p.Limit, p.Tenant, p.Values, p.Shadow = e.Limit(), e.Tenant(), values[first:len(values):len(values)], e.Shadow()
		if e.Overage() {
			p.Kind = quotav1.Renewal_OVERAGE
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
	l.lastSent = now
	l.calls.Add(1)
	patience := l.patience()
	go func() {
		defer l.calls.Done()
		ctx, cancel := context.WithTimeout(l.ctx, patience)
		defer cancel()
		resp, err := c.api.Renew(ctx, req)
		if err == nil {
			err = wire.CheckRenewResponse(req, resp)
		}
		l.renewed <- renewResult{c.now() - now, batch, tenants, resp, err}
	}()
}

func (l *loop) onRenewed(r renewResult) {
	l.flying--
	l.roundTrip += (r.took - l.roundTrip) / 4
	now := l.c.now()
	if r.err != nil {
		l.count.renewFailed++
		l.contact(r.err)
		for _, e := range r.batch {
			l.unanswered(e, now)
		}
		l.c.reg.AskAgain(r.tenants)
		return
	}
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
			l.count.excess.add(&l.count.decided, e, beyond{outage: got.Beyond})
			l.accounts.answered(e, &got, &a.Grant)
			serve(got.Served)
			if !e.Orphan() {
				l.sched.Set(e, got.Plan.Look(false))
				continue
			}
			serve(e.Dismiss())
		case errors.Is(a.Err, wire.ErrUnknown):
			e.Forget()
			if e.Orphan() {
				serve(e.Dismiss())
				break
			}
			// The server has another policy or another plan of the tenant: it is pushed,
			// and asked for besides. Who waits goes on waiting.
			line := e.Line()
			line.Fails++
			line.Retry = now + retryIn(int(line.Fails), 2*firstRetry, lastRetry).Microseconds()
			e.SetLine(line)
			if id := e.Tenant(); id != "" {
				l.c.reg.Ask(id)
			}
		case errors.Is(a.Err, lease.ErrStale):
			e.Skip(now)
			l.unanswered(e, now)
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
					l.c.log.Warn("the server cannot look up tenants at present", "tenant", r.tenants[i].ID())
				}
				left = append(left, r.tenants[i])
				continue
			}
			t, err := wire.TenantFromProto(p)
			if err != nil || t.ID != r.tenants[i].ID() {
				l.c.log.Warn("the server's answer about a tenant is not valid", "tenant", r.tenants[i].ID(), "error", err)
				left = append(left, r.tenants[i])
				continue
			}
			infos = append(infos, t)
		}
		if len(left) > 0 && len(l.unresolved) == 0 {
			l.askFails++
			l.askAt = now + retryIn(l.askFails, firstRetry, lastRetry).Microseconds()
		}
		l.unresolved = append(l.unresolved, left...)
		l.inform(infos)
	}
}

// hunger is how long those who wait and were brought nothing go without asking again, in microseconds, by how often that was so.
func hunger(times int32) int64 { return retryIn(int(times), firstHunger, lastHunger).Microseconds() }

// inform takes what the server says of tenants.
func (l *loop) inform(infos []limit.Tenant) {
	var theirs []*agent.Entry
	change := l.c.reg.Differ(infos, func(e *agent.Entry) { theirs = append(theirs, e) })
	if change {
		l.collectOf(theirs) // what was admitted until here is of the plan before
	}
	changes := l.c.reg.Inform(infos)
	if change {
		l.apply(changes)
	}
}

// contact keeps count of calls that fail, and says when the server is lost.
func (l *loop) contact(err error) {
	c := l.c
	if err == nil {
		l.fails, l.nextTry = 0, 0
		if c.lost.Swap(false) {
			c.log.Info("contact with the server again")
		}
		return
	}
	if l.fails == 0 {
		l.since = time.Now()
	}
	l.fails++
	l.nextTry = c.now() + untilLost(retryIn(l.fails, firstRetry, lastRetry), time.Since(l.since)).Microseconds()
	if time.Since(l.since) >= lostAfter && !c.lost.Swap(true) {
		c.log.Warn("contact with the server lost", "error", err)
		now := c.now()
		c.reg.Each(func(e *agent.Entry) {
			if e.Urgent() {
				l.urgent = append(l.urgent, e)
			}
		})
		for _, e := range l.urgent {
			serve(e.Fail(now))
		}
		clear(l.urgent)
		l.urgent = l.urgent[:0]
	}
}

// untilLost shortens the wait for the next try, where calls have failed for so long, so that the try which says that all
// is lost comes soon after lostAfter, whatever chance made of the waits before: who waits is decided by on_outage then,
// and not denied because the longest wait was over first.
func untilLost(retry, failing time.Duration) time.Duration {
	if left := lostAfter - failing; left > 0 && retry > left {
		return left + jitter(lostAfter/8, 1)
	}
	return retry
}

// unanswered notes that a bucket's renewal was not answered. After a while
// nobody waits for it any more: it is decided as in an outage.
func (l *loop) unanswered(e *agent.Entry, now int64) {
	line := e.Line()
	e.Flying = false
	if line.Fails == 0 {
		line.Since = now
	}
	line.Fails++
	line.Retry = now + untilLost(retryIn(int(line.Fails), firstRetry, lastRetry), time.Duration(now-line.Since)*time.Microsecond).Microseconds()
	e.SetLine(line)
	if now-line.Since >= lostAfter.Microseconds() || l.c.lost.Load() {
		e.SetLost(true)
		serve(e.Fail(now))
	}
	l.schedule(e, now)
}

type settleResult struct {
	from     *agent.Outbox
	sent     []ledger.Report
	receipts []ledger.Receipt
	ledger   string // that answered
	err      error
}

// settle sends frozen reports, one call at a time.
func (l *loop) settle(now time.Time) {
	if l.settling || now.Before(l.settleAt) {
		return
	}
	from, life := l.outbox, l.c.keeper.own()
	if len(l.past) > 0 { // what was before comes first
		from, life = l.past[0].outbox, l.past[0].life
	}
	reports := from.Next(maxSend, maxSendBytes)
	if len(reports) == 0 {
		return
	}
	sent := append([]ledger.Report(nil), reports...)
	var accounts *quotav1.LeaseAccounts
	if from == l.outbox {
		accounts = l.accounts.say(l.c) // of leases of earlier lives nobody knows any more
	}
	l.settling = true
	l.count.settleCalls++
	l.calls.Add(1)
	go func() {
		defer l.calls.Done()
		ctx, cancel := context.WithTimeout(l.ctx, settleTimeout)
		defer cancel()
		r := settleResult{from: from, sent: sent}
		if life != nil {
			r.err = life.Sync() // a report that was sent must not be made anew, in other words
		}
		if r.err == nil {
			r.receipts, r.ledger, r.err = settle(ctx, l.c.api, sent, accounts)
		}
		l.settled <- r
	}()
}

// settle sends reports, and returns what was said of each, and by which ledger.
func settle(ctx context.Context, api quotav1.LeaseServiceClient, reports []ledger.Report, accounts *quotav1.LeaseAccounts) ([]ledger.Receipt, string, error) {
	req := &quotav1.SettleRequest{Accounts: accounts}
	for i := range reports {
		req.Reports = append(req.Reports, wire.ReportToProto(reports[i]))
	}
	resp, err := api.Settle(ctx, req)
	if err == nil {
		err = wire.CheckSettleResponse(req, resp)
	}
	if err != nil {
		return nil, "", err
	}
	receipts := make([]ledger.Receipt, len(resp.Receipts))
	for i, p := range resp.Receipts {
		receipts[i] = wire.ReceiptFromProto(p)
	}
	return receipts, resp.Ledger, nil
}

// Epochs under which reports go on, where the one that they were of takes no more, are chosen so that none is given to two
// lives, and copies of a life that say the same take the same. That nothing is settled twice does not rest on that: the
// ledger lets one epoch go on from another (ledger.Origin).
//
//   - what a life left goes on under the next number, never the clock's: whoever settles another copy of it sends the same
//     bytes under the same numbers, and all of it is acknowledged.
//   - a life that is alive goes on at the clock's time, that a twin which shares its epoch has another, and at least
//     stride later, which leaves the numbers between to those who settle what it leaves.
//   - the next life begins journal.Apart later at least.

// stride is more epochs than what a life left ever goes on under: each is one refusal by the ledger.
const stride = 1 << 10

// nextEpoch is what a client's own reports go on under.
func nextEpoch(o *agent.Outbox) int64 { return max(o.State().Epoch+stride, time.Now().UnixMicro()) }

// leftEpoch is what the reports that a life left go on under.
func leftEpoch(o *agent.Outbox) int64 { return o.State().Epoch + 1 }

func (l *loop) onSettled(r settleResult) {
	l.settling = false
	progress := false
	if r.err != nil {
		l.looking.since = time.Time{}
	} else {
		l.named(r.ledger)
		l.recall(&r)
		var fault *agent.Fault
		next := nextEpoch
		if r.from != l.outbox {
			next = leftEpoch
		}
		progress, fault = r.from.Receive(r.sent, r.receipts, next(r.from))
		if fault != nil {
			progress = true
			l.c.log.Error("the ledger takes no more reports of this epoch; going on under a new one",
				"epoch", fault.Report.Epoch, "seq", fault.Report.Seq, "next_epoch", fault.Epoch,
				"reports_aside", fault.Aside, "said", fault.Receipt.Message)
		}
	}
	if len(l.past) > 0 && r.from == l.past[0].outbox {
		l.recover()
	}
	if progress {
		l.settleFails, l.settleAt = 0, time.Time{}
		return
	}
	l.count.settleFailed++
	l.settleFails++
	l.settleAt = time.Now().Add(retryIn(l.settleFails, 50*time.Millisecond, settleRetry))
	if l.settleFails == 5 {
		l.c.log.Warn("usage waits to be settled", "error", r.err, "reports", l.outbox.State().Reports)
	}
}
