package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/switchfile"
)

const (
	maxCalls      = 8       // Renew calls under way
	maxBatch      = 4096    // renewals of a call
	maxProbe      = 256     // renewals of a call while the server is out of contact
	maxAsk        = 1024    // tenants of a call
	nearby        = 100_000 // µs from now within which renewals are looked for that may go with one that is due
	maxNear       = 1024    // that are looked at there
	minGather     = 1_000   // µs; see loop.gather
	maxGather     = 100_000
	refusedEvery  = 10 * time.Second       // between logs of renewals that break a bound
	lookEvery     = 5_000                  // µs between looks at what is due while nothing is sent
	minPatience   = 250 * time.Millisecond // of a Renew call, however quick the ones before were; see loop.patience
	lostAfter     = 400 * time.Millisecond // of failing calls, and nobody waits for the server any more
	firstRetry    = 20 * time.Millisecond
	lastRetry     = time.Second
	firstHunger   = time.Millisecond // between renewals that bring those who wait nothing
	lastHunger    = 200 * time.Millisecond
	settleTimeout = 15 * time.Second // beyond what a ledger takes to fail over
	settleRetry   = 5 * time.Second
	lastWords     = time.Second // at the end, for answers to leases given back, before usage is settled
	maxSend       = 32          // reports of a Settle call
	maxSendBytes  = 8 << 20     // of payloads
	defaultSlot   = 5 * time.Minute
)

// loop owns all that is not a decision. It never waits for the network: calls run
// beside it and send it what came back.
type loop struct {
	c       *Client
	ctx     context.Context // of calls
	calls   sync.WaitGroup
	sched   agent.Schedule
	outbox  *agent.Outbox
	limbo   []*agent.Entry // dropped, with requests still deciding on them
	wall    wall
	slot    time.Duration
	current int64 // slot that usage is booked under, Unix seconds
	through int64 // all usage before this is in outbox.Usage or reports, Unix milliseconds

	remote limit.Switches  // as the server says them
	local  switchfile.Says // as the switch file does
	fault  error           // of the switch file

	renewed chan renewResult
	filed   chan fileEvent
	watched chan watchEvent
	settled chan settleResult
	looked  chan lookResult

	forgot    int64 // what the lease store may have forgotten leases of before, as last told; 0 for not
	flying    int
	window    window
	strain    strain
	pressing  []*agent.Entry // that requests asked to be looked at, as they came, and that are not yet
	ready     []*agent.Entry // that were to be renewed while nothing was sent, as they came due
	lastSent  int64
	roundTrip int64 // of Renew calls of late, microseconds
	fails     int
	since     time.Time // of the first of them
	nextTry   int64

	reach reach // whether the server answers

	unresolved []*agent.Tenant // that the server's answers left out; logged once
	askFails   int             // times in a row that some were, and
	askAt      int64           // when these are asked for again: others do not wait for them
	refusedAt  time.Time       // when a renewal that broke a bound was last logged

	past        []*past // lives of the journal that are not settled
	recovered   int64   // units of those that are
	looking     looking
	settling    bool
	settleFails int
	settleAt    time.Time
	reportAt    time.Time
	sign        bool      // the next report is a sign of life: the first, which a fleet that begins sends all at once
	edgeAt      time.Time // when the last slot ended, as this loop saw it
	sweptAt     int64
	accounts    accounts       // of leases, by limit
	urgent      []*agent.Entry // scratch
	near        []*agent.Entry // scratch
	spare       []*agent.Entry // the queue's other buffer

	count struct {
		decided                                                               // of buckets that are no more
		renewCalls, renewFailed, settleCalls, settleFailed, renewals, tenants int64
		looked                                                                int64 // units decided by the buckets that were looked at (collect)
		evicted                                                               int64
		excess                                                                excess
	}
}

// run is the life of the client.
func (c *Client) run() {
	defer close(c.done)
	defer func() { _ = c.conn.Close() }() // it fails only when closed twice
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &loop{
		c: c, ctx: ctx, outbox: agent.NewOutbox(c.cfg.agent, c.epoch), slot: defaultSlot, window: newWindow(),
		renewed: make(chan renewResult, maxCalls), watched: make(chan watchEvent), filed: make(chan fileEvent), settled: make(chan settleResult, 1), looked: make(chan lookResult, 1),
	}
	l.current = l.slotOf(l.today())
	if k := c.keeper; k != nil {
		l.outbox.Keep(k.journal)
		k.journal.Slot(l.current)
		l.past = k.past
		l.calls.Add(1)
		go func() {
			defer l.calls.Done()
			k.run(ctx, c.log)
		}()
	}
	l.reportAt = time.Now().Add(apart(c.cfg.reportInterval))
	l.calls.Add(1)
	go func() {
		defer l.calls.Done()
		c.watch(ctx, l.watched)
	}()
	if c.cfg.switchFile != "" {
		l.local = c.cfg.switches
		l.flip("switch file read")
		l.calls.Add(1)
		go func() {
			defer l.calls.Done()
			c.followFile(ctx, l.local, l.filed)
		}()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.wake:
		case <-timer.C:
		case r := <-l.renewed:
			l.onRenewed(r)
		case e := <-l.watched:
			l.onWatched(e)
		case e := <-l.filed:
			l.onFile(e)
		case r := <-l.settled:
			l.onSettled(r)
		case r := <-l.looked:
			l.onLooked(r)
		case f := <-c.asks:
			f(l)
		case r := <-c.closing:
			err := l.close(r.ctx)
			cancel()
			l.drain()
			err = errors.Join(err, l.endKeeper())
			c.final, c.finalCounts, c.finalErr = l.stats(), l.counts(), err
			r.done <- err
			return
		}
		l.drainReady()
		timer.Reset(l.step())
	}
}

// drainReady takes what else has come, so that one step serves many.
func (l *loop) drainReady() {
	for {
		select {
		case r := <-l.renewed:
			l.onRenewed(r)
		default:
			return
		}
	}
}

// drain waits for what runs beside the loop to end.
func (l *loop) drain() {
	ended := make(chan struct{})
	go func() {
		l.calls.Wait()
		close(ended)
	}()
	for {
		select {
		case <-ended:
			return
		case <-l.renewed:
		case <-l.watched:
		case <-l.filed:
		case <-l.settled:
		case <-l.looked:
		}
	}
}

// step does all that is due and returns how long the loop may sleep.
func (l *loop) step() time.Duration {
	c := l.c
	l.takeQueue()
	sleep := l.renewDue()
	now, today := time.Now(), l.today()
	if slot := l.slotOf(today); slot != l.current {
		l.collect() // what was admitted until here is of the slot that ends
		l.edgeAt = now
		l.current = slot
		c.keeper.records().Slot(slot)
		// A slot's reports come soon after it, and not all agents' at once.
		if soon := now.Add(jitter(c.cfg.reportInterval/10, 1)); soon.Before(l.reportAt) {
			l.reportAt = soon
		}
	}
	if !now.Before(l.reportAt) {
		l.report(now)
		if l.followsEdge(now) || l.sign {
			l.sign = false
			l.reportAt = now.Add(apart(c.cfg.reportInterval))
		} else {
			l.reportAt = now.Add(jitter(c.cfg.reportInterval, 0.1))
		}
	}
	if wait := roomEvery - time.Duration(c.now()-l.sweptAt)*time.Microsecond; wait <= 0 && (c.pressed.Load() || l.scarce()) {
		c.pressed.Store(false)
		l.makeRoom()
	} else if c.pressed.Load() {
		sleep = min(sleep, max(wait, 0))
	}
	if next := c.reserved.expire(now, false); !next.IsZero() {
		sleep = min(sleep, next.Sub(now))
	}
	l.settle(now)
	sleep = min(sleep, time.Until(l.reportAt), time.Unix(l.current, 0).Add(l.slot).Sub(today))
	if !l.settling && l.settleAt.After(now) {
		sleep = min(sleep, l.settleAt.Sub(now))
	}
	if len(l.limbo) > 0 {
		sleep = min(sleep, 100*time.Millisecond)
	}
	return max(sleep, 0)
}

// takeQueue schedules the buckets that asked for attention.
func (l *loop) takeQueue() {
	c := l.c
	c.mu.Lock()
	queue := c.queue
	c.queue = l.spare[:0]
	c.mu.Unlock()
	l.spare = queue
	now := c.now()
	for _, e := range queue {
		if !e.Flying && !c.lost.Load() && !e.Lost() {
			l.pressing = append(l.pressing, e) // and stays marked as queued: it is in here once
			continue
		}
		e.Dequeue()
		if e.Dead() {
			continue
		}
		if (c.lost.Load() || e.Lost()) && e.Urgent() {
			serve(e.Fail(now)) // it began to wait just before contact was lost
		}
		if e.Flying {
			l.schedule(e, now)
		} else {
			l.sched.Set(e, now) // when it is looked at it says itself what it wants
		}
	}
	clear(queue)
}

func serve(waiters []*agent.Waiter) {
	for _, w := range waiters {
		w.Done(w.Verdict())
	}
}

// schedule says when a bucket is to be looked at next.
func (l *loop) schedule(e *agent.Entry, now int64) {
	plan := e.Plan(now)
	l.sched.Follow(e, &plan)
}

// force says when a bucket is to be renewed although nothing presses; 0 for never.
func force(e *agent.Entry, at int64) {
	line := e.Line()
	line.Force = at
	e.SetLine(line)
}

// today is the time that usage is booked under.
func (l *loop) today() time.Time {
	now := time.Now()
	return l.wall.at(now, now.Sub(l.c.began))
}

// slotOf returns the start of the usage slot that now is in. It never goes back
// over a clock that was set back by less than a slot.
func (l *loop) slotOf(now time.Time) int64 {
	s := int64(l.slot / time.Second)
	u := now.Unix()
	slot := u - u%s
	if slot < l.current && u >= l.current-s {
		return l.current
	}
	return slot
}

// collect looks at every bucket: it books what each admitted since the last time, and takes the accounts of their leases. It
// returns those that were idle for so long, and hold nothing, that they are to make room.
func (l *loop) collect() (idle []*agent.Entry) {
	through, now := l.today().UnixMilli(), l.c.now()
	idleSince := now - l.idle().Microseconds()
	u := &l.outbox.Usage
	u.Behind = false
	l.accounts.begin()
	l.c.reg.Each(func(e *agent.Entry) {
		got := u.Collect(e, l.current, now)
		l.accounts.booked(e, got.Booked)
		l.accounts.stands(e, &got.Standing)
		l.count.looked += got.Decided
		if got.Active < idleSince && !got.Leased && !got.Unbooked && !e.Flying {
			idle = append(idle, e)
		}
	})
	l.strain.cost(now, l.count.renewals, l.count.looked)
	l.collectLimbo(now)
	l.accounts.say(l.c)
	l.c.keeper.records().Flush()
	if !u.Behind {
		l.through = max(l.through, through)
	}
	return idle
}

// collectOf is collect of these buckets, and of those that were dropped.
func (l *loop) collectOf(entries []*agent.Entry) {
	now := l.c.now()
	for _, e := range entries {
		l.accounts.booked(e, l.outbox.Usage.Collect(e, l.current, now).Booked)
	}
	l.collectLimbo(now)
	l.c.keeper.records().Flush()
}

func (l *loop) collectLimbo(now int64) {
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
func (l *loop) report(now time.Time) {
	var idle []*agent.Entry
	if !l.followsEdge(now) {
		idle = l.collect()
	}
	if l.c.reg.Version() > 0 && !l.outbox.Full() {
		l.outbox.Freeze(l.through, false)
		l.tidy()
	}
	l.sweep(idle)
	l.c.reg.Sweep()
	l.c.sweepHandles(func(*Limiter) {})
}

// followsEdge reports whether a report is the one that a slot's end brought about.
func (l *loop) followsEdge(now time.Time) bool {
	return now.Sub(l.edgeAt) <= l.c.cfg.reportInterval/4
}

// idle is how long a bucket may be unused: shorter when room gets scarce.
func (l *loop) idle() time.Duration {
	if l.c.reg.Buckets() > int64(l.c.cfg.maxBuckets)*3/4 {
		return min(l.c.cfg.idle, crowdedIdle)
	}
	return l.c.cfg.idle
}

// sweep drops the buckets that were found idle, if they still hold nothing.
func (l *loop) sweep(idle []*agent.Entry) {
	l.sweptAt = l.c.now()
	for _, e := range idle {
		l.drop(e)
	}
}

// drop takes a bucket out if it holds nothing.
func (l *loop) drop(e *agent.Entry) bool {
	dropped := l.c.reg.Drop(e, func(e *agent.Entry) {
		got := l.outbox.Usage.Collect(e, l.current, l.c.now())
		l.accounts.booked(e, got.Booked)
		if got.Unbooked {
			l.limbo = append(l.limbo, e)
		}
	})
	if dropped {
		l.sched.Remove(e)
		l.count.add(e)
		l.accounts.dropped(e)
	}
	return dropped
}

// decided is what buckets decided in all.
type decided struct {
	admitted, denied, billed int64
	overage                  int64
	trials                   map[trialKey]trialCount
	named                    map[string]bool // limits that the policies in force and on trial name
}

// otherLimits stands for limits that only tenants' overrides name: tenants are millions, and may name
// them as they like.
const otherLimits = "(override)"

// nameOf is what the limit of that name is counted under.
func (d *decided) nameOf(limit string) string {
	if d.named[limit] {
		return limit
	}
	return otherLimits
}

// trialKey names limits on trial: bounded by the names that policies ever had.
type trialKey struct {
	limit   string
	version bool // of the shadow version
}

type trialCount struct{ admitted, denied int64 }

func (d *decided) add(e *agent.Entry) {
	admitted, denied, billed := e.Counts()
	if e.OnTrial() {
		if d.trials == nil {
			d.trials = make(map[trialKey]trialCount)
		}
		k := trialKey{d.nameOf(e.Limit()), e.Shadow()}
		t := d.trials[k]
		d.trials[k] = trialCount{t.admitted + admitted, t.denied + denied}
		return
	}
	d.admitted += admitted
	d.denied += denied
	d.billed += billed
	if e.Overage() {
		d.overage += admitted
	}
}

// watchEvent is what the server pushed.
type watchEvent struct {
	failed   error // nothing was: the call failed
	rules    *limit.Rules
	tenants  []limit.Tenant
	switches *limit.Switches
	refresh  bool
	trial    *limit.Rules // the shadow version, one of version 0 for none; nil for no news
	forgot   int64        // the lease store may have forgotten leases of before; 0 for no news
}

func (l *loop) onWatched(e watchEvent) {
	if l.reached(e.failed); e.failed != nil {
		return
	}
	c, policies := l.c, e.rules != nil || e.trial != nil
	if e.rules != nil {
		l.collect() // what was admitted until here is of the version before
		first := c.reg.Version() == 0
		l.apply(c.reg.Adopt(e.rules))
		if slot := e.rules.Policy.Slot; slot >= time.Second && slot != l.slot {
			l.slot = slot
			l.current = l.slotOf(l.today())
			c.keeper.records().Slot(l.current)
		}
		c.log.Info("policy in force", "version", e.rules.Policy.Version)
		if first {
			close(c.policied)
			l.sign, l.reportAt = true, time.Now().Add(jitter(min(c.cfg.reportInterval, time.Second), 1))
		}
	}
	if e.trial != nil && e.trial.Policy.Version != c.reg.Trial() {
		l.collect() // what would have been denied until here is of the version before
		if e.trial.Policy.Version == 0 {
			e.trial = nil
		}
		l.apply(c.reg.Try(e.trial))
		c.log.Info("shadow policy changed", "version", c.reg.Trial())
	}
	if policies {
		l.count.named = c.reg.Named()
	}
	if len(e.tenants) > 0 {
		l.inform(e.tenants)
	}
	if e.switches != nil {
		l.remote = *e.switches
		l.flip("switches changed")
	}
	if e.refresh {
		c.reg.Refresh()
	}
	l.renewAnew(e.forgot)
}

// apply carries out what a change means for buckets.
func (l *loop) apply(ch agent.Changes) {
	now := l.c.now()
	l.c.keeper.records().Follow(l.c.reg)
	l.c.unsettleAll()
	for _, e := range ch.Changed {
		// Within a second, and not all agents at once.
		force(e, now+rand.Int64N(300_000)+1)
		l.schedule(e, now)
	}
	for _, e := range ch.Orphaned {
		force(e, now+1)
		serve(e.Dismiss())
		l.schedule(e, now)
	}
}

// jitter returns d, give or take up to the fraction f of it.
func jitter(d time.Duration, f float64) time.Duration {
	return time.Duration(float64(d) * (1 + f*(2*rand.Float64()-1)))
}

// apart is how long until the next report after what all agents do at once, a fleet's beginning or a slot's end: half of the interval to
// all of it, so that they do not report together from then on.
func apart(interval time.Duration) time.Duration { return jitter(interval*3/4, 1./3) }

// retryIn returns how long to wait after so many failures.
func retryIn(fails int, first, last time.Duration) time.Duration {
	d := first << min(fails-1, 16)
	if d > last || d <= 0 {
		d = last
	}
	return jitter(d*3/4, 1./3)
}

// counts visits every bucket.
func (l *loop) counts() Counts {
	sum := l.count.decided
	sum.trials = maps.Clone(sum.trials)
	l.c.reg.Each(sum.add)
	n := Counts{Admitted: sum.admitted, Denied: sum.denied, Billed: sum.billed, Overage: sum.overage}
	for k, t := range sum.trials {
		n.Trials = append(n.Trials, Trial{Limit: k.limit, Version: k.version, Admitted: t.admitted, WouldDeny: t.denied})
	}
	slices.SortFunc(n.Trials, func(a, b Trial) int {
		return cmp.Or(strings.Compare(a.Limit, b.Limit), btoi(a.Version)-btoi(b.Version))
	})
	return n
}

func (l *loop) stats() Stats {
	c, o := l.c, l.outbox.State()
	s := Stats{
		Waited:  c.waited.Load(),
		Unknown: c.unknown.Load(), Refused: c.refused.Load(), Deadlined: c.deadlined.Load(), Crowded: c.crowded.Load(), Evicted: l.count.evicted,
		Unaccounted: c.unaccounted.Load(),
		RenewCalls:  l.count.renewCalls, RenewFailed: l.count.renewFailed,
		SettleCalls: l.count.settleCalls, SettleFailed: l.count.settleFailed,
		Renewals: l.count.renewals, Tenants: l.count.tenants, Window: int64(l.window.size), Pressing: int64(len(l.pressing)), Strain: l.strain.now(c.now()),
		Buckets: c.reg.Buckets(), LiveTenants: int64(c.reg.Tenants()), PolicyVersion: c.reg.Version(), Lost: c.lost.Load(),
		Unreachable: l.reach.why, UnreachableSince: l.reach.since,
		ReportsPending: int64(o.Reports), UnitsPending: o.Units, UnitsSettled: o.Settled,
		ReportsAside: o.AsideReports, UnitsAside: o.AsideUnits, Epoch: o.Epoch,
	}
	l.count.excess.into(&s, l.count.named)
	s.Reservations, s.UnitsReserved, s.Expired = c.reserved.count()
	s.UnitsRecovered, s.UnitsToRecover, s.Unjournalled = l.recovered, unitsOf(l.past), c.keeper.records().Without()
	s.JournalRefused = c.keeper.unbelieved()
	if err := c.keeper.records().Fault(); err != nil {
		s.Journal = err.Error()
	}
	s.UnitsResent, s.UnitsForgotten = l.looking.units, l.looking.forgotten.units()
	if l.fault != nil {
		s.SwitchFile = l.fault.Error()
	}
	if o.Through > 0 {
		s.Through = time.UnixMilli(o.Through)
	}
	return s
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
