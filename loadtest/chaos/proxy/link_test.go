package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo answers every byte with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // until the connection ends
			}()
		}
	}()
	return l.Addr().String()
}

func TestLink(t *testing.T) {
	link, err := NewLink(echo(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", link.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	// say sends a byte; hear waits for one.
	say := func(c net.Conn) {
		t.Helper()
		if _, err := c.Write([]byte{7}); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(c net.Conn, within time.Duration) error {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	const soon, long = 50 * time.Millisecond, 5 * time.Second
	c := dial()
	say(c)
	if err := hear(c, long); err != nil {
		t.Fatalf("through a whole link: %v", err)
	}
	for name, cut := range map[string]func(){
		"cut":          link.Cut,
		"cut forth":    func() { link.CutOneWay(Forth) },
		"cut back":     func() { link.CutOneWay(Back) },
		"delayed":      func() { link.Delay(4*soon, 4*soon) },
		"cut and long": func() { link.Cut(); link.Delay(soon, soon) },
	} {
		cut()
		say(c)
		if err := hear(c, soon); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %v, want nothing heard", name, err)
		}
		link.Heal()
		if err := hear(c, long); err != nil {
			t.Errorf("%s: after it was healed: %v, want what was sent before", name, err)
		}
	}
	link.Break()
	if err := hear(c, long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("broken: got %v, want the connection ended", err)
	}
	refused := dial()
	if err := hear(refused, long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection while broken: got %v, want it ended", err)
	}
	link.Heal()
	c = dial()
	say(c)
	if err := hear(c, long); err != nil {
		t.Errorf("after a break was healed: %v", err)
	}
	link.Point(echo(t))
	if err := hear(c, long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("pointed elsewhere: got %v, want the connection ended", err)
	}
	c = dial()
	say(c)
	if err := hear(c, long); err != nil {
		t.Errorf("to the other target: %v", err)
	}
}
