package limit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds of a rate's period.
const (
	MinPer = time.Millisecond     // shorter ones are below what a renewal can see
	MaxPer = 366 * 24 * time.Hour // a leap year
)

// ErrRate is wrapped by every error about a rate.
var ErrRate = errors.New("invalid rate")

// Calendar is a unit that clocks and calendars cut time into.
type Calendar uint8

const (
	NoCalendar Calendar = iota // the rate is per duration
	Second
	Minute
	Hour
	Day
	Week // from Monday
	Month
	Year
)

// calendars names each unit, with its nominal length. A day is one without a change of clocks, a month has 30
// days, a year 365.
var calendars = [...]struct {
	name, short string
	nominal     time.Duration
}{
	NoCalendar: {},
	Second:     {"second", "s", time.Second},
	Minute:     {"minute", "min", time.Minute},
	Hour:       {"hour", "h", time.Hour},
	Day:        {"day", "d", 24 * time.Hour},
	Week:       {"week", "", 7 * 24 * time.Hour},
	Month:      {"month", "", 30 * 24 * time.Hour},
	Year:       {"year", "", 365 * 24 * time.Hour},
}

// String returns the unit's name; empty for NoCalendar.
func (c Calendar) String() string {
	if int(c) < len(calendars) {
		return calendars[c].name
	}
	return "calendar(" + strconv.Itoa(int(c)) + ")"
}

// Nominal is the unit's ordinary length: 24 hours for a day, 30 days for a month, 365 for a year; 0 for
// NoCalendar.
func (c Calendar) Nominal() time.Duration {
	if int(c) < len(calendars) {
		return calendars[c].nominal
	}
	return 0
}

// Zoned reports whether the unit's edges depend on a time zone.
func (c Calendar) Zoned() bool { return c >= Day && c <= Year }

// Rate is Units in every Per, or in every calendar unit. The zero Rate is no rate at all.
type Rate struct {
	Units    int64         // 1 to MaxUnits; 0 means no rate at all
	Per      time.Duration // a millisecond to 366 days; whole microseconds
	Calendar Calendar      // set for rates by a named unit; Per is then its nominal length
}

// ParseRate reads N/unit (second, minute, hour, day, week, month, year; s, min, h
// and d for short) or N/duration (10/30s, 1/500ms, 100/1h30m). "m" is refused,
// for it could be a minute or a month. The errors are sentences for whoever
// wrote the rate, and wrap ErrRate.
func ParseRate(s string) (Rate, error) {
	units, per, ok := strings.Cut(s, "/")
	if !ok {
		return Rate{}, rateFault(s, "write units/time, such as 100/hour or 10/30s")
	}
	if strings.HasPrefix(units, "-") {
		return Rate{}, rateFault(s, "units cannot be negative; at least 1")
	}
	if units == "" || strings.Trim(units, "0123456789") != "" {
		return Rate{}, rateFault(s, fmt.Sprintf("%q is not a whole number of units", clip(units)))
	}
	if units[0] == '0' {
		if strings.Trim(units, "0") == "" {
			return Rate{}, rateFault(s, "0 units would deny everything; at least 1 (leave the rate out for a limit that only counts)")
		}
		return Rate{}, rateFault(s, "write units without leading zeros")
	}
	n, err := strconv.ParseInt(units, 10, 64)
	if err != nil || n > MaxUnits {
		return Rate{}, rateFault(s, fmt.Sprintf("at most %d units", int64(MaxUnits)))
	}
	for c := Second; c <= Year; c++ {
		if per == calendars[c].name || per == calendars[c].short && per != "" {
			return Rate{Units: n, Per: c.Nominal(), Calendar: c}, nil
		}
	}
	const allowed = "write second, minute, hour, day, week, month, year or a duration such as 30s, 500ms or 1h30m"
	if per == "m" {
		return Rate{}, rateFault(s, `"m" could be a minute or a month; write minute or month`)
	}
	if per == "" || per[0] < '0' || per[0] > '9' {
		return Rate{}, rateFault(s, fmt.Sprintf("%q is not a unit of time; %s", clip(per), allowed))
	}
	d, err := time.ParseDuration(per)
	if err != nil {
		return Rate{}, rateFault(s, fmt.Sprintf("%q is not a duration; %s", clip(per), allowed))
	}
	r := Rate{Units: n, Per: d}
	if err := r.Validate(); err != nil {
		return Rate{}, fmt.Errorf("%w %q: %s", ErrRate, clip(s), strings.TrimPrefix(err.Error(), ErrRate.Error()+": "))
	}
	return r, nil
}

// Validate reports a rate out of bounds. The zero Rate is valid.
func (r Rate) Validate() error {
	switch {
	case r == Rate{}:
		return nil
	case r.Units < 1 || r.Units > MaxUnits:
		return fmt.Errorf("%w: units must be 1 to %d", ErrRate, int64(MaxUnits))
	case r.Calendar > Year:
		return fmt.Errorf("%w: no such calendar unit", ErrRate)
	case r.Calendar != NoCalendar && r.Per != r.Calendar.Nominal():
		return fmt.Errorf("%w: a %s has a length of its own", ErrRate, r.Calendar)
	case r.Per < MinPer || r.Per > MaxPer:
		return fmt.Errorf("%w: a duration must be 1ms to 366 days (8784h)", ErrRate)
	case r.Per%time.Microsecond != 0:
		return fmt.Errorf("%w: a duration must be whole microseconds", ErrRate)
	case !Flows(r.Units, r.Per.Microseconds()):
		return fmt.Errorf("%w: at most %d units a second", ErrRate, int64(MaxFlow))
	}
	return nil
}

// Flows reports whether units in each so many microseconds are at most MaxFlow a second.
func Flows(units, micros int64) bool {
	const second = int64(time.Second / time.Microsecond)
	return float64(units)*float64(second) <= float64(MaxFlow)*float64(micros)
}

// String writes the rate as ParseRate reads it; empty for no rate.
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	b := strconv.AppendInt(nil, r.Units, 10)
	b = append(b, '/')
	if r.Calendar != NoCalendar {
		return string(append(b, r.Calendar.String()...))
	}
	return string(append(b, ShortDuration(r.Per)...))
}

// ShortDuration writes d without the zero minutes and seconds at its end: 5m, not 5m0s.
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// MicroPerSecond is the rate in micro-tokens a second, rounded down, for a period of fixed length. It stays
// below 2^53 for rates up to 9·10^9 a second, and saturates there.
func (r Rate) MicroPerSecond() int64 {
	if r.Units <= 0 || r.Per <= 0 {
		return 0
	}
	const most = 1<<53 - 1
	f := float64(r.Units) * Micro * (float64(time.Second) / float64(r.Per))
	if f >= most {
		return most
	}
	return int64(f)
}

func rateFault(s, what string) error {
	return fmt.Errorf("%w %q: %s", ErrRate, clip(s), what)
}

// clip keeps quotations in a message short.
func clip(s string) string {
	if len(s) > 64 {
		return s[:61] + "..."
	}
	return s
}

// Takes is how many microseconds a bucket of the rate takes to gain n units.
func (r Rate) Takes(n int64) int64 {
	return int64(min(math.Ceil(float64(n)*float64(r.Per.Microseconds())/float64(r.Units)), 1<<53))
}
