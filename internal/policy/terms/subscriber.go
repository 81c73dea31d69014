package terms

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Billing says how a tenant's periods follow one another. The zero value is calendar
// months in UTC.
type Billing struct {
	Zone        string `json:"zone,omitempty"`        // IANA time zone; empty for UTC
	Anniversary bool   `json:"anniversary,omitempty"` // months that begin on the day that the tenant began
	// ParentPays puts the tenant's charges on its parent's statement, or on that of the parent's payer.
	ParentPays bool `json:"parent_pays,omitempty"`
	// From is since when ParentPays holds with the present parent, in Unix milliseconds. 0, or a time that was past
	// when it was first applied, means since it was applied.
	From int64 `json:"from,omitempty"`
}

// SamePeriods reports whether two have the same periods. It ignores who pays.
func (b Billing) SamePeriods(c Billing) bool {
	return b.Zone == c.Zone && b.Anniversary == c.Anniversary
}

// Text is how a store keeps it; empty for the zero value.
func (b Billing) Text() string {
	if b == (Billing{}) {
		return ""
	}
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // a string and a bool
	}
	return string(text)
}

// ParseBilling reads what Text wrote.
func ParseBilling(text string) (b Billing, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &b)
	}
	return b, err
}

// String says it in words.
func (b Billing) String() string {
	which := "calendar months"
	if b.Anniversary {
		which = "months from its anniversary"
	}
	which += " in " + utc(b.Zone)
	switch {
	case b.ParentPays && b.SamePeriods(Billing{}):
		which = "its parent"
	case b.ParentPays:
		which = "its parent, and for itself by " + which
	}
	if b.From != 0 {
		which += ", from " + time.UnixMilli(b.From).UTC().Format(time.RFC3339)
	}
	return which
}

// Subscriber is the part of a tenant that a statement needs.
type Subscriber struct {
	ID            string
	Parent        string
	Billing       Billing
	Cap           Cap                    // its own; the zero value for the plan's
	Capped        Capped                 // what it reached
	Subscriptions []billing.Subscription // oldest first; the last has not ended
}

// Ended is when the tenant was closed, Unix seconds: from then on it has no plan. 0 while it is open.
func (s *Subscriber) Ended() int64 {
	if n := len(s.Subscriptions); n > 0 && s.Subscriptions[n-1].Plan == "" {
		return s.Subscriptions[n-1].From
	}
	return 0
}

// Standing is the input of a tenant's spending.
type Standing struct {
	Subscriber          // without subscriptions where there is no such tenant
	Closed     []Closed // its newest statements, at most MaxStanding, newest first, without their documents
	Credits    []Credit // all of its, by id
	Err        error    // why what is stored of it cannot be made out
}

// MaxStanding bounds Standing.Closed: the last one, and those of the present period and the one before.
const MaxStanding = 3

// Cycle is how the tenant's periods follow one another.
func (s *Subscriber) Cycle() (billing.Cycle, error) {
	c := billing.Cycle{Zone: time.UTC, Day: 1}
	if s.Billing.Zone != "" {
		zone, err := limit.LoadZone(s.Billing.Zone)
		if err != nil {
			return c, err
		}
		c.Zone = zone
	}
	if s.Billing.Anniversary && len(s.Subscriptions) > 0 {
		c.Day = time.Unix(s.Subscriptions[0].From, 0).In(c.Zone).Day()
	}
	return c, nil
}

// DiffBilling says how a tenant's billing changes; nil where it does not.
func DiffBilling(tenant string, before, after Billing) []string {
	if before == after {
		return nil
	}
	return []string{fmt.Sprintf("tenant %s: billed by %s → %s", tenant, before, after)}
}

func utc(zone string) string {
	if zone == "" {
		return "UTC"
	}
	return zone
}
