package client

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// maxClaims bounds what a reservation has of buckets and windows: Extend in each of many windows adds one for each.
const maxClaims = 1024

// maxAttributes bounds the attributes that a reservation keeps.
const maxAttributes = 64

// Bounds of Request.Expires.
const (
	MinReservationTime = time.Second
	MaxReservationTime = time.Hour
)

// Reserve decides a request whose cost is known only afterwards, as AllowN does. n is the most that it may cost, 1 to
// 1,000,000,000. An allowed one comes with a Reservation of n units, which the caller has to end: Commit says what the
// request cost, Cancel that it cost nothing. After WithReservationTime it ends by itself.
//
// For the limits a reserved unit is spent until the reservation ends. Units that Commit or Cancel puts back can be
// spent again, unless their window is over. For the ledger only committed units count.
//
// While WithMaxReservations of them live, or one tenant has its share of these, requests are denied with
// ReasonOverloaded.
func (c *Client) Reserve(ctx context.Context, n int64, attributes ...Attribute) (*Reservation, Decision) {
	return c.ReserveRequest(ctx, Request{Units: n, Attributes: attributes})
}

// ReserveRequest is Reserve for a request that may have several costs: see Decide. It has to cost something, and
// has at most 64 attributes. Its Expires is 0, or 1 second to 1 hour. Otherwise it is denied as ReasonInvalid.
//
// Of a cost for which the policy says `reserve`, its units are the most that are reserved. Once twenty of the tenant's
// requests alike were committed, it is what so many of them cost at most; until then, the policy's `first`. Reserved
// tells, and Extend reserves more. With Request.Whole its units are reserved.
func (c *Client) ReserveRequest(ctx context.Context, q Request) (*Reservation, Decision) {
	lasts := c.cfg.reservationTime
	if q.Expires != 0 {
		lasts = q.Expires
	}
	if q.Units < 0 || nothing(q.Units, q.Costs) || len(q.Attributes) > maxAttributes || q.Expires != 0 && (q.Expires < MinReservationTime || q.Expires > MaxReservationTime) {
		c.refused.Add(1)
		return nil, Decision{Reason: ReasonInvalid}
	}
	r := c.request(q.Units, q.Costs, attributesOf(q.Attributes))
	res := &Reservation{c: c, id: ReservationID{Epoch: c.session.Epoch()}, n: q.Units, whole: q.Whole, tenant: strings.Clone(r.tenant())}
	if !c.reserved.add(res, &c.cfg) {
		r.end()
		if c.closed.Load() {
			return nil, Decision{Reason: ReasonClosed}
		}
		c.overloaded.Add(1)
		return nil, inASecond(ReasonOverloaded, nil)
	}
	for i := range q.Costs { // where no policy is known
		res.names = append(res.names, strings.Clone(q.Costs[i].Name))
		res.most = append(res.most, q.Costs[i].Units)
	}
	r.reserves = res
	d := r.decide(ctx)
	if !d.Allowed {
		c.reserved.drop(res)
		return nil, d
	}
	res.attrs = kept(attributesOf(q.Attributes))
	res.totals = make([]int64, 1+len(res.names))
	res.open()
	if !c.reserved.start(res, time.Now().Add(lasts)) {
		_ = res.Cancel() // Close came first
		return nil, Decision{Reason: ReasonClosed}
	}
	c.session.Rouse() // the loop expires it
	return res, d
}

// kept returns a copy of a request's attributes as limits and buckets see them: of a bounded size.
func kept(attributes []limit.Attribute) (all []limit.Attribute) {
	for _, a := range attributes {
		if len(a.Name) <= limit.MaxNameLen { // no limit speaks of others
			all = append(all, limit.Attribute{Name: a.Name, Value: limit.Value(a.Value)})
		}
	}
	own(all)
	return all
}

// Extend reserves n more units of requests, and more of other costs: all of them or nothing. Of slots it takes none. It
// waits as Reserve does. The Decision is ReasonInvalid where the reservation has ended. So it is where a limit would be
// above 1,000,000,000 units, and after a thousand windows.
//
// A denial says that the budget has ended: stop what streams, and Commit what was used.
func (r *Reservation) Extend(ctx context.Context, n int64, costs ...Cost) Decision {
	if r == nil || n < 0 || nothing(n, costs) || !r.lives() {
		if r != nil {
			r.c.refused.Add(1)
		}
		return Decision{Reason: ReasonInvalid}
	}
	adds, err := r.read(n, costs)
	if err != nil { // they could not be committed
		r.c.refused.Add(1)
		return Decision{Reason: ReasonInvalid}
	}
	q := r.c.request(n, costs, r.attrs)
	more := &Reservation{c: r.c, n: n}
	q.reserves, q.endless = more, true
	d := q.decide(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !d.Allowed {
		if d.Reason == ReasonLimit { // any other says nothing of what the stream would have cost
			r.extended(adds, true)
		}
		return d
	}
	if r.state != usage.Open || !r.takeOver(more) {
		for i := range more.claims {
			r.c.spend(&more.claims[i], 0)
		}
		r.c.refused.Add(1)
		return Decision{Reason: ReasonInvalid}
	}
	r.extended(adds, false)
	r.c.reserved.extend(r, n)
	return d
}

// reserve hands the units that the request has over to its reservation.
func (r *request) reserve() {
	res := r.reserves
	res.claims = slices.Clone(r.claims)
	for i := range res.claims {
		h := &res.claims[i]
		h.void = r.mode != limit.ModeNormal
		if !h.item.Slots && !h.void && h.n > 0 {
			h.entry.Reserve(h.n, h.window)
			r.c.session.Attend(h.entry) // its lease has something to go on for
		}
	}
}

// open records the reservation: from here on a kill bills what was used of it.
func (r *Reservation) open() {
	of := &usage.Reservation{
		ReservationID: usage.ReservationID(r.id), Attributes: r.attrs, Costs: r.names, Totals: make([]int64, len(r.totals)),
	}
	var stakes []usage.Stakes
	for i := range r.claims {
		stakes = append(stakes, r.claims[i].staked())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, got := r.c.session.Records().Reserve(of, stakes)
	r.at = at
	for i := range got {
		r.claims[i].stake = got[i]
		got[i].Reserve(r.claims[i].n)
	}
	r.state = usage.Open
	at.Switch(usage.Open, r.totals, false, 0)
}

// staked is what the journal is told of a claim.
func (h *claim) staked() usage.Stakes {
	if h.item.Slots {
		return usage.Stakes{} // of slots nothing is billed
	}
	return usage.Stakes{Cell: h.entry.Cell(), Inherited: h.item.Inherited}
}

// takeOver takes what another reservation has of the limits; false where that would be too much of one.
func (r *Reservation) takeOver(more *Reservation) bool {
	var stakes []usage.Stakes
	var fresh []claim
	if len(r.claims)+len(more.claims) > maxClaims {
		return false
	}
	if _, err := r.split(slices.Concat(r.claims, more.claims), r.totals); err != nil {
		return false // what was used could not be billed
	}
	same := make([]int, len(more.claims))
	for i := range more.claims {
		h := &more.claims[i]
		same[i] = slices.IndexFunc(r.claims, func(of claim) bool {
			return of.entry == h.entry && of.window == h.window && of.void == h.void && !h.item.Slots
		})
		if at := same[i]; at >= 0 && r.claims[at].n+h.n > limit.MaxUnits {
			return false
		}
	}
	for i := range more.claims {
		h := &more.claims[i]
		at := same[i]
		if at < 0 {
			fresh, stakes = append(fresh, *h), append(stakes, h.staked())
			continue
		}
		h.unpin()
		r.claims[at].n += h.n
		r.claims[at].stake.Reserve(r.claims[at].n)
	}
	got, _ := r.at.More(stakes)
	for i := range fresh {
		fresh[i].stake = got[i]
		got[i].Reserve(fresh[i].n)
	}
	r.claims = append(r.claims, fresh...)
	return true
}
