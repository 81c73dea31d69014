package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
	"github.com/f4ee788f/quota/internal/core/usage"
)

const (
	// EventsKnown is how long an event that was booked is known: for so long it is booked once, however often it comes.
	EventsKnown = usage.EventKnownFor
	// DefaultEventsKnown is WithEventsKnown's default.
	DefaultEventsKnown = 1 << 18
	// MaxEventName is the most bytes of an event's source, and of its id.
	MaxEventName = 256

	maxEventsKnown = 1 << 24
)

var (
	// ErrEventName is wrapped by errors about an event's source or id.
	ErrEventName = errors.New("client: invalid event")
	// ErrUnjournalled is returned where events would not survive a kill: there is no journal, it was given up, or it has
	// no room. Nothing is booked.
	ErrUnjournalled = errors.New("client: no journal to keep what is booked")
)

// Event is usage that somebody else measured, and tells of once or several times.
type Event struct {
	Source string // who tells of it; 0 to 256 bytes
	ID     string // one of that source's; 1 to 256 bytes
	Request
}

// EventError says which of several events was not booked, and so why none was.
type EventError struct {
	Index int // in the call
	Err   error
}

// Error implements error.
func (e *EventError) Error() string { return fmt.Sprintf("event %d: %v", e.Index, e.Err) }

// Unwrap returns why.
func (e *EventError) Unwrap() error { return e.Err }

// BookEvents books events as Book does, each once. It skips those whose tenant, source and id were booked less than
// EventsKnown ago. Costs that the policy does not name are left out, for events tell more than is limited. So are limits
// without weights for an event. A limit that would count more than 1,000,000,000 units of it counts these. It returns
// how many were booked; the rest was known.
//
// All are booked or none, with an *EventError for the first that cannot be, or ErrUnjournalled. Events that were
// booked survive a kill of the process, and so do their names, for the next client of the journal. A loss of power may
// lose or repeat events of its last tenth of a second. A kill meanwhile may leave some of the events booked: the same
// call again books the others.
//
// WithEventsKnown bounds how many are known. It is safe for concurrent use, and waits as Book does.
func (c *Client) BookEvents(ctx context.Context, events ...Event) (booked int, err error) {
	if !c.cfg.eventsAnyhow && (c.session.Records() == nil || c.session.Records().Fault() != nil) {
		return 0, ErrUnjournalled
	}
	for {
		switch booked, err = c.tryEvents(ctx, events); {
		case !errors.Is(err, agent.ErrGone):
			return booked, err
		case c.closed.Load():
			return 0, &NotBookedError{Reason: ReasonClosed}
		}
	}
}

// booking is an event that is to be booked.
type booking struct {
	index  int // in the call
	id     usage.ReservationID
	tenant string
	claims []claim // their buckets are entered
	spent  []int64 // of each claim

	of *tenantEvents
	at *usage.Reserved // the journal's part; nil without
}

func (c *Client) tryEvents(ctx context.Context, events []Event) (booked int, err error) {
	var all []*booking
	defer func() {
		for _, b := range all {
			for i := range b.claims {
				b.claims[i].entry.Leave()
			}
		}
	}()
	for i := range events {
		e := &events[i]
		if len(e.Source) > MaxEventName || len(e.ID) > MaxEventName || e.ID == "" {
			return 0, &EventError{i, fmt.Errorf("%w: a source has 0 to %d bytes, and an id 1 to %d", ErrEventName, MaxEventName, MaxEventName)}
		}
		tenant := match.Lookup(attributesOf(e.Attributes), limit.AttrTenant)
		b := &booking{index: i, id: usage.EventID(tenant, e.Source, e.ID), tenant: strings.Clone(tenant)}
		if c.events.knows(b.id) {
			continue // whatever has become of its tenant
		}
		r := c.request(e.Units, e.Costs, attributesOf(e.Attributes))
		r.endless, r.measured = true, true
		b.claims, err = r.charges(ctx, nil)
		r.end()
		all = append(all, b)
		switch {
		case errors.Is(err, agent.ErrGone):
			return 0, err
		case err != nil:
			return 0, &EventError{i, err}
		}
	}
	if c.closed.Load() { // what was entered before is waited for
		return 0, &NotBookedError{Reason: ReasonClosed}
	}
	return c.bookAll(all, len(events))
}

// bookAll books events that are not known yet. The journal first has a record of each, which a kill drops. One store
// then says that an event is booked: from there on a kill bills what its buckets have not counted yet, and knows it. All
// are those of the came events that were not known before.
func (c *Client) bookAll(all []*booking, came int) (booked int, err error) {
	t := &c.events
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	c.forgetEvents(t.dueLocked(now))
	fresh := make(map[usage.ReservationID]bool, len(all))
	var next []*booking
	for _, b := range all {
		if t.byID[b.id] == nil && !fresh[b.id] {
			fresh[b.id] = true
			next = append(next, b)
		}
	}
	for i, b := range next {
		t.stepped()
		b.of = t.tenantLocked(b.tenant)
		if !c.writeDown(b) && !c.cfg.eventsAnyhow {
			for _, b := range next[:i+1] {
				b.at.Drop()
			}
			t.tidyLocked(next[:i+1])
			return 0, ErrUnjournalled
		}
	}
	for _, b := range next {
		t.stepped()
		copied := b.at.Next()
		for i := range b.claims {
			b.claims[i].stake.Use(copied, b.spent[i])
		}
		t.stepped()
		b.at.Switch(usage.Committed, nil, false, now.UnixMilli())
	}
	for _, b := range next {
		for i := range b.claims {
			t.stepped()
			c.spend(&b.claims[i], b.spent[i])
		}
		t.stepped()
		as := b.record(usage.Committed, now)
		if b.at == nil {
			c.session.Records().Know(as)
		}
		b.at.End(as)
		c.forgetEvents(t.rememberLocked(b.id, now.UnixMilli(), b.tenant, c.cfg.eventsKnown))
	}
	t.stepped()
	t.booked, t.again = t.booked+int64(len(next)), t.again+int64(came-len(next))
	return len(next), nil
}

func (t *eventTable) stepped() {
	if t.step != nil {
		t.step()
	}
}

// tidyLocked forgets tenants that have no event.
func (t *eventTable) tidyLocked(all []*booking) {
	for _, b := range all {
		if t.tenants[b.tenant] == b.of && b.of.all.Len() == 0 {
			t.dropLocked(b.of)
		}
	}
}

// record is what the journal is told of an event.
func (b *booking) record(state usage.ReservationState, now time.Time) *usage.Reservation {
	return &usage.Reservation{ReservationID: b.id, Attributes: b.of.attrs, State: state, Ended: now.UnixMilli()}
}

// writeDown begins the journal's record of an event, as of a reservation of no units. It is false where not all that is
// to be billed would survive a kill.
func (c *Client) writeDown(b *booking) bool {
	stakes := make([]usage.Stakes, len(b.claims))
	kept := true
	b.spent = make([]int64, len(b.claims))
	for i := range b.claims {
		h := &b.claims[i]
		b.spent[i], h.n = h.n, 0
		stakes[i] = h.staked()
		kept = kept && (h.entry.Cell() != nil || !h.entry.Metered() || b.spent[i] == 0)
	}
	at, got := c.session.Records().Reserve(&usage.Reservation{ReservationID: b.id, Attributes: b.of.attrs}, stakes)
	b.at = at
	for i := range got {
		b.claims[i].stake = got[i]
	}
	return kept && at != nil
}

// WithEventsKnown bounds the events that are known after they were booked (BookEvents): by default 262,144, 1 to
// 16,777,216, of some 500 bytes each. When there are more, the tenant that has the most forgets its oldest.
func WithEventsKnown(n int) Option { return func(c *config) { c.eventsKnown = n } }

// WithoutEventJournal has BookEvents book without a journal, too. A kill then loses what it booked since the last
// report, and which events are known: those that come again are booked again.
func WithoutEventJournal() Option { return func(c *config) { c.eventsAnyhow = true } }
