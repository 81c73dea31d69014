package ask

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Hello begins a line, from both sides: the protocol's name and its version. Its first byte is not that of
// HTTP/2's preface, which tells the two apart on one address.
const Hello = "quota-decide/1\n"

// lengthBytes is what goes before each frame: its length, big-endian.
const lengthBytes = 4

// helloWait bounds the time until the other side has said hello.
const helloWait = 5 * time.Second

// Line carries frames over a connection of its own, with nothing but their lengths between them. On one machine
// that takes a third of the time of gRPC's framing, flow control and goroutines. For a frame of fourteen
// questions, gRPC's part is worth half of a decision for each (make bench-peers). Recv is for one goroutine,
// Send for any.
type Line struct {
	conn io.ReadWriteCloser
	in   []byte // read, and from at not yet taken
	at   int

	mu  sync.Mutex // guards what follows, and writing
	out []byte
}

// NewLine returns the line over conn whose first bytes are read already. It says hello.
func NewLine(conn net.Conn, read []byte) (*Line, error) {
	l := &Line{conn: conn, in: append(make([]byte, 0, 16<<10), read...)}
	if err := errors.Join(conn.SetDeadline(time.Now().Add(helloWait)), l.write([]byte(Hello), nil)); err != nil {
		return nil, err
	}
	for len(l.in) < len(Hello) {
		if err := l.more(); err != nil {
			return nil, fmt.Errorf("ask: hello: %w", err)
		}
	}
	if got := string(l.in[:len(Hello)]); got != Hello {
		return nil, fmt.Errorf("%w: the other side says %q, not %q", ErrFrame, got, Hello)
	}
	l.at = len(Hello)
	return l, conn.SetDeadline(time.Time{})
}

func (l *Line) write(b []byte, stalls func()) error {
	if d, ok := l.conn.(interface{ writeOr([]byte, func()) error }); ok {
		return d.writeOr(b, stalls)
	}
	_, err := l.conn.Write(b)
	return err
}

// Close ends the line: it wakes goroutines that read or write.
func (l *Line) Close() error { return l.conn.Close() }

// more reads what there is, at least a byte.
func (l *Line) more() error {
	if l.at > 0 {
		l.in = l.in[:copy(l.in, l.in[l.at:])]
		l.at = 0
	}
	if len(l.in) == cap(l.in) {
		l.in = append(make([]byte, 0, 2*cap(l.in)), l.in...)
	}
	n, err := l.conn.Read(l.in[len(l.in):cap(l.in)])
	l.in = l.in[:len(l.in)+n]
	if n > 0 {
		return nil
	}
	return err
}

// ErrAgain means that nothing more is there yet; see Line.Direct.
var ErrAgain = errors.New("ask: nothing more is there yet")

// Recv reads the next frame into f. It returns io.EOF where the other side sends no more. On a line that is
// Direct it returns ErrAgain where the other side may send later.
func (l *Line) Recv(f *Frame) error {
	f.Reset()
	for {
		b := l.in[l.at:]
		if len(b) >= lengthBytes {
			size := int(binary.BigEndian.Uint32(b))
			if size > MaxBytes {
				return fmt.Errorf("%w: %d bytes; at most %d", ErrFrame, size, MaxBytes)
			}
			if size == 0 {
				return io.EOF // for good: nothing follows
			}
			if b = b[lengthBytes:]; len(b) >= size {
				f.buf = append(f.buf, b[:size]...)
				l.at += lengthBytes + size
				return nil
			}
		}
		if err := l.more(); err != nil {
			if errors.Is(err, io.EOF) && l.at < len(l.in) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
}

// Send writes a frame, which may be used again when it returns.
func (l *Line) Send(f *Frame) error { return l.SendOr(f, nil) }

// SendOr is Send with a call of stalls, unless nil, before it waits. It waits for another Send, and on a line
// that is Direct for the other side to read.
func (l *Line) SendOr(f *Frame, stalls func()) error {
	if !l.mu.TryLock() {
		if stalls != nil {
			stalls()
		}
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	l.out = binary.BigEndian.AppendUint32(l.out[:0], uint32(len(f.buf)))
	l.out = append(l.out, f.buf...)
	return l.write(l.out, stalls)
}

// CloseSend says that nothing more is sent: an empty frame, which means nothing else.
func (l *Line) CloseSend() error { return l.Send(new(Frame)) }

// Carrier carries frames: a Line, or a stream of gRPC. Recv is for one goroutine, and Send for any. Free is for
// a caller that knows that nobody uses it any more.
type Carrier interface {
	Recv(*Frame) error
	Send(*Frame) error
	CloseSend() error
	Free()
}

// Stream is a Carrier over a stream of gRPC, whose codec is Codec.
type Stream struct {
	sending sync.Mutex
	Grpc    interface {
		SendMsg(any) error
		RecvMsg(any) error
	}
}

// Recv implements Carrier.
func (s *Stream) Recv(f *Frame) error { return s.Grpc.RecvMsg(f) }

// Send implements Carrier.
func (s *Stream) Send(f *Frame) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.Grpc.SendMsg(f)
}

// CloseSend implements Carrier; a server's end of a stream closes when its handler returns.
func (s *Stream) CloseSend() error {
	if c, ok := s.Grpc.(interface{ CloseSend() error }); ok {
		return c.CloseSend()
	}
	return nil
}

// Free implements Carrier: a stream has nothing that does not end with its call.
func (s *Stream) Free() {}

// Connect returns the line that a dialler's connection makes. It is closed when ctx ends; Free is the caller's to call.
func Connect(ctx context.Context, dial func(context.Context) (net.Conn, error)) (*Line, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	l, err := NewLine(conn, nil)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l.quiet()
	context.AfterFunc(ctx, func() { _ = l.Close() })
	return l, nil
}
