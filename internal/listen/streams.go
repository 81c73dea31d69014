package listen

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/wire"
)

const (
	// MaxHeaderList bounds the headers of a gRPC call, in bytes: a key, a deadline, and what proxies add.
	MaxHeaderList = 16 << 10
	// HealthStreams bounds the streams that watch health, which need no key, and HealthOfPeer those of one address.
	HealthStreams = 256
	HealthOfPeer  = 16

	healthWatch = "/grpc.health.v1.Health/Watch"
)

// Streams counts streams under way, in all and of each peer.
type Streams struct {
	What        string // that goes on, for people
	All, OfPeer int

	mu    sync.Mutex
	n     int
	peers map[netip.Prefix]int
}

// NewHealth bounds the streams that watch health.
func NewHealth() *Streams {
	return &Streams{What: "streams that watch health", All: HealthStreams, OfPeer: HealthOfPeer}
}

// Begin counts a stream, or refuses it as RESOURCE_EXHAUSTED. end is called once.
func (s *Streams) Begin(ctx context.Context) (end func(), err error) {
	var of netip.Prefix
	if p, ok := peer.FromContext(ctx); ok {
		a := p.Addr
		if at, ok := a.(*address); ok {
			a = at.Addr
		}
		of = peerOf(a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= s.All || of.IsValid() && s.peers[of] >= s.OfPeer {
		return nil, wire.Error(fmt.Errorf("%w: there are %d %s at most, %d from one address; end one first", fault.ErrBusy, s.All, s.What, s.OfPeer))
	}
	if s.peers == nil {
		s.peers = make(map[netip.Prefix]int)
	}
	s.n++
	s.peers[of]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n--
		if s.peers[of]--; s.peers[of] == 0 {
			delete(s.peers, of)
		}
	}, nil
}

// Health is an interceptor that bounds the streams that watch health, and leaves others alone.
func (s *Streams) Health(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.FullMethod != healthWatch {
		return handler(srv, stream)
	}
	end, err := s.Begin(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	return handler(srv, stream)
}
