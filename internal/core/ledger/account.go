package ledger

import (
	"cmp"
	"strings"
)

// AccountID names the account of an epoch's grants of one limit.
type AccountID struct {
	Epoch Epoch
	Limit string
}

// Compare orders accounts by agent, epoch and limit.
func (a AccountID) Compare(b AccountID) int {
	return cmp.Or(a.Epoch.compare(b.Epoch), strings.Compare(a.Limit, b.Limit))
}

// Recorded is what servers noted of the renewals that they answered, in units. It lacks what a server had noted
// and not written when it died.
type Recorded struct {
	Granted  int64 // at once, for the next window, and by trickles over their whole term
	Unrun    int64 // of trickles: what an early renewal kept from running
	Returned int64
	Spent    int64 // as renewals told
}

// Add adds o, up to MaxSum: agents tell Returned and Spent, so neither has a bound of its own.
func (r *Recorded) Add(o Recorded) {
	r.Granted = addUp(r.Granted, o.Granted)
	r.Unrun = addUp(r.Unrun, o.Unrun)
	r.Returned = addUp(r.Returned, o.Returned)
	r.Spent = addUp(r.Spent, o.Spent)
}

// Said is the agent's side of the account, as it said last, in units of its whole epoch.
type Said struct {
	Number   int64 // of its accounts; the highest is the last
	Granted  int64 // by answers that arrived
	Unrun    int64
	Returned int64 // by renewals that were answered
	Told     int64 // spent, by renewals that were answered
	Spent    int64
	Beyond   int64 // spent or returned above a lease: in an outage, on credit, by a trickle that ran on
	Held     int64 // what live leases may still spend
	Booked   int64 // put into rows for the ledger, those of limits without a rate included
}

// Expired is what was granted, but not spent, given back or held: leases that ended, windows that turned,
// trickles that nobody drew. If it is below zero, the account does not add up.
func (s *Said) Expired() int64 {
	return s.Granted - s.Unrun + s.Beyond - s.Spent - s.Returned - s.Held
}

// Reconciled is one account from both sides, and what is settled of it.
type Reconciled struct {
	ID       AccountID
	State    string // of the epoch; empty where it never settled
	Recorded Recorded
	Said     *Said // nil where the agent said nothing
	Settled  int64 // units in reports, folded or not, those in quarantine included
	// Overdrawn is units of Settled that are in quarantine for exceeding the grants, neither released nor
	// discarded.
	Overdrawn int64
}

// Names of differences between the two sides. Each has one cause. Those of an open epoch may be gone a moment
// later.
const (
	InFlight   = "in flight"                         // epoch is open; one side's account is older
	LostReply  = "lost reply"                        // granted by an answer that did not arrive, or told again after one
	RecordLost = "server restarted before recording" // or ended, or could not write what it had noted
	AgentGone  = "agent gone"                        // the agent's last account came before its end
	Beyond     = "beyond leases"                     // spent without a lease, or above one
	Untold     = "not told"                          // spent under a lease, and in no renewal that was answered
	Unsettled  = "not settled yet"                   // booked, and its report is still to come
	Missing    = "missing"                           // booked and never settled, although the epoch was closed
	BroughtIn  = "brought in"                        // settled after the agent's last account
	Unbalanced = "does not add up"                   // the agent says that it spent, returned and holds more than it had
	Overdrawn  = "settled above granted"             // in quarantine: above the agent's recorded grants
)

// DifferenceNames are all of them.
var DifferenceNames = []string{InFlight, LostReply, RecordLost, AgentGone, Beyond, Untold, Unsettled, Missing, BroughtIn, Unbalanced, Overdrawn}

// Difference is units that do not agree, and why.
type Difference struct {
	Name  string
	Of    string // granted, unrun, returned, spent or settled
	Units int64
}

// Fault reports whether the difference has no legitimate cause.
func (d *Difference) Fault() bool {
	return d.Name == Missing || d.Name == Unbalanced || d.Name == Overdrawn
}

// Differences are what does not agree, each with its name.
func (r *Reconciled) Differences() []Difference {
	said := r.Said
	if said == nil {
		said = &Said{}
	}
	open := r.State == "" || r.State == StateOpen
	gone := r.State == StateLost || r.State == StateFenced || r.State == StateGone || r.Said == nil
	// An agent's last account is written before its last report is acknowledged. If more is settled, the agent
	// was killed after the last account. Its journal's recovery brought the rest and closed the epoch.
	recovered := r.State == StateClosed && r.Settled > said.Booked
	var found []Difference
	note := func(of string, units int64, name string) {
		if units != 0 {
			found = append(found, Difference{name, of, units})
		}
	}
	// between names a surplus (above zero) or a lack of one side.
	between := func(of string, units int64, more, less string) {
		switch {
		case open:
			more, less = InFlight, InFlight
		case gone || recovered:
			more = AgentGone
		}
		if units < 0 {
			more = less
		}
		note(of, units, more)
	}
	note("settled", r.Overdrawn, Overdrawn)
	between("granted", r.Recorded.Granted-said.Granted, LostReply, RecordLost)
	between("unrun", r.Recorded.Unrun-said.Unrun, LostReply, RecordLost)
	between("returned", r.Recorded.Returned-said.Returned, LostReply, RecordLost)
	between("spent", r.Recorded.Spent-said.Told, LostReply, RecordLost)
	if r.Said == nil {
		// By servers' records.
		note("spent", max(r.Recorded.Spent-max(r.Recorded.Granted-r.Recorded.Unrun-r.Recorded.Returned, 0), 0), Beyond)
		return found
	}
	if !open {
		note("spent", said.Spent-said.Told, Untold)
	}
	note("spent", said.Beyond, Beyond)
	if e := said.Expired(); e < 0 {
		note("granted", -e, Unbalanced)
	}
	switch d := said.Booked - r.Settled; {
	case d > 0 && open:
		note("settled", d, Unsettled)
	case d > 0 && gone:
		note("settled", d, AgentGone)
	case d > 0:
		note("settled", d, Missing)
	case open:
		note("settled", d, InFlight)
	default:
		note("settled", d, BroughtIn)
	}
	return found
}

// ReconcileQuery selects accounts.
type ReconcileQuery struct {
	Agent string // empty for all
	Epoch int64  // of that agent; 0 for all
	After AccountID
	N     int // at most
	// Since leaves out epochs that settled nothing since, in Unix milliseconds; 0 for none.
	Since int64
}

// Account is what one server has to write of an account.
type Account struct {
	ID       AccountID
	Recorded Recorded // since the last time
	Said     *Said    // the last; nil where there is none
	// Claimed is set if only the agent says that there is such a limit. Its word is kept beside what servers
	// recorded of that limit, and makes no account by itself.
	Claimed bool
}
