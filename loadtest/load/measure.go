package load

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/f4ee788f/quota/pkg/client"
)

// heapInUse is the size of the heap after a collection.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// recordBytes is the part of the heap that the generator allocated while it ran.
func (l *load) recordBytes() (n int64) {
	for i := range l.workers {
		n += int64(cap(l.workers[i].records))*int64(unsafe.Sizeof(record{})) + int64(len(l.workers[i].times.counts))*8
	}
	return n
}

func (l *load) buckets(clients []*client.Client) (n int64) {
	for _, s := range statsOf(clients) {
		n += s.Buckets
	}
	return n
}

// ownCost is the cost of the loop around a decision, in nanoseconds of one processor. It runs the loop over a stand-in
// that admits everything at once.
func (l *load) ownCost() float64 {
	const chunks = 4000
	var w worker
	begin := time.Now()
	for i := range chunks {
		w.ask(context.Background(), nil, nothing{}, l, record{from: uint32(i * chunk)}, chunk)
		w.records = w.records[:0]
	}
	return float64(time.Since(begin).Nanoseconds()) / (chunks * chunk)
}

// nothing decides nothing.
type nothing struct{}

func (nothing) Allow(context.Context, ...client.Attribute) client.Decision {
	return client.Decision{Allowed: true}
}

// snapshot is the counts until a moment. Each gateway's part has a moment of its own, because it answers when its loop
// comes to it.
type snapshot struct {
	gateways []counted
	seen     Observation
	at       time.Time // when it was seen
}

// counted is a gateway's counts until a moment.
type counted struct {
	client.Stats
	at      time.Time
	decided int64
}

// statsOf asks all clients at once, because each answers when its loop comes to it.
func statsOf(clients []*client.Client) []client.Stats {
	all := make([]client.Stats, len(clients))
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() { all[i] = c.Stats() })
	}
	group.Wait()
	return all
}

func (l *load) snapshot(ctx context.Context, clients []*client.Client) (s snapshot, err error) {
	s.gateways = make([]counted, len(clients))
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() {
			g := l.gateways[i]
			s.gateways[i] = counted{Stats: c.Stats(), at: time.Now(), decided: g.allowed.Load() + g.refused.Load()}
		})
	}
	if l.Observe != nil {
		s.at = time.Now()
		s.seen, err = l.Observe(context.WithoutCancel(ctx))
		s.at = s.at.Add(time.Since(s.at) / 2)
	}
	group.Wait()
	return s, err
}

// since fills in what happened since the snapshot before. Each rate is divided by the seconds between its own two
// counts.
func (s *snapshot) since(before *snapshot, r *Result) {
	decided := int64(0)
	for i := range s.gateways {
		g, was := &s.gateways[i], &before.gateways[i]
		seconds := g.at.Sub(was.at).Seconds()
		renewed := g.Renewals - was.Renewals
		r.RPCs += g.RenewCalls + g.SettleCalls - was.RenewCalls - was.SettleCalls
		r.RPCsFailed += g.RenewFailed + g.SettleFailed - was.RenewFailed - was.SettleFailed
		r.RenewedBuckets += renewed
		r.RenewedPerSecond += float64(renewed) / seconds
		r.Waited += g.Waited - was.Waited
		r.LateSpends += g.LateSpends - was.LateSpends
		r.OutageUnits += g.OutageUnits - was.OutageUnits
		r.Buckets += g.Buckets
		r.CountedSeconds += seconds / float64(len(s.gateways))
		decided += g.decided - was.decided
	}
	if decided > 0 {
		r.RPCRatio = float64(r.RPCs) / float64(decided)
		r.RenewedRatio = float64(r.RenewedBuckets) / float64(decided)
		r.WaitedRatio = float64(r.Waited) / float64(decided)
	}
	r.ObservedSeconds = s.at.Sub(before.at).Seconds()
	if now, was := s.seen.Redis, before.seen.Redis; now != nil && was != nil {
		r.OfRedis = &OfRedis{
			RedisCommandsPerSecond: float64(now.Commands-was.Commands) / r.ObservedSeconds,
			RedisScriptsPerSecond:  float64(now.Scripts-was.Scripts) / r.ObservedSeconds,
		}
		if n := now.Scripts - was.Scripts; n > 0 {
			r.RedisScriptUS = float64(now.ScriptTime-was.ScriptTime) / float64(n)
		}
	}
	if now, was := s.seen.Rows, before.seen.Rows; now != nil && was != nil {
		perSecond := float64(*now-*was) / r.ObservedSeconds
		r.ReportRowsPerSecond = &perSecond
	}
	if s.seen.CPU != nil {
		r.CPUSeconds = make(map[string]float64)
		for name, v := range s.seen.CPU {
			r.CPUSeconds[name] = v - before.seen.CPU[name]
		}
	}
}

// Sample is a second of a run.
type Sample struct {
	Second    float64            `json:"second"` // since the load began
	Decisions float64            `json:"decisions_per_second"`
	Denied    float64            `json:"denied_per_second"`
	Renewed   *float64           `json:"renewed_buckets_per_second,omitempty"` // as the server counts them
	Commands  *float64           `json:"redis_commands_per_second,omitempty"`
	CPU       map[string]float64 `json:"processors,omitempty"` // processors in use, by program
}

// watch prints the load while it runs.
type watch struct {
	*load
	samples []Sample
}

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, lastAllowed, lastRefused := time.Now(), int64(0), int64(0)
	var seen Observation
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var allowed, refused int64
		for _, g := range w.gateways {
			allowed += g.allowed.Load()
			refused += g.refused.Load()
		}
		now := time.Now()
		seconds := now.Sub(last).Seconds()
		s := Sample{
			Second:    now.Sub(w.began).Seconds(),
			Decisions: float64(allowed+refused-lastAllowed-lastRefused) / seconds,
			Denied:    float64(refused-lastRefused) / seconds,
		}
		last, lastAllowed, lastRefused = now, allowed, refused
		phase := ""
		switch {
		case w.beginning.Load():
			phase = "  (first leases)"
		case w.warmed.Load() == 0:
			phase = "  (warming)"
		}
		say(w.Progress, "%4.0f s  %11.0f decisions/s  %5.1f %% denied", s.Second, s.Decisions, 100*s.Denied/max(s.Decisions, 1))
		if w.Observe == nil {
			w.samples = append(w.samples, s)
		} else if o, err := w.Observe(ctx); err == nil {
			s.see(&o, &seen, seconds)
			if first := seen.CPU == nil && seen.Renewed == nil && seen.Redis == nil; !first { // it is since the start of all
				w.samples = append(w.samples, s)
				w.tell(&s)
			}
			seen = o
		}
		say(w.Progress, "%s\n", phase)
	}
}

// see fills in what the parts did in the seconds from one observation to another.
func (s *Sample) see(now, was *Observation, seconds float64) {
	if now.Renewed != nil && was.Renewed != nil {
		v := float64(*now.Renewed-*was.Renewed) / seconds
		s.Renewed = &v
	}
	if now.Redis != nil && was.Redis != nil {
		v := float64(now.Redis.Commands-was.Redis.Commands) / seconds
		s.Commands = &v
	}
	s.CPU = make(map[string]float64)
	for name, v := range now.CPU {
		s.CPU[name] = (v - was.CPU[name]) / seconds
	}
}

func (w *watch) tell(s *Sample) {
	if s.Renewed != nil {
		say(w.Progress, "  %8.0f buckets renewed/s", *s.Renewed)
	}
	if s.Commands != nil {
		say(w.Progress, "  %8.0f Redis commands/s", *s.Commands)
	}
	if len(s.CPU) > 0 {
		say(w.Progress, "  processors%s", processors(s.CPU))
	}
}
