package quotactl

import (
	"strconv"
	"strings"
	"time"
)

// parseWhen reads a time: RFC 3339, a date (its midnight in zone), "now", or how
// long ago, such as -24h, -90m or -7d. Empty is the zero time, which means the
// beginning or the end of all usage.
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
	if t, err := time.ParseInLocation(time.DateOnly, s, zone); err == nil {
		return t, nil
	}
	return time.Time{}, misuse("%q is not a time; write 2026-01-31, 2026-01-31T12:00:00Z, -24h, -7d or now", s)
}
