package doors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// maxCosts bounds the costs of a request: a policy names no more.
	maxCosts = 15
	// maxReservedBytes bounds the names and values of a reservation's attributes, which are kept as long as it is known.
	maxReservedBytes = 4 << 10
	// defaultReservationTime is how long a reservation lives whose caller does not say.
	defaultReservationTime = time.Minute
)

// Reserver is what the doors reserve with: a client.Client.
type Reserver interface {
	Agent() string
	ReserveRequest(ctx context.Context, q client.Request) (*client.Reservation, client.Decision)
	Reservation(id client.ReservationID) (*client.Reservation, bool)
}

// Reservations gives callers ids of reservations, and finds the reservation of an id: here, or at the agent that has it.
// It is safe for concurrent use.
type Reservations struct {
	client  Reserver
	key     IDKey
	address string
	peers   *peers
}

// NewReservations returns reservations whose ids are sealed under a key. address is where agents of the same key reach
// this one's gRPC door: HOST:PORT, at most MaxAdvertised bytes, or empty for nowhere. Close ends it.
func NewReservations(c Reserver, key IDKey, address string) *Reservations {
	return &Reservations{client: c, key: key, address: address, peers: newPeers()}
}

// Close closes the connections to other agents.
func (r *Reservations) Close() { r.peers.close() }

// refusal is why a call about a reservation is not answered as asked: a code and a sentence.
type refusal struct {
	code   codes.Code
	detail string
	// stranger: no agent that can be asked made the id, so nothing was billed under it.
	stranger bool
}

// Error implements error.
func (e *refusal) Error() string { return e.detail }

func refuse(code codes.Code, format string, args ...any) error {
	return &refusal{code: code, detail: fmt.Sprintf(format, args...)}
}

// refuseStranger refuses an id that is not one of these agents'.
func refuseStranger(format string, args ...any) error {
	return &refusal{code: codes.NotFound, detail: fmt.Sprintf(format, args...), stranger: true}
}

// granted is a reservation that was made: its id, and what it has.
type granted struct {
	id       string
	reserved *quotav1.Totals // of each cost of the request: less than was asked for where the policy knows what is likely
}

// reserve reserves for a request. The id is empty where the decision is a denial. An error refuses the request.
func (r *Reservations) reserve(ctx context.Context, q client.Request) (g granted, d client.Decision, err error) {
	size := 0
	for _, a := range q.Attributes {
		size += len(a.Name) + len(a.Value)
	}
	if size > maxReservedBytes || len(q.Attributes) > ask.MaxAttributes {
		return g, d, refuse(codes.InvalidArgument, "a reservation has at most %d attributes of %d bytes in all", ask.MaxAttributes, maxReservedBytes)
	}
	if q.Expires == 0 {
		q.Expires = defaultReservationTime
	}
	if q.Expires < client.MinReservationTime || q.Expires > client.MaxReservationTime {
		return g, d, refuse(codes.InvalidArgument, "a reservation expires after %d to %d seconds", int(client.MinReservationTime.Seconds()), int(client.MaxReservationTime.Seconds()))
	}
	res, d := r.client.ReserveRequest(ctx, q)
	if res == nil {
		return g, d, nil
	}
	g.id = r.key.seal(reservationID{agent: r.client.Agent(), address: r.address, of: res.ID(), expires: res.Expires().UnixMilli()})
	g.reserved = &quotav1.Totals{Units: res.Reserved(limit.Requests)}
	for _, c := range q.Costs {
		if n := res.Reserved(c.Name); n > 0 {
			g.reserved.Costs = append(g.reserved.Costs, &quotav1.Cost{Name: c.Name, Units: n})
		}
	}
	return g, d, nil
}

// find returns the reservation of an id, or the address of the agent that has it.
func (r *Reservations) find(text string) (res *client.Reservation, at string, err error) {
	id, sealed, err := r.key.open(text)
	switch {
	case err != nil:
		return nil, "", refuseStranger("%v", err)
	case !sealed && id.agent == r.client.Agent():
		return nil, "", refuseStranger("this id was not made under this agent's secret, which may be of a later start: without a journal and a --peer-secret it is")
	case !sealed:
		return nil, "", refuseStranger("this id is of agent %s, or forged; only agents of one --peer-secret know each other's", limit.Quote(id.agent))
	case id.agent == r.client.Agent():
		if res, ok := r.client.Reservation(id.of); ok {
			return res, "", nil
		}
		return nil, "", refuse(codes.NotFound, "this reservation is not known any more: it ended more than %s ago, or with an agent that had no journal", client.ReservationKnown)
	case id.address == "":
		return nil, "", refuse(codes.NotFound, "agent %s has this reservation, and does not --advertise its address: ask it", limit.Quote(id.agent))
	}
	return nil, id.address, nil
}

// extend reserves more, and says what was used.
func (r *Reservations) extend(ctx context.Context, m *quotav1.ExtendRequest) (d client.Decision, err error) {
	costs, err := costsOf(m.GetCosts())
	if err != nil {
		return d, err
	}
	used, err := costsOf(m.GetUsed().GetCosts())
	if err != nil {
		return d, err
	}
	more := m.GetUnits() != 0
	for _, c := range costs {
		more = more || c.Units != 0
	}
	if !more && m.GetUsed() == nil {
		return d, refuse(codes.InvalidArgument, "nothing is to be reserved, and nothing was used")
	}
	if err := unitsInRange(m.GetUnits()); err != nil {
		return d, err
	}
	res, at, err := r.find(m.GetId())
	if err != nil {
		return d, err
	}
	if at != "" {
		answer, err := r.peers.extend(ctx, at, m)
		return decisionOf(answer.GetDecision()), err
	}
	if err := refusalOf(res.Use(m.GetUsed().GetUnits(), used...)); err != nil {
		return d, err
	}
	if !more {
		return client.Decision{Allowed: true}, nil
	}
	return res.Extend(ctx, m.GetUnits(), costs...), nil
}

// commit ends a reservation.
func (r *Reservations) commit(ctx context.Context, m *quotav1.CommitRequest) (*quotav1.CommitResponse, error) {
	costs, err := costsOf(m.GetTotals().GetCosts())
	if err != nil {
		return nil, err
	}
	res, at, err := r.find(m.GetId())
	if err != nil {
		return nil, err
	}
	if at != "" {
		return r.peers.commit(ctx, at, m)
	}
	if err := refusalOf(res.Commit(m.GetTotals().GetUnits(), costs...)); err != nil {
		return nil, err
	}
	answer := &quotav1.CommitResponse{Committed: new(quotav1.Totals), Late: res.Late()}
	answer.Committed.Units, costs = res.Totals()
	for _, c := range costs {
		answer.Committed.Costs = append(answer.Committed.Costs, &quotav1.Cost{Name: c.Name, Units: c.Units})
	}
	return answer, nil
}

// costsOf reads costs, within their bound.
func costsOf(list []*quotav1.Cost) ([]client.Cost, error) {
	if len(list) > maxCosts {
		return nil, refuse(codes.InvalidArgument, "a request has at most %d costs", maxCosts)
	}
	var costs []client.Cost
	for i, c := range list {
		for _, before := range list[:i] {
			if before.GetName() == c.GetName() {
				return nil, refuse(codes.InvalidArgument, "%s is there twice", limit.Quote(c.GetName()))
			}
		}
		if err := unitsInRange(c.GetUnits()); err != nil {
			return nil, err
		}
		costs = append(costs, client.Cost{Name: c.GetName(), Units: c.GetUnits()})
	}
	return costs, nil
}

func unitsInRange(n int64) error {
	if n < 0 || n > limit.MaxUnits {
		return refuse(codes.InvalidArgument, "%d units; there may be 0 to %d", n, int64(limit.MaxUnits))
	}
	return nil
}

// refusalOf is a client's error as the doors say it.
func refusalOf(err error) error {
	var not *client.NotBookedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrReservationEnded):
		return refuse(codes.FailedPrecondition, "the reservation has ended, and not with these totals")
	case errors.Is(err, client.ErrCost):
		return refuse(codes.InvalidArgument, "%v", err)
	case errors.As(err, &not) && (not.Reason == client.ReasonNoPlan):
		return refuse(codes.FailedPrecondition, "nothing was booked: the tenant is under no plan any more")
	case errors.As(err, &not) && not.Reason == client.ReasonInvalid:
		return refuse(codes.InvalidArgument, "nothing was booked: %v", not.Fault)
	}
	return refuse(codes.Unavailable, "%v", err)
}

// decisionOf is a decision that another agent made.
func decisionOf(a *quotav1.Answer) client.Decision {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return client.Decided(a.GetAllowed(), client.Reason(max(a.GetReason(), 1)-1), us(a.GetRetryAfterUs()), client.Details{
		Limit: a.GetLimit(), Cost: a.GetCost(), Quota: a.GetQuota(), Window: us(a.GetWindowUs()), Remaining: a.GetRemaining(), Reset: us(a.GetResetUs()),
	})
}
