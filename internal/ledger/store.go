package ledger

import (
	"context"
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
}

// By is what usage is summed by.
type By uint8

const (
	ByTotal By = iota
	ByHour
	ByDay
	ByMonth
	ByLimit
	ByAttribute
)

// Query selects usage in the half-open range [From, To), cut at slots.
type Query struct {
	Tenant string // empty for all
	From   time.Time
	To     time.Time
	By     By
	Zone   *time.Location // of days and months; nil for UTC
	Limit  int            // rows at most
	Page   string         // where to go on; empty for the beginning
}

// UsageRow is one sum. Fields that Query.By does not tell apart are zero.
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
	State   string // open, closed, fenced or lost
}

// Store is a ledger engine. Its methods are safe for concurrent use, by several
// servers at once where the engine is shared.
type Store interface {
	// Settle stores reports durably and answers each, in order. Settlement of one
	// report never depends on its neighbours. An error means that none of the
	// receipts can be trusted and all may be sent again.
	Settle(ctx context.Context, reports []Report) ([]Receipt, error)
	// Fold folds reports not yet folded into at most one block, if this caller
	// leads, and returns how many it folded. Callers that do not lead fold 0.
	Fold(ctx context.Context, now time.Time) (int, error)
	Usage(ctx context.Context, q Query) (Usage, error)
	// Agents pages by agent id.
	Agents(ctx context.Context, after string, n int) ([]AgentState, error)
	// Ping reports why the engine cannot settle now, or nil.
	Ping(ctx context.Context) error
	Close() error
}
