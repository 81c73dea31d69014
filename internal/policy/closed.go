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
	At       time.Time
}
