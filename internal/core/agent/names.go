package agent

import (
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// Names of other rooms, for those who have not moved yet.
type (
	Verdict     = bucket.Verdict
	Outcome     = bucket.Outcome
	Waiter      = bucket.Waiter
	State       = bucket.State
	Plan        = bucket.Plan
	Answered    = bucket.Answered
	Account     = bucket.Account
	Line        = bucket.Line
	Bucket      = bucket.Bucket
	Outbox      = usage.Outbox
	OutboxState = usage.OutboxState
	Journal     = usage.Journal
	Fault       = usage.Fault
	History     = usage.History
	Usage       = usage.Usage
	Collected   = usage.Collected
	Lines       = usage.RecoveredLine
)

const (
	Admitted = bucket.Admitted
	Denied   = bucket.Denied
	Wait     = bucket.Wait
	Rematch  = bucket.Rematch
	Never    = bucket.Never
	Unit     = bucket.Unit
	MaxRows  = usage.MaxRows
)

var (
	NewBucket   = bucket.Of
	CapacityOf  = bucket.CapacityOf
	NewOutbox   = usage.NewOutbox
	NewJournal  = usage.NewJournal
	NewRecovery = usage.NewRecovery
	NewHistory  = usage.NewHistory
)
