package doors

import (
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/pkg/client"
	ratelimitv1 "github.com/f4ee788f/quota/proto/kuadrant/service/ratelimit/v1"
)

// A commit that a gateway makes again, after others pushed the reservation out, is not booked a second time.
func TestARepeatedKuadrantCommitIsBilledOnce(t *testing.T) {
	n := &envoyNode{server: startServer(t, hourly)}
	c, err := client.Dial(t.Context(), n.server.GRPCAddr(), client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second), client.WithMaxReservations(2))
	if err != nil {
		t.Fatal(err)
	}
	n.client, n.envoy = c, newEnvoy(t, c)
	reservations := NewReservations(c, RandomIDKey(), "")
	defer reservations.Close()
	k := NewKuadrant(NewEnvoy(c, newMetrics(t), nil), reservations)
	acme := []*rlcommon.RateLimitDescriptor{descriptor("tenant=acme")}
	reserve := func() string {
		r, err := k.Reserve(t.Context(), &ratelimitv1.ReserveRequest{Domain: "edge", Descriptors: acme, Amount: 1})
		if err != nil || r.GetReservationId() == "" {
			t.Fatal(r, err)
		}
		return r.GetReservationId()
	}
	commit := func(id string, want codes.Code) {
		_, err := k.Commit(t.Context(), &ratelimitv1.CommitRequest{Domain: "edge", Descriptors: acme, ReservationId: id, ActualAmount: 1})
		if status.Code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	first := reserve()
	commit(first, codes.OK)
	for range 10 {
		commit(reserve(), codes.OK)
	}
	commit(first, codes.NotFound) // its first answer was lost
	if got := n.end("acme")[0]["requests"][0]; got != 11 {
		t.Errorf("the ledger has %d units, want 11", got)
	}
}
