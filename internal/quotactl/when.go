package quotactl

import (
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/calendar"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// parseWhen reads a time: RFC 3339, a date (its beginning in zone), "now", or an age such as -24h, -90m or -7d. Empty
// is the zero time, which means the beginning or the end of all usage.
func parseWhen(s string, now time.Time, zone *time.Location) (time.Time, error) {
	switch {
	case s == "":
		return time.Time{}, nil
	case s == "now":
		return now, nil
	case strings.HasPrefix(s, "-"):
		if days, ok := strings.CutSuffix(s[1:], "d"); ok {
			if n, err := strconv.ParseUint(days, 10, 16); err == nil {
				return now.In(zone).AddDate(0, 0, -int(n)), nil
			}
		}
		if d, err := time.ParseDuration(s); err == nil {
			return now.Add(d), nil
		}
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if date, err := time.Parse(time.DateOnly, s); err == nil {
		return calendar.Start(date.Year(), date.Month(), date.Day(), zone), nil
	}
	return time.Time{}, misuse("%q is not a time; write 2026-01-31, 2026-01-31T12:00:00Z, -24h, -7d or now", s)
}

// parseZone reads the name of a time zone; empty is UTC.
func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, err := limit.LoadZone(name)
	if err != nil {
		return nil, misuse("--zone %q is not a time zone; write one such as Europe/Berlin", name)
	}
	return zone, nil
}
