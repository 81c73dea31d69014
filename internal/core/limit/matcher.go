package limit

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// A Matcher tells which of up to MatcherRules rules a request meets, without asking each. For every attribute
// in conditions it looks the value up once. That gives the rules that the value leaves, and the Matcher
// intersects them. It is immutable, and safe for concurrent use. The cost depends on the request's attributes,
// hardly on the number of rules (BenchmarkMatcher).
type Matcher struct {
	all        uint64 // every rule
	attributes []index
	again      []*Rule // by bit: rules that one look at each attribute cannot decide; nil for the others
	recheck    uint64  // those
}

// MatcherRules is how many rules a Matcher holds: a bit for each in a word.
const MatcherRules = 64

// index finds what one attribute's value leaves.
type index struct {
	attribute string
	free      uint64 // rules without a condition on it
	any       uint64 // rules that any value satisfies, free included
	root      *node  // of exact values and prefixes; nil without any
	blocks    *blocks
}

// NewMatcher compiles rules; bit i of a Match is rules[i].
func NewMatcher(rules []*Rule) *Matcher {
	m := &Matcher{}
	if len(rules) > MatcherRules {
		panic("limit: more rules than a Matcher holds")
	}
	named := make(map[string]*index)
	for i, r := range rules {
		bit := uint64(1) << i
		m.all |= bit
		seen := make(map[string]bool)
		for j := range r.match {
			c := &r.match[j]
			if seen[c.attribute] {
				// Both conditions on it must hold: the first is looked up, the rule is asked about the rest.
				if m.again == nil {
					m.again = make([]*Rule, MatcherRules)
				}
				m.again[i], m.recheck = r, m.recheck|bit
				continue
			}
			seen[c.attribute] = true
			x := named[c.attribute]
			if x == nil {
				x = &index{attribute: c.attribute}
				named[c.attribute] = x
			}
			x.add(c, bit)
		}
		for name := range seen {
			named[name].free |= bit // inverted below: so far, the rules that do have a condition
		}
	}
	for _, x := range named {
		x.free = m.all &^ x.free
		x.any |= x.free
		if x.root != nil {
			x.root.finish(x.any)
		}
		if x.blocks != nil {
			x.blocks.finish()
		}
		m.attributes = append(m.attributes, *x)
	}
	// What decides most rules comes first: often nothing is left to ask of the others.
	slices.SortFunc(m.attributes, func(a, b index) int {
		if d := bits.OnesCount64(a.free) - bits.OnesCount64(b.free); d != 0 {
			return d
		}
		return strings.Compare(a.attribute, b.attribute)
	})
	return m
}

func (x *index) add(c *condition, bit uint64) {
	if c.any {
		x.any |= bit
		return
	}
	if x.root == nil && len(c.few)+len(c.exact)+len(c.prefixes) > 0 {
		x.root = new(node)
	}
	for _, v := range c.few {
		x.root.insert(v, bit, true)
	}
	for v := range c.exact {
		x.root.insert(v, bit, true)
	}
	for _, p := range c.prefixes {
		x.root.insert(p, bit, false)
	}
	for _, b := range c.blocks {
		if x.blocks == nil {
			x.blocks = new(blocks)
		}
		x.blocks.add(b, bit)
	}
}

// Match returns the rules that the request meets. It allocates nothing, but where a prefix is looked for
// in an address that is not in its shortest form.
func (m *Matcher) Match(attributes []Attribute) uint64 {
	left := m.all
	for i := range m.attributes {
		x := &m.attributes[i]
		if left&^x.free == 0 {
			continue // no rule that is left asks for it
		}
		v := lookup(attributes, x.attribute)
		if v == "" {
			left &= x.free
			continue
		}
		keep := x.any
		if x.root != nil {
			if x.attribute == AttrIP {
				keep = x.root.find(shortIP(v))
			} else {
				keep = x.root.find(v)
			}
		}
		if x.blocks != nil && left&x.blocks.rules&^keep != 0 {
			keep |= x.blocks.find(v)
		}
		left &= keep
	}
	if left&m.recheck != 0 {
		for b := left & m.recheck; b != 0; b &= b - 1 {
			i := bits.TrailingZeros64(b)
			if !m.again[i].Applies(attributes) {
				left &^= 1 << i
			}
		}
	}
	return left
}

// node is a radix tree's: all values that go on as label says, after what led here.
type node struct {
	label    string
	first    []byte // of the children's labels
	children []*node
	prefixes uint64 // rules with a prefix that is met here, or before
	exact    uint64 // those, and rules with the value that ends here
}

func (n *node) insert(v string, bit uint64, exact bool) {
	for v != "" {
		i := slices.Index(n.first, v[0])
		if i < 0 {
			c := &node{label: v}
			n.first, n.children = append(n.first, v[0]), append(n.children, c)
			n = c
			break
		}
		c := n.children[i]
		k := 0
		for k < len(v) && k < len(c.label) && v[k] == c.label[k] {
			k++
		}
		if k < len(c.label) { // split
			mid := &node{label: c.label[:k], first: []byte{c.label[k]}, children: []*node{c}}
			c.label = c.label[k:]
			n.children[i] = mid
			c = mid
		}
		n, v = c, v[k:]
	}
	if exact {
		n.exact |= bit
	} else {
		n.prefixes |= bit
	}
}

// finish makes each node hold what was met on the way to it.
func (n *node) finish(before uint64) {
	n.prefixes |= before
	n.exact |= n.prefixes
	for _, c := range n.children {
		c.finish(n.prefixes)
	}
}

func (n *node) find(v string) uint64 {
	for v != "" {
		var c *node
		for i, b := range n.first {
			if b == v[0] {
				c = n.children[i]
				break
			}
		}
		if c == nil || len(v) < len(c.label) || v[:len(c.label)] != c.label {
			return n.prefixes
		}
		n, v = c, v[len(c.label):]
	}
	return n.exact
}

// blocks finds the rules whose CIDR blocks an address is in. The blocks' ends cut the address space into
// pieces, and each piece knows its rules.
type blocks struct {
	rules    uint64
	prefixes []block
	v4       []uint32 // where pieces begin; the first begins at 0
	rules4   []uint64
	start4   [257]uint16 // by first byte: the pieces that may hold such an address
	v6       []addr6
	rules6   []uint64
}

type block struct {
	netip.Prefix
	rule uint64
}

type addr6 struct{ hi, lo uint64 }

func (a addr6) less(b addr6) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func addr4Of(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func addr6Of(a netip.Addr) addr6 {
	b := a.As16()
	return addr6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (s *blocks) add(p netip.Prefix, rule uint64) {
	s.rules |= rule
	s.prefixes = append(s.prefixes, block{p, rule})
}

// after returns the first address behind the block, and false behind the last.
func (b block) after() (netip.Addr, bool) {
	raw := b.Addr().AsSlice()
	for i := b.Bits() - 1; i >= 0; i-- {
		mask := byte(0x80 >> (i % 8))
		raw[i/8] ^= mask
		if raw[i/8]&mask != 0 {
			a, _ := netip.AddrFromSlice(raw)
			return a, true
		}
	}
	return netip.Addr{}, false
}

func (s *blocks) finish() {
	cuts := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	for _, b := range s.prefixes {
		cuts = append(cuts, b.Addr())
		if a, ok := b.after(); ok {
			cuts = append(cuts, a)
		}
	}
	slices.SortFunc(cuts, netip.Addr.Compare)
	for _, a := range slices.Compact(cuts) {
		var rules uint64
		for _, b := range s.prefixes {
			if b.Contains(a) {
				rules |= b.rule
			}
		}
		if a.Is4() {
			s.v4, s.rules4 = append(s.v4, addr4Of(a)), append(s.rules4, rules)
		} else {
			s.v6, s.rules6 = append(s.v6, addr6Of(a)), append(s.rules6, rules)
		}
	}
	for first := range 257 {
		// The last piece that begins at or before the byte's first address.
		s.start4[first] = uint16(max(sort.Search(len(s.v4), func(i int) bool { return uint64(s.v4[i]) > uint64(first)<<24 }), 1) - 1)
	}
	s.prefixes = nil
}

func (s *blocks) find(v string) uint64 {
	if a, ok := parse4(v); ok {
		// The pieces from the one that holds the byte's first address to the one that holds the next byte's.
		lo, hi := int(s.start4[a>>24]), int(s.start4[a>>24+1])
		for lo < hi {
			mid := int(uint(lo+hi+1) / 2)
			if s.v4[mid] <= a {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		return s.rules4[lo]
	}
	ip, ok := parseIP(v)
	if !ok {
		return 0
	}
	if ip.Is4() { // written as an IPv6 address
		a := addr4Of(ip)
		return s.rules4[sort.Search(len(s.v4), func(i int) bool { return s.v4[i] > a })-1]
	}
	a := addr6Of(ip)
	return s.rules6[sort.Search(len(s.v6), func(i int) bool { return a.less(s.v6[i]) })-1]
}

// parse4 reads an IPv4 address as netip.ParseAddr does, in a third of the time.
func parse4(v string) (a uint32, ok bool) {
	if len(v) < len("0.0.0.0") || len(v) > len("255.255.255.255") {
		return 0, false
	}
	i := 0
	for octet := range 4 {
		if octet > 0 {
			if i >= len(v) || v[i] != '.' {
				return 0, false
			}
			i++
		}
		if i >= len(v) {
			return 0, false
		}
		n := uint32(v[i] - '0') // what is no digit is above 9
		if n > 9 {
			return 0, false
		}
		i++
		if n > 0 { // nothing follows a zero: 01 is no number
			for more := 0; more < 2 && i < len(v); more++ {
				d := uint32(v[i] - '0')
				if d > 9 {
					break
				}
				n = 10*n + d
				i++
			}
			if n > 255 {
				return 0, false
			}
		}
		a = a<<8 | n
	}
	return a, i == len(v)
}
