package policy

import (
	"time"

	"github.com/f4ee788f/quota/internal/billing"
)

// Closed is a statement as it was closed: a fact.
type Closed struct {
	Tenant   string
	Number   int64 // of the tenant's statements, from 1 without gaps
	Period   billing.Period
	Block    billing.Block
	Document string // its only encoding; empty in lists
	Digest   string
	Complete time.Time // through when usage was complete
	Forced   string    // why it was closed although usage was not complete; empty where it was
	Actor    string
	// Billing is the text of the tenant's billing that its period was worked out by. Where
	// the tenant has another when it is closed, it is refused; it is not kept.
	Billing string
	At      time.Time
}
