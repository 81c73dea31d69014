package doors

import (
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	ratelimitv1 "github.com/f4ee788f/quota/proto/kuadrant/service/ratelimit/v1"
)

// A check takes nothing, a report is booked above the limit, and a reservation is committed once; what is not known is
// reported. The ledger has what was reported and committed.
func TestKuadrant(t *testing.T) {
	n := newEnvoyNode(t, hourly)
	reservations := NewReservations(n.client, RandomIDKey(), "")
	defer reservations.Close()
	k := NewKuadrant(NewEnvoy(n.client, newMetrics(t), nil), reservations)
	ctx := t.Context()
	acme := []*rlcommon.RateLimitDescriptor{descriptor("tenant=acme")}
	check := func(what string, want rls.RateLimitResponse_Code) {
		t.Helper()
		got, err := k.CheckRateLimit(ctx, &rls.RateLimitRequest{Domain: "edge", HitsAddend: 3, Descriptors: acme})
		if err != nil || got.GetOverallCode() != want {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
	}
	reserve := func(amount uint64, want rls.RateLimitResponse_Code) string {
		t.Helper()
		got, err := k.Reserve(ctx, &ratelimitv1.ReserveRequest{Domain: "edge", Descriptors: acme, Amount: amount, Ttl: durationpb.New(time.Minute)})
		if err != nil || got.GetCode() != want || (got.GetReservationId() != "") != (want == ok && amount > 0) {
			t.Errorf("reserve %d: got %v, %v, want %v", amount, got, err, want)
		}
		return got.GetReservationId()
	}
	commit := func(id string, amount uint64, want codes.Code) {
		t.Helper()
		if _, err := k.Commit(ctx, &ratelimitv1.CommitRequest{Domain: "edge", Descriptors: acme, ReservationId: id, ActualAmount: amount}); status.Code(err) != want {
			t.Errorf("commit %d: got %v, want %v", amount, err, want)
		}
	}
	for range 40 {
		check("of a full bucket", ok)
	}
	reserve(0, ok)
	id := reserve(20, ok)
	reserve(11, over)
	reserve(1_000_000_001, over)
	commit(id, 25, codes.OK)
	commit(id, 25, codes.OK)
	commit(id, 24, codes.FailedPrecondition)
	commit(id, 1_000_000_001, codes.InvalidArgument)
	commit("unknown", 3, codes.OK)
	commit("", 2, codes.OK)
	check("of an empty bucket", over)
	reserve(0, over)
	reserve(1, over)
	if got, err := k.Report(ctx, &rls.RateLimitRequest{Domain: "edge", HitsAddend: 50, Descriptors: acme}); err != nil || got.GetOverallCode() != ok || len(got.GetStatuses()) != 1 {
		t.Errorf("report: %v, %v", got, err)
	}
	if got, err := k.Reserve(ctx, &ratelimitv1.ReserveRequest{Domain: "elsewhere", Descriptors: acme, Amount: 100}); err != nil || got.GetCode() != ok || got.GetReservationId() != "" {
		t.Errorf("elsewhere: %v, %v", got, err)
	}
	if _, err := k.Reserve(ctx, &ratelimitv1.ReserveRequest{Domain: "edge"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no descriptors: %v", err)
	}
	if got := n.end("acme")[0]["requests"][0]; got != 25+3+2+50 {
		t.Errorf("the ledger has %d units, want 80", got)
	}
}
