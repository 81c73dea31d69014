package session

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/switchfile"
)

// fileEvery is how often the switch file is read: a change is in force well within a second.
const fileEvery = 250 * time.Millisecond

// followFile reads the switch file until ctx ends, and sends what it says when that changed.
func (s *Session) followFile(ctx context.Context, said switchfile.Says, to chan<- fileEvent) {
	t := time.NewTicker(fileEvery)
	defer t.Stop()
	file := switchfile.Follow(s.cfg.SwitchFile, said)
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		says, changed, err := file.Look()
		if !changed {
			continue
		}
		select {
		case to <- fileEvent{says, err}:
		case <-ctx.Done():
			return
		}
	}
}

// fileEvent is what the switch file says now, or what it said before it had the fault.
type fileEvent struct {
	says  switchfile.Says
	fault error
}

func (l *Loop) onFile(e fileEvent) {
	l.fault = e.fault
	if e.fault != nil {
		l.s.log.Error("switch file not in force; what it said before stays", "error", e.fault)
		return
	}
	l.local = e.says
	l.flip("switch file read")
}

// flip puts the switches in force: the file's over the server's.
func (l *Loop) flip(why string) {
	s, sw := l.s, l.local.Over(l.remote)
	if sw.Mode != limit.ModeNormal {
		s.Special.Store(true)
	}
	s.Registry.Switch(sw)
	s.Special.Store(s.Closed.Load() || sw.Mode != limit.ModeNormal)
	s.cfg.Changed()
	// Requests that wait, perhaps for long, are decided anew.
	var urgent []*agent.Entry
	s.Registry.Each(func(e *agent.Entry) {
		if e.Urgent() {
			urgent = append(urgent, e)
		}
	})
	for _, e := range urgent {
		bucket.Serve(e.Dismiss())
	}
	s.log.Info(why, "mode", sw.Mode.String(), "denied_tenants", len(sw.Denied))
}
