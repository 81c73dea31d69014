package limit

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/calendar"
)

// Window returns the aligned window [start, end) that now is in. Days, weeks, months and years begin at
// midnight in loc (nil for UTC). So a day on which clocks change has 23 or 25 hours. A week begins on Monday.
// Every other rate's windows are whole multiples of its period since the Unix epoch, whatever the zone. The
// window after it is Window(end, loc).
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
	return calendar.Span(now, calendar.Unit(r.Calendar-Day), loc) // its units are ours from Day on
}
