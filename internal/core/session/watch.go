package session

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/renewal"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// lookEvery is how often to look for a connection while there is none. No server notices that.
const lookEvery = 20 * time.Millisecond

// watch keeps a stream of what changes open and sends it on, until ctx ends.
func (s *Session) watch(ctx context.Context, to chan<- watchEvent) {
	req := &quotav1.WatchRequest{Agent: s.cfg.Agent, Epoch: s.epoch}
	w := watcher{s: s, req: req, to: to}
	fails, answered := 0, false
	for ctx.Err() == nil {
		err := w.follow(ctx, func() { fails, answered = 0, true })
		if ctx.Err() != nil {
			return
		}
		fails++
		_, called := status.FromError(err) // what came was of no use otherwise, or the server ended the stream
		if called {
			select {
			case to <- watchEvent{failed: err}:
			case <-ctx.Done():
				return
			}
		}
		if fails == 3 && (answered || !called) { // before the first answer the loop says it
			s.log.Warn("changes are not followed at present", "error", err)
		}
		longest := renewal.LastRetry
		if w.unconnected {
			longest = lookEvery
		}
		t := time.NewTimer(retry.In(fails, min(2*renewal.FirstRetry, longest), longest))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// olderFor is how long a server may say an older policy than the one in force before it is believed. A server that
// lags catches up by then; one whose store began anew does not.
const olderFor = 5 * time.Second

var errOlder = errors.New("client: the server has an older policy than the one in force")

// watcher follows one stream after the other.
type watcher struct {
	s     *Session
	req   *quotav1.WatchRequest // kept at what was received
	to    chan<- watchEvent
	older time.Time // when an older policy was first said; zero when the newest was

	unconnected bool // no stream began
}

// follow opens one stream and reads it to its end.
func (w *watcher) follow(ctx context.Context, ok func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.s.api.Watch(ctx, w.req)
	if w.unconnected = err != nil; w.unconnected {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		e := watchEvent{refresh: m.GetRefreshTenants(), forgot: m.GetForgotBeforeUs(), agents: m.GetAgents()}
		if m.Policy != nil {
			p, err := wire.PolicyFromProto(m.Policy)
			if err == nil {
				e.rules, err = limit.CompilePolicy(p)
			}
			if err != nil {
				return err // the old policy goes on; the stream is tried again later
			}
			if p.Version >= w.req.PolicyVersion {
				w.older = time.Time{}
			} else if w.older.IsZero() || time.Since(w.older) < olderFor {
				if w.older.IsZero() {
					w.older = time.Now()
				}
				return errOlder
			}
		}
		if m.Shadow != nil {
			if e.trial, err = trialOf(m.Shadow); err != nil {
				w.s.log.Warn("the shadow policy is not valid; none is tried", "version", m.Shadow.Version, "error", err)
			}
		}
		for _, p := range m.Tenants {
			t, err := wire.TenantFromProto(p)
			if err != nil {
				return err
			}
			e.tenants = append(e.tenants, t)
		}
		if m.Switches != nil {
			s, err := wire.SwitchesFromProto(m.Switches)
			if err != nil {
				return err
			}
			e.switches = &s
		}
		select {
		case w.to <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
		ok()
		if e.rules != nil {
			w.older = time.Time{}
			w.req.PolicyVersion = e.rules.Policy.Version
		}
		if m.TenantChange > 0 {
			w.req.TenantChange = m.TenantChange
		}
	}
}

// trialOf reads a shadow policy. An empty or broken one counts as none, which has version 0: it must not hold up the
// policy in force.
func trialOf(p *quotav1.Policy) (*limit.Rules, error) {
	none := &limit.Rules{Policy: &limit.Policy{}}
	if p.Version == 0 {
		return none, nil
	}
	policy, err := wire.PolicyFromProto(p)
	if err != nil {
		return none, err
	}
	rules, err := limit.CompilePolicy(policy)
	if err != nil {
		return none, err
	}
	return rules, nil
}
