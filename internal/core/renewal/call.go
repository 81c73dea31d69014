package renewal

import (
	"errors"
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
)

const (
	minPatience = 250 * time.Millisecond // with a call, however quick the ones before were; see Renewer.patience
	firstHunger = time.Millisecond       // between renewals that bring those who wait nothing
	lastHunger  = 200 * time.Millisecond
)

// Call is a Renew call.
type Call struct {
	Entries  []*agent.Entry
	Renewals []lease.Renewal // of each entry; good until Send returns
	Tenants  []*agent.Tenant // whose plan the server is asked for: a call of its own, but out of contact
	Strain   int64           // of the gateway: lease.Renewal has it as well
	Patience time.Duration   // how long the call may take

	trip *trip // nil for a call of questions
}

// calls are those of one kind.
type calls struct {
	flying    int
	last      int64 // when the last was sent
	roundTrip int64 // of late; 0 before the first answer
}

// ended counts a call that is over, after so many microseconds.
func (c *calls) ended(took int64) {
	c.flying--
	c.roundTrip += (took - c.roundTrip) / 4
}

// gather is how long to wait for more to send while a call is under way, in microseconds: about as long as a call takes.
// So the busier the server is, the more each call carries.
func (c *calls) gather() int64 { return min(max(minGather, c.roundTrip), maxGather) }

// told is the strain that a call tells of.
func (r *Renewer) told(now int64) int64 { return int64(math.Round(r.strain.now(now))) }

// send composes a call, for which there was so much room, and starts it.
func (r *Renewer) send(now int64, batch []*agent.Entry, room int, final bool) {
	c := &Call{Entries: batch, Renewals: r.scraps[:0], Strain: r.told(now)}
	if r.Lost() && !final {
		c.Tenants, _ = r.cfg.Owner.Questions(now)
	}
	idleSince := now - r.cfg.Idle.Microseconds()
	for _, e := range batch {
		e.Flying = true
		renewal := e.Compose(now, idleSince, final, c.Strain)
		renewal.Travels(r.calls.roundTrip / 2)
		c.Renewals = append(c.Renewals, renewal)
	}
	r.scraps = c.Renewals
	r.count.Calls++
	r.count.Renewals += int64(len(batch))
	r.calls.flying, r.calls.last = r.calls.flying+1, now
	c.trip = r.window.sent(now, len(batch), room)
	c.Patience = r.patience(&r.calls, r.window.most())
	r.cfg.Owner.Send(c)
}

// patience is how long a call may take: several times as long as its kind took of late. So a lost message delays a
// renewal by less than the store keeps a lease's share. It is no shorter than most, what the window allows with all that
// is under way: calls took less while there was less to renew.
func (r *Renewer) patience(of *calls, most int64) time.Duration {
	if of.roundTrip == 0 {
		return r.cfg.Timeout // the first has to connect
	}
	d := time.Duration(max(8*of.roundTrip, most)) * time.Microsecond
	return min(max(d, minPatience), r.cfg.Timeout)
}

// Answered takes the answers to a call, which took so many microseconds. answer returns that to entry i.
func (r *Renewer) Answered(now int64, c *Call, took int64, answer func(i int) lease.Answer) {
	if c.trip == nil {
		r.asks.ended(took)
		r.contacted(now, nil)
		return
	}
	r.calls.ended(took)
	r.window.answered(c.trip, took)
	if !r.Lost() { // what ends an outage says nothing of how busy the server is
		waiting := float64(len(r.asked)+len(r.ready)) / r.window.size
		r.strain.note(now, float64(r.calls.roundTrip)/float64(r.window.target()), waiting)
	}
	r.contacted(now, nil)
	for i, e := range c.Entries {
		e.Flying = false
		a := answer(i)
		if r.answered(e, now, a) {
			continue
		}
		if !e.Orphan() || !r.cfg.Owner.Drop(e) {
			r.Schedule(e, now)
		}
	}
}

// answered takes the answer to one renewal, and reports whether the bucket is scheduled, or gone.
func (r *Renewer) answered(e *agent.Entry, now int64, a lease.Answer) (done bool) {
	switch {
	case a.Err == nil:
		return r.granted(e, now, &a.Grant)
	case errors.Is(a.Err, lease.ErrUnknown):
		// The server has another policy, or another plan of the tenant. It pushes that, and is asked for it besides.
		if errors.Is(a.Err, lease.ErrInvalid) {
			r.cfg.Owner.Refused(e, a.Err)
		}
		e.Forget()
		if e.Orphan() {
			bucket.Serve(e.Dismiss())
			return false
		}
		r.heard(e, now)
		if id := e.Tenant(); id != "" {
			e.Registry().Ask(id)
		}
	case errors.Is(a.Err, lease.ErrStale):
		e.Skip(now)
		r.heard(e, now)
	default:
		r.unanswered(e, now)
		return !e.Orphan()
	}
	return false
}

// granted puts a grant to use.
func (r *Renewer) granted(e *agent.Entry, now int64, g *lease.Grant) (done bool) {
	if e.Lost() {
		e.SetLost(false)
	}
	got := e.Answer(now, *g, func(times int32) int64 { return r.backoff(int(times), firstHunger, lastHunger) })
	if got.Beyond > 0 {
		r.cfg.Owner.Exceeded(e, Excess{Outage: got.Beyond})
	}
	r.cfg.Owner.Granted(e, &got, g)
	bucket.Serve(got.Served)
	if e.Yielded() && r.cfg.Owner.Drop(e) {
		return true
	}
	if e.Orphan() {
		bucket.Serve(e.Dismiss())
		return false
	}
	r.follow(e, &got.Plan)
	return true
}

// GiveUp ends renewals: Step sends the last one of these buckets, which returns their leases, and nothing else. No call
// may be under way.
func (r *Renewer) GiveUp(leased []*agent.Entry) { r.ending, r.final = true, leased }

// Returning returns how many leases are still to go back: none once the server is found to be lost.
func (r *Renewer) Returning() int { return len(r.final) }

// Lapse drains the buckets whose leases are still to go back: nothing more is spent of these.
func (r *Renewer) Lapse() {
	for _, e := range r.final {
		e.Drain()
	}
	r.final = nil
}

// giveBack sends last renewals while there is room, and returns when there is again.
func (r *Renewer) giveBack(now int64) (next int64) {
	for len(r.final) > 0 {
		room := r.window.room(now)
		switch {
		case r.calls.flying >= maxCalls:
			return bucket.Never // an answer comes first
		case room == 0:
			return r.window.next()
		}
		n := min(len(r.final), max(room, leastWindow))
		batch := r.final[:n]
		r.final = r.final[n:]
		r.send(now, batch, room, true)
	}
	return bucket.Never
}
