package doors

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/listen"
)

// sortWait bounds how long a connection may take to show its protocol.
const sortWait = 5 * time.Second

// maxTurners bounds the threads that lead lines. One thread decides a million questions a second and more.
const maxTurners = 16

// Lines is a listener for two protocols on one address, told apart by a connection's first byte. It serves thin
// clients' lines itself; Accept returns all other connections. Close ends listening and leaves lines that are open;
// Wait and Kill end them.
type Lines struct {
	net.Listener
	door        *Decide
	others      chan net.Conn
	closed      chan struct{}
	once, ended sync.Once
	life        context.Context
	cancel      context.CancelFunc
	group       sync.WaitGroup
	turners     []*turner
	last        atomic.Uint32
}

// NewLines takes l over, and begins to accept.
func NewLines(l net.Listener, door *Decide) *Lines {
	s := &Lines{Listener: l, door: door, others: make(chan net.Conn), closed: make(chan struct{})}
	s.life, s.cancel = context.WithCancel(context.Background())
	// With one processor there is no turner: goroutines that could run would wait while it waits in the system.
	for range min(runtime.GOMAXPROCS(0)/2, maxTurners) {
		s.turners = append(s.turners, new(turner))
	}
	s.group.Go(s.accept)
	return s
}

func (s *Lines) accept() {
	pause := time.Millisecond
	for {
		conn, err := s.Listener.Accept()
		if err == nil {
			pause = time.Millisecond
			s.group.Go(func() { s.sort(conn) })
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			s.Close()
			return
		}
		// The cause may be too many open files: others will be closed.
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-s.closed:
			return
		}
	}
}

// sort finds a connection's protocol, and serves it where it is a line.
func (s *Lines) sort(conn net.Conn) {
	stop := context.AfterFunc(s.life, func() { conn.Close() })
	first := make([]byte, 1)
	err := conn.SetReadDeadline(time.Now().Add(sortWait))
	if err == nil {
		_, err = conn.Read(first)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	switch {
	case err != nil:
	case first[0] == ask.Hello[0]:
		s.line(conn, first)
	default:
		stop()
		select {
		case s.others <- &begun{conn, first}:
			return
		case <-s.closed:
		}
	}
	stop()
	_ = conn.Close() // nothing is owed on it any more
}

// Accept implements net.Listener.
func (s *Lines) Accept() (net.Conn, error) {
	select {
	case conn := <-s.others:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *Lines) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closed)
		err = s.Listener.Close()
	})
	return err
}

// Wait waits until every line has ended.
func (s *Lines) Wait() {
	s.group.Wait()
	s.ended.Do(func() {
		for _, t := range s.turners {
			t.end()
		}
	})
}

// Kill ends every line at once.
func (s *Lines) Kill() { s.cancel() }

// begun is a connection whose first bytes were read.
type begun struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// line serves a thin client over a connection of its own, until it ends.
func (s *Lines) line(conn net.Conn, read []byte) {
	inner := listen.Inner(conn)
	l, err := ask.NewLine(inner, read)
	if err != nil {
		return // not a client of ours, or of another version: it sees the connection end
	}
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	stream := &stream{ctx: ctx, hangup: cancel, carrier: l, peer: conn.RemoteAddr()}
	if n := uint32(len(s.turners)); n > 0 && s.turners[s.last.Add(1)%n].lead(stream, l) == nil {
		defer l.Free()
		defer context.AfterFunc(s.life, func() { _ = l.Close() })()
	}
	if inner != conn { // whose listener is bounded
		stream.leave = func() { _ = l.Close() }
		if !listen.Ends(conn, stream.leave) {
			stream.leave()
		}
	}
	// The error is of no use here: the client sees the connection end too.
	_ = s.door.serve(stream)
}
