package ledger

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

// WouldDeny stands in Row.Attributes of a row without a meter, which has none otherwise:
// its denials are a shadow limit's, which denied nothing. Sums leave them out.
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
	Digest  [32]byte // Sum of all other fields but Origin
	Through int64    // all usage before this is in reports up to this one, Unix milliseconds
	Closed  bool     // the epoch's last
	Origin  Origin   // of the epoch; in its first report, where it has one

	// Barred says why a row is not for whoever brought the report to settle, or nil: it goes to quarantine. It is no
	// part of the report, and looks at nothing but the row's names. Nil bars none.
	Barred func(*Row) error
	// Key is the id of the key that it was brought with; empty where none was asked for. It is no part of the report: the
	// epoch's frontier notes it.
	Key string
	// Overdrawn says of rows, by their places, why they go to quarantine for being above what the agent was granted. It is no part
	// of the report.
	Overdrawn map[int]error
	// Unchecked is set where that is not known now: the report is to be sent again. Likewise.
	Unchecked bool
}

// BarredPrefix begins the reason of a row that is in quarantine because it was Barred. Such rows hold back no statement: whoever
// brought them has no say in whose they are.
const BarredPrefix = "barred: "

// Origin is what an epoch goes on from: an earlier one of the agent that takes no more, for the ledger rejected a report of
// it, or has forgotten some that nobody can send again. What waited there is in the later epoch. It is a condition of
// the report that says so, not a part of it: the ledger takes that report only where it has not settled more of the
// earlier epoch, nor let another go on from it, and settles no more of it from then on. So what
// copies of a journal have in common is settled by one of them.
type Origin struct {
	Epoch int64 // 0 for none
	Total int64 // units of it that are not in the later epoch
}
