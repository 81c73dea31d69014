package headers

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Answer is a decision as headers need it.
type Answer struct {
	Allowed    bool
	Limit      string        // the limit that denied or is closest to; empty for none
	Quota      int64         // units in each Window
	Cost       string        // the cost that units are of; empty for requests, and for sums of several
	Window     time.Duration // 0 with no limit, or with one that only counts
	Remaining  int64
	Reset      time.Duration // until the bucket is full or its window turns
	RetryAfter time.Duration // of a denial; 0 when nothing is known
	Reason     string        // a word, of the table's where it is denied
}

// Names, in the order in which Each sets them. Envoy and HTTP/2 want them lower
// case, net/http makes of them what it likes.
const (
	Policy        = "RateLimit-Policy"
	RateLimit     = "RateLimit"
	OldLimit      = "X-RateLimit-Limit"
	OldRemaining  = "X-RateLimit-Remaining"
	OldReset      = "X-RateLimit-Reset"
	RetryAfter    = "Retry-After"
	ContentType   = "application/problem+json"
	typeExceeded  = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	titleExceeded = "Request cannot be satisfied as assigned quota has been exceeded"
	typeNone      = "about:blank"
	typeReduced   = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	titleReduced  = "Request cannot be satisfied due to temporary server capacity constraints"
)

// most is the largest integer of a structured field (RFC 9651).
const most = 999_999_999_999_999

// Each calls set for every header of the answer.
func Each(a Answer, set func(name, value string)) {
	after := a.retryAfter()
	over := !a.Allowed && after > 0
	if a.Limit != "" && a.Window > 0 {
		q, w := perSeconds(a.Quota, a.Window)
		// Of a burst above the quota no more is told: nobody understands more left than there is.
		r, reset := Remaining(q, a.Remaining), seconds(a.Reset)
		if over {
			r = 0 // nothing is there for this request
		}
		name := appendString(make([]byte, 0, 96), a.Limit)
		n := len(name)
		policy := param(name, 'q', q)
		if a.Cost != "" {
			policy = appendString(append(policy, ";qu="...), a.Cost)
		}
		set(Policy, string(param(policy, 'w', w)))
		// t never says later than Retry-After does. When nothing is left it is when the next unit is there, which only a denial knows.
		left := param(name[:n], 'r', r)
		switch {
		case r > 0:
			left = param(left, 't', reset)
		case over:
			left = param(left, 't', after)
		}
		set(RateLimit, string(left))
		set(OldLimit, strconv.FormatInt(q, 10))
		set(OldRemaining, strconv.FormatInt(r, 10))
		set(OldReset, strconv.FormatInt(max(reset, after), 10))
	}
	if over {
		set(RetryAfter, strconv.FormatInt(after, 10))
	}
}

// Remaining is how many units of a quota the answer says are left, for a bucket that has left.
func Remaining(quota, left int64) int64 { return min(max(left, 0), quota) }

// Set puts every header of the answer into h.
func Set(h http.Header, a Answer) {
	Each(a, func(name, value string) { h.Set(name, value) })
}

// Status is the status of the answer: 200, or the table's.
func Status(a Answer) int {
	if a.Allowed {
		return http.StatusOK
	}
	return RowOf(a.Reason).Status
}

// Problem is the body of a denial that is answered with status: application/problem+json.
func Problem(a Answer, status int) []byte {
	row := RowOf(a.Reason)
	p := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Reason   string   `json:"reason"`
		Detail   string   `json:"detail,omitempty"`
		Violated []string `json:"violated-policies,omitempty"`
	}{Type: typeExceeded, Title: titleExceeded, Status: status, Reason: a.Reason, Detail: row.Detail}
	switch {
	case row.Status == http.StatusServiceUnavailable:
		p.Type, p.Title = typeReduced, titleReduced
	case !row.Waits:
		p.Type, p.Title = typeNone, http.StatusText(row.Status)
	}
	if a.Limit != "" && row.Status != http.StatusServiceUnavailable {
		p.Violated = []string{a.Limit}
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return append(b, '\n')
}

// Write answers a denial whole, with that status.
func Write(w http.ResponseWriter, a Answer, status int) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // which RFC 9110 asks for
	}
	w.Header().Set("Content-Type", ContentType)
	w.WriteHeader(status)
	_, _ = w.Write(Problem(a, status)) // the caller has gone away; nobody is left to be told
}

// retryAfter is when to come again; 0 where that is of no use.
func (a Answer) retryAfter() int64 {
	if a.Allowed || !RowOf(a.Reason).Waits {
		return 0
	}
	return max(seconds(a.RetryAfter), 1)
}

// perSeconds states a rate in whole seconds, for w knows no others: 10 in 100 ms
// are 100 in a second. It never states more than the rate.
func perSeconds(q int64, w time.Duration) (units, secs int64) {
	secs = seconds(w)
	if secs < 1 {
		secs = 1
	}
	if w%time.Second != 0 {
		f := float64(q) * (float64(secs) * float64(time.Second) / float64(w))
		q = int64(min(f, most))
	}
	return min(max(q, 0), most), secs
}

// seconds rounds up.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// appendString writes a structured field's String. What it cannot hold becomes "?".
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c > 0x7e:
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func param(b []byte, name byte, v int64) []byte {
	return strconv.AppendInt(append(b, ';', name, '='), v, 10)
}
