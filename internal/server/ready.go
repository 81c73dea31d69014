package server

import (
	"context"
	"log/slog"
	"sort"
	"sync"
	"time"
)

const (
	// checkEvery is how often each part is asked whether it can work.
	checkEvery = time.Second
	// checkTimeout bounds one question; an engine that hangs is as good as gone.
	checkTimeout = 2 * time.Second
)

// part is one thing the server depends on.
type part struct {
	name  string
	check func(context.Context) error
}

// readiness keeps the reason why each part cannot work, if there is one.
type readiness struct {
	log     *slog.Logger
	metrics *metrics
	parts   []part
	changed func(name string, ready bool) // called when a part changes

	mu      sync.Mutex
	reasons map[string]string // by part; absent when it works
}

func newReadiness(log *slog.Logger, m *metrics, changed func(string, bool), parts ...part) *readiness {
	r := &readiness{log: log, metrics: m, parts: parts, changed: changed, reasons: make(map[string]string)}
	for _, p := range parts {
		r.reasons[p.name] = "not reached yet"
	}
	r.metrics.ready.Set(0)
	return r
}

// run asks every part at once, and again every second, until ctx ends.
func (r *readiness) run(ctx context.Context) error {
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

func (r *readiness) ask(ctx context.Context, p part) {
	checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
	err := p.check(checkCtx)
	cancel()
	if ctx.Err() != nil {
		return // the server is stopping; nothing is known of the part
	}
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	r.set(p.name, reason)
}

// set records a part's reason, empty when it works. State changes are logged, not states.
func (r *readiness) set(name, reason string) {
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
		r.metrics.ready.Set(1)
	} else {
		r.metrics.ready.Set(0)
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

// reason is why one part cannot work.
type reason struct {
	Part   string `json:"part"`
	Reason string `json:"reason"`
}

// why returns the reasons, by the parts' names; none when the server is ready.
func (r *readiness) why() []reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := make([]reason, 0, len(r.reasons))
	for name, why := range r.reasons {
		reasons = append(reasons, reason{name, why})
	}
	sort.Slice(reasons, func(i, j int) bool { return reasons[i].Part < reasons[j].Part })
	return reasons
}
