package headers

import (
	"strings"
	"testing"
	"time"
)

func TestOpenAI(t *testing.T) {
	for _, c := range []struct {
		name string
		a    Answer
		want string
	}{
		{"allowed", Answer{Allowed: true, Limit: "l", Quota: 150000, Window: time.Minute, Remaining: 149984, Reset: 6 * time.Minute}, "150000 149984 6m0s"},
		{"soon", Answer{Allowed: true, Limit: "l", Quota: 5, Window: time.Minute, Remaining: 9, Reset: 11200 * time.Microsecond}, "5 5 12ms"},
		{"in a second", Answer{Allowed: true, Limit: "l", Quota: 5, Window: time.Minute, Remaining: 4, Reset: 999500 * time.Microsecond}, "5 4 1s"},
		{"full", Answer{Allowed: true, Limit: "l", Quota: 5, Window: time.Minute, Remaining: 5}, "5 5 0s"},
		{"denied, with units for smaller requests", Answer{Limit: "l", Quota: 5, Window: time.Minute, Remaining: 3, Reset: time.Second, RetryAfter: 1500 * time.Millisecond, Reason: "limit"}, "5 0 2s"},
		{"too large", Answer{Limit: "l", Quota: 5, Window: time.Minute, Remaining: 3, Reset: 90 * time.Second, Reason: "too-large"}, "5 3 1m30s"},
		{"only counted", Answer{Allowed: true, Limit: "l"}, ""},
		{"no limit", Answer{Allowed: true}, ""},
	} {
		var names, values []string
		OpenAI(c.a, "tokens", func(name, value string) { names, values = append(names, name), append(values, value) })
		if got := strings.Join(values, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if c.want != "" && strings.Join(names, " ") != "x-ratelimit-limit-tokens x-ratelimit-remaining-tokens x-ratelimit-reset-tokens" {
			t.Errorf("%s: got %v", c.name, names)
		}
	}
}
