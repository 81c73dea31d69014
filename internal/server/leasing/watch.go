package leasing

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// maxWatches bounds an agent's streams: one, and the remains of earlier ones.
	maxWatches = 4
	// maxWatchesOfPeer bounds the streams of one address, because a key may be for all names with a prefix, and so let
	// its owner invent agents. It is above ten thousand gateways behind one proxy. maxAllWatches leaves other addresses
	// as many.
	maxWatchesOfPeer = 16_384
	maxAllWatches    = 2 * maxWatchesOfPeer
)

// errGaveWay ends the oldest of an agent's streams when it begins one too many. The agent reads the newest.
var errGaveWay = fmt.Errorf("%w: the agent watches %d times since, as often as it may: the oldest stream ends", fault.ErrBusy, maxWatches)

// watches holds the streams of each agent, the oldest first. bounds limits their number.
type watches struct {
	bounds *listen.Streams

	mu sync.Mutex
	of map[string][]*watching
}

// watching is a stream under way. end ends it, with the reason.
type watching struct{ end context.CancelCauseFunc }

func newWatches() *watches {
	return &watches{
		bounds: &listen.Streams{What: "streams of agents", All: maxAllWatches, OfPeer: maxWatchesOfPeer},
		of:     make(map[string][]*watching),
	}
}

// begin adds a stream, which must end with the returned context. The caller then calls end.
func (w *watches) begin(ctx context.Context, agent string) (_ context.Context, end func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	mine := &watching{cancel}
	w.mu.Lock()
	defer w.mu.Unlock()
	if streams := w.of[agent]; len(streams) >= maxWatches {
		streams[0].end(errGaveWay)
		w.of[agent] = streams[1:]
	}
	counted, err := w.bounds.Begin(ctx)
	if err != nil {
		cancel(err)
		return nil, nil, err // the oldest has made room for the next try
	}
	w.of[agent] = append(w.of[agent], mine)
	return ctx, func() {
		defer counted()
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.of[agent] = slices.DeleteFunc(w.of[agent], func(o *watching) bool { return o == mine })
		if len(w.of[agent]) == 0 {
			delete(w.of, agent)
		}
	}, nil
}

// Watch sends what is in force, then every change. A stream has no queue: it remembers what it was sent, and takes what
// is newer from the view. So a slow stream costs no memory; one too far behind is told to ask for its tenants again.
func (s *Service) Watch(req *quotav1.WatchRequest, stream quotav1.LeaseService_WatchServer) error {
	ctx := stream.Context()
	if err := authn.SpeaksFor(ctx, req.Agent); err != nil {
		return err
	}
	if req.PolicyVersion > s.view.Current().Version() || req.TenantChange > s.view.Current().Heads.Tenants {
		// Another server told the agent first. If the store does not answer, the view in memory has to do.
		_ = s.view.Look(ctx)
	}
	ctx, end, err := s.watches.begin(ctx, req.Agent)
	if err != nil {
		return err
	}
	defer end()
	send := rpc.Patient(ctx, stream.Send)
	scope := authn.PrincipalOf(ctx).Scope
	s.metrics.watchers.Inc()
	defer s.metrics.watchers.Dec()
	at := view.Cursor{Tenants: req.TenantChange}
	tick := time.NewTicker(heardFor / 3)
	defer tick.Stop()
	for told := int32(0); ; {
		if agents := s.fleet.hear(req.Agent, time.Now()); agents != told {
			if err := send(&quotav1.WatchResponse{Agents: agents}); err != nil {
				return err
			}
			told = agents
		}
		messages, changed, err := s.view.News(&at)
		if err != nil {
			return err
		}
		for _, m := range messages {
			tell(ctx, scope, m)
			if err := send(m); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.stopping:
			return rpc.ErrStopping
		}
	}
}
