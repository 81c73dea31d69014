package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What a spending cap does when it is reached.
const (
	CapStop     = "stop"
	CapThrottle = "throttle"
	CapAlert    = "alert"
	CapNone     = "none" // a tenant has none, whatever its plan has
)

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

// Capped is that a tenant reached its cap: what holds until the period ends, or the cap is
// not reached any more. It is comparable; the zero value holds nothing.
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

// Hold puts what was reached in force: the tenant is stopped, or has one more limit. A
// tenant that has as many limits as it may is stopped, for it cannot have one more.
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

// Cap returns the spending cap of a plan; the zero value for none.
func (d *Document) Cap(plan string) Cap { return d.caps[plan] }

// CheckCap refuses a plan under which a tenant's own cap, as its Text says it, would not count what is charged: one of another currency.
func (d *Document) CheckCap(text, plan string) error {
	c, err := ParseCap(text)
	if err != nil {
		return err
	}
	currency := d.currency(plan)
	if c.Currency == "" || currency == "" || c.Currency == currency {
		return nil
	}
	return fmt.Errorf("%w: the tenant has a spending cap of its own of %s, and plan %s is priced in %s: nothing would count towards the cap. Change both in one document",
		ErrInvalid, c.Money(), limit.Quote(plan), currency)
}

// Caps reports whether any plan has a cap.
func (d *Document) Caps() bool { return len(d.caps) > 0 }

// spendingCap reads a cap; currency is that of the plan's price, empty where it has none.
func (p *parser) spendingCap(fd field, what, currency string, none bool) (c Cap) {
	f := p.f
	if none && fd.node.Kind == yaml.ScalarNode && fd.node.Value == CapNone {
		return Cap{At: CapNone}
	}
	what = "spending_cap of " + what
	if fd.node.Kind != yaml.MappingNode {
		f.add(fd.line, "%s must be such as {amount: 100.00 USD, at: stop}, not %s", what, kind(fd.node))
		return c
	}
	given := map[string]bool{}
	for _, k := range mapping(f, fd.node, what) {
		given[k.name] = true
		var s string
		switch k.name {
		case "amount":
			if word(f, k, what, &s); s == "" {
				continue
			}
			m, err := billing.ParseMoney(s)
			switch {
			case err != nil:
				f.add(k.line, "amount of %s: %v", what, err)
			case m.Amount <= 0:
				f.add(k.line, "amount of %s is %s; a cap of nothing would stop everything (suspend the tenant instead)", what, m)
			case currency == "":
				f.add(k.line, "%s: the plan has no price, so nothing is ever spent", what)
			case currency != m.Currency:
				f.add(k.line, "amount of %s is in %s, and the plan's price in %s", what, m.Currency, currency)
			}
			c.Amount, c.Currency = m.Amount, m.Currency
		case "at":
			word(f, k, what, &s)
			rate, throttle := strings.CutPrefix(s, "throttle to ")
			switch {
			case s == "":
			case s == CapStop, s == CapAlert:
				c.At = s
			case throttle:
				c.At, c.Rate = CapThrottle, rate
				r, err := limit.ParseRate(rate)
				if err == nil && rateProblem(limit.TokenBucket, r) != "" {
					err = fmt.Errorf("%s", rateProblem(limit.TokenBucket, r))
				}
				if err != nil {
					f.add(k.line, "at of %s: %v", what, err)
				}
			default:
				f.add(k.line, "at of %s is %s; allowed are stop, throttle to RATE (such as throttle to 10/second) and alert", what, limit.Quote(s))
			}
		case "webhooks":
			c.Webhooks = strings.Join(p.webhookNames(k, what), ",")
		default:
			unknown(f, k, what, "amount", "at", "webhooks")
		}
	}
	if !given["amount"] || !given["at"] {
		f.add(fd.line, "%s needs an amount and what happens at it, such as {amount: 100.00 USD, at: stop}", what)
	}
	return c
}

func diffCap(what string, before, after Cap) []string {
	if before == after {
		return nil
	}
	say := func(c Cap) string {
		s := orNone(c.String())
		if c.Webhooks != "" {
			s += ", to " + strings.Join(c.WebhookNames(), ", ")
		}
		return s
	}
	return []string{fmt.Sprintf("%s: spending cap %s → %s", what, say(before), say(after))}
}

// DiffCap says how a tenant's spending cap changes; nil where it does not.
func DiffCap(tenant string, before, after Cap) []string {
	return diffCap("tenant "+tenant, before, after)
}
