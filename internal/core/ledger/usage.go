package ledger

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/calendar"
)

// ErrQuery means that a query cannot be answered as it is put.
var ErrQuery = errors.New("ledger: bad query")

// Bounds of one answer.
const (
	DefaultUsageRows = 1_000
	MaxUsageRows     = 10_000
	maxPeriods       = 400_000 // hours, days or months of one query: 45 years of hours
)

// Reading answers one query. It is pure: it says what an engine has to read, adds
// up what the engine hands it, and makes the page. Whole hours are read from
// roll-ups; hours that the range or a period's edge cuts, from entries.
type Reading struct {
	Tenant string // empty for all

	// Roll-ups are wanted of the hours in [HourFrom, HourTo) that are not in Cut;
	// entries of the hours in Cut with slots in [From, To). Unix seconds.
	From, To         int64
	HourFrom, HourTo int64
	Cut              []int64 // ascending

	// Of, Version and Except say which usage is wanted, as Query does.
	Of      *Names
	Version int64
	Except  []int64

	// ByName: sums by limit and meter, and attributes where ByAttributes is set,
	// after the names in After, the least Limit+1 of them. Otherwise sums by start.
	ByName, ByAttributes bool
	After                Names
	Limit                int

	q       Query
	zone    *time.Location
	periods map[int64]*Sum
	names   map[Names]*Sum
	touched map[Epoch]struct{}
}

// Names are what usage by limit or attribute is told apart by, in its order.
type Names struct{ Limit, Meter, Attributes string }

func (n Names) compare(o Names) int {
	return cmp.Or(strings.Compare(n.Limit, o.Limit), strings.Compare(n.Meter, o.Meter), strings.Compare(n.Attributes, o.Attributes))
}

// NewReading prepares a query. The ledger's entries and reports have slots in
// [first, last], Unix seconds; it bounds queries without a beginning or end.
// Errors wrap ErrQuery.
func NewReading(q Query, first, last int64) (*Reading, error) {
	r := &Reading{
		Tenant: q.Tenant, From: first, To: last + 1, Limit: q.Limit, q: q, zone: q.Zone,
		Of: q.Of, Version: q.Version, Except: q.Except,
		periods: map[int64]*Sum{}, names: map[Names]*Sum{}, touched: map[Epoch]struct{}{},
	}
	if r.Limit <= 0 {
		r.Limit = DefaultUsageRows
	}
	r.Limit = min(r.Limit, MaxUsageRows)
	if r.zone == nil {
		r.zone = time.UTC
	}
	if !q.From.IsZero() {
		r.From = max(r.From, ceilSecond(q.From))
	}
	if !q.To.IsZero() {
		r.To = min(r.To, ceilSecond(q.To))
	}
	switch q.By {
	case ByTotal, ByHour, ByDay, ByMonth:
	case ByLimit:
		r.ByName = true
	case ByAttribute:
		r.ByName, r.ByAttributes = true, true
	default:
		return nil, fmt.Errorf("%w: by %d", ErrQuery, q.By)
	}
	if err := r.goOn(q.Page); err != nil {
		return nil, err
	}
	r.To = max(r.To, r.From)
	return r, r.cut()
}

// goOn moves the beginning to where the page before ended.
func (r *Reading) goOn(page string) error {
	if page == "" {
		return nil
	}
	bad := fmt.Errorf("%w: page %q is none of this query's", ErrQuery, clip(page))
	raw, err := base64.RawURLEncoding.DecodeString(page)
	if err != nil {
		return bad
	}
	parts := strings.Split(string(raw), "\x00")
	if len(parts) < 2 || parts[0] != strconv.Itoa(int(r.q.By)) {
		return bad
	}
	switch {
	case r.ByName && len(parts) == 4:
		r.After = Names{parts[1], parts[2], parts[3]}
	case !r.ByName && len(parts) == 2:
		at, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			return bad
		}
		r.From = max(r.From, at)
	default:
		return bad
	}
	return nil
}

func (r *Reading) page(parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(int(r.q.By)) + "\x00" + strings.Join(parts, "\x00")))
}

// cut finds the hours that an edge of the range or of a day or month splits.
func (r *Reading) cut() error {
	r.HourFrom, r.HourTo = r.From-mod(r.From, 3600), r.To+mod(-r.To, 3600)
	split := func(edge int64) {
		if hour := edge - mod(edge, 3600); hour != edge && (len(r.Cut) == 0 || r.Cut[len(r.Cut)-1] != hour) {
			r.Cut = append(r.Cut, hour)
		}
	}
	if r.From >= r.To {
		return nil
	}
	split(r.From)
	if r.q.By == ByDay || r.q.By == ByMonth {
		n := 0
		for edge := r.next(r.From); edge < r.To; edge = r.next(edge) {
			split(edge)
			if n++; n > maxPeriods {
				return fmt.Errorf("%w: more than %d periods", ErrQuery, maxPeriods)
			}
		}
	}
	split(r.To)
	return nil
}

// start returns the beginning of the period that t is in.
func (r *Reading) start(t int64) int64 {
	switch r.q.By {
	case ByHour:
		return t - mod(t, 3600)
	case ByDay, ByMonth:
		start, _ := r.period(t)
		return start
	default:
		return 0
	}
}

// next returns the beginning of the period after the one that t is in.
func (r *Reading) next(t int64) int64 {
	_, end := r.period(t)
	return max(end, t+1)
}

// period returns the day or month [start, end) that t is in.
func (r *Reading) period(t int64) (start, end int64) {
	return calendarSpan(t, r.zone, r.q.By == ByMonth)
}

// calendarSpan returns the day, or the month, [start, end) that t is in.
func calendarSpan(t int64, zone *time.Location, month bool) (start, end int64) {
	unit := calendar.Day
	if month {
		unit = calendar.Month
	}
	from, to := calendar.Span(time.Unix(t, 0), unit, zone)
	return from.Unix(), to.Unix()
}

// AddTime adds the sum of what started at a slot or hour. Of metered limits it
// holds all counts, of others Denied only.
func (r *Reading) AddTime(start int64, s Sum) {
	at := r.start(start)
	sum := r.periods[at]
	if sum == nil {
		sum = new(Sum)
		r.periods[at] = sum
	}
	sum.Add(s)
}

// AddNames adds the sum of one limit and meter, or one of their attributes.
func (r *Reading) AddNames(n Names, s Sum) {
	if !r.ByAttributes && (n.Meter != "" || n.Attributes != WouldDeny) {
		n.Attributes = ""
	}
	if n.compare(r.After) <= 0 && r.q.Page != "" {
		return
	}
	sum := r.names[n]
	if sum == nil {
		sum = new(Sum)
		r.names[n] = sum
	}
	sum.Add(s)
}

// AddPending adds a report that is not folded yet.
func (r *Reading) AddPending(p *Pending) error {
	rows, err := p.Rows()
	if err != nil {
		return err
	}
	if r.addRows(rows) {
		r.touched[p.ID.Epoch] = struct{}{}
	}
	return nil
}

// AddCorrection adds a correction that is not folded yet.
func (r *Reading) AddCorrection(c *Correction) error {
	rows, err := c.Entries()
	r.addRows(rows)
	return err
}

// addRows adds rows, and reports whether any is of the tenant.
func (r *Reading) addRows(rows []Row) (touched bool) {
	for i := range rows {
		row := &rows[i]
		if r.Tenant != "" && row.Tenant != r.Tenant {
			continue
		}
		touched = true
		if r.Of != nil && *r.Of != (Names{row.Limit, row.Meter, row.Attributes}) {
			continue
		}
		if r.Version != 0 && row.Version != r.Version || r.Version == 0 && slices.Contains(r.Except, row.Version) {
			continue
		}
		if row.Slot < r.From || row.Slot >= r.To {
			continue
		}
		s := Sum{row.Admitted, row.Overage, row.Denied}
		if r.ByName {
			r.AddNames(Names{row.Limit, row.Meter, row.Attributes}, s)
			continue
		}
		if row.Meter == "" {
			s.Admitted, s.Overage = 0, 0
			if row.Attributes == WouldDeny {
				continue
			}
		}
		r.AddTime(row.Slot, s)
	}
	return touched
}

// Touched reports whether a pending report of the epoch held usage of the tenant.
func (r *Reading) Touched(e Epoch) bool { _, ok := r.touched[e]; return ok }

// Usage makes the page, without its completeness.
func (r *Reading) Usage() Usage {
	if r.ByName {
		return r.byName()
	}
	starts := make([]int64, 0, len(r.periods))
	for at := range r.periods {
		starts = append(starts, at)
	}
	slices.Sort(starts)
	var u Usage
	for i, at := range starts {
		if i == r.Limit {
			u.NextPage = r.page(strconv.FormatInt(at, 10))
			break
		}
		s := r.periods[at]
		row := UsageRow{Tenant: r.Tenant, Admitted: s.Admitted, Overage: s.Overage, Denied: s.Denied}
		if r.q.By != ByTotal {
			row.Start = time.Unix(at, 0).In(r.zone)
		}
		u.Rows = append(u.Rows, row)
	}
	return u
}

func (r *Reading) byName() Usage {
	names := make([]Names, 0, len(r.names))
	for n := range r.names {
		names = append(names, n)
	}
	slices.SortFunc(names, Names.compare)
	var u Usage
	for i, n := range names {
		if i == r.Limit {
			last := names[i-1]
			u.NextPage = r.page(last.Limit, last.Meter, last.Attributes)
			break
		}
		s := r.names[n]
		u.Rows = append(u.Rows, UsageRow{
			Tenant: r.Tenant, Limit: n.Limit, Meter: n.Meter, Attributes: n.Attributes,
			Admitted: s.Admitted, Overage: s.Overage, Denied: s.Denied,
		})
	}
	return u
}

// ceilSecond rounds up to a whole second. Slots begin at whole seconds, so a slot is at or after t exactly if
// it is at or after ceilSecond(t).
func ceilSecond(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// mod is the remainder that is never negative.
func mod(a, m int64) int64 { return ((a % m) + m) % m }
