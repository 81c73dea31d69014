package ledger

import "errors"

// Row is usage of one key in one slot: comparable, so that it can be a map's key
// with its counts at zero.
type Row struct {
	Slot       int64 // start of the slot, Unix seconds
	Tenant     string
	Limit      string
	Meter      string // empty where the limit feeds none
	Version    int64  // policy version that the units were admitted under
	Plan       string // that the tenant had then, at the agent; empty where that is not known
	Attributes string // name=value pairs in the limit's order, joined by AttributeSep

	Admitted int64 // units admitted, overage included
	Overage  int64 // of these, above a soft limit
	Denied   int64
}

// AttributeSep joins the pairs of Row.Attributes; no name or value may hold it.
const AttributeSep = "\x1f"

// WouldDeny stands in Row.Attributes of a shadow limit's row, which has no meter and no attributes otherwise.
// Such a limit denied nothing, so sums leave its denials out.
const WouldDeny = "shadow=true"

// Report is what an agent sends once. It is frozen when made: the same bytes at
// every attempt, until a receipt says that it is durable.
type Report struct {
	Agent   string
	Epoch   int64
	Seq     int64    // from 1, without gaps
	Before  int64    // units admitted in all reports before this one
	After   int64    // Before + the rows' Admitted
	Payload []byte   // rows in the canonical encoding; empty for a heartbeat
	Digest  [32]byte // Sum of all other fields up to Closed
	Through int64    // all usage before this is in reports up to this one, Unix milliseconds
	Closed  bool     // the epoch's last
	Origin  Origin   // of the epoch; in its first report, where it has one
	// Unsealed is set if the agent's journal is under a secret and does not vouch for the rows. All go to
	// quarantine.
	Unsealed bool

	// Barred says why the sender may not settle a row, or nil. Such a row goes to quarantine. Barred is no part
	// of the report, and looks only at the row's names. Nil bars none.
	Barred func(*Row) error
	// Key is the id of the key that the report was brought with; empty if none was asked for. It is no part of
	// the report: the epoch's frontier notes it.
	Key string
	// Overdrawn says of rows, by their places, that they exceed what the agent was granted, and why. They go to
	// quarantine. It is no part of the report.
	Overdrawn map[int]error
	// Unchecked is set if the grants are not known now: the report is to be sent again. It is no part of the
	// report.
	Unchecked bool
}

// BarredPrefix begins the reason of a quarantined row that was Barred. Such rows hold back no statement: their
// sender has no say in whose they are.
const BarredPrefix = "barred: "

// UnsealedPrefix begins the reason of a row that is in quarantine because its report is Unsealed.
const UnsealedPrefix = "unsealed: "

var errUnsealed = errors.New(UnsealedPrefix + "the agent's journal has it in cells alone: counted within a second of a crash, or written there by somebody else")

// Origin names the earlier epoch of the agent that an epoch goes on from. The earlier epoch takes no more: the
// ledger rejected one of its reports, or has forgotten some that nobody can send again. What waited there is in
// the later epoch.
//
// Origin is a condition of the report that states it, not a part of it. The ledger refuses the report if it has
// settled more of the earlier epoch, or if another epoch goes on from it. It settles no more of the earlier
// epoch from then on. So only one copy of a journal settles what all copies have in common.
type Origin struct {
	Epoch int64 // 0 for none
	Total int64 // units of it that are not in the later epoch
}
