package client

import "time"

// Counters counts decisions since Dial, in units of cost. Requests under way may be missing.
type Counters struct {
	Admitted int64   // units admitted, counted once for each limit that applied
	Denied   int64   // units denied, likewise
	Billed   int64   // units admitted that are reported to the ledger: once each
	Overage  int64   // units of Admitted above a soft limit
	Trials   []Trial // of limits that deny nothing, by name
}

// Trial counts the decisions that a limit on trial would have made: a shadow limit, or one of the policy's shadow
// version. Its units are in no other count.
type Trial struct {
	Limit     string // "(override)" for limits that only tenants' overrides name
	Version   bool   // it is of the shadow version
	Admitted  int64
	WouldDeny int64
}

// Stats is a snapshot of the client's work since Dial, and of its present state. Units are units of cost, not requests.
type Stats struct {
	Waited      int64 // requests that waited for the server
	Unknown     int64 // requests decided by WithFailureMode
	Refused     int64 // requests denied before any limit was asked: an invalid or suspended tenant, a switch, and so on
	Deadlined   int64 // requests denied with ReasonDeadline
	Overloaded  int64 // requests denied with ReasonOverloaded
	Evicted     int64 // buckets in use that made room for others: see WithTenantShare
	Unaccounted int64 // units admitted that no ledger will ever show: FailOpen

	// Work with the server.
	RenewCalls   int64 // Renew calls sent
	RenewFailed  int64 // of these, failed
	SettleCalls  int64 // Settle calls sent
	SettleFailed int64 // of these, failed
	Renewals     int64 // buckets renewed, repeats included
	Tenants      int64 // tenants asked for
	Window       int64 // renewals that may be under way; it shrinks while the server is slow
	Pressing     int64 // buckets that requests wait for, and that find no place in the window
	// Strain is the factor by which leases are lengthened. It is 1 to 16 while the server is slow, and up to 4 while
	// renewals cost more than they are worth.
	Strain float64
	// LateSpends is the most units spent of leases after the store let go of them, because the process did not run.
	LateSpends int64
	// OutageUnits is units admitted out of contact, by leases that had ended or by on_outage. Limits were exceeded by
	// at most that. For slots it is starts without a lease.
	OutageUnits int64
	Overshoot   []Overshoot // LateSpends and OutageUnits by limit

	// What the client has now.
	Buckets       int64
	LiveTenants   int64
	PolicyVersion int64 // 0 until one is known
	Lost          bool  // the server is out of contact

	// Unreachable is why the server did not answer the last call; empty while it does. UnreachableSince is when the
	// first of these calls failed. A client that asks nothing may be unreachable for a while before it is Lost.
	Unreachable      string
	UnreachableSince time.Time

	Reservations  int64 // that live
	UnitsReserved int64 // by them
	Expired       int64 // reservations that ended because nobody committed or cancelled them in time
	EventsKnown   int64 // events that were booked and would be known again, at most WithEventsKnown
	EventsBooked  int64 // events that were booked
	EventsAgain   int64 // events that came and were known

	SwitchFile string // what is wrong with the file of WithSwitchFile; empty for nothing

	// Settlement.
	ReportsPending int64     // frozen, not yet acknowledged
	UnitsPending   int64     // units in them, and in rows not yet frozen
	UnitsSettled   int64     // units acknowledged
	ReportsAside   int64     // reports of a fenced epoch, which only an operator can place
	UnitsAside     int64     // units in them
	Epoch          int64     // under which usage is reported
	Through        time.Time // all usage before this is acknowledged

	// The journal.
	UnitsRecovered int64 // units of earlier starts, acknowledged since
	UnitsToRecover int64 // units of earlier starts, not acknowledged yet
	// Unjournalled is buckets and reservations that found no room in it. A crash takes what such buckets did not report,
	// and bills such reservations whole.
	Unjournalled   int64
	UnitsResent    int64 // units that a restored ledger had forgotten, settled again
	UnitsForgotten int64 // units that it had forgotten and the journal does not have any more
	JournalRefused int64 // bytes that did not verify under the journal's secret when the client began
	// UnitsUnsealed is units of earlier starts that the journal's secret did not seal yet. They are in quarantine, for
	// an operator to retry or discard.
	UnitsUnsealed int64
	Journal       string // why nothing is recorded any more; empty while all is
}

// Overshoot is the most that one limit may have been exceeded by. Units admitted out of contact are taken out of the
// bucket on return.
type Overshoot struct {
	Limit       string // "(override)" for limits that only tenants' overrides name
	LateSpends  int64
	OutageUnits int64
}

// Counters returns the counts so far. It visits every bucket, and nothing is renewed meanwhile. A million buckets take
// a second. It is for metrics and tests.
func (c *Client) Counters() Counters {
	n := c.session.Counts()
	all := Counters{Admitted: n.Admitted, Denied: n.Denied, Billed: n.Billed, Overage: n.Overage}
	for _, t := range n.Trials {
		all.Trials = append(all.Trials, Trial(t))
	}
	return all
}

// Stats returns a snapshot. It takes some microseconds, however many buckets there are.
func (c *Client) Stats() Stats {
	s := c.session.Stats()
	st := Stats{
		Waited: c.waited.Load(), Unknown: c.unknown.Load(), Refused: c.refused.Load(), Deadlined: c.deadlined.Load(),
		Overloaded: c.overloaded.Load(), Evicted: s.Evicted, Unaccounted: c.unaccounted.Load(),
		RenewCalls: s.RenewCalls, RenewFailed: s.RenewFailed, SettleCalls: s.SettleCalls, SettleFailed: s.SettleFailed,
		Renewals: s.Renewals, Tenants: s.Tenants, Window: s.Window, Pressing: s.Pressing, Strain: s.Strain,
		LateSpends: s.LateSpends, OutageUnits: s.OutageUnits,
		Buckets: s.Buckets, LiveTenants: s.LiveTenants, PolicyVersion: s.PolicyVersion, Lost: s.Lost,
		Unreachable: s.Unreachable, UnreachableSince: s.UnreachableSince, SwitchFile: s.SwitchFile,
		ReportsPending: s.ReportsPending, UnitsPending: s.UnitsPending, UnitsSettled: s.UnitsSettled,
		ReportsAside: s.ReportsAside, UnitsAside: s.UnitsAside, Epoch: s.Epoch, Through: s.Through,
		UnitsRecovered: s.UnitsRecovered, UnitsToRecover: s.UnitsToRecover, Unjournalled: s.Unjournalled,
		UnitsResent: s.UnitsResent, UnitsForgotten: s.UnitsForgotten, JournalRefused: s.JournalRefused,
		UnitsUnsealed: s.UnitsUnsealed, Journal: s.Journal,
	}
	for _, o := range s.Overshoot {
		st.Overshoot = append(st.Overshoot, Overshoot(o))
	}
	st.Reservations, st.UnitsReserved, st.Expired = c.reserved.count()
	st.EventsKnown, st.EventsBooked, st.EventsAgain = c.events.count()
	return st
}
