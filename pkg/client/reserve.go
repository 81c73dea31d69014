package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
)

var (
	// ErrReservationEnded is returned by Commit and Cancel of a reservation that has ended:
	// committed, cancelled, expired, or cancelled by Close.
	ErrReservationEnded = errors.New("client: the reservation has ended")
	// ErrCost is wrapped by Commit's error about a cost out of range; the reservation goes on.
	ErrCost = errors.New("client: invalid cost")
)

// Reservation is units that a request may cost at most, taken of every limit that holds it, until it is
// known what it does. It ends once: by Commit, Cancel, its expiry or the client's Close. It
// is safe for concurrent use. The nil Reservation, of a request that was denied, has ended.
type Reservation struct {
	c       *Client
	n       int64
	legs    []leg
	windows []int64 // by legs: that the units are of
	slots   []bool  // by legs: they are slots, which are given back at the end whatever it is
	void    bool    // they were admitted by a switch, whether or not they were there

	// Under the client's reservation mutex.
	at      *list.Element // of those that live; nil once it has ended
	expires time.Time
}

// reservations are those that live, in the order in which they expire: all last equally long.
type reservations struct {
	mu      sync.Mutex
	live    list.List // of *Reservation
	n       int
	units   int64
	expired int64
	closed  bool
}

// Reserve decides a request as AllowN does, for one whose cost is known only afterwards: n is the
// most that it may cost, at least 1. An allowed one comes with a Reservation of n units,
// which has to be ended: Commit says what it cost, Cancel that it cost nothing. One that is
// not ended within WithReservationTime is cancelled by itself.
//
// For the limits a reserved unit is spent until the reservation ends. What Commit or Cancel puts back can be
// spent again, unless the window that it is of is over. For the ledger nothing counts but what is committed.
//
// While as many reservations live as may, requests are denied with ReasonOverloaded.
func (c *Client) Reserve(ctx context.Context, n int64, attributes ...Attribute) (*Reservation, Decision) {
	if n < 1 {
		c.refused.Add(1)
		return nil, Decision{Reason: ReasonInvalid}
	}
	res := &Reservation{c: c, n: n}
	if !c.reserved.add(res, c.cfg.maxReservations) {
		if c.closed.Load() {
			return nil, Decision{Reason: ReasonClosed}
		}
		c.overloaded.Add(1)
		return nil, Decision{Reason: ReasonOverloaded, RetryAfter: time.Second}
	}
	r := c.request(n, attributesOf(attributes))
	r.reserves = res
	d := c.begun(ctx, r)
	if !d.Allowed {
		c.reserved.remove(res)
		return nil, d
	}
	if !c.reserved.start(res, time.Now().Add(c.cfg.reservationTime)) {
		res.spend(0) // Close came first
		return nil, Decision{Reason: ReasonClosed}
	}
	c.session.Rouse() // the loop expires it
	return res, d
}

// Units returns how many units are reserved.
func (r *Reservation) Units() int64 {
	if r == nil {
		return 0
	}
	return r.n
}

// Commit says that the request cost m units, 0 to 1,000,000,000, and puts back the rest. More than
// was reserved is admitted beyond: counted, billed, and taken from what the
// limits have next. Of slots, which all come back, m count as started, and no more than were reserved. It fails with
// ErrReservationEnded and settles nothing where the reservation has ended: after its expiry, what the request did is in no count.
func (r *Reservation) Commit(m int64) error {
	if m < 0 || m > limit.MaxUnits {
		return fmt.Errorf("%w: %d units; 0 to %d", ErrCost, m, int64(limit.MaxUnits))
	}
	if r == nil || !r.c.reserved.end(r) {
		return ErrReservationEnded
	}
	r.spend(m)
	return nil
}

// Cancel says that the request cost nothing, and puts all back. It fails with
// ErrReservationEnded where the reservation has ended, and may so be deferred behind a Commit.
func (r *Reservation) Cancel() error { return r.Commit(0) }

// spend spends m of the units, and puts back the rest.
func (r *Reservation) spend(m int64) {
	for i, h := range r.legs {
		if r.slots[i] {
			// As many as were spent count as started, and all come back.
			started := min(m, r.n)
			session.Serve(h.entry.Cancel(r.n - started))
			if h.item.Inherited {
				h.entry.Inherit(started - r.n)
			}
			h.entry.Release(r.n)
			r.c.finish(h.entry, started)
			continue
		}
		// What is an ancestor's only to hold is known before it is admitted, and until it was put back.
		more, less := int64(0), int64(0)
		if h.item.Inherited {
			more, less = max(m-r.n, 0), max(r.n-m, 0)
			h.entry.Hold(more + less)
			h.entry.Inherit(more)
		}
		attend := false
		if r.void {
			h.entry.SettleAdmitted(r.n, m, r.windows[i])
		} else {
			attend = h.entry.Settle(r.n, m, r.windows[i])
		}
		if h.item.Inherited {
			h.entry.Inherit(-less)
			h.entry.Release(more + less)
		}
		if attend {
			r.c.attend(h.entry)
		}
	}
}

// keep takes what the request has in hand over into its reservation.
func (r *request) keep(mode limit.Mode) {
	res := r.reserves
	res.legs, res.void = slices.Clone(r.legs), mode != limit.ModeNormal
	for i, h := range r.legs {
		if !h.item.Slots && !res.void {
			h.entry.Reserve(r.n, r.windows[i])
			r.c.attend(h.entry) // when it was looked at last, its lease may have had nothing to go on for
		}
		res.windows, res.slots = append(res.windows, r.windows[i]), append(res.slots, h.item.Slots)
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
	return true
}

// remove takes one out that was not allowed.
func (l *reservations) remove(r *Reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	l.units -= r.n
}

// start puts an allowed one in line; false where it is too late for any.
func (l *reservations) start(r *Reservation, expires time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.n--
		l.units -= r.n
		return false
	}
	r.expires, r.at = expires, l.live.PushBack(r)
	return true
}

// end takes a live one out, and reports whether it was.
func (l *reservations) end(r *Reservation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endLocked(r)
}

func (l *reservations) endLocked(r *Reservation) bool {
	if r.at == nil {
		return false
	}
	l.live.Remove(r.at)
	r.at = nil
	l.n--
	l.units -= r.n
	return true
}

// expire cancels those whose time is over, all of them for the client's end, and returns when
// the next one's is; the zero time for none.
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

// endingFor returns what ends an allowed request with slots; a reservation ends by itself.
func (r *request) endingFor(set *agent.Set) *ending {
	if !set.Slots || r.reserves != nil {
		return nil
	}
	return r.c.endingOf(r.legs, r.n)
}
