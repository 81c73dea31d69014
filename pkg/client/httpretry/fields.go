package httpretry

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Longest is the longest wait that StatedWait returns: a year.
const Longest = 31_536_000 * time.Second

// StatedWait returns how long an answer asks its caller to stay away, from 0 to Longest. Retry-After (RFC 9110) counts
// before RateLimit, which counts only where nothing remains. A malformed field says nothing. ok is false where neither
// says anything.
func StatedWait(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	if wait, ok = retryAfter(h.Values("Retry-After"), now); ok {
		return wait, true
	}
	members, _ := parseRateLimit(h.Values("RateLimit"))
	for _, m := range members {
		if m.r == 0 && m.hasT {
			wait, ok = max(wait, upTo(m.t)), true
		}
	}
	return wait, ok
}

// upTo is so many seconds, or Longest.
func upTo(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(Longest/time.Second))) * time.Second
}

var digits = regexp.MustCompile(`^[0-9]+$`)

func retryAfter(lines []string, now time.Time) (time.Duration, bool) {
	if len(lines) != 1 {
		return 0, false
	}
	text := strings.Trim(lines[0], " \t")
	if digits.MatchString(text) {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil { // beyond int64
			return Longest, true
		}
		return upTo(seconds), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	// Sub is at most 292 years, so it does not overflow.
	return min(max(at.Sub(now), 0), Longest), true
}

// remaining is a member of a RateLimit field.
type remaining struct {
	name string
	r    int64 // units that remain
	t    int64 // seconds until there are more
	hasT bool
}

// The bare items of RFC 9651. A number that is too long leaves digits over, which no separator follows.
const (
	aString = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	anItem  = aString +
		`|-?[0-9]{1,12}\.[0-9]{1,3}` + // decimal
		`|-?[0-9]{1,15}` + // integer
		"|[A-Za-z*][!#$%&'*+\\-.^_`|~:/0-9A-Za-z]*" + // token
		`|:[A-Za-z0-9+/=]*:` + // bytes
		`|\?[01]` + // boolean
		`|@-?[0-9]{1,15}` + // date
		`|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"` // display string
)

var (
	nameOf    = regexp.MustCompile(`^` + aString)
	parameter = regexp.MustCompile(`^ *; *([a-z*][a-z0-9_\-.*]*)(?:=(` + anItem + `))?`)
	comma     = regexp.MustCompile(`^[ \t]*,[ \t]*`)
	count     = regexp.MustCompile(`^(?:[0-9]{1,15}|-0{1,15})$`)
	escape    = regexp.MustCompile(`\\(.)`)
)

// parseRateLimit reads the lines of a RateLimit field. ok is false where it is malformed, and so says nothing.
func parseRateLimit(lines []string) (members []remaining, ok bool) {
	text := strings.Trim(strings.Join(lines, ", "), " ")
	for text != "" {
		if len(members) > 0 {
			c := comma.FindString(text)
			if c == "" {
				return nil, false
			}
			text = text[len(c):]
		}
		name := nameOf.FindString(text)
		if name == "" {
			return nil, false
		}
		text = text[len(name):]
		parameters := map[string]string{}
		for p := parameter.FindStringSubmatch(text); p != nil; p = parameter.FindStringSubmatch(text) {
			parameters[p[1]] = p[2]
			text = text[len(p[0]):]
		}
		m := remaining{name: escape.ReplaceAllString(name[1:len(name)-1], "$1")}
		if !count.MatchString(parameters["r"]) {
			return nil, false
		}
		m.r, _ = strconv.ParseInt(parameters["r"], 10, 64) // fifteen digits at most
		var t string
		if t, m.hasT = parameters["t"]; m.hasT {
			if !count.MatchString(t) {
				return nil, false
			}
			m.t, _ = strconv.ParseInt(t, 10, 64)
		}
		members = append(members, m)
	}
	return members, true
}
