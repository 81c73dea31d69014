package listen

import (
	"io"
	"net"
	"testing"
	"time"
)

// Strangers give way to the next, the peer's oldest first; who is known stays, and beyond their bound more are refused.
func TestStrangersGiveWay(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Bounded(inner, Bounds{Strangers: 8, StrangersOfPeer: 3, Known: 2, KnownOfPeer: 2})
	defer l.Close()
	open := func() (client, server net.Conn) {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	closed := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return err == io.EOF
	}
	first, ours := open()
	for range 2 {
		if Known(ours.RemoteAddr()) {
			continue
		}
		t.Fatal("the first that is known was refused")
	}
	var clients, servers []net.Conn
	for range 5 {
		c, s := open()
		clients, servers = append(clients, c), append(servers, s)
	}
	for i, c := range clients {
		if got := closed(c); got != (i < 2) {
			t.Errorf("stranger %d of 5: closed %t, want the oldest two closed", i, got)
		}
	}
	if closed(first) {
		t.Error("who was known gave way to strangers")
	}
	if !Known(servers[2].RemoteAddr()) {
		t.Error("the second that is known was refused; there may be two")
	}
	if Known(servers[3].RemoteAddr()) || !closed(clients[3]) {
		t.Error("the third that is known was not refused; there may be two")
	}
	ours.Close()
	if !Known(servers[4].RemoteAddr()) {
		t.Error("one that is known ended, and the next was refused")
	}
	for _, s := range servers {
		s.Close()
	}
	if b := l.(*bounded); len(b.peers) != 0 || b.strangers.Len() != 0 || b.known != 0 {
		t.Errorf("all are closed, and %d peers, %d strangers, %d known are left", len(b.peers), b.strangers.Len(), b.known)
	}
}
