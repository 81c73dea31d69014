package connect

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/f4ee788f/quota/internal/core/retry"
)

const (
	// again is the longest pause between two tries to connect, less a jitter of a fifth. A fleet that starts before its
	// servers has them soon, and a closed port costs its host next to nothing.
	again = 60 * time.Millisecond
	// between is the time between two connections that one server accepts, give or take a third. If they are of no use,
	// each costs it a handshake, and there may be a thousand gateways.
	between = 750 * time.Millisecond
)

// pace is when connections to servers may go on after they were accepted.
type pace struct {
	mu   sync.Mutex
	next map[string]time.Time // by address
}

// wait waits for the turn of a connection to an address.
func (p *pace) wait(ctx context.Context, addr string) error {
	p.mu.Lock()
	now := time.Now()
	at := p.next[addr]
	if at.Before(now) {
		at = now
	}
	p.next[addr] = at.Add(retry.Jitter(between, 1./3))
	p.mu.Unlock()
	if at.Equal(now) {
		return nil
	}
	t := time.NewTimer(at.Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spaced are credentials whose handshakes keep a pace.
type spaced struct {
	credentials.TransportCredentials
	pace *pace
}

func (s spaced) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := s.pace.wait(ctx, raw.RemoteAddr().String()); err != nil {
		return nil, nil, err
	}
	return s.TransportCredentials.ClientHandshake(ctx, authority, raw)
}

func (s spaced) Clone() credentials.TransportCredentials {
	return spaced{s.TransportCredentials.Clone(), s.pace}
}
