package quotactl

import (
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// rate writes a rate as a policy does; nothing for a limit that only counts.
func rate(r *quotav1.Rate) string {
	if r == nil || r.Units == 0 {
		return ""
	}
	c := limit.Calendar(r.Calendar)
	per := time.Duration(r.Micros) * time.Microsecond
	if c != limit.NoCalendar {
		per = c.Nominal()
	}
	return limit.Rate{Units: r.Units, Per: per, Calendar: c}.String()
}

func algorithm(a quotav1.Limit_Algorithm) string { return strings.ToLower(a.String()) }
