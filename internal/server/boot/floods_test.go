package boot_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/listen"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// operates reports whether an operator who connects now is answered, by gRPC and by REST.
func (n *node) operates(when string) {
	n.t.Helper()
	if _, err := n.admin().GetSwitches(n.t.Context(), &quotav1.GetSwitchesRequest{}); err != nil {
		n.t.Errorf("%s: an operator is not answered: %v", when, err)
	}
	if code, body := n.call("GET", "/v1/switches", n.key, ""); code != http.StatusOK {
		n.t.Errorf("%s: an operator is not answered by REST: %d %s", when, code, body)
	}
}

// Who has no key cannot take what administration needs: idle connections give way, header lists and streams are
// bounded.
func TestFloodsWithoutAKeyLeaveAdministrationItsPlace(t *testing.T) {
	c := embedded(t, policyText)
	c.BootstrapAdminKey = adminKey
	n := start(t, c)
	n.waitReady()
	n.operates("before")

	for _, addr := range []string{n.GRPCAddr(), n.HTTPAddr()} {
		var idle []net.Conn
		for range 300 {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			idle = append(idle, conn)
		}
		_ = idle[0].SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, idle[0]); err != nil {
			t.Errorf("%s: the oldest of 300 idle connections is still open: %v", addr, err)
		}
	}
	n.operates("with idle connections")

	stranger := n.dial("")
	health := healthpb.NewHealthClient(stranger)
	large := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 8<<20))
	if _, err := health.Check(large, &healthpb.HealthCheckRequest{}); err == nil {
		t.Error("a call with 8 MB of metadata was answered")
	}
	open, refused := 0, 0
	for range 3 * listen.HealthOfPeer {
		w, err := healthpb.NewHealthClient(n.dial("")).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		switch {
		case err == nil:
			open++
		case status.Code(err) == codes.ResourceExhausted:
			refused++
		default:
			t.Errorf("a stream that watches health ended with %v, want RESOURCE_EXHAUSTED", err)
		}
	}
	if open != listen.HealthOfPeer || refused != 2*listen.HealthOfPeer {
		t.Errorf("%d streams that watch health were opened and %d refused, want %d and %d", open, refused, listen.HealthOfPeer, 2*listen.HealthOfPeer)
	}
	n.operates("with streams that watch health")
}
