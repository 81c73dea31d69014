package billing

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// Credit is money that a tenant has in advance. It pays statements.
type Credit struct {
	ID       string
	Currency string
	Left     int64 // minor units not used by the statements before
	Priority int64 // lower ones are used first
	Given    int64 // Unix seconds
	Expires  int64 // Unix seconds; 0 for never
	Voided   int64 // Unix seconds; 0 for a credit that holds
	// Rollover is the most that is carried over to the next period, in minor units; what is left beyond it lapses.
	// Below 0 everything is carried over.
	Rollover int64
}

// Burn is the use of a credit in a period: Before = Paid + Lapsed + After.
type Burn struct {
	Credit   string `json:"credit"`
	Currency string `json:"currency"`
	Before   int64  `json:"before"`
	Paid     int64  `json:"paid"`
	Lapsed   int64  `json:"lapsed"`
	After    int64  `json:"after"`
}

// pays reports whether the credit pays in a period. It was given before the period's end, has not expired at its
// beginning, and is not voided before its end.
func (c *Credit) pays(p Period) bool {
	return c.Given < p.To && (c.Expires == 0 || c.Expires > p.From) && !c.void(p)
}

func (c *Credit) void(p Period) bool { return c.Voided != 0 && c.Voided < p.To }

// CarriedPrefix begins the id of every credit that a statement makes, and of no other.
const CarriedPrefix = "carried-"

// Carried is a credit that closing a statement makes: the amount below zero in one currency.
type Carried struct {
	Credit   string // its id
	Currency string
	Amount   int64 // above 0
}

// Carried are the credits that closing the statement makes, by currency. A tenant has one statement for each period, so
// their ids are unique.
func (s *Statement) Carried() (all []Carried) {
	tenant := sha256.Sum256([]byte(s.Tenant))
	for _, t := range s.Totals {
		if t.Carried > 0 {
			id := fmt.Sprintf("%s%s-%s-%x", CarriedPrefix, s.Period.Name, t.Currency, tenant[:8])
			all = append(all, Carried{id, t.Currency, t.Carried})
		}
	}
	return all
}

// order says which of two credits is used first: by priority, then the one that expires earlier, then the older one.
func (c *Credit) order(d *Credit) int {
	never := func(expires int64) int64 {
		if expires == 0 {
			return 1<<63 - 1
		}
		return expires
	}
	return cmp.Or(cmp.Compare(c.Priority, d.Priority), cmp.Compare(never(c.Expires), never(d.Expires)),
		cmp.Compare(c.Given, d.Given), cmp.Compare(c.ID, d.ID))
}

// burn lets credits pay amounts due, by currency, and subtracts the payments from due. A remainder lapses if the credit
// has expired by the period's end or was voided. So does the part above its rollover.
func burn(p Period, credits []Credit, due map[string]int64) (burns []Burn, lines []Line) {
	credits = slices.Clone(credits)
	slices.SortFunc(credits, func(a, b Credit) int { return a.order(&b) })
	burns, lines = []Burn{}, []Line{}
	for i := range credits {
		c := &credits[i]
		if c.Left <= 0 || c.Given >= p.To {
			continue
		}
		b := Burn{Credit: c.ID, Currency: c.Currency, Before: c.Left, After: c.Left}
		if c.pays(p) {
			b.Paid = max(0, min(c.Left, due[c.Currency]))
			b.After -= b.Paid
			due[c.Currency] -= b.Paid
		}
		keeps := b.After
		switch {
		case c.void(p), c.Expires != 0 && c.Expires <= p.To:
			keeps = 0
		case c.Rollover >= 0:
			keeps = min(keeps, c.Rollover)
		}
		b.Lapsed, b.After = b.After-keeps, keeps
		burns = append(burns, b)
		if b.Paid > 0 {
			lines = append(lines, Line{Kind: KindCredit, Currency: c.Currency, Amount: -b.Paid, Credit: c.ID})
		}
	}
	return burns, lines
}
