package terms

import (
	"fmt"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Bounds of credits.
const (
	maxNote     = limit.MaxValueLen // bytes
	MaxCredits  = 1_000             // given to a tenant, with those that are used up
	MaxPriority = 1_000_000
	// PriorityCarried is the priority of credits that statements make: they are used before all others.
	PriorityCarried = -MaxPriority - 1
)

// Credit is money that a tenant was given in advance.
type Credit struct {
	ID       string // the caller's: the same one is given once
	Tenant   string
	Currency string
	Amount   int64 // minor units
	Priority int64 // lower ones are used first
	Expires  int64 // Unix seconds; 0 for never
	Rollover int64 // the most that is carried over to the next period; below 0 for all
	Note     string
	Given    time.Time // set by the store, as are all below
	Actor    string
	Left     int64 // after the tenant's last closed statement
	Voided   time.Time
	Why      string // it was voided
	Carried  int64  // the number of the statement that made it, below zero; 0 for one that was given
}

// Check reports the faults of a credit that is to be given; errors wrap fault.ErrInvalid.
func (c *Credit) Check(now time.Time) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{fault.ErrInvalid}, args...)...)
	}
	switch err := billing.CheckCurrency(c.Currency); {
	case !limit.ValidName(c.ID):
		return bad("id is %s; it must be 1 to %d bytes of [A-Za-z0-9._-]", limit.Quote(c.ID), limit.MaxNameLen)
	case strings.HasPrefix(c.ID, billing.CarriedPrefix):
		return bad("id is %s; ids that begin with %s are of credits that statements make", c.ID, billing.CarriedPrefix)
	case err != nil:
		return bad("%v", err)
	case c.Amount < 1 || c.Amount > billing.MaxAmount:
		return bad("amount is %d; it must be 1 to %d minor units", c.Amount, int64(billing.MaxAmount))
	case c.Priority < -MaxPriority || c.Priority > MaxPriority:
		return bad("priority is %d; it must be %d to %d", c.Priority, -MaxPriority, MaxPriority)
	case c.Expires != 0 && c.Expires <= now.Unix():
		return bad("it expires at %s, which is past", time.Unix(c.Expires, 0).UTC().Format(time.RFC3339))
	case c.Rollover > c.Amount:
		return bad("rollover is %d, more than the amount, which is %d; leave it out to carry all over", c.Rollover, c.Amount)
	case !limit.ValidValue(c.Note):
		return bad("note must be at most %d bytes without control characters", maxNote)
	}
	return nil
}

// Billing is the credit as statements use it.
func (c *Credit) Billing() billing.Credit {
	b := billing.Credit{ID: c.ID, Currency: c.Currency, Left: c.Left, Priority: c.Priority, Given: c.Given.Unix(), Expires: c.Expires, Rollover: c.Rollover}
	if !c.Voided.IsZero() {
		b.Voided = c.Voided.Unix()
	}
	return b
}
