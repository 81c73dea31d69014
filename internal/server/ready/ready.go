package ready

import (
	"context"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// checkEvery is how often each part is asked whether it can work.
	checkEvery = time.Second
	// checkTimeout bounds one question; an engine that hangs is as good as gone.
	checkTimeout = 2 * time.Second
)

// Part is one thing the server depends on.
type Part struct {
	Name  string
	Check func(context.Context) error
}

// Readiness keeps the reason why each part cannot work, if there is one.
type Readiness struct {
	log     *slog.Logger
	gauge   prometheus.Gauge // 1 when every part works
	parts   []Part
	changed func(name string, ready bool) // called when a part changes

	mu      sync.Mutex
	reasons map[string]string // by part; absent when it works
}

// New returns the readiness of parts that were not asked yet. changed is told of a part that changes.
func New(log *slog.Logger, registerer prometheus.Registerer, changed func(string, bool), parts ...Part) (*Readiness, error) {
	r := &Readiness{log: log, parts: parts, changed: changed, reasons: make(map[string]string), gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "quota_server_ready", Help: "1 when every part works.",
	})}
	for _, p := range parts {
		r.reasons[p.Name] = "not reached yet"
	}
	return r, registerer.Register(r.gauge)
}

// Run asks every part at once, and again every second, until ctx ends.
func (r *Readiness) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, p := range r.parts {
		all.Go(func() {
			tick := time.NewTicker(checkEvery)
			defer tick.Stop()
			for {
				r.ask(ctx, p)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	all.Wait()
	return nil
}

func (r *Readiness) ask(ctx context.Context, p Part) {
	checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
	err := p.Check(checkCtx)
	cancel()
	if ctx.Err() != nil {
		return // the server is stopping; nothing is known of the part
	}
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	r.Set(p.Name, reason)
}

// Set records a part's reason, empty when it works. State changes are logged, not states.
func (r *Readiness) Set(name, reason string) {
	r.mu.Lock()
	was, bad := r.reasons[name]
	if reason == "" {
		delete(r.reasons, name)
	} else {
		r.reasons[name] = reason
	}
	ready := len(r.reasons) == 0
	r.mu.Unlock()
	if ready {
		r.gauge.Set(1)
	} else {
		r.gauge.Set(0)
	}
	switch {
	case reason == "" && bad:
		r.log.Info("ready", "part", name)
		r.changed(name, true)
	case reason != "" && (!bad || was == "not reached yet"):
		r.log.Warn("not ready", "part", name, "reason", reason)
		r.changed(name, false)
	}
}

// Reason is why one part cannot work.
type Reason struct {
	Part   string `json:"part"`
	Reason string `json:"reason"`
}

// Why returns the reasons, by the parts' names; none when the server is ready.
func (r *Readiness) Why() []Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := make([]Reason, 0, len(r.reasons))
	for name, why := range r.reasons {
		reasons = append(reasons, Reason{name, why})
	}
	sort.Slice(reasons, func(i, j int) bool { return reasons[i].Part < reasons[j].Part })
	return reasons
}
