package load

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/f4ee788f/quota/pkg/client"
)

// heapInUse is what the heap holds, after a collection.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// recordBytes is what of the heap the generator made while it ran.
func (l *load) recordBytes() (n int64) {
	for i := range l.workers {
		n += int64(cap(l.workers[i].records))*int64(unsafe.Sizeof(record{})) + int64(len(l.workers[i].times.counts))*8
	}
	return n
}

func (l *load) buckets(clients []*client.Client) (n int64) {
	for _, s := range pulses(clients) {
		n += s.Buckets
	}
	return n
}

// ownCost is what a decision costs besides the decision, in nanoseconds of one processor: the same loop
// over a stand-in that admits everything at once.
func (l *load) ownCost() float64 {
	const chunks = 4000
	var w worker
	r := record{n: chunk}
	begin := time.Now()
	for i := range chunks {
		r.from = uint32(i * chunk)
		w.ask(context.Background(), nil, nothing{}, l, &r)
	}
	return float64(time.Since(begin).Nanoseconds()) / (chunks * chunk)
}

// nothing decides nothing.
type nothing struct{}

func (nothing) ready(*client.Prepared, []client.Attribute) {}

func (nothing) fetch(*client.Prepared) {}

func (nothing) decide(context.Context, *client.Prepared, []client.Attribute) client.Decision {
	return client.Decision{Allowed: true}
}

// snapshot is what was counted until a moment.
type snapshot struct {
	at                         time.Time
	calls, renewals, buckets   int64
	waited, decided            int64
	late, outage, failed, lost int64
	seen                       Observation
}

// pulses asks all clients at once: each answers when its loop comes to it.
func pulses(clients []*client.Client) []client.Stats {
	all := make([]client.Stats, len(clients))
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() { all[i] = c.Pulse() })
	}
	group.Wait()
	return all
}

func (l *load) snapshot(ctx context.Context, clients []*client.Client) (s snapshot, err error) {
	s.at = time.Now()
	for _, g := range l.gateways {
		s.decided += g.allowed.Load() + g.refused.Load()
	}
	for _, n := range pulses(clients) {
		s.calls += n.RenewCalls + n.SettleCalls
		s.failed += n.RenewFailed + n.SettleFailed
		s.renewals += n.Renewals
		s.buckets += n.Buckets
		s.waited += n.Waited
		s.late += n.LateSpends
		s.outage += n.OutageUnits
		if n.Lost {
			s.lost++
		}
	}
	if l.Observe != nil {
		s.seen, err = l.Observe(context.WithoutCancel(ctx))
	}
	return s, err
}

// since fills in what happened since the snapshot before.
func (s *snapshot) since(before snapshot, r *Result) {
	seconds := s.at.Sub(before.at).Seconds()
	r.Seconds = seconds
	r.RPCs = s.calls - before.calls
	r.RPCsFailed = s.failed - before.failed
	r.RenewedBuckets = s.renewals - before.renewals
	r.RenewedPerSecond = float64(r.RenewedBuckets) / seconds
	r.Waited = s.waited - before.waited
	r.LateSpends, r.OutageUnits = s.late-before.late, s.outage-before.outage
	r.Buckets = s.buckets
	if decided := float64(s.decided - before.decided); decided > 0 {
		r.RPCRatio = float64(r.RPCs) / decided
		r.RenewedRatio = float64(r.RenewedBuckets) / decided
		r.WaitedRatio = float64(r.Waited) / decided
	}
	if s.seen.CPU != nil {
		r.RedisCommandsPerSecond = float64(s.seen.Commands-before.seen.Commands) / seconds
		r.RedisScriptsPerSecond = float64(s.seen.Scripts-before.seen.Scripts) / seconds
		if n := s.seen.Scripts - before.seen.Scripts; n > 0 {
			r.RedisScriptUS = float64(s.seen.ScriptTime-before.seen.ScriptTime) / float64(n)
		}
		r.ReportRowsPerSecond = float64(s.seen.Rows-before.seen.Rows) / seconds
		r.CPUSeconds = make(map[string]float64)
		for name, v := range s.seen.CPU {
			r.CPUSeconds[name] = v - before.seen.CPU[name]
		}
	}
}

// Sample is what a second of a run came to.
type Sample struct {
	Second    float64            `json:"second"` // since the load began
	Decisions float64            `json:"decisions_per_second"`
	Denied    float64            `json:"denied_per_second"`
	Renewed   float64            `json:"renewed_buckets_per_second"`
	Commands  float64            `json:"redis_commands_per_second"`
	CPU       map[string]float64 `json:"processors,omitempty"` // processors in use, by program
}

// watch tells of the load while it runs.
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
		if w.Observe != nil {
			if o, err := w.Observe(ctx); err == nil {
				s.Renewed = float64(o.Renewed-seen.Renewed) / seconds
				s.Commands = float64(o.Commands-seen.Commands) / seconds
				s.CPU = make(map[string]float64)
				for name, v := range o.CPU {
					s.CPU[name] = (v - seen.CPU[name]) / seconds
				}
				if seen.CPU != nil { // the first is since the start of all
					w.samples = append(w.samples, s)
				}
				seen = o
				say(w.Progress, "  %8.0f buckets renewed/s  %8.0f Redis commands/s  processors%s", s.Renewed, s.Commands, processors(s.CPU))
			}
		} else {
			w.samples = append(w.samples, s)
		}
		say(w.Progress, "%s\n", phase)
	}
}
