package listen

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Bounds are how many connections a listener keeps. A stranger is a connection that has shown nothing yet; Known says
// that it has. At the bound of strangers the oldest gives way to the next, so that a connection with something to show
// always gets in. Known connections stay; beyond their bound more are refused. A peer is an IPv4 address, or an IPv6
// /64. Unix sockets and in-process listeners have no peers.
type Bounds struct {
	Strangers, StrangersOfPeer int
	Known, KnownOfPeer         int
}

// Bounded keeps l within bounds.
func Bounded(l net.Listener, b Bounds) net.Listener {
	return &bounded{Listener: l, bounds: b, peers: make(map[netip.Prefix]*tally), strangers: list.New()}
}

// Known says that the connection of a remote address has shown what it had to. It costs nothing from the second time
// on, nor for an address of no Bounded listener. It returns false if the bound of known connections is reached: then
// the connection is closed.
func Known(a net.Addr) bool {
	addr, ok := a.(*address)
	return !ok || addr.conn.known.Load() || addr.conn.of.know(addr.conn)
}

type addrKey struct{}

// connContext lets the requests of a connection know its remote address; see KnownBy.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, addrKey{}, c.RemoteAddr())
}

// KnownBy is Known, for a request of a server by HTTP.
func KnownBy(ctx context.Context) bool {
	a, ok := ctx.Value(addrKey{}).(net.Addr)
	return !ok || Known(a)
}

// Inner is the connection as it was accepted, for callers that use its descriptor. It is counted until c is closed.
// They also call Ends.
func Inner(c net.Conn) net.Conn {
	if c, ok := c.(*conn); ok {
		return c.Conn
	}
	return c
}

// Ends calls end too when a connection gives way or is refused. It is for callers that use the connection's descriptor,
// which lives on when Inner is closed. It returns false, and never calls end, if that happened already. It returns true
// for a connection that no Bounded listener accepted.
func Ends(c net.Conn, end func()) bool {
	b, ok := c.(*conn)
	if !ok {
		return true
	}
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.end = end
	return !b.gone
}

type bounded struct {
	net.Listener
	bounds Bounds

	mu        sync.Mutex
	peers     map[netip.Prefix]*tally
	strangers *list.List // of *conn, the oldest first
	known     int
}

// tally is the connections of a peer.
type tally struct{ strangers, known int }

type conn struct {
	net.Conn
	of    *bounded
	peer  netip.Prefix // zero for none
	at    *address     // nil where there is none
	known atomic.Bool  // written under the mutex, as are the others
	place *list.Element
	gone  bool
	end   func() // see Ends; nil for nothing
}

// address is a connection's remote address, by which Known finds it.
type address struct {
	net.Addr
	conn *conn
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.at }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.forget(c)
	return c.Conn.Close()
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	inner, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, of: b, peer: peerOf(inner.RemoteAddr())}
	c.at = &address{inner.RemoteAddr(), c}
	if old := b.enter(c); old != nil {
		old.drop() // it showed nothing, and nothing is owed on it
	}
	return c, nil
}

// enter adds a stranger, and returns the one that gives way; nil for none.
func (b *bounded) enter(c *conn) (old *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[c.peer]
	if p == nil {
		p = new(tally)
		b.peers[c.peer] = p
	}
	switch {
	case c.peer.IsValid() && p.strangers >= b.bounds.StrangersOfPeer:
		for e := b.strangers.Front(); old == nil; e = e.Next() {
			if s := e.Value.(*conn); s.peer == c.peer {
				old = s
			}
		}
	case b.strangers.Len() >= b.bounds.Strangers:
		old = b.strangers.Front().Value.(*conn)
	}
	c.place = b.strangers.PushBack(c)
	p.strangers++
	if old != nil {
		b.forgetLocked(old)
	}
	return old
}

func (b *bounded) know(c *conn) bool {
	b.mu.Lock()
	p := b.peers[c.peer]
	switch {
	case c.known.Load():
		b.mu.Unlock()
		return true
	case c.gone:
		b.mu.Unlock()
		return false
	case b.known >= b.bounds.Known, c.peer.IsValid() && p.known >= b.bounds.KnownOfPeer:
		b.forgetLocked(c)
		b.mu.Unlock()
		c.drop()
		return false
	}
	b.strangers.Remove(c.place)
	p.strangers--
	p.known++
	b.known++
	c.known.Store(true)
	b.mu.Unlock()
	return true
}

func (b *bounded) forget(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetLocked(c)
}

// drop ends a connection that was forgotten.
func (c *conn) drop() {
	_ = c.Conn.Close() // nobody is told
	c.of.mu.Lock()
	end := c.end
	c.of.mu.Unlock()
	if end != nil {
		end()
	}
}

func (b *bounded) forgetLocked(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	p := b.peers[c.peer]
	if c.known.Load() {
		p.known--
		b.known--
	} else {
		b.strangers.Remove(c.place)
		p.strangers--
	}
	if *p == (tally{}) {
		delete(b.peers, c.peer)
	}
}

// peerOf is the peer that an address counts to; zero for none.
func peerOf(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := t.AddrPort().Addr().Unmap()
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits) // of an address with a zone there is none
	return p
}
