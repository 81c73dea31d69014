package client

import (
	"context"
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// commitLate books what totals have above what was billed when the reservation ended. Limits count as they are now. The
// reservation's mutex is held.
func (r *Reservation) commitLate(totals []int64) error {
	c := r.c
	if c.closed.Load() || !c.reserved.keep(r) {
		return ErrReservationEnded
	}
	now := time.Now()
	claims, err := r.charges(totals)
	if err != nil {
		c.reserved.letGo(r) // it may come again
		return err
	}
	spent := r.beginLate(claims)
	r.late = true
	r.say(usage.Committed, totals, spent, now.UnixMilli())
	for i := range claims {
		c.spend(&claims[i], spent[i])
		claims[i].entry.Leave()
	}
	r.claims = nil
	r.ended(now)
	return nil
}

// beginLate records that the reservation, which has ended, takes what is charged, and returns that.
func (r *Reservation) beginLate(claims []claim) (spent []int64) {
	var stakes []usage.Stakes
	for i := range claims {
		stakes = append(stakes, claims[i].staked())
	}
	at, got := r.c.session.Records().Reserve(r.known(), stakes)
	for i := range claims {
		spent = append(spent, claims[i].n)
		claims[i].n = 0 // as of a reservation of no units
		if i < len(got) {
			claims[i].stake = got[i]
		}
	}
	r.at, r.claims = at, claims
	return spent
}

// charges returns what each limit that applies is to count of totals, beyond what was billed. Their buckets are entered.
func (r *Reservation) charges(totals []int64) ([]claim, error) {
	for {
		claims, err := r.tryCharges(totals)
		if err == nil {
			return claims, nil
		}
		for i := range claims {
			claims[i].entry.Leave()
		}
		if !errors.Is(err, agent.ErrGone) {
			return nil, err
		}
		if r.c.closed.Load() {
			return nil, &NotBookedError{Reason: ReasonClosed}
		}
	}
}

func (r *Reservation) tryCharges(totals []int64) (claims []claim, err error) {
	n, costs := r.costs(totals)
	q := r.c.request(n, costs, r.attrs)
	defer q.end()
	q.endless, q.measured = true, true
	if claims, err = q.charges(context.Background(), nil); err != nil {
		return claims, err
	}
	if r.c.closed.Load() {
		return claims, &NotBookedError{Reason: ReasonClosed}
	}
	n, costs = r.costs(r.totals)
	for i := range claims {
		billed, _ := claims[i].unitsOf(n, costs)
		claims[i].n = max(claims[i].n-billed, 0)
	}
	return claims, nil
}
