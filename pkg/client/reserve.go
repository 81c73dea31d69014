package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
)

var (
	// ErrReservationEnded is returned by Commit and Cancel of a reservation that has ended: by either of them, by its
	// expiry, or by the client's Close.
	ErrReservationEnded = errors.New("client: the reservation has ended")
	// ErrCost is wrapped by Commit's error about a cost that is out of range, or that the policy does not name. The
	// reservation goes on.
	ErrCost = errors.New("client: invalid cost")
)

// Reservation is units taken of every limit that applies to a request: the most that it may cost, until that is known.
// It ends once: by Commit, Cancel, its expiry or the client's Close. It is safe for concurrent use. The nil
// Reservation, of a denied request, has ended.
type Reservation struct {
	c      *Client
	n      int64   // its units of requests
	claims []claim // what it has of each limit
	void   bool    // an operator's switch admitted the units, whether or not they were there

	// Guarded by reservations.mu.
	deciding bool
	at       *list.Element // of those that live; nil for none
	expires  time.Time
}

// reservations are those that live or are yet to be decided.
type reservations struct {
	mu      sync.Mutex
	live    list.List // of *Reservation, in the order in which they expire: all last equally long
	n       int       // with those that are yet to be decided
	units   int64     // theirs
	expired int64     // so far
	closed  bool
}

// Reserve decides a request whose cost is known only afterwards, as AllowN does. n is the most that it may cost, 1 to
// 1,000,000,000. An allowed one comes with a Reservation of n units, which the caller has to end: Commit says what the
// request cost, Cancel that it cost nothing. After WithReservationTime it is cancelled by itself.
//
// For the limits a reserved unit is spent until the reservation ends. Units that Commit or Cancel puts back can be
// spent again, unless their window is over. For the ledger only committed units count.
//
// While WithMaxReservations of them live, requests are denied with ReasonOverloaded.
func (c *Client) Reserve(ctx context.Context, n int64, attributes ...Attribute) (*Reservation, Decision) {
	return c.ReserveRequest(ctx, Request{Units: n, Attributes: attributes})
}

// ReserveRequest is Reserve for a request that may have several costs: see Decide. It has to cost something.
func (c *Client) ReserveRequest(ctx context.Context, q Request) (*Reservation, Decision) {
	n := q.Units
	if n < 0 || nothing(n, q.Costs) {
		c.refused.Add(1)
		return nil, Decision{Reason: ReasonInvalid}
	}
	res := &Reservation{c: c, n: n}
	if !c.reserved.add(res, c.cfg.maxReservations) {
		if c.closed.Load() {
			return nil, Decision{Reason: ReasonClosed}
		}
		c.overloaded.Add(1)
		return nil, inASecond(ReasonOverloaded, nil)
	}
	r := c.request(n, q.Costs, attributesOf(q.Attributes))
	r.reserves = res
	d := r.decide(ctx)
	if !d.Allowed {
		c.reserved.end(res)
		return nil, d
	}
	if !c.reserved.start(res, time.Now().Add(c.cfg.reservationTime)) {
		res.spend(0) // Close came first
		return nil, Decision{Reason: ReasonClosed}
	}
	c.session.Rouse() // the loop expires it
	return res, d
}

// Commit says that the request cost m units of requests, 0 to 1,000,000,000, and so many of its other costs. A cost that
// is not named is 0. Commit puts back the rest. Units beyond the reserved ones are admitted as well: counted, billed, and
// taken from the units that the limits get next. Slots all come back. m of them, but no more than were reserved, count
// as started.
//
// It fails with ErrReservationEnded where the reservation has ended: then nothing is counted. ErrCost says that m is
// out of range; the reservation goes on.
func (r *Reservation) Commit(m int64, costs ...Cost) error {
	if m < 0 || m > limit.MaxUnits {
		return fmt.Errorf("%w: %d units; 0 to %d", ErrCost, m, int64(limit.MaxUnits))
	}
	if len(costs) > 0 {
		return fmt.Errorf("%w: the policy names no cost %s", ErrCost, limit.Quote(costs[0].Name))
	}
	if r == nil || !r.c.reserved.end(r) {
		return ErrReservationEnded
	}
	r.spend(m)
	return nil
}

// Cancel says that the request cost nothing, and puts all units back. It fails with ErrReservationEnded where the
// reservation has ended, so it may be deferred behind a Commit.
func (r *Reservation) Cancel() error { return r.Commit(0) }

// spend counts m units as spent, and puts back the rest.
func (r *Reservation) spend(m int64) {
	for i := range r.claims {
		r.c.spend(&r.claims[i], m, r.void)
	}
}

// spend counts m units of a claim as spent, after h.n were reserved. If m is less, the rest goes back; if m is more, the
// excess is admitted.
func (c *Client) spend(h *claim, m int64, void bool) {
	e, n := h.entry, h.n
	defer h.unpin()
	if h.item.Slots && n == 0 {
		return // none was in use
	}
	if h.item.Slots {
		started := min(m, n)
		bucket.Serve(e.Cancel(n - started))
		if h.item.Inherited {
			e.Inherit(started - n)
		}
		e.Release(n)
		c.finish(e, started)
		return
	}
	// Units not billed at an ancestor's bucket are told before they are admitted, and until they were put back.
	more, less := int64(0), int64(0)
	if h.item.Inherited {
		more, less = max(m-n, 0), max(n-m, 0)
		e.Hold(more + less)
		e.Inherit(more)
	}
	attend := false
	if void {
		e.SettleAdmitted(n, m, h.window)
	} else {
		attend = e.Settle(n, m, h.window)
	}
	if h.item.Inherited {
		e.Inherit(-less)
		e.Release(more + less)
	}
	if attend {
		c.session.Attend(e)
	}
}

// reserve hands the units that the request has over to its reservation.
func (r *request) reserve() {
	res := r.reserves
	res.claims, res.void = slices.Clone(r.claims), r.mode != limit.ModeNormal
	for _, h := range r.claims {
		if !h.item.Slots && !res.void && h.n > 0 {
			h.entry.Reserve(h.n, h.window)
			r.c.session.Attend(h.entry) // its lease has something to go on for
		}
	}
}

// add counts a reservation that is yet to be decided; false where there are too many.
func (l *reservations) add(r *Reservation, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.n >= most {
		return false
	}
	l.n++
	l.units += r.n
	r.deciding = true
	return true
}

// start lets an allowed one live; false where the client is closed.
func (l *reservations) start(r *Reservation, expires time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.endLocked(r)
		return false
	}
	r.deciding, r.expires, r.at = false, expires, l.live.PushBack(r)
	return true
}

// end takes a reservation out, and reports whether it was there.
func (l *reservations) end(r *Reservation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endLocked(r)
}

func (l *reservations) endLocked(r *Reservation) bool {
	switch {
	case r.at != nil:
		l.live.Remove(r.at)
	case !r.deciding:
		return false
	}
	r.at, r.deciding = nil, false
	l.n--
	l.units -= r.n
	return true
}

// expire cancels reservations whose time is over, and when the client closes all of them. It returns when the next one
// expires; the zero time for none.
func (l *reservations) expire(now time.Time, closing bool) (next time.Time) {
	var over []*Reservation
	l.mu.Lock()
	l.closed = l.closed || closing
	for at := l.live.Front(); at != nil; at = l.live.Front() {
		r := at.Value.(*Reservation)
		if !closing && now.Before(r.expires) {
			next = r.expires
			break
		}
		l.endLocked(r)
		over = append(over, r)
		l.expired++
	}
	l.mu.Unlock()
	for _, r := range over {
		r.spend(0)
	}
	return next
}

// count returns how many live, their units, and how many expired so far.
func (l *reservations) count() (n, units, expired int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.n), l.units, l.expired
}
