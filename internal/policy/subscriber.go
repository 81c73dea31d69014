package policy

import (
	"encoding/json"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Billing says how a tenant's periods follow one another. The zero value is calendar
// months in UTC.
type Billing struct {
	Zone        string `json:"zone,omitempty"`        // IANA time zone; empty for UTC
	Anniversary bool   `json:"anniversary,omitempty"` // months that begin on the day that the tenant began
	// ParentPays puts what the tenant comes to on its parent's statement, or on that of whoever pays for the parent.
	ParentPays bool `json:"parent_pays,omitempty"`
	// From is since when that is so, and its parent is this one, Unix milliseconds; 0, or a time that was past when
	// it was applied first, for since then.
	From int64 `json:"from,omitempty"`
}

// SamePeriods reports whether two have the same periods, whoever pays.
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
	which += " in " + orUTC(b.Zone)
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

// Subscriber is what a statement needs to know of a tenant.
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

// Standing is what a tenant's spending is worked out of.
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

// readBilling reads a tenant's billing.
func readBilling(f *faults, n *yaml.Node, line int, what string) (b Billing) {
	what = "billing of " + what
	if isNull(n) {
		f.add(line, "%s says nothing; give it zone, period or pays, or leave it out", what)
	}
	pays := false
	for _, k := range mapping(f, n, what) {
		var s string
		switch k.name {
		case "zone":
			if word(f, k, what, &s); s == "" {
				continue
			}
			if _, err := limit.LoadZone(s); err != nil {
				f.add(k.line, "zone of %s: %v", what, err)
				continue
			}
			b.Zone = canonicalZone(s)
		case "period":
			switch word(f, k, what, &s); s {
			case "", "calendar":
			case "anniversary":
				b.Anniversary = true
			default:
				f.add(k.line, "period of %s is %s; allowed are calendar and anniversary", what, limit.Quote(s))
			}
		case "from":
			b.From = moment(f, k, what)
		case "pays":
			pays = true
			switch word(f, k, what, &s); s {
			case "", "self":
			case "parent":
				b.ParentPays = true
			default:
				f.add(k.line, "pays of %s is %s; allowed are self and parent", what, limit.Quote(s))
			}
		default:
			unknown(f, k, what, "zone", "period", "pays", "from")
		}
	}
	if b.From != 0 && !pays {
		f.add(line, "%s: from says since when pays holds; give it pays: self or pays: parent, or leave from out", what)
	}
	return b
}

// DiffBilling says how a tenant's billing changes; nil where it does not.
func DiffBilling(tenant string, before, after Billing) []string {
	if before == after {
		return nil
	}
	return []string{fmt.Sprintf("tenant %s: billed by %s → %s", tenant, before, after)}
}
