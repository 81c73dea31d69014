package doors

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Reserve implements quotav1.DecisionServiceServer.
func (d *Decide) Reserve(ctx context.Context, m *quotav1.ReserveRequest) (answer *quotav1.ReserveResponse, err error) {
	err = d.unary(ctx, "Reserve", m.GetTimeoutUs(), func(ctx context.Context) error {
		q := client.Request{Units: 1, Expires: time.Duration(min(max(m.GetExpiresSeconds(), -1), 1<<30)) * time.Second, Whole: m.GetWhole()}
		if m.Units != nil {
			q.Units = m.GetUnits()
		}
		if err := unitsInRange(q.Units); err != nil {
			return err
		}
		if q.Costs, err = costsOf(m.GetCosts()); err != nil {
			return err
		}
		for _, a := range m.GetAttributes() {
			q.Attributes = append(q.Attributes, client.Attribute{Name: a.GetName(), Value: a.GetValue()})
		}
		granted, decision, err := d.reservations.reserve(ctx, q)
		if err != nil {
			return err
		}
		d.metrics.count(doorDecide, resultOf(decision))
		answer = &quotav1.ReserveResponse{Decision: protoAnswer(decision), Id: granted.id, Reserved: granted.reserved}
		if granted.id != "" {
			answer.ExpiresSeconds = int64(expiresOf(q) / time.Second)
		}
		return nil
	})
	return answer, err
}

// expiresOf is how long a request's reservation lives.
func expiresOf(q client.Request) time.Duration {
	if q.Expires == 0 {
		return defaultReservationTime
	}
	return q.Expires
}

// Extend implements quotav1.DecisionServiceServer.
func (d *Decide) Extend(ctx context.Context, m *quotav1.ExtendRequest) (answer *quotav1.ExtendResponse, err error) {
	err = d.unary(ctx, "Extend", m.GetTimeoutUs(), func(ctx context.Context) error {
		decision, err := d.reservations.extend(ctx, m)
		if err != nil {
			return err
		}
		d.metrics.count(doorDecide, resultOf(decision))
		answer = &quotav1.ExtendResponse{Decision: protoAnswer(decision)}
		return nil
	})
	return answer, err
}

// Commit implements quotav1.DecisionServiceServer.
func (d *Decide) Commit(ctx context.Context, m *quotav1.CommitRequest) (answer *quotav1.CommitResponse, err error) {
	err = d.unary(ctx, "Commit", 0, func(ctx context.Context) (err error) {
		answer, err = d.reservations.commit(ctx, m)
		return err
	})
	return answer, err
}

// Cancel implements quotav1.DecisionServiceServer.
func (d *Decide) Cancel(ctx context.Context, m *quotav1.CancelRequest) (answer *quotav1.CancelResponse, err error) {
	err = d.unary(ctx, "Cancel", 0, func(ctx context.Context) error {
		_, err := d.reservations.commit(ctx, &quotav1.CommitRequest{Id: m.GetId()})
		answer = new(quotav1.CancelResponse)
		return err
	})
	return answer, err
}

// unary answers a call that is no stream, and counts it. timeout is in microseconds; 0 for none.
func (d *Decide) unary(ctx context.Context, name string, timeout int64, f func(context.Context) error) error {
	if !listen.Known(listen.PeerOf(ctx)) {
		return listen.Refused()
	}
	if d.reservations == nil {
		return status.Error(codes.Unimplemented, "this agent reserves nothing")
	}
	if timeout < 0 {
		return status.Error(codes.InvalidArgument, "timeout_us is negative")
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(timeout, maxTimeout.Microseconds()))*time.Microsecond)
		defer cancel()
	}
	err := statusError(f(ctx))
	result := resultOK
	if err != nil {
		result = callResult(statusOf(status.Code(err)))
	}
	d.metrics.called(name, result)
	return err
}

// protoAnswer is a decision as the protocol has it.
func protoAnswer(d client.Decision) *quotav1.Answer {
	t := d.Details()
	return &quotav1.Answer{
		Allowed: d.Allowed, Reason: quotav1.Answer_Reason(d.Reason) + 1, RetryAfterUs: d.RetryAfter.Microseconds(),
		Limit: t.Limit, Quota: t.Quota, WindowUs: t.Window.Microseconds(), Remaining: t.Remaining, ResetUs: t.Reset.Microseconds(), Cost: t.Cost,
	}
}
