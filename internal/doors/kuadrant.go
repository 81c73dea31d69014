package doors

import (
	"context"
	"errors"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	ratelimitv1 "github.com/f4ee788f/quota/proto/kuadrant/service/ratelimit/v1"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Kuadrant is the rate limit service that Kuadrant's gateways ask: checks, reports and reservations, of descriptors
// that the policy maps as those of Envoy. It is safe for concurrent use.
type Kuadrant struct {
	ratelimitv1.UnimplementedRateLimitServiceServer

	envoy        *Envoy
	reservations *Reservations
}

// NewKuadrant returns the service. It starts nothing.
func NewKuadrant(e *Envoy, r *Reservations) *Kuadrant { return &Kuadrant{envoy: e, reservations: r} }

// CheckRateLimit says whether one unit would be allowed for each descriptor, and takes nothing.
func (k *Kuadrant) CheckRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	w, _, err := k.envoy.read(ctx, r)
	if err != nil {
		return nil, err
	}
	looks := make([]client.Request, len(r.GetDescriptors()))
	md, _ := metadata.FromIncomingContext(ctx)
	for i, d := range r.GetDescriptors() {
		if w != nil {
			looks[i] = w.request(d, 0, md)
		}
	}
	decisions := k.envoy.decide(ctx, looks)
	if reason, failed := undecided(decisions); failed {
		k.envoy.metrics.count(doorKuadrant, resultUnavailable)
		return nil, status.Errorf(codes.Unavailable, "not decided: %s", reason)
	}
	return k.envoy.answer(doorKuadrant, decisions), nil
}

// Report books the descriptors' hits, whatever limits say. Negative ones it gives back.
func (k *Kuadrant) Report(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	w, hits, err := k.envoy.read(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := k.report(ctx, w, r.GetDescriptors(), hits); err != nil {
		return nil, err
	}
	answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range r.GetDescriptors() {
		answer.Statuses = append(answer.Statuses, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK})
	}
	return answer, nil
}

func (k *Kuadrant) report(ctx context.Context, w *words, descriptors []*rlcommon.RateLimitDescriptor, hits []int64) error {
	md, _ := metadata.FromIncomingContext(ctx)
	var reports []client.Request
	var refunds []refund
	for i, d := range descriptors {
		if w == nil {
			break
		}
		switch q := w.request(d, hits[i], md); {
		case q.Attributes == nil:
		case hits[i] < 0:
			refunds = append(refunds, refundOf(q, -hits[i]))
		default:
			reports = append(reports, k.envoy.parts(q, hits[i])...)
		}
	}
	if err := k.envoy.book(ctx, reports); err != nil {
		return err
	}
	k.envoy.refund(ctx, refunds)
	return nil
}

// Reserve takes an amount for all descriptors as one request: the first value of an attribute counts. It takes all of it,
// for its gateways neither hear what is reserved nor extend. An amount of 0 only looks. What no limit holds is OK,
// without a reservation.
func (k *Kuadrant) Reserve(ctx context.Context, r *ratelimitv1.ReserveRequest) (*ratelimitv1.ReserveResponse, error) {
	w, _, err := k.envoy.read(ctx, &rls.RateLimitRequest{Domain: r.GetDomain(), Descriptors: r.GetDescriptors()})
	if err != nil {
		return nil, err
	}
	q := together(ctx, w, r.GetDescriptors(), int64(min(r.GetAmount(), limit.MaxUnits)))
	var g granted
	var d client.Decision
	switch {
	case q.Attributes == nil:
		return &ratelimitv1.ReserveResponse{Code: rls.RateLimitResponse_OK}, nil
	case r.GetAmount() > limit.MaxUnits:
		d = client.Decision{Reason: client.ReasonTooLarge}
	case r.GetAmount() == 0:
		d = k.envoy.client.Decide(ctx, q)
	default:
		if r.GetTtl() != nil {
			q.Expires = min(max(r.GetTtl().AsDuration(), client.MinReservationTime), client.MaxReservationTime).Truncate(time.Millisecond)
		}
		q.Whole = true
		if g, d, err = k.reservations.reserve(ctx, q); err != nil {
			return nil, statusError(err)
		}
	}
	if d.Allowed {
		k.envoy.metrics.count(doorKuadrant, resultOK)
		return &ratelimitv1.ReserveResponse{Code: rls.RateLimitResponse_OK, ReservationId: g.id}, nil
	}
	k.envoy.metrics.count(doorKuadrant, resultOf(d))
	switch headers.RowOf(d.Reason.String()).Envoy {
	case headers.EnvoyOK:
		return &ratelimitv1.ReserveResponse{Code: rls.RateLimitResponse_OK}, nil
	case headers.EnvoyError:
		return nil, status.Errorf(codes.Unavailable, "not decided: %s", d.Reason)
	}
	return &ratelimitv1.ReserveResponse{Code: rls.RateLimitResponse_OVER_LIMIT}, nil
}

// Commit ends a reservation with what was used. Where no agent made its id the amount is reported. After a commit of
// another amount it is FAILED_PRECONDITION. Of an id that its agent has forgotten it is NOT_FOUND: it may have been billed.
func (k *Kuadrant) Commit(ctx context.Context, r *ratelimitv1.CommitRequest) (*ratelimitv1.CommitResponse, error) {
	w, _, err := k.envoy.read(ctx, &rls.RateLimitRequest{Domain: r.GetDomain(), Descriptors: r.GetDescriptors()})
	if err != nil {
		return nil, err
	}
	if r.GetActualAmount() > limit.MaxUnits {
		return nil, status.Errorf(codes.InvalidArgument, "an amount of %d; there may be %d", r.GetActualAmount(), int64(limit.MaxUnits))
	}
	q := together(ctx, w, r.GetDescriptors(), int64(r.GetActualAmount()))
	if r.GetReservationId() != "" {
		totals := &quotav1.Totals{Units: q.Units}
		for _, c := range q.Costs {
			totals.Costs = append(totals.Costs, &quotav1.Cost{Name: c.Name, Units: c.Units})
		}
		_, err := k.reservations.commit(ctx, &quotav1.CommitRequest{Id: r.GetReservationId(), Totals: totals})
		var why *refusal
		if !errors.As(err, &why) || !why.stranger {
			return new(ratelimitv1.CommitResponse), statusError(err)
		}
	}
	if q.Attributes != nil && r.GetActualAmount() > 0 {
		if err := k.envoy.book(ctx, []client.Request{q}); err != nil {
			return nil, err
		}
	}
	return new(ratelimitv1.CommitResponse), nil
}

// together is all descriptors as one request of so many hits; without attributes it is unlimited.
func together(ctx context.Context, w *words, descriptors []*rlcommon.RateLimitDescriptor, hits int64) (q client.Request) {
	if w == nil {
		return q
	}
	whole := new(rlcommon.RateLimitDescriptor)
	for _, d := range descriptors {
		whole.Entries = append(whole.Entries, d.GetEntries()...)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return w.request(whole, hits, md)
}

// statusError is a refusal as gRPC has it; nil for none.
func statusError(err error) error {
	var r *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return status.Error(r.code, r.detail)
	}
	return status.Error(codes.Unavailable, err.Error())
}
