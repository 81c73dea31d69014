package renewal

import (
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/wheel"
)

// Owner carries the calls of a Renewer and keeps its books. The Renewer's methods call it, in their goroutine.
type Owner interface {
	// Send starts a call. Answered or Failed is called once with it, later and in the Renewer's goroutine.
	Send(c *Call)
	// Questions takes the tenants that a call is to ask for. next is when there may be more.
	Questions(now int64) (tenants []*agent.Tenant, next int64)
	// Contact says that the server is out of contact, and why, or in contact again.
	Contact(lost bool, why error)
	// Granted is told what each new lease came to.
	Granted(e *agent.Entry, a *bucket.Answered, g *lease.Grant)
	// Exceeded is told by how many units a bucket may have exceeded its limit.
	Exceeded(e *agent.Entry, by Excess)
	// Refused is told of a renewal that broke a bound of the protocol.
	Refused(e *agent.Entry, why error)
	// Drop takes a bucket out of the registry if it holds nothing, and reports whether it did.
	Drop(e *agent.Entry) bool
}

// Excess is by how many units a limit may have been exceeded: Late were spent from a lease whose renewal came late,
// Outage were admitted without a lease.
type Excess struct{ Late, Outage int64 }

// Config is what a Renewer goes by.
type Config struct {
	Registry *agent.Registry
	Owner    Owner
	Timeout  time.Duration // of a call, at most
	Idle     time.Duration // a lease that was unused for so long goes back
	// Chance returns numbers from [0, 1), for jitter.
	Chance func() float64
}

// Renewer renews the leases of a gateway. One goroutine owns it. All times are microseconds of the registry's clock.
type Renewer struct {
	cfg Config

	due    wheel.Wheel[agent.Entry, *agent.Entry]
	asked  []*agent.Entry // requests asked for these; each is marked as queued
	ready  []*agent.Entry // these came due while no call could go
	final  []*agent.Entry // these give their leases back
	ending bool           // see GiveUp
	near   []*agent.Entry // scratch
	scraps []lease.Renewal

	window window
	strain strain
	calls  calls // with renewals
	asks   calls // with questions alone

	contact contact
	forgot  int64 // the latest loss of the lease store that is known here; 0 for none
	count   Counts
}

// Counts are what a Renewer did.
type Counts struct{ Calls, Failed, Renewals int64 }

// New returns a Renewer.
func New(cfg Config) *Renewer { return &Renewer{cfg: cfg, window: newWindow()} }

// Counts returns what was done so far.
func (r *Renewer) Counts() Counts { return r.count }

// Flying returns how many calls are under way.
func (r *Renewer) Flying() int { return r.calls.flying + r.asks.flying }

// Lost reports whether the server is out of contact.
func (r *Renewer) Lost() bool { return r.contact.lost }

// Window returns how many renewals may be under way.
func (r *Renewer) Window() int { return int(r.window.size) }

// Waiting returns how many buckets that requests asked for wait for a call.
func (r *Renewer) Waiting() int { return len(r.asked) }

// Pending returns the buckets that wait for a call.
func (r *Renewer) Pending() []*agent.Entry {
	return append(append([]*agent.Entry(nil), r.asked...), r.ready...)
}

// Strain returns how many times as long as usual leases should last: 1 while all is well.
func (r *Renewer) Strain(now int64) float64 { return r.strain.now(now) }

// Strained raises the strain.
func (r *Renewer) Strained(now int64, to float64) { r.strain.raise(now, to) }

// Decided takes the strain from what was decided in all until now, in units.
func (r *Renewer) Decided(now, units int64) { r.strain.cost(now, r.count.Renewals, units) }

// Attend takes buckets that requests asked for. Each is marked as queued.
func (r *Renewer) Attend(now int64, queue []*agent.Entry) {
	for _, e := range queue {
		lost := r.Lost() || e.Lost()
		if !e.Flying && !lost {
			r.asked = append(r.asked, e) // it stays marked: it is in the list once
			continue
		}
		e.Dequeue()
		if e.Dead() {
			continue
		}
		if lost && e.Urgent() {
			bucket.Serve(e.Fail(now)) // it began to wait just before contact was lost
		}
		if e.Flying {
			r.Schedule(e, now)
		} else {
			r.due.Set(e, now)
		}
	}
}

// Schedule has a bucket looked at when its state says so.
func (r *Renewer) Schedule(e *agent.Entry, now int64) {
	plan := e.Plan(now)
	r.follow(e, &plan)
}

func (r *Renewer) follow(e *agent.Entry, p *bucket.Plan) {
	r.due.Set(e, p.Look(e.Flying))
	if p.Renews && !e.Flying {
		r.due.Renews(e)
	}
}

// Remove forgets a bucket that was dropped.
func (r *Renewer) Remove(e *agent.Entry) { r.due.Remove(e) }

// RenewWithin has buckets renewed although nothing else asks for it, spread over so many microseconds from now on.
func (r *Renewer) RenewWithin(now, over int64, entries ...*agent.Entry) {
	for _, e := range entries {
		line, at := e.Line(), now+1+int64(r.cfg.Chance()*float64(over))
		if line.Force == 0 || at < line.Force {
			line.Force = at
			e.SetLine(line)
		}
		r.Schedule(e, now)
	}
}

// force says when a bucket is renewed although nothing else asks for it; 0 for never.
func force(e *agent.Entry, at int64) {
	line := e.Line()
	line.Force = at
	e.SetLine(line)
}

// The lease store lost something: leases that it granted before live on here, beside what it grants to others. Each
// renewal declares one. They are spread, for a server has much to do with a great many.
const (
	againOver = 300 * time.Millisecond // at least,
	againEach = 50 * time.Microsecond  // and for each lease,
	againMost = 5 * time.Second        // but less than the store suspects its buckets for
)

// Declare has all leases renewed after a loss of the lease store, unless that was done for this loss or a later one.
// The first loss that is told was before any lease here. It returns how many leases, and over which time.
func (r *Renewer) Declare(now, loss int64) (leases int, over time.Duration) {
	was := r.forgot
	r.forgot = max(was, loss)
	if was == 0 || loss <= was {
		return 0, 0
	}
	var leased []*agent.Entry
	r.cfg.Registry.Each(func(e *agent.Entry) {
		if e.Flying || e.State(now).Live {
			leased = append(leased, e)
		}
	})
	slices.SortFunc(leased, agent.Compare)
	over = min(againOver+time.Duration(len(leased))*againEach, againMost)
	r.RenewWithin(now, over.Microseconds(), leased...)
	return len(leased), over
}

// backoff is how long to wait after so many failures, in microseconds.
func (r *Renewer) backoff(fails int, first, last time.Duration) int64 {
	return retry.Backoff(fails, first, last, r.cfg.Chance()).Microseconds()
}
