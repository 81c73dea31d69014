package client

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/usage"
)

var (
	// ErrReservationEnded is returned by Commit and Cancel of a reservation that was committed with other totals. So it
	// is where it ended more than ReservationKnown ago, or the client is closed. Use returns it for any that has ended.
	ErrReservationEnded = errors.New("client: the reservation has ended")
	// ErrCost is wrapped by errors about a cost that is out of range, named twice, or that the policy does not name. The
	// reservation goes on.
	ErrCost = errors.New("client: invalid cost")
)

// ReservationKnown is how long a reservation that has ended is known: for so long Commit may be repeated, or be late.
const ReservationKnown = usage.KnownFor

// ReservationID names a reservation among all of an agent, also after its restart.
type ReservationID struct {
	Epoch  int64 // that its client began under
	Number int64 // 1 and more, in that client's life
}

// Reservation is units taken of every limit that applies to a request: what it is likely to cost, until that is known.
// It ends once: by Commit, Cancel, its expiry or the client's Close. The last two bill what Use said. For
// ReservationKnown after that a Commit that comes late is booked. It is safe for concurrent use. The nil Reservation, of
// a denied request, has ended.
//
// A unit is in one place at any time: in the bucket, reserved, or spent. What the ledger has of a reservation is what
// was committed, or what Use said and nothing was committed beyond.
type Reservation struct {
	c      *Client
	id     ReservationID
	n      int64             // units of requests reserved; the table's
	attrs  []limit.Attribute // of the request
	tenant string
	names  []string     // of costs: of totals, but for the first
	named  *limit.Costs // those of names; nil where no policy decided
	most   []int64      // of each of names: what its caller said. Of each of the request's costs, until it is decided
	whole  bool         // so much is reserved, whatever is likely

	mu       sync.Mutex
	state    usage.ReservationState
	totals   []int64         // of each cost: used so far, or committed
	reserved []int64         // of each cost, so far
	short    uint32          // bits of names: a limit denied the last Extend of such a cost
	late     bool            // it was committed after it had ended
	claims   []claim         // what it has of each limit
	at       *usage.Reserved // the journal's part; nil without

	entry tableEntry // guarded by reservations.mu
}

// ID returns the reservation's name, for Client.Reservation. The nil Reservation has none.
func (r *Reservation) ID() ReservationID {
	if r == nil {
		return ReservationID{}
	}
	return r.id
}

// Expires returns when the reservation ends by itself, or ended by its expiry or its process's end at the latest.
func (r *Reservation) Expires() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.c.reserved.expires(r)
}

// Late reports whether the reservation was committed after it had ended: by its expiry, or because its process was
// stopped or killed.
func (r *Reservation) Late() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// Totals returns what Use said last, or what was committed: units of requests, and those of other costs that are not 0.
func (r *Reservation) Totals() (n int64, costs []Cost) {
	if r == nil {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, name := range r.names {
		if units := r.totals[1+i]; units > 0 {
			costs = append(costs, Cost{name, units})
		}
	}
	return r.totals[0], costs
}

// Reserved returns how many units of a cost are reserved now, by Reserve and by Extend. Before a stream uses more, it has
// to be extended. Where the policy says `reserve`, that may be long before the most. It is 0 for a cost that the policy
// does not name, and once the reservation has ended.
func (r *Reservation) Reserved(cost string) int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != usage.Open {
		return 0
	}
	if cost == limit.Requests {
		return r.reserved[0]
	}
	if i := slices.Index(r.names, cost); i >= 0 {
		return r.reserved[1+i]
	}
	return 0
}

// lives reports whether the reservation has not ended.
func (r *Reservation) lives() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == usage.Open
}

// Use says what the request has used so far, in all: n units of requests, and so many of its other costs. Totals only
// rise: a lower one is kept as it was. It waits for nothing and writes some words of memory. Expiry and Close bill what
// was used; so does the next start after a kill, where the client has a journal. What is used may be more than what is
// reserved.
//
// It fails with ErrReservationEnded, or ErrCost; then nothing changes.
func (r *Reservation) Use(n int64, costs ...Cost) error {
	if r == nil {
		return ErrReservationEnded
	}
	totals, err := r.read(n, costs)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != usage.Open {
		return ErrReservationEnded
	}
	for i := range totals {
		totals[i] = max(totals[i], r.totals[i])
	}
	spent, err := r.split(r.claims, totals)
	if err != nil {
		return err
	}
	r.say(usage.Open, totals, spent, 0)
	return nil
}

// Commit says that the request cost m units of requests, 0 to 1,000,000,000, and so many of its other costs, in all. A
// cost that is not named is 0. It puts back the rest. Units beyond the reserved ones are admitted as well: counted,
// billed, and taken from the units that the limits get next. Slots all come back. m of them, but no more than were
// reserved, count as started.
//
// The same totals again are nil again. A Commit of a reservation that had ended by its expiry, or with its process, is late.
// It books what is above what was billed then, at the limits that BookEvents would book. It may wait for the server as
// Book does.
// It fails with a *NotBookedError where that is not possible now, and may be repeated.
//
// ErrReservationEnded says that nothing is counted any more, ErrCost that a cost is out of range.
func (r *Reservation) Commit(m int64, costs ...Cost) error {
	if r == nil {
		return ErrReservationEnded
	}
	totals, err := r.read(m, costs)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.state {
	case usage.Open:
		spent, err := r.split(r.claims, totals)
		if err != nil {
			return err
		}
		r.finish(usage.Committed, totals, spent)
		r.learn()
		return nil
	case usage.Committed:
		if slices.Equal(totals, r.totals) {
			return nil
		}
	case usage.Expired:
		if err := r.commitLate(totals); err != nil {
			return err
		}
		r.learn()
		return nil
	}
	return ErrReservationEnded
}

// Cancel says that the request cost nothing, and puts all units back: Commit(0). So it may be deferred behind a Commit,
// and fails with ErrReservationEnded there.
func (r *Reservation) Cancel() error { return r.Commit(0) }

// expire ends the reservation with what was used, unless it has ended. It cannot fail, for the table does not try again.
func (r *Reservation) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != usage.Open {
		return
	}
	spent, _ := r.split(r.claims, r.totals) // without an error: Use and takeOver have split it before
	r.finish(usage.Expired, r.totals, spent)
}

// read returns units of requests, and of other costs, in the order of the reservation's totals.
func (r *Reservation) read(n int64, costs []Cost) ([]int64, error) {
	totals := make([]int64, 1+len(r.names))
	check := func(n int64, name string) error {
		if n < 0 || n > limit.MaxUnits {
			return fmt.Errorf("%w: %d units of %s; 0 to %d", ErrCost, n, limit.Quote(name), int64(limit.MaxUnits))
		}
		return nil
	}
	if err := check(n, "requests"); err != nil {
		return nil, err
	}
	totals[0] = n
	for i, c := range costs {
		at := slices.Index(r.names, c.Name)
		switch {
		case at < 0:
			return nil, fmt.Errorf("%w: the policy names no cost %s", ErrCost, limit.Quote(c.Name))
		case slices.ContainsFunc(costs[:i], func(before Cost) bool { return before.Name == c.Name }):
			return nil, fmt.Errorf("%w: %s is named twice", ErrCost, limit.Quote(c.Name))
		}
		if err := check(c.Units, c.Name); err != nil {
			return nil, err
		}
		totals[1+at] = c.Units
	}
	return totals, nil
}

// costs is the inverse of read, without those of no units.
func (r *Reservation) costs(totals []int64) (n int64, costs []Cost) {
	for i, name := range r.names {
		if units := totals[1+i]; units > 0 {
			costs = append(costs, Cost{name, units})
		}
	}
	return totals[0], costs
}

// split returns what each of the reservation's claims has of totals. Claims of one limit or meter are filled in their
// order, and the last of them has the excess. The error names a limit that would have more than limit.MaxUnits; that
// many are its part then.
func (r *Reservation) split(claims []claim, totals []int64) (spent []int64, err error) {
	n, costs := r.costs(totals)
	spent = make([]int64, len(claims))
	done := make([]bool, len(claims))
	for i := range claims {
		if done[i] {
			continue
		}
		h := &claims[i]
		left, fault := h.unitsOf(n, costs)
		if fault != nil {
			err = fmt.Errorf("%w: %w", ErrCost, fault)
		}
		last := i
		for j := i; j < len(claims); j++ {
			if of := &claims[j]; j == i || of.feeds(h) {
				spent[j] = min(left, of.n)
				left -= spent[j]
				done[j], last = true, j
			}
		}
		spent[last] += left
	}
	return spent, err
}

// feeds reports whether two claims are to be counted as one: they are of one limit, or of limits that feed one meter.
// One limit's claims may have different meters, where the policy changed in between.
func (h *claim) feeds(of *claim) bool {
	if h.item.Slots || of.item.Slots || h.entry.Tenant() != of.entry.Tenant() {
		return false
	}
	return h.entry.Limit() == of.entry.Limit() ||
		h.item.Metered && of.item.Metered && h.item.Rule.Limit.Meter == of.item.Rule.Limit.Meter
}

// say notes totals, and what each claim has of them: in the journal at one stroke.
func (r *Reservation) say(state usage.ReservationState, totals, spent []int64, ended int64) {
	next := r.at.Next()
	for i := range r.claims {
		r.claims[i].stake.Use(next, spent[i])
	}
	r.at.Switch(state, totals, r.late, ended)
	r.state, r.totals = state, totals
}

// finish ends the reservation.
func (r *Reservation) finish(state usage.ReservationState, totals, spent []int64) {
	now := time.Now()
	r.say(state, totals, spent, now.UnixMilli())
	for i := range r.claims {
		r.c.spend(&r.claims[i], spent[i])
	}
	r.claims = nil
	r.ended(now)
}

// ended notes that the reservation ended then: others may forget it some time later.
func (r *Reservation) ended(now time.Time) {
	as := r.known()
	as.Ended = now.UnixMilli()
	if r.at == nil {
		r.c.session.Records().Know(as)
	}
	r.at.End(as)
	r.at = nil
	r.c.forget(r.c.reserved.end(r, now, &r.c.cfg))
}

// known is what the journal is to know of the reservation.
func (r *Reservation) known() *usage.Reservation {
	return &usage.Reservation{
		ReservationID: usage.ReservationID(r.id), Attributes: r.attrs, Costs: r.names,
		Totals: r.totals, State: r.state, Late: r.late,
	}
}

// spend counts m units of a claim as spent, after h.n were reserved. If m is less, the rest goes back; if m is more, the
// excess is admitted.
func (c *Client) spend(h *claim, m int64) {
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
	if h.void {
		e.SettleAdmitted(n, m, h.window, h.stake)
	} else {
		attend = e.Settle(n, m, h.window, h.stake)
	}
	if h.item.Inherited {
		e.Inherit(-less)
		e.Release(more + less)
	}
	if attend {
		c.session.Attend(e)
	}
}
