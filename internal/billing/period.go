package billing

import (
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/calendar"
)

// Grid is what the edges of periods are moved up to: the ledger's usual slot. Usage belongs where its slot begins, so
// an edge within a slot would divide usage that cannot be divided. Grid does not depend on a policy's slots, so that a
// period never moves. Edges of plans and prices stay where they are, because usage names its plan and price.
const Grid = 300 // seconds

// ErrPeriod means that a name names no period.
var ErrPeriod = errors.New("billing: no such period")

// Cycle is how a tenant's periods follow one another. Each begins at midnight of the same day of the month, or of the
// month's last day where it has no such day. Day 1 makes calendar months; the day that a tenant began on makes
// anniversaries.
type Cycle struct {
	Zone *time.Location // nil for UTC
	Day  int            // 1 to 31
}

// Period is the time of a statement: half-open, in Unix seconds.
type Period struct {
	Name     string // the month that it begins in, such as 2026-11
	From, To int64
}

// Length is how many seconds the period has.
func (p Period) Length() int64 { return p.To - p.From }

// Has reports whether a slot that begins at t is in the period.
func (p Period) Has(t int64) bool { return t >= p.From && t < p.To }

func (c Cycle) zone() *time.Location {
	if c.Zone == nil {
		return time.UTC
	}
	return c.Zone
}

// Named returns the period that begins in a month, such as 2026-11.
func (c Cycle) Named(name string) (Period, error) {
	t, err := time.Parse("2006-01", name)
	if err != nil || t.Year() < 1970 || t.Year() > 9998 {
		return Period{}, fmt.Errorf("%w: %q; write the month that it begins in, such as 2026-11", ErrPeriod, clip(name))
	}
	return c.in(t.Year(), t.Month()), nil
}

// At returns the period that t, in Unix seconds, is in.
func (c Cycle) At(t int64) Period {
	y, m, _ := time.Unix(t, 0).In(c.zone()).Date()
	p := c.in(y, m)
	for t < p.From {
		m--
		p = c.in(y, m)
	}
	for t >= p.To {
		m++
		p = c.in(y, m)
	}
	return p
}

// in returns the period that begins in a month. Months beyond 12 count into the next year.
func (c Cycle) in(y int, m time.Month) Period {
	first := time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	return Period{Name: first.Format("2006-01"), From: c.start(y, m), To: c.start(y, m+1)}
}

// start is the first edge of the grid on the month's day.
func (c Cycle) start(y int, m time.Month) int64 {
	last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC)
	day := min(max(c.Day, 1), last.Day())
	return snap(calendar.Start(last.Year(), last.Month(), day, c.zone()).Unix())
}

// snap moves an edge up to the grid.
func snap(t int64) int64 {
	if rest := (t%Grid + Grid) % Grid; rest != 0 {
		t += Grid - rest
	}
	return t
}
