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

// eventTable is the events that were booked and are still known. Its mutex is held while events are booked, so that
// none is booked twice. When the table is full, the tenant with the most events forgets its oldest. So no tenant with
// fewer than an equal share loses any to others.
type eventTable struct {
	mu      sync.Mutex
	byID    map[usage.ReservationID]*knownEvent
	all     list.List // of *knownEvent, in the order in which they were booked
	tenants map[string]*tenantEvents
	most    byEvents

	booked, again int64 // events since the client began: booked, and known when they came

	step func() // of tests: called between any two steps of booking; nil for none
}

// knownEvent is one of them.
type knownEvent struct {
	id           usage.ReservationID
	booked       int64 // Unix milliseconds
	of           *tenantEvents
	at, ofTenant *list.Element
}

// tenantEvents is what a tenant has of the table.
type tenantEvents struct {
	attrs []limit.Attribute // the tenant alone, as the journal has it
	all   list.List         // of *knownEvent
	index int               // in byEvents
}

// tenantLocked returns what a tenant has, to be added to.
func (t *eventTable) tenantLocked(id string) *tenantEvents {
	of := t.tenants[id]
	if of == nil {
		of = &tenantEvents{attrs: []limit.Attribute{{Name: limit.AttrTenant, Value: id}}}
		if t.tenants == nil {
			t.tenants, t.byID = make(map[string]*tenantEvents), make(map[usage.ReservationID]*knownEvent)
		}
		t.tenants[id] = of
		heap.Push(&t.most, of)
	}
	return of
}

// rememberLocked adds an event of a tenant that was booked then. It returns one that was forgotten to make room.
func (t *eventTable) rememberLocked(id usage.ReservationID, booked int64, tenant string, most int) (forgotten []usage.ReservationID) {
	of := t.tenantLocked(tenant)
	k := &knownEvent{id: id, booked: booked, of: of}
	k.at, k.ofTenant = t.all.PushBack(k), of.all.PushBack(k)
	t.byID[id] = k
	heap.Fix(&t.most, of.index)
	if t.all.Len() > most {
		oldest := t.most[0].all.Front().Value.(*knownEvent)
		t.forgetLocked(oldest)
		forgotten = append(forgotten, oldest.id)
	}
	return forgotten
}

func (t *eventTable) forgetLocked(k *knownEvent) {
	delete(t.byID, k.id)
	t.all.Remove(k.at)
	k.of.all.Remove(k.ofTenant)
	if k.of.all.Len() > 0 {
		heap.Fix(&t.most, k.of.index)
		return
	}
	t.dropLocked(k.of)
}

// dropLocked forgets a tenant that has no event.
func (t *eventTable) dropLocked(of *tenantEvents) {
	heap.Remove(&t.most, of.index)
	delete(t.tenants, match.Lookup(of.attrs, limit.AttrTenant))
}

// dueLocked forgets those that were booked EventsKnown ago, or earlier.
func (t *eventTable) dueLocked(now time.Time) (forgotten []usage.ReservationID) {
	for at := t.all.Front(); at != nil; at = t.all.Front() {
		k := at.Value.(*knownEvent)
		if now.Sub(time.UnixMilli(k.booked)) < EventsKnown {
			break
		}
		t.forgetLocked(k)
		forgotten = append(forgotten, k.id)
	}
	return forgotten
}

// knows reports whether an event is known.
func (t *eventTable) knows(id usage.ReservationID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.byID[id]
	return k != nil && time.Since(time.UnixMilli(k.booked)) < EventsKnown
}

// count returns how many events are known, were booked, and came again.
func (t *eventTable) count() (known, booked, again int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(t.all.Len()), t.booked, t.again
}

// recall remembers an event of an earlier start that the journal knows; they come in the order in which they were booked.
func (t *eventTable) recall(c *Client, k *usage.Reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.forgetEvents(t.rememberLocked(k.ReservationID, k.Ended, match.Lookup(k.Attributes, limit.AttrTenant), c.cfg.eventsKnown))
}

// forgetEvents has the journal forget events.
func (c *Client) forgetEvents(ids []usage.ReservationID) {
	for _, id := range ids {
		c.session.Records().Forget(id)
	}
}

// byEvents is a heap of tenants, that with the most events first.
type byEvents []*tenantEvents

func (h byEvents) Len() int           { return len(h) }
func (h byEvents) Less(i, j int) bool { return h[i].all.Len() > h[j].all.Len() }

func (h byEvents) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byEvents) Push(of any) {
	of.(*tenantEvents).index = len(*h)
	*h = append(*h, of.(*tenantEvents))
}

func (h *byEvents) Pop() any {
	last := len(*h) - 1
	of := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return of
}
