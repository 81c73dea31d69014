package limit

import "time"

// Window returns the aligned window [start, end) that now is in. Days, weeks,
// months and years begin at midnight in loc (nil for UTC), so that a day on which
// clocks change has 23 or 25 hours; a week begins on Monday. Every other rate's
// windows are whole multiples of its period since the Unix epoch, whatever the
// zone. The window after it is Window(end, loc).
func (r Rate) Window(now time.Time, loc *time.Location) (start, end time.Time) {
	if loc == nil {
		loc = time.UTC
	}
	if !r.Calendar.Zoned() {
		per := r.Per.Microseconds()
		if per <= 0 {
			return now, now
		}
		us := now.UnixMicro()
		n := us / per
		if us%per < 0 { // before 1970
			n--
		}
		return time.UnixMicro(n * per).In(loc), time.UnixMicro((n + 1) * per).In(loc)
	}
	y, m, d := now.In(loc).Date()
	start, end = r.calendarWindow(y, m, d, loc)
	// Where clocks were put back across midnight, an instant may show yesterday's
	// date although the new day has begun already: it belongs to the new day.
	for !now.Before(end) {
		d++
		start, end = r.calendarWindow(y, m, d, loc)
	}
	return start, end
}

func (r Rate) calendarWindow(y int, m time.Month, d int, loc *time.Location) (start, end time.Time) {
	switch r.Calendar {
	case Day:
		return midnight(y, m, d, loc), midnight(y, m, d+1, loc)
	case Week:
		sinceMonday := (int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()) + 6) % 7
		return midnight(y, m, d-sinceMonday, loc), midnight(y, m, d-sinceMonday+7, loc)
	case Month:
		// By way of UTC, so that a day beyond the month's end names the next month.
		y, m, _ = time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Date()
		return midnight(y, m, 1, loc), midnight(y, m+1, 1, loc)
	default:
		y = time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Year()
		return midnight(y, 1, 1, loc), midnight(y+1, 1, 1, loc)
	}
}

// midnight returns the first instant of the date in loc. time.Date alone does not
// say which instant it picks where clocks skip or repeat midnight.
func midnight(y int, m time.Month, d int, loc *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, loc)
	from, to := t.ZoneBounds()
	_, offset := t.Zone()
	shown, want := t.Unix()+int64(offset), time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()
	switch {
	case shown < want: // midnight was skipped: the date begins where the clocks jumped
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
