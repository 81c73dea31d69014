package limit

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func TestPrefixesOfNoAddress(t *testing.T) {
	for _, c := range []struct {
		pattern string
		none    bool
	}{
		{"2001:0db8*", true}, {"2001:db8*", false}, {"2001:DB8:*", false}, {"2001:db8:0:0:0:0:*", true}, {"2001:db8:0:*", false},
		{"1:0:0:1:1:*", false}, {"1:0:0:1:1:1*", true}, {"00:*", true}, {"::*", false}, {"::ffff:*", false}, {"::ffff:10.*", true}, {"1::0*", true},
		{"12345:*", true}, {"1:2:3:4:5:6:7:8:*", true}, {"10.*", false}, {"10.0.0.1*", false}, {"010.*", true}, {"256.*", true}, {"10.0.0.1.*", true},
		{"2001:0db8::", false}, {"*", false}, {"unknown*", false}, {"dead*", false}, {"fe80::1%eth*", false}, // no prefix, or of what need not be an address
	} {
		if got := BeginsNoAddress(c.pattern); got != c.none {
			t.Errorf("%s: got %t, want %t", c.pattern, got, c.none)
		}
		if m := (Match{Attribute: AttrIP, Patterns: []string{c.pattern}}); c.none && Check([]Match{m}, nil) != nil {
			t.Errorf("%s is refused; versions that are stored may have it", c.pattern)
		}
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		var b [16]byte
		for i := range 8 { // many zeros
			if r.IntN(2) == 0 {
				b[2*i], b[2*i+1] = byte(r.Uint32())*byte(r.IntN(2)), byte(r.Uint32())
			}
		}
		a := netip.AddrFrom16(b).Unmap()
		if r.IntN(4) == 0 {
			a = netip.AddrFrom4([4]byte(b[12:]))
		}
		short := a.String()
		if p := short[:1+r.IntN(len(short))] + "*"; BeginsNoAddress(p) {
			t.Fatalf("%s: said to begin no address, and begins %s (seed %d)", p, a, seed)
		}
	}
}
