package limit

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Names of attributes with a meaning of their own.
const (
	AttrTenant = "tenant" // whose plan applies
	AttrIP     = "ip"     // an address, however it is written: matches CIDR blocks, and is cut by ip/N in By
	// AttrPriority is low, normal or high; anything else, or none, is normal. See Limit.Reserve.
	AttrPriority = "priority"
)

// ErrMatch is wrapped by every error about a condition or a `by` attribute.
var ErrMatch = errors.New("invalid match")

// Attribute is one thing that a gateway knows of a request. An empty value is as
// good as none.
type Attribute struct{ Name, Value string }

// Match holds when the attribute's value fits one of the patterns. A pattern is the exact value, a prefix
// followed by "*", or "*" for any value. For the attribute ip it may be a CIDR block, and a prefix is of an
// address's shortest form (RFC 5952). An absent attribute matches nothing.
type Match struct {
	Attribute string
	Patterns  []string
}

// condition is a Match ready to be tried.
type condition struct {
	attribute string
	any       bool
	few       []string            // exact values, where comparing them all is faster than hashing
	exact     map[string]struct{} // exact values, otherwise; nil for few
	prefixes  []string
	blocks    []netip.Prefix
}

// fewValues is how many exact values are compared one by one (BenchmarkApplies).
const fewValues = 8

func compileMatch(m Match) (condition, error) {
	c := condition{attribute: m.Attribute}
	if !ValidName(m.Attribute) {
		return c, fmt.Errorf("%w: %s is not an attribute's name", ErrMatch, Quote(m.Attribute))
	}
	if len(m.Patterns) == 0 || len(m.Patterns) > MaxPatterns {
		return c, fmt.Errorf("%w: a condition has 1 to %d patterns", ErrMatch, MaxPatterns)
	}
	for _, p := range m.Patterns {
		star := strings.IndexByte(p, '*')
		switch {
		case p == "" || !ValidValue(p):
			return c, fmt.Errorf("%w: a pattern has 1 to %d bytes without control characters", ErrMatch, MaxValueLen)
		case p == "*":
			c.any = true
		case star >= 0 && star < len(p)-1:
			return c, fmt.Errorf("%w: %s has a * before its end; write an exact value, prefix* or *", ErrMatch, Quote(p))
		case star >= 0:
			prefix := p[:star]
			if m.Attribute == AttrIP && mayBeIP(prefix) {
				prefix = strings.ToLower(prefix)
			}
			c.prefixes = append(c.prefixes, prefix)
		case m.Attribute == AttrIP:
			b, err := parseBlock(p)
			if err != nil {
				return c, err
			}
			c.blocks = append(c.blocks, b)
		default:
			c.few = append(c.few, p)
		}
	}
	if len(c.few) > fewValues {
		c.exact = make(map[string]struct{}, len(c.few))
		for _, p := range c.few {
			c.exact[p] = struct{}{}
		}
		c.few = nil
	}
	return c, nil
}

// parseBlock reads an address or a CIDR block. Host bits beyond the block's length
// are a fault: 10.0.0.1/8 says two things.
func parseBlock(p string) (netip.Prefix, error) {
	if !strings.Contains(p, "/") {
		a, err := netip.ParseAddr(p)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%w: %s is not an IP address; write an address, a block such as 10.0.0.0/8, prefix* or *", ErrMatch, Quote(p))
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	b, err := netip.ParsePrefix(p)
	if err != nil || b.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%w: %s is not a CIDR block; write one such as 10.0.0.0/8 or 2001:db8::/32", ErrMatch, Quote(p))
	}
	if b.Masked() != b {
		return netip.Prefix{}, fmt.Errorf("%w: %s has bits beyond its length; did you mean %s?", ErrMatch, Quote(p), b.Masked())
	}
	return b, nil
}

func (c *condition) holds(attributes []Attribute) bool {
	v := lookup(attributes, c.attribute)
	if v == "" {
		return false
	}
	if c.any {
		return true
	}
	for _, p := range c.few {
		if p == v {
			return true
		}
	}
	if c.exact != nil {
		if _, ok := c.exact[v]; ok {
			return true
		}
	}
	if len(c.prefixes) > 0 {
		if c.attribute == AttrIP {
			v = shortIP(v)
		}
		for _, p := range c.prefixes {
			if strings.HasPrefix(v, p) {
				return true
			}
		}
	}
	if len(c.blocks) > 0 {
		a, ok := parseIP(v)
		if !ok {
			return false
		}
		for _, b := range c.blocks {
			if b.Contains(a) {
				return true
			}
		}
	}
	return false
}

// mayBeIP reports whether v has nothing that no address has.
func mayBeIP(v string) bool {
	for i := 0; i < len(v); i++ {
		if c := v[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') && c != '.' && c != ':' {
			return false
		}
	}
	return true
}

// parseIP reads an address without allocating where v cannot be one. An IPv4 address written as an IPv6 one is
// the IPv4 address. A zone is left out: it tells one host's networks apart, and does not identify the caller.
func parseIP(v string) (netip.Addr, bool) {
	if i := strings.IndexByte(v, '%'); i >= 0 && strings.IndexByte(v[:i], ':') >= 0 {
		v = v[:i]
	}
	if len(v) > 45 || !mayBeIP(v) {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(v)
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// appendIP appends an address in its shortest form, and any other text as it is.
func appendIP(dst []byte, v string) []byte {
	if _, ok := parse4(v); !ok { // else there is no other form
		if a, ok := parseIP(v); ok {
			return a.AppendTo(dst)
		}
	}
	return append(dst, v...)
}

// shortIP returns v as appendIP has it. It allocates for an address in another form alone.
func shortIP(v string) string {
	if _, ok := parse4(v); ok {
		return v
	}
	var buf [46]byte
	if short := appendIP(buf[:0], v); string(short) != v {
		return string(short)
	}
	return v
}

// lookup returns the first value of that name; empty when there is none.
func lookup(attributes []Attribute, name string) string {
	for i := range attributes {
		if attributes[i].Name == name {
			return attributes[i].Value
		}
	}
	return ""
}

// part is one attribute of By. For ip/N, bits4 and bits6 say what is kept.
type part struct {
	attribute    string
	bits4, bits6 int // 0: the whole value
}

// host6 is how much of an IPv6 address ip/N keeps for N up to 32: what a site
// hands to one network.
const host6 = 64

func compilePart(by string) (part, error) {
	name, bits, cut := strings.Cut(by, "/")
	if !ValidName(name) {
		return part{}, fmt.Errorf("%w: %s is not an attribute's name", ErrMatch, Quote(by))
	}
	if !cut {
		return part{attribute: name}, nil
	}
	if name != AttrIP {
		return part{}, fmt.Errorf("%w: %s: only ip can be cut with /N", ErrMatch, Quote(by))
	}
	n, err := strconv.Atoi(bits)
	if err != nil || strconv.Itoa(n) != bits || n < 8 || n > 128 {
		return part{}, fmt.Errorf("%w: %s: write ip/8 to ip/32 to cut IPv4 addresses, ip/33 to ip/128 to cut IPv6 addresses", ErrMatch, Quote(by))
	}
	if n <= 32 {
		return part{name, n, host6}, nil
	}
	return part{name, 32, n}, nil
}

// append appends the value that tells this request's bucket apart.
func (p *part) append(dst []byte, attributes []Attribute) []byte {
	v := lookup(attributes, p.attribute)
	if p.bits4 > 0 {
		if a, ok := parseIP(v); ok {
			bits := p.bits4
			if a.Is6() {
				bits = p.bits6
			}
			if b, err := a.Prefix(bits); err == nil {
				return b.AppendTo(dst)
			}
		}
	}
	if !ValidValue(v) {
		v = Value(v)
	}
	if p.attribute == AttrIP {
		return appendIP(dst, v)
	}
	return append(dst, v...)
}
