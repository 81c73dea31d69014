package client

import "time"

// Counts is what was decided since Dial, in units of cost. Requests under way may be missing.
type Counts struct {
	Admitted int64 // units admitted, one count for each limit that held them
	Denied   int64 // units denied, likewise
	Billed   int64 // units admitted that are reported to the ledger: once each
	Overage  int64 // units of Admitted that were above a soft limit
	// Trials has what limits that only try would have done, by name: one count for each limit.
	Trials []Trial
}

// Stats is a snapshot of the client's work since Dial, and of what it holds now. Units are
// units of cost, not requests.
type Stats struct {
	Waited int64 // requests that had to wait for the server
	// Requests denied for another reason than a limit.
	Unknown, Refused, Deadlined, Overloaded int64
	// Evicted is buckets in use that made room for others': see WithTenantShare.
	Evicted int64
	// Unaccounted is units admitted that no ledger will ever show: FailOpen.
	Unaccounted int64

	// Work with the server.
	RenewCalls   int64 // Renew RPCs sent, and of these failed
	RenewFailed  int64
	SettleCalls  int64
	SettleFailed int64
	Renewals     int64 // buckets renewed, repeats included
	Tenants      int64 // tenants asked for
	Window       int64 // renewals that may be under way: it shrinks where calls take longer than a server that keeps up with its agents needs
	Pressing     int64 // buckets that requests asked to be renewed, and that wait for a place among these
	// Strain is how many times as long as it should what is asked of the server takes, 1 to 16, or, up to 4, how many times as much as they are
	// worth renewals cost: leases last as many times as long.
	Strain     float64
	LateSpends int64 // units that may have been spent of leases after the store had let go of them, because the process did not run
	// OutageUnits is units admitted out of contact, between the last answer and the next, by
	// leases that ended in between, or by on_outage without any: the most that limits were exceeded by. Of slots, starts without one.
	OutageUnits int64
	// Overshoot is both by limit, with those that have none: their sums are the two above.
	Overshoot []Overshoot

	// What is held.
	Buckets       int64
	LiveTenants   int64
	PolicyVersion int64 // 0 until one is known
	Lost          bool  // the server is out of contact

	// Unreachable is why the server did not answer the last call; empty while it does. UnreachableSince is when the first
	// of these calls failed. A client that asks nothing may be unreachable for a while before it is Lost.
	Unreachable      string
	UnreachableSince time.Time

	Reservations  int64 // that live
	UnitsReserved int64 // theirs
	Expired       int64 // reservations that were cancelled because nobody ended them in time

	// SwitchFile is what is wrong with the file of WithSwitchFile; empty for nothing.
	SwitchFile string

	// Settlement.
	ReportsPending int64 // frozen, not yet acknowledged
	UnitsPending   int64 // units in them, and in rows not yet frozen
	UnitsSettled   int64 // units acknowledged
	ReportsAside   int64 // reports of a fenced epoch, which only an operator can place
	UnitsAside     int64
	Epoch          int64     // under which usage is reported
	Through        time.Time // all usage before this is acknowledged

	// The journal.
	UnitsRecovered int64 // units of earlier lives that are acknowledged now
	UnitsToRecover int64 // and that are not
	Unjournalled   int64 // buckets that found no room in it: a crash takes what they did not report
	UnitsResent    int64 // units that a ledger that went back had forgotten, settled again
	UnitsForgotten int64 // and that cannot be sent again: without a journal, or older than what it keeps
	// JournalRefused is bytes of the journal that did not verify under its secret when this client began, and were kept aside.
	JournalRefused int64
	Journal        string // why nothing is recorded any more; empty while all is
}

// Overshoot is what one limit may have been exceeded by at most. What was admitted out of contact is taken out of the
// bucket on return.
type Overshoot struct {
	Limit       string // "(override)" for those that only tenants' overrides name
	LateSpends  int64
	OutageUnits int64
}

// Trial is what a limit that denies nothing would have done: a shadow limit, or one of the shadow
// version of the policy. Its units are in none of the other counts.
type Trial struct {
	Limit     string // "(override)" for those that only tenants' overrides name
	Version   bool   // of the shadow version
	Admitted  int64
	WouldDeny int64
}

// Stats returns a snapshot. It takes some microseconds, however many buckets there are.
func (c *Client) Stats() Stats {
	s := c.session.Stats()
	st := Stats{
		Waited: c.waited.Load(), Unknown: c.unknown.Load(), Refused: c.refused.Load(), Deadlined: c.deadlined.Load(), Overloaded: c.overloaded.Load(),
		Evicted: s.Evicted, Unaccounted: c.unaccounted.Load(),
		RenewCalls: s.RenewCalls, RenewFailed: s.RenewFailed, SettleCalls: s.SettleCalls, SettleFailed: s.SettleFailed,
		Renewals: s.Renewals, Tenants: s.Tenants, Window: s.Window, Pressing: s.Pressing, Strain: s.Strain,
		LateSpends: s.LateSpends, OutageUnits: s.OutageUnits,
		Buckets: s.Buckets, LiveTenants: s.LiveTenants, PolicyVersion: s.PolicyVersion, Lost: s.Lost,
		Unreachable: s.Unreachable, UnreachableSince: s.UnreachableSince, SwitchFile: s.SwitchFile,
		ReportsPending: s.ReportsPending, UnitsPending: s.UnitsPending, UnitsSettled: s.UnitsSettled,
		ReportsAside: s.ReportsAside, UnitsAside: s.UnitsAside, Epoch: s.Epoch, Through: s.Through,
		UnitsRecovered: s.UnitsRecovered, UnitsToRecover: s.UnitsToRecover, Unjournalled: s.Unjournalled,
		UnitsResent: s.UnitsResent, UnitsForgotten: s.UnitsForgotten, JournalRefused: s.JournalRefused, Journal: s.Journal,
	}
	for _, o := range s.Overshoot {
		st.Overshoot = append(st.Overshoot, Overshoot(o))
	}
	st.Reservations, st.UnitsReserved, st.Expired = c.reserved.count()
	return st
}
