package ask

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unreadWait bounds how long a line that is Direct waits for the other side to read. Such a line is the
// agent's, whose clients read at once.
const unreadWait = 30 * time.Second

// direct is a connection that is read and written without waiting, and that the runtime's poller does not know.
type direct struct {
	fd      int
	unread  time.Duration // how long a write waits for the other side to read; 0 for ever
	drained bool          // what was there is read; the reader's
	ending  bool          // something besides bytes may be there, which drained does not tell; the reader's

	mu     sync.Mutex
	closed bool // fd is no more
}

// HasDescriptor reports whether Direct may be called.
func (l *Line) HasDescriptor() bool {
	_, ok := l.conn.(syscall.Conn)
	return ok
}

// Direct takes the line off the runtime's poller. From now on Recv returns ErrAgain where it would wait. The
// reader has to watch the descriptor that Direct returns to know when to read. Direct fails if the connection
// has none; the line is then as before. Call it before the first Recv. Free gives the descriptor back.
func (l *Line) Direct() (fd int, err error) {
	c, ok := l.conn.(syscall.Conn)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	if err := raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); err != nil || failed != nil {
		return 0, errors.Join(err, failed)
	}
	_ = l.conn.(net.Conn).Close() // nothing was written that could be lost: the descriptor has it all
	l.conn = &direct{fd: fd, unread: unreadWait}
	return fd, nil
}

// Stirred says that the descriptor became ready; ending that it may be for more than bytes.
func (l *Line) Stirred(ending bool) {
	if d, ok := l.conn.(*direct); ok {
		d.drained, d.ending = false, ending
	}
}

// Free gives back the descriptor of a line that nobody uses any more.
func (l *Line) Free() {
	if f, ok := l.conn.(interface{ free() }); ok {
		f.free()
	}
}

func (d *direct) free() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		_ = unix.Close(d.fd)
	}
}

// Read implements io.Reader. What does not fill p was all there was: that spares the system call which would say so.
func (d *direct) Read(p []byte) (int, error) {
	if d.drained {
		return 0, ErrAgain
	}
	n, err := d.readNow(p)
	d.drained = err == nil && n < len(p) && !d.ending || errors.Is(err, ErrAgain)
	return n, err
}

// readNow reads what is there; ErrAgain where nothing is.
func (d *direct) readNow(p []byte) (int, error) {
	for {
		n, err := unscheduled(unix.SYS_READ, d.fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, ErrAgain
		case err == nil && n == 0:
			return 0, io.EOF
		}
		return n, err
	}
}

// Write implements io.Writer.
func (d *direct) Write(p []byte) (int, error) { return len(p), d.writeOr(p, nil) }

func (d *direct) writeOr(p []byte, stalls func()) error {
	for len(p) > 0 {
		n, err := unscheduled(unix.SYS_WRITE, d.fd, p)
		switch {
		case err == nil:
			p = p[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if stalls != nil {
				stalls()
			}
			return d.writeParked(p)
		default:
			return err
		}
	}
	return nil
}

// writeParked writes with the runtime's poller, which waits without a thread: many clients may fail to read.
func (d *direct) writeParked(p []byte) error {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "line")
	if d.unread > 0 {
		err = f.SetWriteDeadline(time.Now().Add(d.unread))
	}
	if err == nil {
		_, err = f.Write(p)
	}
	return errors.Join(err, f.Close())
}

// Close implements io.Closer: it wakes a goroutine that waits. The descriptor stays until Free.
func (d *direct) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	return unix.Shutdown(d.fd, unix.SHUT_RDWR)
}

// unscheduled reads or writes a descriptor that never waits, without telling Go's scheduler. Told, the
// scheduler would prepare to hand the processor on, for a call of some microseconds.
func unscheduled(call uintptr, fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
