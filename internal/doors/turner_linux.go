package doors

import (
	"errors"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/f4ee788f/quota/internal/core/ask"
)

// turner leads the streams of many lines in turn, on one goroutine that waits in epoll itself. With a goroutine for
// each line, the system wakes the runtime's polling thread, and that one wakes others to look for work. On a Unix
// socket it wakes it again whenever the other side has read. Where processors idle between two messages, each wake-up
// costs more than deciding a message's questions. Here one thread is woken, for all lines that have sent something by
// then.
//
// The goroutine that has the turn waits nowhere but in epoll. It gives the turn to another and goes on without it
// before a decision or a write waits. It does the same after some thousand questions of one line.
type turner struct {
	once  sync.Once
	fault error
	epoll int
	woken int // an eventfd that ends it
	done  sync.WaitGroup

	mu  sync.Mutex
	led map[int32]*led
}

// turn is what a turner's goroutine has in hand.
type turn struct {
	events [64]unix.EpollEvent
	at, n  int
}

// begin starts the turner, which leads until end.
func (t *turner) begin() error {
	t.once.Do(func() {
		t.led = make(map[int32]*led)
		if t.epoll, t.fault = unix.EpollCreate1(unix.EPOLL_CLOEXEC); t.fault != nil {
			return
		}
		if t.woken, t.fault = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); t.fault == nil {
			if t.fault = t.watch(t.woken); t.fault != nil {
				_ = unix.Close(t.woken)
			}
		}
		if t.fault != nil {
			_ = unix.Close(t.epoll)
			return
		}
		t.done.Add(1)
		go t.run(new(turn))
	})
	return t.fault
}

func (t *turner) watch(fd int) error {
	return unix.EpollCtl(t.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)})
}

// end ends the turner, once it leads no stream and will lead none.
func (t *turner) end() {
	t.once.Do(func() { t.fault = net.ErrClosed })
	if t.fault != nil {
		return
	}
	_, _ = unix.Write(t.woken, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // of 8 bytes in the machine's order, more than 0
	t.done.Wait()
	_, _ = unix.Close(t.epoll), unix.Close(t.woken)
}

// run has the turn until it gives it away, or until the end.
func (t *turner) run(has *turn) {
	for {
		for has.at < has.n {
			e := &has.events[has.at]
			has.at++
			if e.Fd == int32(t.woken) {
				t.done.Done()
				return
			}
			t.mu.Lock()
			g := t.led[e.Fd]
			t.mu.Unlock()
			if g != nil && g.stirs(e.Events != unix.EPOLLIN) && !g.goOn(has) {
				return
			}
		}
		n, err := unix.EpollWait(t.epoll, has.events[:], -1)
		if err != nil {
			n = 0 // it was interrupted
		}
		has.at, has.n = 0, n
	}
}

// led is a stream that a turner leads.
type led struct {
	turner *turner
	stream *stream
	line   *ask.Line
	fd     int
	stall  func()  // stalls, made once
	leader *leader // who leads, or will next
	turn   *turn   // what the leading goroutine has; nil where it leads without a turn

	mu    sync.Mutex
	busy  bool // somebody leads, or is to
	again bool // something came meanwhile
}

// lead returns the stream of a line, which the turner leads once the stream begins. It returns an error if it cannot.
func (t *turner) lead(s *stream, l *ask.Line) error {
	if !l.HasDescriptor() {
		return errors.ErrUnsupported
	}
	if err := t.begin(); err != nil {
		return err
	}
	fd, err := l.Direct()
	if err != nil {
		return err
	}
	g := &led{turner: t, stream: s, line: l, fd: fd, busy: true}
	g.stall = g.stalls
	s.led = g
	return nil
}

// begin has the first leader lead, because what came with the line's hello was read already.
func (g *led) begin(l *leader) {
	g.leader = l
	g.stream.leading.Add(1)
	t := g.turner
	t.mu.Lock()
	t.led[int32(g.fd)] = g
	t.mu.Unlock()
	if err := t.watch(g.fd); err != nil {
		g.stream.fail(err)
	}
	go g.goOn(nil)
}

// stirs says that something came. It reports whether its caller has to lead.
func (g *led) stirs(ending bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy {
		g.again = true
		return false
	}
	g.busy = true
	g.line.Stirred(ending)
	return true
}

// rests reports whether nothing came since the leader found nothing. From then on another may lead.
func (g *led) rests() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.again {
		g.again = false
		g.line.Stirred(true)
		return false
	}
	g.busy = false
	return true
}

// goOn leads until there is nothing to read. has is the turn, or nil. It reports whether it still has the turn.
func (g *led) goOn(has *turn) bool {
	g.turn = has
	for {
		switch g.leader.lead() {
		case hasLeft: // with all that is here
			g.stream.leading.Done()
			return false
		case isFull: // and stays busy until a question waits no more
			has, g.turn = g.turn, nil
			if g.stream.rests() {
				return has != nil
			}
			g.turn = has
		case isIdle:
			g.leader.asked = 0
			has, g.turn = g.turn, nil // before another may lead
			if g.rests() {
				return has != nil
			}
			g.turn = has
		case ended:
			has = g.turn
			g.turner.leave(g)
			return has != nil
		}
	}
}

// leave ends a stream's leading.
func (t *turner) leave(g *led) {
	t.mu.Lock()
	delete(t.led, int32(g.fd))
	t.mu.Unlock()
	_ = unix.EpollCtl(t.epoll, unix.EPOLL_CTL_DEL, g.fd, nil) // it may not be there
	g.stream.leading.Done()
}

// pass has another goroutine go on with the next leader, and gives it the turn.
func (g *led) pass(next *leader) {
	g.leader = next
	g.stream.leading.Add(1)
	has := g.turn
	go func() {
		if g.goOn(has) {
			g.turner.run(has)
		}
	}()
}

// stalls gives the turn away, because the leader is about to wait.
func (g *led) stalls() {
	if has := g.turn; has != nil {
		g.turn = nil
		go g.turner.run(has)
	}
}

// send sends what the leader answered.
func (g *led) send(f *ask.Frame) {
	if err := g.line.SendOr(f, g.stall); err != nil {
		g.stream.fail(err)
	}
}
