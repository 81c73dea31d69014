package client

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/switchfile"
)

// fileEvery is how often the switch file is read: a change is in force well within a second.
const fileEvery = 250 * time.Millisecond

// followFile reads the switch file until ctx ends, and sends what it says when that changed.
func (c *Client) followFile(ctx context.Context, said switchfile.Says, to chan<- fileEvent) {
	t := time.NewTicker(fileEvery)
	defer t.Stop()
	file := switchfile.Follow(c.cfg.switchFile, said)
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

func (l *loop) onFile(e fileEvent) {
	l.fault = e.fault
	if e.fault != nil {
		l.c.log.Error("switch file not in force; what it said before stays", "error", e.fault)
		return
	}
	l.local = e.says
	l.flip("switch file read")
}

// flip puts the switches in force: the file's over the server's.
func (l *loop) flip(why string) {
	c, sw := l.c, l.local.Over(l.remote)
	if sw.Mode != limit.ModeNormal {
		c.special.Store(true)
	}
	c.reg.Switch(sw)
	c.special.Store(c.closed.Load() || sw.Mode != limit.ModeNormal)
	c.unsettleAll()
	// Who waits, perhaps for long, is decided anew.
	c.reg.Each(func(e *agent.Entry) {
		if e.Urgent() {
			l.urgent = append(l.urgent, e)
		}
	})
	for _, e := range l.urgent {
		serve(e.Dismiss())
	}
	clear(l.urgent)
	l.urgent = l.urgent[:0]
	c.log.Info(why, "mode", sw.Mode.String(), "denied_tenants", len(sw.Denied))
}
