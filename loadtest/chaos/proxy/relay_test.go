package proxy

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// What connects to a relay finds there what it would find at the server: one that is not there takes nobody, and
// where one ends, connections do.
func TestARelayIsThereWhileItsServerIs(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := at.Addr().String()
	r, err := NewRelay(target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	// served connects, and returns nil where nobody at the relay says something: a server of HTTP/2 speaks first.
	served := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", r.Addr())
		if errors.Is(err, syscall.ECONNRESET) {
			return nil // before it was told that it is there
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 9)); err != nil {
			_ = c.Close()
			return nil
		}
		return c
	}
	serve := func(at net.Listener) (end func()) {
		s := grpc.NewServer()
		quotav1.RegisterLeaseServiceServer(s, quotav1.UnimplementedLeaseServiceServer{})
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(at) }()
		return func() { s.Stop(); <-done }
	}
	end := serve(at)
	conn, err := grpc.NewClient(r.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = quotav1.NewLeaseServiceClient(conn).Renew(t.Context(), &quotav1.RenewRequest{}) // unimplemented, and the relay is connected
	held := served()
	if held == nil {
		t.Fatal("with its server there, the relay took no connection")
	}
	defer func() { _ = held.Close() }()
	end()
	_ = held.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		if _, err := held.Read(make([]byte, 64)); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the server ended, and a connection to the relay went on")
			}
			break
		}
	}
	if c := served(); c != nil {
		t.Error("without its server the relay took a connection")
		_ = c.Close()
	}
	var again net.Listener
	for until := time.Now().Add(10 * time.Second); again == nil; {
		if again, err = net.Listen("tcp", target); err != nil && time.Now().After(until) {
			t.Fatal(err)
		}
	}
	defer serve(again)()
	if c := served(); c == nil {
		t.Error("with its server back, the relay took no connection")
	} else {
		_ = c.Close()
	}
}
