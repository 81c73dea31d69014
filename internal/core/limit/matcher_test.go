package limit

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// A Matcher says of random requests what asking every rule says.
func TestMatcherAgainstRules(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 1))
	word := func() string {
		b := make([]byte, r.IntN(6))
		for i := range b {
			b[i] = "ab/ "[r.IntN(4)]
		}
		return string(b)
	}
	ip := func() string {
		switch r.IntN(7) {
		case 0:
			return fmt.Sprintf("2001:db8:%x::%x", r.IntN(4), r.IntN(3))
		case 6:
			return fmt.Sprintf("2001:0DB8:%04X:0::%x%%eth%d", r.IntN(4), r.IntN(3), r.IntN(2))
		case 1:
			return fmt.Sprintf("::ffff:10.0.%d.%d", r.IntN(4), r.IntN(256))
		case 2:
			return []string{"10.0.0", "10.0.0.01", "10.0.0.256", "10.0.0.1.2", "x", "10.0.0.1%eth0", "1.2.3.", ".1.2.3", "fe80::1%eth0", "255.255.255.255", "0.0.0.0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::"}[r.IntN(13)]
		default:
			return fmt.Sprintf("%d.0.%d.%d", 9+r.IntN(3), r.IntN(4), r.IntN(256))
		}
	}
	pattern := func(name string) string {
		if r.IntN(12) == 0 {
			return "*"
		}
		if name == AttrIP {
			switch r.IntN(5) {
			case 0:
				return []string{"10.0*", "10.1*", "2001:DB8:1*", "x*"}[r.IntN(4)]
			case 1:
				p, _ := netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::", r.IntN(4))).Prefix(r.IntN(129))
				return p.String()
			default:
				p, _ := netip.MustParseAddr(fmt.Sprintf("%d.0.%d.%d", 9+r.IntN(3), r.IntN(4), r.IntN(256))).Prefix(r.IntN(33))
				return p.String()
			}
		}
		if r.IntN(2) == 0 {
			return word() + "*"
		}
		return "a" + word()
	}
	names := []string{AttrIP, "endpoint", "user"}
	met := 0
	for range 300 {
		rules := make([]*Rule, 1+r.IntN(MatcherRules))
		for i := range rules {
			l := Limit{Name: "x"}
			for range r.IntN(4) {
				m := Match{Attribute: names[r.IntN(len(names))]}
				for range 1 + r.IntN(12) {
					m.Patterns = append(m.Patterns, pattern(m.Attribute))
				}
				l.Match = append(l.Match, m)
			}
			var err error
			if rules[i], err = Compile(l); err != nil {
				t.Fatal(err)
			}
		}
		m := NewMatcher(rules)
		for range 100 {
			var a []Attribute
			for _, name := range names {
				switch {
				case r.IntN(6) == 0:
				case name == AttrIP:
					a = append(a, Attribute{name, ip()})
				default:
					a = append(a, Attribute{name, word()})
				}
			}
			got := m.Match(a)
			for i, rule := range rules {
				if want := rule.Applies(a); got>>i&1 == 1 != want {
					t.Fatalf("seed %d: request %q and limit %+v: got %t, want %t", seed, a, rule.Limit.Match, !want, want)
				} else if want {
					met++
				}
			}
			if len(rules) < MatcherRules && got>>len(rules) != 0 {
				t.Fatalf("seed %d: %b has rules beyond the %d there are", seed, got, len(rules))
			}
		}
	}
	if met < 10_000 {
		t.Errorf("only %d times a request met a limit: this proves little", met)
	}
}

func FuzzParse4(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "0.0.0.0", "255.255.255.255", "01.2.3.4", "1.2.3", "1.2.3.4.", "1..2.3", "256.1.1.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := parse4(s)
		want, err := netip.ParseAddr(s)
		if wantOK := err == nil && want.Is4(); ok != wantOK || ok && addr4Of(want) != a {
			t.Errorf("%q is %x, %t; want %s, %t", s, a, ok, want, wantOK)
		}
	})
}

// BenchmarkMatcher finds the one or three of fifty rules that a request meets, beside
// asking every rule.
func BenchmarkMatcher(b *testing.B) {
	var rules []*Rule
	add := func(pairs ...string) {
		l := Limit{Name: "x"}
		for i := 0; i < len(pairs); i += 2 {
			l.Match = append(l.Match, Match{pairs[i], []string{pairs[i+1]}})
		}
		r, err := Compile(l)
		if err != nil {
			b.Fatal(err)
		}
		rules = append(rules, r)
	}
	add("endpoint", "GET /items/*")
	add("endpoint", "POST /orders")
	add("endpoint", "POST /*")
	add("endpoint", "POST /ord*", "ip", "10.0.0.0/8")
	for i := range 16 {
		add("endpoint", fmt.Sprintf("GET /reports/%d", i))
	}
	for i := range 15 {
		add("endpoint", fmt.Sprintf("GET /archive/%d/*", i))
	}
	for i := range 10 {
		add("ip", fmt.Sprintf("192.0.%d.0/24", 2*i))
	}
	for i := range 5 {
		add("user", fmt.Sprintf("robot-%d-*", i))
	}
	m := NewMatcher(rules)
	for _, endpoint := range []string{"GET /items/17", "POST /orders"} {
		a := []Attribute{{"tenant", "t-01234567"}, {"user", "u-01234567-0123"}, {"endpoint", endpoint}, {"ip", "10.123.124.125"}}
		var met uint64
		b.Run(endpoint+"/matcher", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				met = m.Match(a)
			}
		})
		b.Run(endpoint+"/each", func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = 0
				for _, r := range rules {
					if r.Applies(a) {
						n++
					}
				}
			}
			if n == 0 || met == 0 {
				b.Fatal("nothing applies")
			}
		})
	}
}
