package ask

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// twoEnds returns both ends of a line over a Unix socket, that of who connected first.
func twoEnds(ctx context.Context, t *testing.T) (client, server *Line) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "line.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *Line, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			close(accepted)
			return
		}
		end, err := NewLine(conn, nil)
		if err != nil {
			t.Error(err)
		}
		accepted <- end
	}()
	client, err = Connect(ctx, func(context.Context) (net.Conn, error) { return net.Dial("unix", l.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Free)
	if server = <-accepted; server == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}

func framed(question uint64) *Frame {
	f := new(Frame)
	f.Ask(&Question{ID: question, Units: 1})
	return f
}

func received(t *testing.T, l *Line) uint64 {
	t.Helper()
	var f Frame
	if err := l.Recv(&f); err != nil {
		t.Fatal(err)
	}
	var q Question
	if ok, err := f.Question(&q); !ok || err != nil {
		t.Fatalf("no question in the frame: %v", err)
	}
	return q.ID
}

func TestWhoConnectedIsNotToldOfRoom(t *testing.T) {
	t.Parallel()
	client, server := twoEnds(t.Context(), t)
	q, ok := client.conn.(*quiet)
	if !ok {
		t.Fatalf("a line over a Unix socket is a %T", client.conn)
	}
	// As the runtime's poller would watch the socket itself.
	loud, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(loud)
	if err := unix.EpollCtl(loud, unix.EPOLL_CTL_ADD, q.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET}); err != nil {
		t.Fatal(err)
	}
	events := make([]unix.EpollEvent, 4)
	if n, err := unix.EpollWait(loud, events, 0); n != 1 || err != nil {
		t.Fatalf("%d events, %v; a socket that was just made has room", n, err)
	}
	if err := client.Send(framed(7)); err != nil {
		t.Fatal(err)
	}
	if got := received(t, server); got != 7 {
		t.Fatalf("question %d arrived, want 7", got)
	}
	if n, err := unix.EpollWait(loud, events, 1000); n != 1 || err != nil || events[0].Events&unix.EPOLLOUT == 0 {
		t.Fatalf("%d events, %v: the control was told of no room", n, err)
	}
	if err := q.reader.Control(func(fd uintptr) {
		told := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(told, 0); n != 0 || err != nil {
			t.Errorf("%d, %v: the line is told of something, and nothing came", n, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func TestWhoConnectedReads(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	client, server := twoEnds(ctx, t)
	got := make(chan uint64)
	ended := make(chan error)
	go func() {
		for {
			var f Frame
			if err := client.Recv(&f); err != nil {
				ended <- err
				return
			}
			var q Question
			if _, err := f.Question(&q); err != nil {
				t.Error(err)
			}
			got <- q.ID
		}
	}()
	for i := range uint64(1000) {
		if err := server.Send(framed(i)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			for _, want := range []uint64{i - 1, i} { // two at once
				if g := <-got; g != want {
					t.Fatalf("question %d came, want %d", g, want)
				}
			}
		}
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			t.Errorf("the end of the context: %v, want %v", err, io.EOF)
		}
	case <-time.After(time.Minute):
		t.Fatal("the end of the context woke nobody")
	}
	if err := client.Send(framed(1)); err == nil {
		t.Error("a line that was closed sends")
	}
}

func TestALineGivesItsDescriptorsBack(t *testing.T) { // not in parallel: it counts the process's
	count := func() int {
		t.Helper()
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	run := func() {
		ctx, cancel := context.WithCancel(t.Context())
		client, server := twoEnds(ctx, t)
		cancel()
		var f Frame
		if err := client.Recv(&f); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want %v", err, io.EOF)
		}
		client.Free()
		_ = server.Close()
	}
	run()
	before := count()
	for range 20 {
		run()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, and %d after twenty lines", before, after)
	}
}
