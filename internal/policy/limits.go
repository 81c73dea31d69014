package policy

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/limit"
)

// LimitSpec is a limit as a document writes it. What is empty (for Match, By and
// Burst: nil) takes its default, or in a tenant's override the value of the
// plan's limit of that name. In JSON it is how a store keeps overrides, so that
// they follow the plan when it changes.
type LimitSpec struct {
	Name        string              `json:"name"`
	Match       map[string][]string `json:"match"`
	By          []string            `json:"by"`
	Algorithm   string              `json:"algorithm,omitempty"`
	Rate        string              `json:"rate,omitempty"`
	Burst       *int64              `json:"burst,omitempty"`
	Meter       string              `json:"meter,omitempty"`
	Zone        string              `json:"zone,omitempty"`
	OnOutage    string              `json:"on_outage,omitempty"`
	Enforcement string              `json:"enforcement,omitempty"`
	Epsilon     string              `json:"epsilon,omitempty"`

	line  int
	lines map[string]int // of its keys
}

var limitKeys = []string{"name", "match", "by", "algorithm", "rate", "burst", "meter", "zone", "on_outage", "enforcement", "epsilon"}

// readLimit reads one element of a list of limits.
func readLimit(f *faults, n *yaml.Node) LimitSpec {
	s := LimitSpec{line: n.Line, lines: make(map[string]int)}
	what := "a limit"
	if isNull(n) {
		f.add(n.Line, "%s must be a mapping of keys to values, not nothing", what)
		return s
	}
	fields := mapping(f, n, what)
	for _, fd := range fields {
		if fd.name == "name" {
			s.Name, _ = name(f, fd.node, "the name of a limit")
			if s.Name != "" {
				what = "limit " + s.Name
			}
		}
	}
	named := false
	for _, fd := range fields {
		s.lines[fd.name] = fd.line
		word := func(to *string) {
			if v, ok := text(f, fd.node, fd.name+" of "+what); ok {
				if v == "" {
					f.add(fd.line, "%s of %s is empty; leave it out or give it a value", fd.name, what)
				}
				*to = v
			}
		}
		switch fd.name {
		case "name":
			named = true
		case "match":
			s.Match = make(map[string][]string)
			if isNull(fd.node) {
				f.add(fd.line, "match of %s is empty; leave it out to match every request", what)
			}
			for _, c := range mapping(f, fd.node, "match of "+what) {
				s.lines["match."+c.name] = c.line
				if p, ok := texts(f, c.node, fmt.Sprintf("%s in match of %s", limit.Quote(c.name), what), limit.MaxPatterns); ok {
					s.Match[c.name] = p
				}
			}
		case "by":
			if by, ok := texts(f, fd.node, "by of "+what, limit.MaxBy+1); ok {
				s.By = by
			}
		case "algorithm":
			word(&s.Algorithm)
		case "rate":
			word(&s.Rate)
		case "burst":
			var v string
			word(&v)
			if v == "" {
				continue
			}
			b, err := strconv.ParseInt(v, 10, 64)
			if err != nil || b < 1 || b > limit.MaxUnits || strconv.FormatInt(b, 10) != v {
				f.add(fd.line, "burst of %s is %s; it must be a whole number of units, 1 to %d", what, limit.Quote(v), int64(limit.MaxUnits))
				continue
			}
			s.Burst = &b
		case "meter":
			s.Meter, _ = name(f, fd.node, "the meter of "+what)
		case "zone":
			word(&s.Zone)
		case "on_outage":
			word(&s.OnOutage)
		case "enforcement":
			word(&s.Enforcement)
		case "epsilon":
			word(&s.Epsilon)
		default:
			unknown(f, fd, what, slices.Clone(limitKeys)...)
		}
	}
	if !named && n.Kind == yaml.MappingNode {
		f.add(n.Line, "a limit has no name; give it one, unique among the limits of its list")
	}
	return s
}

// problem is what is wrong with one key of a limit.
type problem struct {
	key  string // of LimitSpec.lines; empty for the limit as a whole
	text string
}

func (s *LimitSpec) report(f *faults, what string, problems []problem) {
	for _, p := range problems {
		line, ok := s.lines[p.key]
		if !ok {
			line = s.line
		}
		f.add(line, "%slimit %s: %s", what, s.Name, p.text)
	}
}

// place says where a limit stands, which decides its defaults and what it may say.
type place struct {
	top  bool         // at the policy's top level; otherwise of a plan or a tenant
	base *limit.Limit // what an override changes; nil for a limit of its own
	zone string       // the document's default zone
}

// compile turns what is written into a limit, and says everything that is wrong with it.
func (s *LimitSpec) compile(at place) (limit.Limit, []problem) {
	var problems []problem
	bad := func(key, format string, args ...any) {
		problems = append(problems, problem{key, fmt.Sprintf(format, args...)})
	}
	l := limit.Limit{Algorithm: limit.TokenBucket, EpsilonPPM: limit.DefaultEpsilonPPM}
	if at.base != nil {
		l = *at.base
	}
	l.Name = s.Name

	if s.Match != nil {
		l.Match = nil
		if len(s.Match) > limit.MaxMatch {
			bad("match", "match has %d conditions; at most %d are allowed", len(s.Match), limit.MaxMatch)
		}
		for _, attribute := range sortedKeys(s.Match) {
			m := limit.Match{Attribute: attribute, Patterns: s.Match[attribute]}
			if err := limit.Check([]limit.Match{m}, nil); err != nil {
				bad("match."+attribute, "%v", err)
			}
			l.Match = append(l.Match, m)
		}
	}
	if s.By != nil {
		l.By = nil
		seen := make(map[string]bool)
		for _, by := range s.By {
			if err := limit.Check(nil, []string{by}); err != nil {
				bad("by", "%v", err)
				continue
			}
			if seen[by] {
				bad("by", "by names %s twice", by)
				continue
			}
			seen[by] = true
			if by == limit.AttrTenant && !at.top {
				continue // a plan's limit always counts by tenant
			}
			l.By = append(l.By, by)
		}
		if len(l.By) > limit.MaxBy {
			bad("by", "by has %d attributes; at most %d are allowed", len(l.By), limit.MaxBy)
		}
	}
	if s.Meter != "" {
		l.Meter = s.Meter
	}
	if at.top && l.Meter != "" && !slices.Contains(l.By, limit.AttrTenant) {
		bad("meter", "a meter belongs to a tenant: a metered limit of the top level must have tenant in its by")
	}

	rateOK := true
	if s.Rate != "" {
		r, err := limit.ParseRate(s.Rate)
		if err != nil {
			bad("rate", "%v", err)
			rateOK = false
		} else {
			l.Rate = r
		}
	}
	switch s.Algorithm {
	case "":
	case limit.TokenBucket.String():
		l.Algorithm = limit.TokenBucket
	case limit.FixedWindow.String():
		l.Algorithm = limit.FixedWindow
	default:
		bad("algorithm", "%s is not an algorithm; allowed are %s and %s", limit.Quote(s.Algorithm), limit.TokenBucket, limit.FixedWindow)
		rateOK = false
	}
	if rateOK && l.CountsOnly() {
		s.countsOnly(&l, bad)
		return l, problems
	}
	if rateOK && l.Algorithm == limit.TokenBucket && l.Rate.Calendar >= limit.Month {
		bad("rate", "a token bucket fills evenly, and a %s has no fixed length; use algorithm: fixed_window, or a duration such as 720h", l.Rate.Calendar)
	}
	if rateOK && l.Algorithm == limit.FixedWindow && l.Rate.Per%time.Millisecond != 0 {
		bad("rate", "the windows of a fixed_window must be whole milliseconds, not %s", l.Rate.Per)
	}
	s.compileBurst(&l, at.base, rateOK, bad)
	s.compileZone(&l, at, rateOK, bad)

	switch s.OnOutage {
	case "":
	case limit.OutageFallback.String():
		l.OnOutage = limit.OutageFallback
	case limit.OutageOpen.String():
		l.OnOutage = limit.OutageOpen
	case limit.OutageClosed.String():
		l.OnOutage = limit.OutageClosed
	default:
		bad("on_outage", "on_outage is %s; allowed are fallback, open and closed", limit.Quote(s.OnOutage))
	}
	switch s.Enforcement {
	case "":
	case limit.Hard.String():
		if l.Enforcement != limit.Hard {
			l.Enforcement, l.EpsilonPPM = limit.Hard, limit.DefaultEpsilonPPM
		}
	case limit.Strict.String():
		l.Enforcement, l.EpsilonPPM = limit.Strict, 0
	default:
		bad("enforcement", "enforcement is %s; allowed are hard and strict", limit.Quote(s.Enforcement))
	}
	if s.Epsilon != "" {
		ppm, ok := parsePercent(s.Epsilon)
		switch {
		case !ok:
			bad("epsilon", "epsilon is %s; it must be a percentage of 0%% to 100%% with at most four decimals, such as 5%% or 0.5%%", limit.Quote(s.Epsilon))
		case l.Enforcement == limit.Strict && ppm != 0:
			bad("epsilon", "enforcement: strict means an epsilon of 0%%; leave epsilon out, or use enforcement: hard")
		default:
			l.EpsilonPPM = ppm
		}
	}
	return l, problems
}

// countsOnly checks a limit without a rate: it feeds a meter and never denies.
func (s *LimitSpec) countsOnly(l *limit.Limit, bad func(key, format string, args ...any)) {
	if l.Meter == "" {
		bad("", "it has neither a rate nor a meter, so it would do nothing; give it a rate such as 100/hour, or a meter to count for")
	}
	for _, c := range []struct {
		key   string
		given bool
	}{
		{"algorithm", s.Algorithm != ""}, {"burst", s.Burst != nil}, {"zone", s.Zone != ""},
		{"on_outage", s.OnOutage != ""}, {"enforcement", s.Enforcement != ""}, {"epsilon", s.Epsilon != ""},
	} {
		if c.given {
			bad(c.key, "%s needs a rate: a limit without one only counts", c.key)
		}
	}
}

// compileBurst: by default a token bucket holds one period's units. An override
// of the rate alone keeps the proportion that the plan's limit has.
func (s *LimitSpec) compileBurst(l, base *limit.Limit, rateOK bool, bad func(key, format string, args ...any)) {
	switch {
	case l.Algorithm == limit.FixedWindow:
		if s.Burst != nil {
			bad("burst", "a fixed window has no burst: it admits its units anew in each window")
		}
		l.Burst = 0
	case s.Burst != nil:
		l.Burst = *s.Burst
	case !rateOK:
	case base == nil || base.Algorithm != limit.TokenBucket || base.CountsOnly():
		l.Burst = l.Rate.Units
	case s.Rate != "":
		// Both factors are at most MaxUnits, so the product fits.
		l.Burst = max(1, (base.Burst*l.Rate.Units+base.Rate.Units/2)/base.Rate.Units)
		if l.Burst > limit.MaxUnits {
			bad("rate", "with the plan's burst of %d for %s the burst would be %d; give a burst of at most %d", base.Burst, base.Rate, l.Burst, int64(limit.MaxUnits))
		}
	}
}

func (s *LimitSpec) compileZone(l *limit.Limit, at place, rateOK bool, bad func(key, format string, args ...any)) {
	if s.Zone != "" {
		if _, err := limit.LoadZone(s.Zone); err != nil {
			bad("zone", "%v", err)
			return
		}
	}
	if !rateOK {
		return
	}
	zoned := l.Algorithm == limit.FixedWindow && l.Rate.Calendar.Zoned()
	switch {
	case !zoned && s.Zone != "":
		bad("zone", "a time zone matters only to a fixed_window of days, weeks, months or years; leave it out")
	case !zoned:
		l.Zone = ""
	case s.Zone != "":
		l.Zone = canonicalZone(s.Zone)
	case l.Zone == "":
		l.Zone = at.zone
	}
}

// canonicalZone is empty for UTC, so that it compares equal to no zone at all.
func canonicalZone(z string) string {
	if z == "UTC" {
		return ""
	}
	return z
}

// parsePercent reads 0% to 100% with at most four decimals, as parts per million.
func parsePercent(s string) (int64, bool) {
	digits, ok := strings.CutSuffix(s, "%")
	whole, frac, dot := strings.Cut(digits, ".")
	if !ok || whole == "" || len(whole) > 3 || dot && frac == "" || len(frac) > 4 || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 4-len(frac)), 10, 64)
	return n, err == nil && n <= limit.Micro
}

// percent writes parts per million as parsePercent reads them.
func percent(ppm int64) string {
	s := strconv.FormatInt(ppm/10_000, 10)
	if frac := ppm % 10_000; frac != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%04d", frac), "0")
	}
	return s + "%"
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
