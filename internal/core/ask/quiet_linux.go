package ask

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet is a Unix socket that wakes the runtime's poller only when it can be read. The poller watches both
// directions of a socket. For a Unix socket the kernel announces room to write each time that the other side
// has read. So a message would wake its sender's poller once for nothing, at the reader's cost. Where
// processors idle, that costs the reader as much as the rest of its work for the message. So the poller watches
// an epoll instance, which watches the socket for bytes.
type quiet struct {
	direct
	ready  *os.File // the epoll instance
	reader syscall.RawConn
}

// quiet has the line wait so, where it is over a Unix socket; elsewhere it stays as it is. Before the first Recv.
func (l *Line) quiet() {
	c, ok := l.conn.(*net.UnixConn)
	if !ok {
		return
	}
	q, err := quieted(c)
	if err != nil {
		return
	}
	l.conn = q
	_ = c.Close()
}

func quieted(c *net.UnixConn) (q *quiet, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
		return nil, errors.Join(e, err)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)})
	if err == nil {
		err = unix.SetNonblock(epoll, true)
	}
	q = &quiet{direct: direct{fd: fd}, ready: os.NewFile(uintptr(epoll), "line")}
	if err == nil {
		q.reader, err = q.ready.SyscallConn()
	}
	if err != nil {
		_, _ = unix.Close(fd), q.ready.Close()
		return nil, err
	}
	return q, nil
}

// Read implements io.Reader.
func (q *quiet) Read(p []byte) (n int, err error) {
	closed := q.reader.Read(func(uintptr) bool {
		n, err = q.readNow(p)
		return !errors.Is(err, ErrAgain)
	})
	if closed != nil {
		return 0, closed
	}
	return n, err
}

func (q *quiet) free() {
	q.direct.free()
	_ = q.ready.Close()
}
