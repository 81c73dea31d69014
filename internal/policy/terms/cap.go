package terms

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// The effects of reaching a spending cap.
const (
	CapStop     = "stop"
	CapThrottle = "throttle"
	CapAlert    = "alert"
	CapNone     = "none" // a tenant has none, whatever its plan has
)

// CapName is the name of a spending cap's event, and of the limit that throttles.
const CapName = "spending_cap"

// Cap is the most that a tenant may spend in a period, and what happens then. It is
// comparable; the zero value says nothing.
type Cap struct {
	Amount   int64  `json:"amount,omitempty"` // minor units
	Currency string `json:"currency,omitempty"`
	At       string `json:"at"`                 // one of the Cap constants
	Rate     string `json:"rate,omitempty"`     // of CapThrottle
	Webhooks string `json:"webhooks,omitempty"` // names, with commas
}

// Money is the cap's amount.
func (c Cap) Money() billing.Money { return billing.Money{Amount: c.Amount, Currency: c.Currency} }

// WebhookNames are where the cap's event goes.
func (c Cap) WebhookNames() []string {
	if c.Webhooks == "" {
		return nil
	}
	return strings.Split(c.Webhooks, ",")
}

// Text is how a store keeps it; empty for the zero value.
func (c Cap) Text() string {
	if c == (Cap{}) {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and a number
	}
	return string(text)
}

// ParseCap reads what Text wrote.
func ParseCap(text string) (c Cap, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &c)
	}
	return c, err
}

// String says it in words; empty for the zero value.
func (c Cap) String() string {
	switch c.At {
	case "":
		return ""
	case CapNone:
		return "no cap"
	case CapThrottle:
		return fmt.Sprintf("%s, then throttle to %s", c.Money(), c.Rate)
	}
	return fmt.Sprintf("%s, then %s", c.Money(), c.At)
}

// Capped says that a tenant reached its cap. It holds until the period ends, or the cap is no longer reached. It is
// comparable; the zero value holds nothing.
type Capped struct {
	At     string `json:"at"` // CapStop or CapThrottle
	Rate   string `json:"rate,omitempty"`
	Period string `json:"period"`
	Until  int64  `json:"until"` // Unix seconds: when the period ends
}

// Text is how a store keeps it; empty for the zero value.
func (c Capped) Text() string {
	if c == (Capped{}) {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and a number
	}
	return string(text)
}

// ParseCapped reads what Text wrote.
func ParseCapped(text string) (c Capped, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &c)
	}
	return c, err
}

// Hold applies a reached cap to a tenant: it is stopped, or has one more limit. A tenant that has as many limits as it
// may is stopped, because it cannot have one more.
func (c Capped) Hold(t *limit.Tenant) {
	if c == (Capped{}) {
		return
	}
	rate, err := limit.ParseRate(c.Rate)
	if c.At != CapThrottle || err != nil || len(t.Overrides) >= limit.MaxPlanLimits {
		t.Capped = true
		return
	}
	t.Overrides = append(slices.Clip(t.Overrides), limit.Limit{
		Name: CapName, Algorithm: limit.TokenBucket, Rate: rate, Burst: rate.Units, EpsilonPPM: limit.DefaultEpsilonPPM,
	})
}

// DiffCapOf says how the spending cap of a plan or tenant changes; nil if it does not.
func DiffCapOf(what string, before, after Cap) []string {
	if before == after {
		return nil
	}
	say := func(c Cap) string {
		s := c.String()
		if s == "" {
			s = "none"
		}
		if c.Webhooks != "" {
			s += ", to " + strings.Join(c.WebhookNames(), ", ")
		}
		return s
	}
	return []string{fmt.Sprintf("%s: spending cap %s → %s", what, say(before), say(after))}
}

// DiffCap says how a tenant's spending cap changes; nil if it does not.
func DiffCap(tenant string, before, after Cap) []string {
	return DiffCapOf("tenant "+tenant, before, after)
}
