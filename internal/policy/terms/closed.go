package terms

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
	Forced   string    // why it was closed although usage was not complete, or some in quarantine; empty where neither was
	Actor    string
	// Billing is the text of the tenant's billing that its period was worked out by. If the tenant has another when it
	// is closed, closing is refused. It is not kept.
	Billing string
	// Plans counts the subscriptions and changes of payers that begin before the period's end, of the tenant and of all
	// that it ever paid for. If there is one more when it is closed, closing is refused. It is not kept.
	Plans int64
	At    time.Time
}
