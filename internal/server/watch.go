package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// watchBytes is the size at which changed tenants go into a further message.
const watchBytes = 1 << 20

const (
	// maxWatches bounds an agent's streams: one, and what is left of those before it.
	maxWatches = 4
	// maxWatchesOfPeer bounds those of one address, for a key may be for names that begin alike, and then whoever has it invents
	// agents. It is above ten thousand gateways behind one proxy. maxAllWatches leaves other addresses as many.
	maxWatchesOfPeer = 16_384
	maxAllWatches    = 2 * maxWatchesOfPeer
)

// errGaveWay ends the oldest of an agent's streams when it begins one more than it may have: the newest is the one that it reads.
var errGaveWay = fmt.Errorf("%w: the agent watches %d times since, as often as it may: the oldest stream ends", fault.ErrBusy, maxWatches)

// watches holds the streams of each agent, the oldest first. There are as many as bounds has it at most.
type watches struct {
	bounds *listen.Streams

	mu sync.Mutex
	of map[string][]*watching
}

// watching is a stream under way. What ends it says why.
type watching struct{ end context.CancelCauseFunc }

func newWatches() *watches {
	return &watches{
		bounds: &listen.Streams{What: "streams of agents", All: maxAllWatches, OfPeer: maxWatchesOfPeer},
		of:     make(map[string][]*watching),
	}
}

// begin adds a stream, which is to end with the context that it returns. end is to be called when it has.
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

// cursor is what a stream has been sent.
type cursor struct {
	started  bool
	turn     int64 // of inForce
	version  int64 // of the policy
	shadow   int64 // version
	switches int64 // inForce.switched
	forgot   int64
	tenants  int64 // change number
}

// Watch sends what is in force, then every change. A stream has no queue: it
// remembers what it was sent and takes what is newer from the view, so that a
// slow one costs nothing but is told, when it is too far behind, to ask again for
// its tenants.
func (s *leaseService) Watch(req *quotav1.WatchRequest, stream quotav1.LeaseService_WatchServer) error {
	ctx := stream.Context()
	if err := authn.SpeaksFor(ctx, req.Agent); err != nil {
		return err
	}
	if req.PolicyVersion > s.view.current().version() || req.TenantChange > s.view.current().heads.Tenants {
		// Another server told the agent first. When the store does not answer, what
		// is in memory is the best there is.
		_ = s.view.look(ctx)
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
	at := cursor{tenants: req.TenantChange}
	for {
		messages, changed, err := s.view.news(&at)
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
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.stopping:
			return rpc.ErrStopping
		}
	}
}

// news returns what a stream has not been sent yet, and when to look again.
func (v *view) news(at *cursor) ([]*quotav1.WatchResponse, <-chan struct{}, error) {
	v.mu.Lock()
	now, changed := v.now, v.changed
	changes, complete := v.journal.since(at.tenants)
	head := v.journal.head()
	looked := v.looked
	v.mu.Unlock()
	if now.rules == nil && !looked && now.switches.Revision == 0 {
		return nil, nil, v.unknownPolicy() // another server may know more
	}
	first := &quotav1.WatchResponse{TenantChange: head}
	news := !at.started
	if !at.started || now.turn != at.turn {
		if now.version() != at.version { // before there is one, switches have to reach agents all the same
			first.Policy = wire.PolicyToProto(now.rules.Policy)
			// Overrides take what they leave out from the plans: they may say something else now.
			first.RefreshTenants = at.started
		}
		if !at.started || now.tried() != at.shadow {
			// None is said too: an agent that was away may still try one.
			first.Shadow = &quotav1.Policy{}
			if now.shadow != nil {
				first.Shadow = wire.PolicyToProto(now.shadow.Policy)
			}
		}
		if !at.started || now.switched != at.switches {
			first.Switches = wire.SwitchesToProto(now.switches)
		}
		if now.forgot != at.forgot {
			first.ForgotBeforeUs = now.forgot
		}
		news = true
	}
	messages := []*quotav1.WatchResponse{first}
	switch {
	case !complete, at.tenants == 0 && head != 0:
		// An agent without a number may have resolved tenants before this stream began.
		first.RefreshTenants = true
		news = true
	case len(changes) > 0:
		messages = append(messages[:0], withTenants(first, changes)...)
		news = true
	}
	*at = cursor{started: true, turn: now.turn, version: now.version(), shadow: now.tried(), switches: now.switched, forgot: now.forgot, tenants: head}
	if !news {
		return nil, changed, nil
	}
	return messages, changed, nil
}

// withTenants spreads changed tenants over messages of bounded size, the first of
// which is given. Only the last one says how far the agent then is.
func withTenants(first *quotav1.WatchResponse, changes []change) []*quotav1.WatchResponse {
	messages := []*quotav1.WatchResponse{first}
	head := first.TenantChange
	last, size := first, 0
	for _, c := range changes {
		for i := range c.tenants {
			t := wire.TenantToProto(c.tenants[i])
			n := proto.Size(t)
			if size > 0 && size+n > watchBytes {
				last = &quotav1.WatchResponse{}
				messages = append(messages, last)
				size = 0
			}
			last.Tenants = append(last.Tenants, t)
			size += n
		}
	}
	first.TenantChange = 0
	last.TenantChange = head
	return messages
}
