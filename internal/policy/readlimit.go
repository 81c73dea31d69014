package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

var (
	limitKeys = []string{
		"name", "match", "by", "algorithm", "rate", "burst", "meter", "zone", "on_outage", "enforcement", "epsilon",
		"slots", "queue", "wait", "overage", "borrow", "lockout", "shadow", "allow", "deny", "reserve", "variants",
		"first_touch", "fallback_hold", "on_change", "cost",
	}
	// datedKeys are those of a tenant's overrides alone.
	datedKeys   = []string{"from", "until"}
	variantKeys = []string{"name", "share", "rate", "burst", "slots"}
)

// readLimit reads one element of a list of limits.
func readLimit(f *strict.Collector, n *yaml.Node) LimitSpec {
	s := LimitSpec{line: n.Line, lines: make(map[string]int)}
	what := "a limit"
	if strict.IsNull(n) {
		f.Add(n.Line, "%s must be a mapping of keys to values, not nothing", what)
		return s
	}
	fields := strict.Mapping(f, n, what)
	for _, fd := range fields {
		if fd.Name == "name" {
			s.Name, _ = strict.Name(f, fd.Node, "the name of a limit")
			if s.Name != "" {
				what = "limit " + s.Name
			}
		}
	}
	named := false
	for _, fd := range fields {
		s.lines[fd.Name] = fd.Line
		switch fd.Name {
		case "name":
			named = true
		case "match":
			s.Match = s.conditions(f, fd, what, "leave it out to match every request")
		case "allow":
			s.Allow = s.conditions(f, fd, what, "leave it out to let nobody pass by")
		case "deny":
			s.Deny = s.conditions(f, fd, what, "leave it out to deny nobody outright")
		case "by":
			if by, ok := strict.Texts(f, fd.Node, "by of "+what, limit.MaxBy+1); ok {
				s.By = by
			}
		case "algorithm":
			strict.Word(f, fd, what, &s.Algorithm)
		case "rate":
			strict.Word(f, fd, what, &s.Rate)
		case "burst":
			s.Burst = strict.Number(f, fd, what, "units", 1, limit.MaxUnits)
		case "cost":
			s.cost(f, fd, what)
		case "meter":
			s.Meter, _ = strict.Name(f, fd.Node, "the meter of "+what)
		case "zone":
			strict.Word(f, fd, what, &s.Zone)
		case "on_outage":
			strict.Word(f, fd, what, &s.OnOutage)
		case "enforcement":
			strict.Word(f, fd, what, &s.Enforcement)
		case "epsilon":
			strict.Word(f, fd, what, &s.Epsilon)
		case "slots":
			s.Slots = strict.Number(f, fd, what, "units in flight", 1, limit.MaxUnits)
		case "queue":
			s.Queue = strict.Number(f, fd, what, "requests", 0, limit.MaxQueue)
		case "wait":
			strict.Word(f, fd, what, &s.Wait)
		case "overage":
			strict.Word(f, fd, what, &s.Overage)
		case "borrow":
			s.Borrow = strict.Number(f, fd, what, "units", 0, limit.MaxUnits)
		case "lockout":
			strict.Word(f, fd, what, &s.Lockout)
		case "shadow":
			s.Shadow = yesOrNo(f, fd, what)
		case "reserve":
			s.reserve(f, fd, what)
		case "variants":
			s.variants(f, fd, what)
		case "first_touch":
			strict.Word(f, fd, what, &s.FirstTouch)
		case "fallback_hold":
			strict.Word(f, fd, what, &s.FallbackHold)
		case "on_change":
			strict.Word(f, fd, what, &s.OnChange)
		case "from":
			s.From = moment(f, fd, what)
		case "until":
			s.Until = moment(f, fd, what)
		default:
			strict.Unknown(f, fd, what, slices.Clone(limitKeys)...)
		}
	}
	if !named && n.Kind == yaml.MappingNode {
		f.Add(n.Line, "a limit has no name; give it one, unique among the limits of its list")
	}
	return s
}

// conditions reads the conditions of requests: attributes to patterns.
func (s *LimitSpec) conditions(f *strict.Collector, fd strict.Field, what, instead string) map[string][]string {
	all := make(map[string][]string)
	if strict.IsNull(fd.Node) {
		f.Add(fd.Line, "%s of %s is empty; %s", fd.Name, what, instead)
	}
	for _, c := range strict.Mapping(f, fd.Node, fd.Name+" of "+what) {
		s.lines[fd.Name+"."+c.Name] = c.Line
		if p, ok := strict.Texts(f, c.Node, fmt.Sprintf("%s in %s of %s", limit.Quote(c.Name), fd.Name, what), limit.MaxPatterns); ok {
			all[c.Name] = p
			for _, pattern := range p {
				if c.Name == limit.AttrIP && limit.BeginsNoAddress(pattern) {
					f.Warn(c.Line, "%s: no address begins with %s: a prefix is one of an address's shortest form (RFC 5952), in which 2001:0db8:0:0::1 is 2001:db8::1; write such a prefix, or a block such as 2001:db8::/32",
						what, strings.TrimSuffix(pattern, "*"))
				}
			}
		}
	}
	return all
}

func (s *LimitSpec) reserve(f *strict.Collector, fd strict.Field, what string) {
	s.Reserve = &ReserveSpec{}
	what = "reserve of " + what
	if strict.IsNull(fd.Node) {
		f.Add(fd.Line, "%s is empty; give it low, or leave it out", what)
	}
	for _, p := range strict.Mapping(f, fd.Node, what) {
		s.lines["reserve."+p.Name] = p.Line
		switch p.Name {
		case "low":
			strict.Word(f, p, what, &s.Reserve.Low)
		case "normal":
			strict.Word(f, p, what, &s.Reserve.Normal)
		default:
			strict.Unknown(f, p, what, "low", "normal")
		}
	}
}

func (s *LimitSpec) variants(f *strict.Collector, fd strict.Field, what string) {
	s.Variants = []VariantSpec{}
	for _, n := range strict.Items(f, fd.Node, "variants of "+what, limit.MaxVariants) {
		v := VariantSpec{}
		which := "a variant of " + what
		if strict.IsNull(n) {
			f.Add(n.Line, "%s must be a mapping of keys to values, not nothing", which)
		}
		for _, k := range strict.Mapping(f, n, which) {
			switch k.Name {
			case "name":
				v.Name, _ = strict.Name(f, k.Node, "the name of "+which)
			case "share":
				strict.Word(f, k, which, &v.Share)
			case "rate":
				strict.Word(f, k, which, &v.Rate)
			case "burst":
				v.Burst = strict.Number(f, k, which, "units", 1, limit.MaxUnits)
			case "slots":
				v.Slots = strict.Number(f, k, which, "units in flight", 1, limit.MaxUnits)
			default:
				strict.Unknown(f, k, which, slices.Clone(variantKeys)...)
			}
		}
		if n.Kind == yaml.MappingNode {
			s.lines[variantKey(len(s.Variants))] = n.Line
			s.Variants = append(s.Variants, v)
		}
	}
}

// yesOrNo reads true or false; nil when it is neither.
func yesOrNo(f *strict.Collector, fd strict.Field, what string) *bool {
	var v string
	if strict.Word(f, fd, what, &v); v == "" {
		return nil
	}
	if v != "true" && v != "false" {
		f.Add(fd.Line, "%s of %s is %s; it must be true or false", fd.Name, what, limit.Quote(v))
		return nil
	}
	yes := v == "true"
	return &yes
}
