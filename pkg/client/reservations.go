package client

import (
	"container/heap"
	"container/list"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// reservations is the table of a client's reservations: those that are yet to be decided, live, or have ended and are
// still known. One tenant has no more than its share of each kind (WithTenantShare).
type reservations struct {
	mu      sync.Mutex
	byID    map[ReservationID]*Reservation
	live    byExpiry
	ended   list.List // of *Reservation, in the order in which they ended
	tenants map[string]*tenancy
	n       int   // that live or are yet to be decided
	units   int64 // of requests, theirs
	expired int64 // so far
	last    int64 // number given out
	closed  bool
}

// tenancy is what a tenant has of the table.
type tenancy struct {
	n     int       // that live or are yet to be decided
	ended list.List // of *Reservation, in the order in which they ended
}

// tableEntry is where a reservation is in the table.
type tableEntry struct {
	at       place
	busy     bool // it is being committed late: not to be forgotten
	index    int  // among those that live
	expires  time.Time
	endedAt  time.Time
	ended    *list.Element // of those that have
	ofTenant *list.Element
}

type place uint8

const (
	nowhere place = iota
	deciding
	living
	remembered // it has ended
)

// knownFor is how many reservations that have ended are known for each that may live.
const knownFor = 4

// share is how much of n one tenant may have; 1 at least.
func share(n int, cfg *config) int { return max(n*cfg.session.TenantShare/100, min(n, 1)) }

// add counts a reservation that is yet to be decided, and gives it a number; false where there are too many.
func (l *reservations) add(r *Reservation, cfg *config) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.n >= cfg.maxReservations {
		return false
	}
	t := l.tenants[r.tenant]
	if t != nil && t.n >= share(cfg.maxReservations, cfg) {
		return false
	}
	l.tenantLocked(r.tenant).n++
	l.n++
	l.units += r.n
	l.last++
	r.id.Number = l.last
	r.entry.at = deciding
	return true
}

// tenantLocked returns what a tenant has, to be added to.
func (l *reservations) tenantLocked(id string) *tenancy {
	t := l.tenants[id]
	if t == nil {
		t = new(tenancy)
		if l.tenants == nil {
			l.tenants, l.byID = make(map[string]*tenancy), make(map[ReservationID]*Reservation)
		}
		l.tenants[id] = t
	}
	return t
}

// start lets an allowed one live; false where the client is closed.
func (l *reservations) start(r *Reservation, expires time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.entry.expires = expires
	if l.closed {
		return false
	}
	r.entry.at = living
	l.byID[r.id] = r
	heap.Push(&l.live, r)
	return true
}

// extend counts n more units.
func (l *reservations) extend(r *Reservation, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.entry.at == living {
		r.n += n
		l.units += n
	}
}

// expires returns when one ends by itself.
func (l *reservations) expires(r *Reservation) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.entry.expires
}

// drop takes out one that was denied.
func (l *reservations) drop(r *Reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(r)
	l.tidyLocked(r.tenant)
}

// leaveLocked takes one out of those that live, or are yet to be decided.
func (l *reservations) leaveLocked(r *Reservation) {
	e := &r.entry
	switch e.at {
	case living:
		if e.index >= 0 {
			heap.Remove(&l.live, e.index)
		}
	case deciding:
	default:
		return
	}
	e.at = nowhere
	l.n--
	l.units -= r.n
	l.tenants[r.tenant].n--
}

func (l *reservations) tidyLocked(tenant string) {
	if t := l.tenants[tenant]; t != nil && t.n == 0 && t.ended.Len() == 0 {
		delete(l.tenants, tenant)
	}
}

// end remembers one that ended then, and returns those that make room for it.
func (l *reservations) end(r *Reservation, now time.Time, cfg *config) (forgotten []ReservationID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(r)
	e, t := &r.entry, l.tenantLocked(r.tenant)
	if e.at == remembered {
		l.ended.Remove(e.ended)
		t.ended.Remove(e.ofTenant)
	}
	e.at, e.busy, e.endedAt = remembered, false, now
	l.byID[r.id] = r
	e.ended, e.ofTenant = l.ended.PushBack(r), t.ended.PushBack(r)
	most := knownFor * cfg.maxReservations
	if t.ended.Len() > share(most, cfg) {
		forgotten = l.forgetLocked(&t.ended, forgotten)
	}
	if l.ended.Len() > most {
		forgotten = l.forgetLocked(&l.ended, forgotten)
	}
	return forgotten
}

// forgetLocked forgets the first that ended of a list.
func (l *reservations) forgetLocked(of *list.List, forgotten []ReservationID) []ReservationID {
	for at := of.Front(); at != nil; at = at.Next() {
		r := at.Value.(*Reservation)
		e := &r.entry
		if e.busy {
			continue
		}
		l.ended.Remove(e.ended)
		l.tenants[r.tenant].ended.Remove(e.ofTenant)
		e.at, e.ended, e.ofTenant = nowhere, nil, nil
		delete(l.byID, r.id)
		l.tidyLocked(r.tenant)
		return append(forgotten, r.id)
	}
	return forgotten
}

// keep has one that has ended not be forgotten until it is let go, or ends again; false where it was forgotten.
func (l *reservations) keep(r *Reservation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.entry.busy = r.entry.at == remembered
	return r.entry.busy
}

// letGo ends a keep.
func (l *reservations) letGo(r *Reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.entry.busy = false
}

// find returns one that is known.
func (l *reservations) find(id ReservationID) (*Reservation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.byID[id]
	return r, ok
}

// due takes out those whose time is over, all of them when the client closes, and forgets those that ended long ago. It
// returns when there is more to do; the zero time for never.
func (l *reservations) due(now time.Time, closing bool) (over []*Reservation, forgotten []ReservationID, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = l.closed || closing
	for len(l.live) > 0 {
		r := l.live[0]
		if !closing && now.Before(r.entry.expires) {
			next = r.entry.expires
			break
		}
		heap.Pop(&l.live) // it counts among those that live until it has ended
		over = append(over, r)
		l.expired++
	}
	for at := l.ended.Front(); at != nil; at = l.ended.Front() {
		e := &at.Value.(*Reservation).entry
		if until := e.endedAt.Add(ReservationKnown); now.Before(until) || e.busy {
			if next.IsZero() || until.Before(next) {
				next = until
			}
			if e.busy {
				next = now.Add(time.Second)
			}
			break
		}
		forgotten = l.forgetLocked(&l.ended, forgotten)
	}
	return over, forgotten, next
}

// count returns how many live, their units, and how many expired so far.
func (l *reservations) count() (n, units, expired int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.n), l.units, l.expired
}

// byExpiry is a heap of those that live, the first to expire first.
type byExpiry []*Reservation

func (h byExpiry) Len() int           { return len(h) }
func (h byExpiry) Less(i, j int) bool { return h[i].entry.expires.Before(h[j].entry.expires) }

func (h byExpiry) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry.index, h[j].entry.index = i, j
}

func (h *byExpiry) Push(r any) {
	r.(*Reservation).entry.index = len(*h)
	*h = append(*h, r.(*Reservation))
}

func (h *byExpiry) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.entry.index = -1
	return r
}

// Reservation returns a reservation of this client, or of an earlier start that its journal knows. It is false for one
// that is not known: see ReservationKnown.
func (c *Client) Reservation(id ReservationID) (*Reservation, bool) { return c.reserved.find(id) }

// expireReservations ends the reservations whose time is over, and when the client closes all of them. It returns when
// there is more to do; the zero time for never.
func (c *Client) expireReservations(now time.Time, closing bool) (next time.Time) {
	over, forgotten, next := c.reserved.due(now, closing)
	for _, r := range over {
		r.expire()
	}
	c.forget(forgotten)
	return next
}

// forget has the journal forget reservations.
func (c *Client) forget(all []ReservationID) {
	for _, id := range all {
		c.session.Records().Forget(usage.ReservationID(id))
	}
}

// recall remembers the reservations and events of earlier starts that the journal knows.
func (c *Client) recall(known []usage.Reservation) {
	for i := range known {
		k := &known[i]
		if k.Event() {
			c.events.recall(c, k)
			continue
		}
		r := &Reservation{
			c: c, id: ReservationID(k.ReservationID), attrs: k.Attributes, names: k.Costs,
			state: k.State, totals: k.Totals, late: k.Late, tenant: match.Lookup(k.Attributes, limit.AttrTenant),
		}
		c.forget(c.reserved.end(r, time.UnixMilli(k.Ended), &c.cfg))
	}
}
