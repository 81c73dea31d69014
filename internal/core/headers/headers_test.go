package headers

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestEach(t *testing.T) {
	for _, c := range []struct {
		name string
		a    Answer
		want string
	}{
		{"allowed", Answer{Allowed: true, Limit: "default", Quota: 100, Window: time.Minute, Remaining: 50, Reset: 29100 * time.Millisecond},
			`RateLimit-Policy: "default";q=100;w=60 | RateLimit: "default";r=50;t=30 | X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 50 | X-RateLimit-Reset: 30`},
		{"denied: nothing remains, and t is no later than Retry-After", Answer{Limit: "daily", Quota: 1000, Window: 24 * time.Hour, Remaining: 3, Reset: time.Hour, RetryAfter: 1500 * time.Millisecond, Reason: "limit"},
			`RateLimit-Policy: "daily";q=1000;w=86400 | RateLimit: "daily";r=0;t=2 | X-RateLimit-Limit: 1000 | X-RateLimit-Remaining: 0 | X-RateLimit-Reset: 3600 | Retry-After: 2`},
		{"of a cost, by its name", Answer{Allowed: true, Limit: "l", Quota: 90000, Cost: "tokens_out", Window: time.Minute, Remaining: 7, Reset: time.Second},
			`RateLimit-Policy: "l";q=90000;qu="tokens_out";w=60 | RateLimit: "l";r=7;t=1 | X-RateLimit-Limit: 90000 | X-RateLimit-Remaining: 7 | X-RateLimit-Reset: 1`},
		{"denied: all is back no sooner than the next unit", Answer{Limit: "l", Quota: 1, Window: time.Minute, RetryAfter: time.Minute, Reason: "limit"},
			`RateLimit-Policy: "l";q=1;w=60 | RateLimit: "l";r=0;t=60 | X-RateLimit-Limit: 1 | X-RateLimit-Remaining: 0 | X-RateLimit-Reset: 60 | Retry-After: 60`},
		{"no more is left than the limit has, whatever the burst", Answer{Allowed: true, Limit: "l", Quota: 100, Window: time.Hour, Remaining: 199, Reset: time.Minute},
			`RateLimit-Policy: "l";q=100;w=3600 | RateLimit: "l";r=100;t=60 | X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 100 | X-RateLimit-Reset: 60`},
		{"the last unit: when the next is there is not known", Answer{Allowed: true, Limit: "l", Quota: 5, Window: time.Minute, Reset: time.Minute},
			`RateLimit-Policy: "l";q=5;w=60 | RateLimit: "l";r=0 | X-RateLimit-Limit: 5 | X-RateLimit-Remaining: 0 | X-RateLimit-Reset: 60`},
		{"no sub-second windows", Answer{Allowed: true, Limit: "l", Quota: 10, Window: 100 * time.Millisecond, Remaining: 1},
			`RateLimit-Policy: "l";q=100;w=1 | RateLimit: "l";r=1;t=0 | X-RateLimit-Limit: 100 | X-RateLimit-Remaining: 1 | X-RateLimit-Reset: 0`},
		{"broken windows are never overstated", Answer{Allowed: true, Limit: "l", Quota: 10, Window: 1500 * time.Millisecond, Remaining: 1},
			`RateLimit-Policy: "l";q=13;w=2 | RateLimit: "l";r=1;t=0 | X-RateLimit-Limit: 13 | X-RateLimit-Remaining: 1 | X-RateLimit-Reset: 0`},
		{"bounds", Answer{Allowed: true, Limit: "l", Quota: 1 << 60, Window: time.Second, Remaining: 1 << 60, Reset: -1},
			`RateLimit-Policy: "l";q=999999999999999;w=1 | RateLimit: "l";r=999999999999999;t=0 | X-RateLimit-Limit: 999999999999999 | X-RateLimit-Remaining: 999999999999999 | X-RateLimit-Reset: 0`},
		{"strings are escaped", Answer{Allowed: true, Limit: "a\"b\\c\né", Quota: 1, Window: time.Second},
			`RateLimit-Policy: "a\"b\\c???";q=1;w=1 | RateLimit: "a\"b\\c???";r=0 | X-RateLimit-Limit: 1 | X-RateLimit-Remaining: 0 | X-RateLimit-Reset: 0`},
		{"too large: waiting does not help, and what is left is there for others", Answer{Limit: "l", Quota: 10, Window: time.Minute, Remaining: 7, Reset: 18 * time.Second, Reason: "too-large"},
			`RateLimit-Policy: "l";q=10;w=60 | RateLimit: "l";r=7;t=18 | X-RateLimit-Limit: 10 | X-RateLimit-Remaining: 7 | X-RateLimit-Reset: 18`},
		{"suspended: waiting does not help", Answer{Reason: "suspended"}, ``},
		{"no limit", Answer{Allowed: true}, ``},
		{"only counted", Answer{Allowed: true, Limit: "counts"}, ``},
		{"denied without a limit", Answer{Reason: "unknown"}, `Retry-After: 1`},
	} {
		var got []string
		Each(c.a, func(name, value string) { got = append(got, name+": "+value) })
		if g := strings.Join(got, " | "); g != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, g, c.want)
		}
	}
}

func TestWrite(t *testing.T) {
	for _, c := range []struct {
		a      Answer
		status int
		typ    string
		body   string
	}{
		{Answer{Limit: "daily", Quota: 1, Window: time.Second, Reason: "limit"}, 429, typeExceeded, `[daily]`},
		{Answer{Limit: "daily", Reason: "outage", RetryAfter: time.Second}, 503, typeReduced, `[]`},
	} {
		w := httptest.NewRecorder()
		Set(w.Header(), c.a)
		Write(w, c.a, Status(c.a))
		var p struct {
			Type     string
			Status   int
			Reason   string
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("body %q: %v", w.Body, err)
		}
		if w.Code != c.status || p.Status != c.status || p.Type != c.typ || p.Reason != c.a.Reason || fmt.Sprint(p.Violated) != c.body ||
			w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Retry-After") == "" {
			t.Errorf("%+v: status %d, headers %v, body %s", c.a, w.Code, w.Header(), w.Body)
		}
	}
}
