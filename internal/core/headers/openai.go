package headers

import (
	"strconv"
	"time"
)

// OpenAI calls set for the headers that OpenAI's API has, of a limit whose units are of that name: requests, tokens.
// Times are as in "6m0s" and "250ms". A limit that only counts has none.
func OpenAI(a Answer, unit string, set func(name, value string)) {
	if a.Limit == "" || a.Window <= 0 {
		return
	}
	left, reset := Remaining(a.Quota, a.Remaining), a.Reset
	if after := a.retryAfter(); after > 0 {
		left, reset = 0, max(reset, time.Duration(after)*time.Second)
	}
	set("x-ratelimit-limit-"+unit, strconv.FormatInt(a.Quota, 10))
	set("x-ratelimit-remaining-"+unit, strconv.FormatInt(left, 10))
	set("x-ratelimit-reset-"+unit, until(reset))
}

// until rounds up: to milliseconds below a second, else to seconds.
func until(d time.Duration) string {
	to := time.Second
	if d < time.Second {
		to = time.Millisecond
	}
	return (max(d, 0) + to - 1).Truncate(to).String()
}
