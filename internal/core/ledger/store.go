package ledger

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Status is what became of a report.
type Status uint8

const (
	Settled     Status = iota + 1 // durable now
	Already                       // was durable before
	Ahead                         // an earlier report is missing: send from NextSeq
	Fenced                        // the epoch takes no more reports: a twin, or a contradiction
	Unavailable                   // not stored, try again later
	Rejected                      // breaks a stated bound: kept whole, its epoch fenced
)

// Receipt answers one report.
type Receipt struct {
	Status  Status
	NextSeq int64
	Total   int64 // units settled so far in this epoch
	Message string
	// Unchecked is set where it is Unavailable for ErrUnchecked.
	Unchecked bool
}

// By is what usage is summed by. Sums by total, hour, day and month are over several limits. They add up what
// the meters counted: the admitted units of rows that feed a meter. So a request under three limits counts
// once. Denials are of every row, for one limit denies a request. By limit and attribute each row counts.
type By uint8

const (
	ByTotal     By = iota // one row, or none where there is no usage
	ByHour                // UTC hours
	ByDay                 // days of Query.Zone
	ByMonth               // months of Query.Zone
	ByLimit               // by limit and meter
	ByAttribute           // by limit, meter and attributes
)

// Query selects usage in the half-open range [From, To), cut at slots.
type Query struct {
	Tenant string    // empty for all
	From   time.Time // zero for the beginning of all usage
	To     time.Time // zero for its end
	By     By
	Zone   *time.Location // of days and months; nil for UTC
	Limit  int            // rows at most; 0 for DefaultUsageRows, bounded by MaxUsageRows
	Page   string         // where to go on: Usage.NextPage; empty for the beginning

	Of *Names // of this limit, meter and attributes alone; nil for all

	Version int64   // of this policy version alone; 0 for all but Except
	Except  []int64 // versions left out: those that were only tried beside another
}

// UsageRow is one sum. Fields that Query.By does not tell apart are zero; Tenant
// is the query's.
type UsageRow struct {
	Start      time.Time
	Tenant     string
	Limit      string
	Meter      string
	Attributes string

	Admitted int64
	Overage  int64
	Denied   int64
}

// Usage is the answer to a query, with how far it can be trusted.
type Usage struct {
	Rows     []UsageRow
	Complete time.Time // all usage before this is in; zero when nothing was settled
	Lagging  []string  // agents that hold it back, at most 100
	Lost     Losses    // that may have had usage in the range, at most MaxUsageLosses of them told
	NextPage string
}

// AgentState is one epoch of an agent as the ledger knows it.
type AgentState struct {
	Agent   string
	Epoch   int64
	Seq     int64
	Total   int64
	Through time.Time
	Seen    time.Time
	State   string // open, closed, fenced, gone or lost
	Key     string // Frontier.Key
	Reason  string // why it is fenced, or was declared lost
}

// Cursor is where Store.Agents goes on after this state.
func (a *AgentState) Cursor() string { return a.Agent + "@" + strconv.FormatInt(a.Epoch, 10) }

// ParseCursor reads what Store.Agents goes on after: the agent, and its epochs
// below epoch. A plain agent id skips them all.
func ParseCursor(after string) (agent string, epoch int64) {
	agent, rest, ok := strings.Cut(after, "@") // no agent id holds it
	if !ok {
		return agent, -1
	}
	epoch, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return agent, -1
	}
	return agent, epoch
}

// Standing is which ledger it is, and how far epochs are settled in it.
type Standing struct {
	// Ledger names the ledger and its present life, at most MaxLedger bytes. Reports settled under another name
	// may have been forgotten, by a restore or a failover.
	Ledger    string
	Frontiers []Frontier // one for each epoch asked for, in that order; of Seq 0 where nothing is settled
}

// MaxEpochs bounds the epochs that Store.Standing is asked for at a time.
const MaxEpochs = 1024

// MaxLedger bounds Standing.Ledger, in bytes.
const MaxLedger = 256

// Store is a ledger engine. Its methods are safe for concurrent use, by several
// servers at once where the engine is shared.
type Store interface {
	// Settle stores reports durably and answers each, in order. Settlement of one
	// report never depends on its neighbours. An error means that none of the
	// receipts can be trusted and all may be sent again.
	Settle(ctx context.Context, reports []Report) ([]Receipt, error)
	// Hold notes, durably, that epochs may have their first usage of these tenants, since NotedWithin ago: all of the
	// notes, or none on an error. Their usage is not complete past that until the epoch settled later usage. A note is of
	// that epoch and of its agent's later ones, under which the agent may go on reporting. A repeated note
	// changes nothing, and closed epochs get none.
	Hold(ctx context.Context, holds ...Hold) error
	// Standing says which ledger it is, and how far at most MaxEpochs epochs are settled. It reads where
	// reports are settled, never a replica.
	Standing(ctx context.Context, epochs []Epoch) (Standing, error)
	// Fold folds unfolded reports into at most one block, if this caller leads. It returns how many it folded,
	// and whether it left some of those that it found, later ones aside. Callers that do not lead fold 0 and
	// leave none.
	Fold(ctx context.Context, now time.Time) (folded int, left bool, err error)
	// Usage sums every acknowledged report, folded or not, in one snapshot. A query
	// that cannot be answered wraps ErrQuery.
	Usage(ctx context.Context, q Query) (Usage, error)
	// Agents pages by agent id, and within an agent from its newest epoch on; closed
	// epochs are left out but the newest. It returns at most n. after is an agent
	// id, or the Cursor of the last state, where an agent's epochs are cut in two.
	Agents(ctx context.Context, after string, n int) ([]AgentState, error)
	// Ping reports why the engine cannot settle now, or nil.
	Ping(ctx context.Context) error
	// Close ends what is under way and frees the engine; later calls fail with
	// ErrClosed or ErrUnavailable.
	Close() error
}

// TouchedByAny queries the living epochs that settled usage or hold leases, of any tenant.
const TouchedByAny = "SELECT agent, epoch FROM frontier f WHERE state <> 'closed' AND EXISTS (SELECT 1 FROM touched t WHERE t.agent = f.agent AND t.epoch = f.epoch)"

// Options of an engine. The zero value works.
type Options struct {
	// Accept says why an agent's row may not become an entry (its tenant or meter is unknown), or nil. The row
	// then goes to quarantine, and the rest of its report settles. With ErrUnchecked the report is Unavailable:
	// it may be sent again. The agent is empty for operators. Several goroutines call it, once for rows of a
	// report that differ in attributes and counts alone. Nil accepts all.
	Accept func(agent string, r Row) error
	// Slot is the length of a slot; 0 means DefaultSlot.
	Slot time.Duration
	// Now is the clock of intake and completeness; nil means the engine's own.
	Now func() time.Time
}
