// Package calendar says where days, weeks, months and years begin in a time zone. It is pure, and the only
// place that knows. Limits' windows, billing periods, usage by day and quotactl's dates all ask it, so they
// never disagree by an hour.
//
// A day begins at the first instant whose local date is that day. That is not always midnight. Where clocks
// skip midnight, the day begins at the jump; where they repeat it, the day begins the first time. Every instant
// belongs to exactly one day.
package calendar

import "time"

// Unit is a span of whole days.
type Unit uint8

// The units. A week begins on Monday.
const (
	Day Unit = iota
	Week
	Month
	Year
)

// Start returns the first instant of a date in zone. Months and days out of range mean
// other dates, as in time.Date. A date that the zone skipped begins when the next one does.
func Start(y int, m time.Month, d int, zone *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	from, to := t.ZoneBounds()
	_, offset := t.Zone()
	shown, want := t.Unix()+int64(offset), time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()
	switch {
	case shown < want: // time.Date answered the evening before: the clocks jumped over midnight then
		return to
	case shown > want:
		return from
	}
	if !from.IsZero() {
		// Midnight may have come once before the clocks were put back.
		_, before := from.Add(-1).Zone()
		if earlier := t.Add(time.Duration(offset-before) * time.Second); before > offset && earlier.Before(from) {
			return earlier
		}
	}
	return t
}

// Span returns the unit [start, end) that t is in. The one after it is Span(end).
func Span(t time.Time, unit Unit, zone *time.Location) (start, end time.Time) {
	y, m, d := t.In(zone).Date()
	start, end = of(y, m, d, unit, zone)
	// Where clocks went back across midnight, an instant may show yesterday's date after the new day has begun.
	// It belongs to the new day.
	for !t.Before(end) {
		d++
		start, end = of(y, m, d, unit, zone)
	}
	return start, end
}

// of returns the unit that a date is in.
func of(y int, m time.Month, d int, unit Unit, zone *time.Location) (start, end time.Time) {
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC) // a day beyond the month's end names the next month's
	y, m, d = date.Date()
	switch unit {
	case Week:
		monday := d - (int(date.Weekday())+6)%7
		return Start(y, m, monday, zone), Start(y, m, monday+7, zone)
	case Month:
		return Start(y, m, 1, zone), Start(y, m+1, 1, zone)
	case Year:
		return Start(y, 1, 1, zone), Start(y+1, 1, 1, zone)
	default:
		return Start(y, m, d, zone), Start(y, m, d+1, zone)
	}
}
