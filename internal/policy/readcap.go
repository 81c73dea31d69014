package policy

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Cap returns the spending cap of a plan; the zero value for none.
func (d *Document) Cap(plan string) terms.Cap { return d.caps[plan] }

// CheckCap refuses a plan in another currency than a tenant's own cap, because the cap would not count its charges.
// text is the cap's Text.
func (d *Document) CheckCap(text, plan string) error {
	c, err := terms.ParseCap(text)
	if err != nil {
		return err
	}
	currency := d.currency(plan)
	if c.Currency == "" || currency == "" || c.Currency == currency {
		return nil
	}
	return fmt.Errorf("%w: the tenant has a spending cap of its own of %s, and plan %s is priced in %s: nothing would count towards the cap. Change both in one document",
		fault.ErrInvalid, c.Money(), limit.Quote(plan), currency)
}

// Caps reports whether any plan has a cap.
func (d *Document) Caps() bool { return len(d.caps) > 0 }

// spendingCap reads a cap; currency is that of the plan's price, empty where it has none.
func (p *parser) spendingCap(fd strict.Field, what, currency string, none bool) (c terms.Cap) {
	f := p.f
	if none && fd.Node.Kind == yaml.ScalarNode && fd.Node.Value == terms.CapNone {
		return terms.Cap{At: terms.CapNone}
	}
	what = "spending_cap of " + what
	if fd.Node.Kind != yaml.MappingNode {
		f.Add(fd.Line, "%s must be such as {amount: 100.00 USD, at: stop}, not %s", what, strict.Kind(fd.Node))
		return c
	}
	given := map[string]bool{}
	for _, k := range strict.Mapping(f, fd.Node, what) {
		given[k.Name] = true
		var s string
		switch k.Name {
		case "amount":
			if strict.Word(f, k, what, &s); s == "" {
				continue
			}
			m, err := billing.ParseMoney(s)
			switch {
			case err != nil:
				f.Add(k.Line, "amount of %s: %v", what, err)
			case m.Amount <= 0:
				f.Add(k.Line, "amount of %s is %s; a cap of nothing would stop everything (suspend the tenant instead)", what, m)
			case currency == "":
				f.Add(k.Line, "%s: the plan has no price, so nothing is ever spent", what)
			case currency != m.Currency:
				f.Add(k.Line, "amount of %s is in %s, and the plan's price in %s", what, m.Currency, currency)
			}
			c.Amount, c.Currency = m.Amount, m.Currency
		case "at":
			strict.Word(f, k, what, &s)
			rate, throttle := strings.CutPrefix(s, "throttle to ")
			switch {
			case s == "":
			case s == terms.CapStop, s == terms.CapAlert:
				c.At = s
			case throttle:
				c.At, c.Rate = terms.CapThrottle, rate
				r, err := limit.ParseRate(rate)
				if err == nil && rateProblem(limit.TokenBucket, r) != "" {
					err = fmt.Errorf("%s", rateProblem(limit.TokenBucket, r))
				}
				if err != nil {
					f.Add(k.Line, "at of %s: %v", what, err)
				}
			default:
				f.Add(k.Line, "at of %s is %s; allowed are stop, throttle to RATE (such as throttle to 10/second) and alert", what, limit.Quote(s))
			}
		case "webhooks":
			c.Webhooks = strings.Join(p.webhookNames(k, what), ",")
		default:
			strict.Unknown(f, k, what, "amount", "at", "webhooks")
		}
	}
	if !given["amount"] || !given["at"] {
		f.Add(fd.Line, "%s needs an amount and what happens at it, such as {amount: 100.00 USD, at: stop}", what)
	}
	return c
}
