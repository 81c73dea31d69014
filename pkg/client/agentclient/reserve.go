package agentclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// ErrUnanswered is wrapped by errors of a Commit or Cancel that the agent did not answer, or could not carry out now. It
// may have come through, and is to be repeated.
var ErrUnanswered = errors.New("agentclient: no answer from the agent")

// Reservation is what the agent has reserved for a request; see client.Reservation. It is safe for concurrent use. The
// nil Reservation, of a denied request, has ended.
type Reservation struct {
	t  *Client
	id string // empty where the failure mode admitted the request: no agent has it

	mu       sync.Mutex
	used     *quotav1.Totals
	reserved map[string]int64 // units by cost
	late     bool
}

// Reserve has the agent reserve what a request is likely to cost; see client.Client.ReserveRequest. An allowed one comes
// with a Reservation, which the caller has to end. It waits no longer than ctx and WithMaxWait. A call that is not
// answered may have reserved: that expires, and bills nothing. While the agent is away WithFailureMode decides.
func (t *Client) Reserve(ctx context.Context, q client.Request) (*Reservation, client.Decision) {
	m := &quotav1.ReserveRequest{
		Units: &q.Units, Costs: protoCosts(q.Costs), ExpiresSeconds: int64((q.Expires + time.Second - 1) / time.Second), Whole: q.Whole,
	}
	for _, a := range q.Attributes {
		m.Attributes = append(m.Attributes, &quotav1.Attribute{Name: a.Name, Value: a.Value})
	}
	ctx, cancel := t.within(ctx, &m.TimeoutUs)
	defer cancel()
	answer, err := quotav1.NewDecisionServiceClient(t.calls).Reserve(ctx, m)
	d := t.decided(answer.GetDecision(), err, q.Units)
	if !d.Allowed {
		return nil, d
	}
	r := &Reservation{t: t, id: answer.GetId(), reserved: make(map[string]int64)}
	if has := answer.GetReserved(); has != nil {
		r.extended(has.GetUnits(), has.GetCosts())
	} else {
		r.extended(q.Units, m.GetCosts()) // no agent says: all that was asked for
	}
	return r, d
}

// extended notes more units that are reserved.
func (r *Reservation) extended(n int64, costs []*quotav1.Cost) {
	r.reserved[limit.Requests] += n
	for _, c := range costs {
		r.reserved[c.GetName()] += c.GetUnits()
	}
}

// Reserved returns how many units of a cost are reserved, by Reserve and by Extend; see client.Reservation.Reserved. It
// is what the agent answered, also once the reservation has ended. A call without an answer counts nothing.
func (r *Reservation) Reserved(cost string) int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reserved[cost]
}

// Use notes what was used so far, in all. The agent hears of it with the next Extend, and bills it if nobody commits.
func (r *Reservation) Use(n int64, costs ...client.Cost) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.used = &quotav1.Totals{Units: n, Costs: protoCosts(costs)}
	}
}

// Extend reserves more, all or nothing; see client.Reservation.Extend. It waits as Reserve does. A call that is not
// answered may have extended.
func (r *Reservation) Extend(ctx context.Context, n int64, costs ...client.Cost) client.Decision {
	if r == nil {
		return client.Decision{Reason: client.ReasonInvalid}
	}
	r.mu.Lock()
	m := &quotav1.ExtendRequest{Id: r.id, Units: n, Costs: protoCosts(costs), Used: r.used}
	r.mu.Unlock()
	d := r.ask(ctx, m)
	if d.Allowed {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.extended(n, m.GetCosts())
	}
	return d
}

// ask has the agent extend; where no agent has the reservation, the failure mode decides.
func (r *Reservation) ask(ctx context.Context, m *quotav1.ExtendRequest) client.Decision {
	if r.id == "" {
		return r.t.decided(nil, ErrUnanswered, 0)
	}
	ctx, cancel := r.t.within(ctx, &m.TimeoutUs)
	defer cancel()
	answer, err := quotav1.NewDecisionServiceClient(r.t.calls).Extend(ctx, m)
	return r.t.decided(answer.GetDecision(), err, 0)
}

// Commit ends the reservation with what the request cost in all; see client.Reservation.Commit. The same totals again
// are nil again. It fails with client.ErrReservationEnded, client.ErrCost or ErrUnanswered.
func (r *Reservation) Commit(ctx context.Context, m int64, costs ...client.Cost) error {
	if r == nil {
		return client.ErrReservationEnded
	}
	if r.id == "" {
		return nil
	}
	ctx, cancel := r.t.within(ctx, new(int64))
	defer cancel()
	totals := &quotav1.Totals{Units: m, Costs: protoCosts(costs)}
	answer, err := quotav1.NewDecisionServiceClient(r.t.calls).Commit(ctx, &quotav1.CommitRequest{Id: r.id, Totals: totals})
	if err != nil {
		return errorOf(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = r.late || answer.GetLate()
	return nil
}

// Cancel says that the request cost nothing: Commit of 0.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Commit(ctx, 0) }

// Late reports whether a Commit came after the reservation had ended by itself.
func (r *Reservation) Late() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// within bounds a call by WithMaxWait. The agent gets half of its time, in microseconds, and spends nothing afterwards.
func (t *Client) within(ctx context.Context, micros *int64) (context.Context, context.CancelFunc) {
	wait := t.cfg.maxWait
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(at))
	}
	*micros = max(wait.Microseconds()/2, 1)
	return context.WithTimeout(ctx, wait)
}

// decided is the decision on a call for so many units of requests.
func (t *Client) decided(a *quotav1.Answer, err error, units int64) client.Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Asked++
	switch {
	case t.state == closed:
		return client.Decision{Reason: client.ReasonClosed}
	case err == nil:
		return client.Decided(a.GetAllowed(), client.Reason(max(a.GetReason(), 1)-1), micros(a.GetRetryAfterUs()), client.Details{
			Limit: a.GetLimit(), Cost: a.GetCost(), Quota: a.GetQuota(), Window: micros(a.GetWindowUs()),
			Remaining: a.GetRemaining(), Reset: micros(a.GetResetUs()),
		})
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition:
		return client.Decision{Reason: client.ReasonInvalid}
	case codes.DeadlineExceeded, codes.Canceled:
		t.stats.Deadlined++
		return inASecond(client.ReasonDeadline)
	default:
		return t.unknownLocked(units)
	}
}

// errorOf is a call's error as this package has it.
func errorOf(err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.FailedPrecondition, codes.NotFound:
		return fmt.Errorf("%w: %s", client.ErrReservationEnded, s.Message())
	case codes.InvalidArgument:
		return fmt.Errorf("%w: %s", client.ErrCost, s.Message())
	default:
		return fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
}

func protoCosts(costs []client.Cost) (all []*quotav1.Cost) {
	for _, c := range costs {
		all = append(all, &quotav1.Cost{Name: c.Name, Units: c.Units})
	}
	return all
}
