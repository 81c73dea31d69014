package quotactl

import (
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// rate writes a rate as a policy does; nothing for a limit that only counts.
func rate(r *quotav1.Rate) string {
	if r == nil || r.Units == 0 {
		return ""
	}
	c := limit.Calendar(r.Calendar)
	per := time.Duration(r.PeriodUs) * time.Microsecond
	if c != limit.NoCalendar {
		per = c.Nominal()
	}
	return limit.Rate{Units: r.Units, Per: per, Calendar: c}.String()
}

// rateOf is a limit's rate, or its slots.
func rateOf(l *quotav1.Limit) string {
	if l.Slots > 0 {
		return strconv.FormatInt(l.Slots, 10) + " slots"
	}
	return rate(l.Rate)
}

// options writes every property of a limit that is not the default, in the words of a policy.
func options(p *quotav1.Limit) string {
	l, err := wire.LimitFromProto(p)
	if err != nil {
		return "" // of a newer server
	}
	return policy.Options(&l)
}

// match writes which requests a limit holds, in the words of a policy; nothing if it holds all.
func match(p *quotav1.Limit) string {
	l, err := wire.LimitFromProto(p)
	if err != nil {
		return "" // of a newer server
	}
	return policy.Conditions(l.Match)
}

func algorithm(a quotav1.Limit_Algorithm) string {
	return strings.ToLower(strings.TrimPrefix(a.String(), "ALGORITHM_"))
}
