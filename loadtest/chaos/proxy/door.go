package proxy

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// door is a relay's listener. It takes connections while the server behind takes them, and breaks them when the server
// breaks its own. So an agent sees a killed or absent server as it would without the relay, and goes to another. A
// relay that answered for the server would keep agents.
type door struct {
	net.Listener
	target string

	mu   sync.Mutex
	open map[net.Conn]bool
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		behind, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "tcp", d.target)
		if err != nil {
			reset(c)
			continue
		}
		_ = behind.Close() // it was only to see whether somebody is there
		held := &passage{Conn: c, door: d}
		d.mu.Lock()
		d.open[held] = true
		d.mu.Unlock()
		return held, nil
	}
}

// follow breaks connections when the one to the server breaks, until ctx ends.
func (d *door) follow(ctx context.Context, conn *grpc.ClientConn) {
	for state := conn.GetState(); conn.WaitForStateChange(ctx, state); {
		was := state
		if state = conn.GetState(); was != connectivity.Ready {
			continue
		}
		d.mu.Lock()
		for c := range d.open {
			reset(c.(*passage).Conn)
		}
		d.mu.Unlock()
	}
}

// reset ends a connection as a crash does.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// passage is a connection that a door knows until it is closed.
type passage struct {
	net.Conn
	door *door
}

// Close implements net.Conn.
func (p *passage) Close() error {
	p.door.mu.Lock()
	delete(p.door.open, p)
	p.door.mu.Unlock()
	return p.Conn.Close()
}
