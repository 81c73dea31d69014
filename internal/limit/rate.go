package limit

import "time"

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

// Rate is Units in every Per, or in every calendar unit.
type Rate struct {
	Units    int64         // 1 to MaxUnits; 0 means no rate at all
	Per      time.Duration // a millisecond to 366 days; whole microseconds
	Calendar Calendar      // set for windows of days, weeks, months, years; Per is then nominal
}
