package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Direction of bytes on a link.
type Direction uint8

const (
	// Forth is from the side that connects to the side that listens.
	Forth Direction = iota
	// Back is the other direction.
	Back
)

// Tap looks at one connection's bytes. It returns the bytes that may go on; stop ends the connection once these are
// delivered.
type Tap interface {
	Pass(way Direction, chunk []byte) (on []byte, stop bool)
}

const (
	chunkSize = 32 << 10
	// maxChunks bounds what a connection holds in each direction; beyond it the sender
	// waits, as for a full socket.
	maxChunks   = 64
	dialTimeout = 2 * time.Second
)

// Link passes connections on from an address of loopback to a target. It is safe
// for concurrent use.
type Link struct {
	listener net.Listener
	tap      func() Tap // nil for none

	mu      sync.Mutex
	target  string
	held    [2]bool          // bytes of that direction wait, as on a network that resends
	least   time.Duration    // of the delay of a chunk
	most    time.Duration    // likewise
	broken  bool             // connections are reset and new ones refused
	changed chan struct{}    // closed at every change
	open    map[net.Conn]int // both ends of all connections
	closed  bool
	running sync.WaitGroup
}

// NewLink listens on loopback and passes on to target. If tap is given, it is asked for a new Tap for each connection.
func NewLink(target string, tap func() Tap) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	l := &Link{listener: listener, tap: tap, target: target, changed: make(chan struct{}), open: make(map[net.Conn]int)}
	l.running.Go(l.accept)
	return l, nil
}

// Addr is where the link listens.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Retarget passes new connections on to another target, and resets the present ones.
func (l *Link) Retarget(target string) { l.set(func() { l.target = target; l.resetLocked() }) }

// Cut holds back the bytes of both directions until Heal. Connections stay open.
func (l *Link) Cut() { l.set(func() { l.held = [2]bool{true, true} }) }

// CutOneWay holds back the bytes of one direction until Heal.
func (l *Link) CutOneWay(way Direction) { l.set(func() { l.held[way] = true }) }

// Delay holds every chunk for a time between least and most; their order stays.
func (l *Link) Delay(least, most time.Duration) { l.set(func() { l.least, l.most = least, most }) }

// Break resets all connections and refuses new ones until Heal.
func (l *Link) Break() { l.set(func() { l.broken = true; l.resetLocked() }) }

// Reset resets all connections, once.
func (l *Link) Reset() { l.set(l.resetLocked) }

// Point resets all connections and passes later ones on to another target.
func (l *Link) Point(target string) { l.set(func() { l.target = target; l.resetLocked() }) }

// Heal takes every fault back. The target stays.
func (l *Link) Heal() {
	l.set(func() { l.held, l.least, l.most, l.broken = [2]bool{}, 0, 0, false })
}

// Close ends the link and its connections.
func (l *Link) Close() error {
	err := l.listener.Close()
	l.set(func() { l.closed = true; l.resetLocked() })
	l.running.Wait()
	return err
}

func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// resetLocked ends connections as a crash does: what is under way is lost.
func (l *Link) resetLocked() {
	for c := range l.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it is closed next
		}
		_ = c.Close()
	}
	clear(l.open)
}

func (l *Link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.connect(from) })
	}
}

// connect joins a new connection with one to the target. During a cut nothing is connected, so the caller waits for an
// answer, as over a network.
func (l *Link) connect(from net.Conn) {
	defer from.Close()
	if !l.keep(from) {
		return
	}
	defer l.forget(from)
	for {
		l.mu.Lock()
		held, broken, closed, target, changed := l.held[Forth], l.broken, l.closed, l.target, l.changed
		l.mu.Unlock()
		if broken || closed {
			return
		}
		if !held {
			l.join(from, target)
			return
		}
		<-changed
	}
}

func (l *Link) join(from net.Conn, target string) {
	to, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	if !l.keep(to) {
		return
	}
	defer l.forget(to)
	var tap Tap
	if l.tap != nil {
		tap = l.tap()
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(Forth, from, to, tap) })
	pumps.Go(func() { l.pump(Back, to, from, tap) })
	pumps.Wait()
}

// keep notes a connection, unless the link is closed or broken.
func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.broken {
		return false
	}
	l.open[c]++
	return true
}

func (l *Link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

type chunk struct {
	bytes []byte
	due   time.Time
	stop  bool
}

// pump carries one direction. A reader stamps each chunk with when it is due; a writer waits for that, and for the end
// of a cut.
func (l *Link) pump(way Direction, from, to net.Conn, tap Tap) {
	chunks, gone := make(chan chunk, maxChunks), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		for {
			b := make([]byte, chunkSize)
			n, err := from.Read(b)
			c := chunk{bytes: b[:n], due: time.Now().Add(l.delay())}
			if tap != nil && n > 0 {
				c.bytes, c.stop = tap.Pass(way, c.bytes)
			}
			if len(c.bytes) > 0 || c.stop {
				select {
				case chunks <- c:
				case <-gone:
					return
				}
			}
			if err != nil || c.stop {
				return
			}
		}
	})
	l.write(way, to, chunks)
	// Whatever ended this direction ends the other too: both sides see a closed connection.
	close(gone)
	_ = from.Close()
	_ = to.Close()
	reading.Wait()
}

func (l *Link) write(way Direction, to io.Writer, chunks <-chan chunk) {
	for c := range chunks {
		if !l.wait(way, c.due) {
			return
		}
		if _, err := to.Write(c.bytes); err != nil || c.stop {
			return
		}
	}
}

// wait returns when a chunk may go on, and whether it may at all.
func (l *Link) wait(way Direction, due time.Time) bool {
	if d := time.Until(due); d > 0 {
		time.Sleep(d)
	}
	for {
		l.mu.Lock()
		held, closed, broken, changed := l.held[way], l.closed, l.broken, l.changed
		l.mu.Unlock()
		if closed || broken {
			return false
		}
		if !held {
			return true
		}
		<-changed
	}
}

func (l *Link) delay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most <= 0 {
		return 0
	}
	return l.least + time.Duration(rand.Int64N(int64(l.most-l.least)+1))
}
