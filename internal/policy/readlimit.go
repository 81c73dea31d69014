package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
)

var (
	limitKeys = []string{
		"name", "match", "by", "algorithm", "rate", "burst", "meter", "zone", "on_outage", "enforcement", "epsilon",
		"slots", "queue", "wait", "overage", "borrow", "lockout", "shadow", "allow", "deny", "reserve", "variants",
		"first_touch", "fallback_hold", "on_change",
	}
	// datedKeys are those of a tenant's overrides alone.
	datedKeys   = []string{"from", "until"}
	variantKeys = []string{"name", "share", "rate", "burst", "slots"}
)

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
		switch fd.name {
		case "name":
			named = true
		case "match":
			s.Match = s.conditions(f, fd, what, "leave it out to match every request")
		case "allow":
			s.Allow = s.conditions(f, fd, what, "leave it out to let nobody pass by")
		case "deny":
			s.Deny = s.conditions(f, fd, what, "leave it out to deny nobody outright")
		case "by":
			if by, ok := texts(f, fd.node, "by of "+what, limit.MaxBy+1); ok {
				s.By = by
			}
		case "algorithm":
			word(f, fd, what, &s.Algorithm)
		case "rate":
			word(f, fd, what, &s.Rate)
		case "burst":
			s.Burst = number(f, fd, what, "units", 1, limit.MaxUnits)
		case "meter":
			s.Meter, _ = name(f, fd.node, "the meter of "+what)
		case "zone":
			word(f, fd, what, &s.Zone)
		case "on_outage":
			word(f, fd, what, &s.OnOutage)
		case "enforcement":
			word(f, fd, what, &s.Enforcement)
		case "epsilon":
			word(f, fd, what, &s.Epsilon)
		case "slots":
			s.Slots = number(f, fd, what, "units in flight", 1, limit.MaxUnits)
		case "queue":
			s.Queue = number(f, fd, what, "requests", 0, limit.MaxQueue)
		case "wait":
			word(f, fd, what, &s.Wait)
		case "overage":
			word(f, fd, what, &s.Overage)
		case "borrow":
			s.Borrow = number(f, fd, what, "units", 0, limit.MaxUnits)
		case "lockout":
			word(f, fd, what, &s.Lockout)
		case "shadow":
			s.Shadow = yesOrNo(f, fd, what)
		case "reserve":
			s.reserve(f, fd, what)
		case "variants":
			s.variants(f, fd, what)
		case "first_touch":
			word(f, fd, what, &s.FirstTouch)
		case "fallback_hold":
			word(f, fd, what, &s.FallbackHold)
		case "on_change":
			word(f, fd, what, &s.OnChange)
		case "from":
			s.From = moment(f, fd, what)
		case "until":
			s.Until = moment(f, fd, what)
		default:
			unknown(f, fd, what, slices.Clone(limitKeys)...)
		}
	}
	if !named && n.Kind == yaml.MappingNode {
		f.add(n.Line, "a limit has no name; give it one, unique among the limits of its list")
	}
	return s
}

// conditions reads what requests are like: attributes to patterns.
func (s *LimitSpec) conditions(f *faults, fd field, what, instead string) map[string][]string {
	all := make(map[string][]string)
	if isNull(fd.node) {
		f.add(fd.line, "%s of %s is empty; %s", fd.name, what, instead)
	}
	for _, c := range mapping(f, fd.node, fd.name+" of "+what) {
		s.lines[fd.name+"."+c.name] = c.line
		if p, ok := texts(f, c.node, fmt.Sprintf("%s in %s of %s", limit.Quote(c.name), fd.name, what), limit.MaxPatterns); ok {
			all[c.name] = p
			for _, pattern := range p {
				if c.name == limit.AttrIP && limit.BeginsNoAddress(pattern) {
					f.warn(c.line, "%s: no address begins with %s: a prefix is one of an address's shortest form (RFC 5952), in which 2001:0db8:0:0::1 is 2001:db8::1; write such a prefix, or a block such as 2001:db8::/32",
						what, strings.TrimSuffix(pattern, "*"))
				}
			}
		}
	}
	return all
}

func (s *LimitSpec) reserve(f *faults, fd field, what string) {
	s.Reserve = &ReserveSpec{}
	what = "reserve of " + what
	if isNull(fd.node) {
		f.add(fd.line, "%s is empty; give it low, or leave it out", what)
	}
	for _, p := range mapping(f, fd.node, what) {
		s.lines["reserve."+p.name] = p.line
		switch p.name {
		case "low":
			word(f, p, what, &s.Reserve.Low)
		case "normal":
			word(f, p, what, &s.Reserve.Normal)
		default:
			unknown(f, p, what, "low", "normal")
		}
	}
}

func (s *LimitSpec) variants(f *faults, fd field, what string) {
	s.Variants = []VariantSpec{}
	for _, n := range items(f, fd.node, "variants of "+what, limit.MaxVariants) {
		v := VariantSpec{}
		which := "a variant of " + what
		if isNull(n) {
			f.add(n.Line, "%s must be a mapping of keys to values, not nothing", which)
		}
		for _, k := range mapping(f, n, which) {
			switch k.name {
			case "name":
				v.Name, _ = name(f, k.node, "the name of "+which)
			case "share":
				word(f, k, which, &v.Share)
			case "rate":
				word(f, k, which, &v.Rate)
			case "burst":
				v.Burst = number(f, k, which, "units", 1, limit.MaxUnits)
			case "slots":
				v.Slots = number(f, k, which, "units in flight", 1, limit.MaxUnits)
			default:
				unknown(f, k, which, slices.Clone(variantKeys)...)
			}
		}
		if n.Kind == yaml.MappingNode {
			s.lines[variantKey(len(s.Variants))] = n.Line
			s.Variants = append(s.Variants, v)
		}
	}
}

// word reads a value that may not be empty.
func word(f *faults, fd field, what string, to *string) {
	v, ok := text(f, fd.node, fd.name+" of "+what)
	if ok && v == "" {
		f.add(fd.line, "%s of %s is empty; leave it out or give it a value", fd.name, what)
	}
	*to = v
}

// number reads a whole number within bounds; nil when it is none.
func number(f *faults, fd field, what, of string, least, most int64) *int64 {
	var v string
	if word(f, fd, what, &v); v == "" {
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most || strconv.FormatInt(n, 10) != v {
		f.add(fd.line, "%s of %s is %s; it must be a whole number of %s, %d to %d", fd.name, what, limit.Quote(v), of, least, most)
		return nil
	}
	return &n
}

// yesOrNo reads true or false; nil when it is neither.
func yesOrNo(f *faults, fd field, what string) *bool {
	var v string
	if word(f, fd, what, &v); v == "" {
		return nil
	}
	if v != "true" && v != "false" {
		f.add(fd.line, "%s of %s is %s; it must be true or false", fd.name, what, limit.Quote(v))
		return nil
	}
	yes := v == "true"
	return &yes
}
