package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/recovery"
	"github.com/f4ee788f/quota/internal/core/renewal"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/switchfile"
	"github.com/f4ee788f/quota/internal/core/usage"
)

const (
	lastWords   = time.Second // at the end, for answers to leases given back, before usage is settled
	defaultSlot = 5 * time.Minute
)

// Loop owns all that is not a decision. It never waits for the network: calls run
// beside it and send it what came back.
type Loop struct {
	s        *Session
	ctx      context.Context // of calls
	calls    sync.WaitGroup
	renewals *renewal.Renewer
	outbox   *usage.Outbox
	limbo    []*agent.Entry // dropped, with requests still deciding on them
	wall     wall
	slot     time.Duration
	current  int64 // slot that usage is booked under, Unix seconds
	through  int64 // all usage before this is in outbox.Usage or reports, Unix milliseconds

	remote limit.Switches  // as the server says them
	local  switchfile.Says // as the switch file does
	fault  error           // of the switch file

	renewed chan renewResult
	filed   chan fileEvent
	watched chan watchEvent
	settled chan settleResult
	looked  chan lookResult

	reach reach // whether the server answers
	fleet fleet // how many agents there are
	known bool  // the session's known is closed

	questions questions
	refusedAt time.Time // when a renewal that broke a bound was last logged

	past        []*recovery.Past // lives of the journal that are not settled
	recovered   int64            // units of those that are
	looking     looking
	settling    bool
	settleFails int
	settleAt    time.Time
	reportAt    time.Time
	sign        bool      // the next report is a sign of life: the first, which a fleet that begins sends all at once
	edgeAt      time.Time // when the last slot ended, as this loop saw it
	sweptAt     int64
	accounts    accounts       // of leases, by limit
	spare       []*agent.Entry // the queue's other buffer

	count struct {
		decided                            // of buckets that are no more
		settleCalls, settleFailed, tenants int64
		looked                             int64 // units decided by the buckets that were looked at (collect)
		evicted                            int64
		overshoot                          overshoot
	}
}

// loop returns the session's loop, whose calls end with ctx.
func (s *Session) loop(ctx context.Context) *Loop {
	l := &Loop{
		s: s, ctx: ctx, outbox: usage.NewOutbox(s.cfg.Agent, s.epoch), slot: defaultSlot,
		renewed: make(chan renewResult), watched: make(chan watchEvent), filed: make(chan fileEvent),
		settled: make(chan settleResult, 1), looked: make(chan lookResult, 1),
	}
	l.renewals = renewal.New(renewal.Config{
		Registry: s.Registry, Owner: l, Timeout: s.cfg.RenewTimeout, Chance: rand.Float64,
		Idle: max(s.cfg.Idle, 2*s.cfg.ReportInterval), // use is noticed at reports
	})
	l.current = l.slotOf(l.today())
	return l
}

// Run is the life of the session. It returns when Close was called, and all that it started has ended.
func (s *Session) Run() {
	defer close(s.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := s.loop(ctx)
	if k := s.journal; k != nil {
		l.outbox.Keep(k.Records())
		k.Records().Slot(l.current)
		l.past = k.Past
		l.calls.Add(1)
		go func() {
			defer l.calls.Done()
			k.Run(ctx, s.log)
		}()
		if k.Life.Sealed() {
			l.calls.Go(func() { s.seal(ctx) })
		}
	}
	l.reportAt = time.Now().Add(apart(s.cfg.ReportInterval))
	l.calls.Add(1)
	go func() {
		defer l.calls.Done()
		s.watch(ctx, l.watched)
	}()
	if s.cfg.SwitchFile != "" {
		l.local = s.cfg.Switches
		l.flip("switch file read")
		l.calls.Add(1)
		go func() {
			defer l.calls.Done()
			s.followFile(ctx, l.local, l.filed)
		}()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
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
		case f := <-s.asks:
			f(l)
		case r := <-s.closing:
			err := l.close(r.ctx)
			cancel()
			l.drain()
			err = errors.Join(err, l.endJournal())
			s.final, s.finalCounts, s.finalErr = l.stats(), l.counts(), err
			r.done <- err
			return
		}
		l.drainReady()
		timer.Reset(l.step())
	}
}

// drainReady takes what else has come, so that one step serves many.
func (l *Loop) drainReady() {
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
func (l *Loop) drain() {
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
func (l *Loop) step() time.Duration {
	s := l.s
	l.renewals.Attend(s.Now(), l.takeQueue())
	sleep := s.until(l.renewals.Step(s.Now()))
	now, today := time.Now(), l.today()
	if slot := l.slotOf(today); slot != l.current {
		l.collect() // what was admitted until here is of the slot that ends
		l.edgeAt = now
		l.current = slot
		s.journal.Records().Slot(slot)
		// A slot's reports come soon after it, and not all agents' at once.
		if soon := now.Add(retry.Jitter(s.cfg.ReportInterval/10, 1)); soon.Before(l.reportAt) {
			l.reportAt = soon
		}
	}
	if !now.Before(l.reportAt) {
		l.report(now)
		if l.followsEdge(now) || l.sign {
			l.sign = false
			l.reportAt = now.Add(apart(s.cfg.ReportInterval))
		} else {
			l.reportAt = now.Add(retry.Jitter(s.cfg.ReportInterval, 0.1))
		}
	}
	if wait := roomEvery - time.Duration(s.Now()-l.sweptAt)*time.Microsecond; wait <= 0 && (s.pressed.Load() || l.scarce()) {
		s.pressed.Store(false)
		l.makeRoom()
	} else if s.pressed.Load() {
		sleep = min(sleep, max(wait, 0))
	}
	if next := s.cfg.Expire(now, false); !next.IsZero() {
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

// takeQueue returns the buckets that asked for attention, until it is called again.
func (l *Loop) takeQueue() []*agent.Entry {
	s := l.s
	clear(l.spare)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, l.spare = l.spare[:0], s.queue
	return l.spare
}

// today is the time that usage is booked under.
func (l *Loop) today() time.Time {
	now := time.Now()
	return l.wall.at(now, now.Sub(l.s.began))
}

// slotOf returns the start of the usage slot that now is in. It never goes back
// over a clock that was set back by less than a slot.
func (l *Loop) slotOf(now time.Time) int64 {
	s := int64(l.slot / time.Second)
	u := now.Unix()
	slot := u - u%s
	if slot < l.current && u >= l.current-s {
		return l.current
	}
	return slot
}

// apart is the time to the next report after one that all agents send at once: at a fleet's start, or a slot's end.
// From half of the interval to all of it, so that they do not go on together.
func apart(interval time.Duration) time.Duration { return retry.Jitter(interval*3/4, 1./3) }
