package limit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		attribute string
		patterns  []string
		yes, no   []string
	}{
		{"endpoint", []string{"POST /login"}, []string{"POST /login"}, []string{"", "POST /login/", "post /login", "POST /logi"}},
		{"endpoint", []string{"GET /a/*"}, []string{"GET /a/", "GET /a/b"}, []string{"GET /a", "GET /b"}},
		{"endpoint", []string{"*"}, []string{"x", "*"}, []string{""}},
		{"method", []string{"PUT", "POST", "P*"}, []string{"PUT", "POST", "PATCH"}, []string{"GET", "put"}},
		{"ip", []string{"10.0.0.0/8", "2001:db8::/32", "192.168.1.7"},
			[]string{"10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1", "2001:DB8:0:0::1", "192.168.1.7"},
			[]string{"11.0.0.1", "2001:db9::1", "192.168.1.8", "10.0.0", "localhost", "10.0.0.1:80", "10.0.0.1%eth0", "fe80::1%eth0", ""}},
		{"method", []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}, []string{"a", "h", "i", "j"}, []string{"k", ""}},
		{"ip", []string{"2001:db8::1"}, []string{"2001:db8:0::1"}, []string{"2001:db8::2"}},
		{"ip", []string{"fe80::/10"}, []string{"fe80::1", "fe80::1%eth0", "FE80::1%" + strings.Repeat("x", 60)}, []string{"%eth0"}},
		{"ip", []string{"10.*"}, []string{"10.1.2.3", "::ffff:10.1.2.3", "::FFFF:a01:203"}, []string{"110.1.2.3"}},
		{"ip", []string{"2001:DB8:*"}, []string{"2001:db8::1", "2001:0DB8::1", "2001:db8:0:0::1%eth0"}, []string{"2001:db9::1"}},
		{"ip", []string{"local*"}, []string{"localhost"}, []string{"10.1.2.3"}},
	} {
		r, err := Compile(Limit{Name: "x", Match: []Match{{c.attribute, c.patterns}}})
		if err != nil {
			t.Fatal(err)
		}
		for v, want := range values(c.yes, c.no) {
			got := r.Applies([]Attribute{{"other", "10.0.0.1"}, {c.attribute, v}})
			if got != want {
				t.Errorf("%s %q matches %q: got %v, want %v", c.attribute, v, c.patterns, got, want)
			}
		}
		if r.Applies([]Attribute{{"other", "x"}}) {
			t.Errorf("%s %q matches a request without the attribute", c.attribute, c.patterns)
		}
	}
}

func values(yes, no []string) map[string]bool {
	m := make(map[string]bool)
	for _, v := range yes {
		m[v] = true
	}
	for _, v := range no {
		m[v] = false
	}
	return m
}

// All conditions must hold, not one of them.
func TestMatchAll(t *testing.T) {
	r, err := Compile(Limit{Name: "x", Match: []Match{{"method", []string{"POST"}}, {"path", []string{"/a*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		want         bool
	}{{"POST", "/a", true}, {"GET", "/a", false}, {"POST", "/b", false}} {
		if got := r.Applies([]Attribute{{"path", c.path}, {"method", c.method}}); got != c.want {
			t.Errorf("%s %s: got %v, want %v", c.method, c.path, got, c.want)
		}
	}
}

func TestMatchFaults(t *testing.T) {
	many := make([]string, MaxPatterns+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, c := range []struct {
		match Match
		says  string
	}{
		{Match{"", []string{"x"}}, "not an attribute's name"},
		{Match{"a b", []string{"x"}}, "not an attribute's name"},
		{Match{"a", nil}, "1 to 64 patterns"},
		{Match{"a", many}, "1 to 64 patterns"},
		{Match{"a", []string{""}}, "1 to 256 bytes"},
		{Match{"a", []string{strings.Repeat("x", 257)}}, "1 to 256 bytes"},
		{Match{"a", []string{"x\x00"}}, "control characters"},
		{Match{"a", []string{"a*b"}}, "before its end"},
		{Match{"a", []string{"**"}}, "before its end"},
		{Match{"ip", []string{"10.0.0.1/8"}}, "did you mean 10.0.0.0/8?"},
		{Match{"ip", []string{"10.0.0.0/33"}}, "not a CIDR block"},
		{Match{"ip", []string{"::ffff:10.0.0.0/104"}}, "not a CIDR block"},
		{Match{"ip", []string{"localhost"}}, "not an IP address"},
	} {
		err := Check([]Match{c.match}, nil)
		if !errors.Is(err, ErrMatch) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+.60v: got %v, want an error that says %q", c.match, err, c.says)
		}
	}
	for by, ok := range map[string]bool{
		"ip": true, "user": true, "ip/8": true, "ip/24": true, "ip/64": true, "ip/128": true,
		"ip/7": false, "ip/129": false, "ip/": false, "ip/024": false, "ip/+24": false, "user/24": false, "": false, "a b": false,
	} {
		if err := Check(nil, []string{by}); (err == nil) != ok {
			t.Errorf("by %q: got %v, want ok=%v", by, err, ok)
		}
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct{ by, attribute, value, want string }{
		{"user", "user", "ann", "ann"},
		{"user", "other", "ann", ""},
		{"ip", "ip", "10.1.2.3", "10.1.2.3"},
		{"ip/24", "ip", "10.1.2.3", "10.1.2.0/24"},
		{"ip/24", "ip", "::ffff:10.1.2.3", "10.1.2.0/24"},
		{"ip/24", "ip", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{"ip/48", "ip", "2001:db8:1:2:3::4", "2001:db8:1::/48"},
		{"ip/48", "ip", "10.1.2.3", "10.1.2.3/32"},
		{"ip/24", "ip", "fe80::1%eth0", "fe80::/64"},
		{"ip/24", "ip", "nonsense", "nonsense"},
		// However an address is written, it is one.
		{"ip", "ip", "::ffff:10.1.2.3", "10.1.2.3"},
		{"ip", "ip", "::FFFF:0a01:0203", "10.1.2.3"},
		{"ip", "ip", "0:0:0:0:0:ffff:10.1.2.3", "10.1.2.3"},
		{"ip", "ip", "2001:db8::1", "2001:db8::1"},
		{"ip", "ip", "2001:DB8:0:0::1", "2001:db8::1"},
		{"ip", "ip", "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"},
		{"ip", "ip", "2001:db8::1%eth0", "2001:db8::1"},
		{"ip", "ip", "::1.2.3.4", "::102:304"},
		// What is none is a value like any other.
		{"ip", "ip", "nonsense", "nonsense"},
		{"ip", "ip", "Nonsense", "Nonsense"},
		{"ip", "ip", "10.1.2.3:80", "10.1.2.3:80"},
		{"ip", "ip", "010.1.2.3", "010.1.2.3"},
		{"ip", "ip", "10.1.2.3%eth0", "10.1.2.3%eth0"},
		{"ip", "ip", "", ""},
		{"client", "client", "::ffff:10.1.2.3", "::ffff:10.1.2.3"},
		{"user", "user", strings.Repeat("x", 256), strings.Repeat("x", 256)},
	} {
		r, err := Compile(Limit{Name: "x", By: []string{c.by}})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.AppendValue(nil, 0, []Attribute{{c.attribute, c.value}})); got != c.want {
			t.Errorf("by %s of %s=%s: got %q, want %q", c.by, c.attribute, c.value, got, c.want)
		}
	}
	// What is too long or broken gets a value that is valid, and its own.
	seen := make(map[string]bool)
	for _, v := range []string{strings.Repeat("x", 257), strings.Repeat("x", 258), strings.Repeat("é", 200), "a\x1fb", "a\x00b", "a\xffb", strings.Repeat("\xff", 300)} {
		got := Value(v)
		if !ValidValue(got) || seen[got] || got == v {
			t.Errorf("Value(%.20q...) = %q: valid %v, seen before %v", v, got, ValidValue(got), seen[got])
		}
		seen[got] = true
	}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	r, err := Compile(Limit{
		Name:  "x",
		Match: []Match{{"ip", []string{"10.0.0.0/8"}}, {"endpoint", []string{"GET /a", "GET /b*"}}},
		By:    []string{"user", "ip/24"},
	})
	if err != nil {
		t.Fatal(err)
	}
	attributes := []Attribute{{"tenant", "acme"}, {"ip", "10.1.2.3"}, {"endpoint", "GET /bc"}, {"user", "ann"}}
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		if !r.Applies(attributes) {
			t.Fatal("does not apply")
		}
		buf = r.AppendValue(buf[:0], 0, attributes)
		buf = r.AppendValue(buf, 1, attributes)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if got, want := string(buf), "ann10.1.2.0/24"; got != want {
		t.Errorf("values %q, want %q", got, want)
	}
	r, err = Compile(Limit{Name: "x", Match: []Match{{"ip", []string{"10.*", "2001:db8:*"}}}, By: []string{"ip"}})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMatcher([]*Rule{r})
	for _, v := range []string{"10.1.2.3", "2001:db8::1", "2001:db8:1111:2222:3333:4444:5555:6666"} {
		attributes := []Attribute{{"ip", v}}
		if n := testing.AllocsPerRun(100, func() {
			if !r.Applies(attributes) || m.Match(attributes) != 1 {
				t.Fatal("does not apply")
			}
			buf = r.AppendValue(buf[:0], 0, attributes)
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", v, n)
		}
	}
}

func rate(t testing.TB, s string) Rate {
	t.Helper()
	r, err := ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ofTeam is what holds a request of the team, an ancestor of which is refused or not.
const ofTeam = "team/requests 10/hour requests; team/per-user 1/minute ; /login 5/minute ; org/requests 1000/hour ; team/extra 1/second ; team/by-endpoint  calls; "

func TestChain(t *testing.T) {
	p := &Policy{
		DefaultPlan: "free",
		Limits:      []Limit{{Name: "login", Algorithm: TokenBucket, Rate: rate(t, "5/minute")}},
		Plans: []Plan{
			{Name: "free", Limits: []Limit{
				{Name: "by-endpoint", By: []string{"endpoint"}, Meter: "calls"},
				{Name: "requests", Rate: rate(t, "100/hour"), Meter: "requests"},
				{Name: "per-user", By: []string{"user"}, Rate: rate(t, "1/minute")},
			}},
			{Name: "paid", Limits: []Limit{{Name: "requests", Rate: rate(t, "1000/hour"), Meter: "requests"}}},
		},
	}
	rules, err := CompilePolicy(p)
	if err != nil {
		t.Fatal(err)
	}
	team := Tenant{ID: "team", Exists: true, Plan: "free", Parent: "org",
		Overrides: []Limit{{Name: "requests", Rate: rate(t, "10/hour"), Meter: "requests"}, {Name: "extra", Rate: rate(t, "1/second")}}}
	org := Tenant{ID: "org", Exists: true, Plan: "paid"}
	for _, c := range []struct {
		chain []Tenant
		want  string
		err   error
	}{
		{chain: []Tenant{team, org},
			want: "team/requests 10/hour requests; team/per-user 1/minute ; /login 5/minute ; org/requests 1000/hour ; team/extra 1/second ; team/by-endpoint  calls; "},
		{chain: []Tenant{org}, want: "/login 5/minute ; org/requests 1000/hour requests; "},
		{chain: []Tenant{{ID: "stranger"}}, want: "stranger/per-user 1/minute ; stranger/requests 100/hour requests; /login 5/minute ; stranger/by-endpoint  calls; "},
		{chain: []Tenant{{ID: "a", Exists: true, Plan: "gone"}}, err: ErrNoPlan},
		{
			chain: []Tenant{{ID: "a", Exists: true, Plan: "free", Suspended: true}}, err: ErrSuspended,
			want: "a/per-user 1/minute ; a/requests 100/hour requests; /login 5/minute ; a/by-endpoint  calls; ",
		},
		{chain: []Tenant{team, {ID: "org", Exists: true, Plan: "paid", Suspended: true}}, err: ErrSuspended, want: ofTeam},
		{chain: []Tenant{team, {ID: "org", Exists: true, Plan: "paid", Capped: true}}, err: ErrCapped, want: ofTeam},
		{chain: []Tenant{team}, err: ErrChain},
		{chain: nil, err: ErrChain},
	} {
		held, err := rules.Chain(c.chain)
		got := ""
		for _, h := range held {
			got += fmt.Sprintf("%s/%s %s %s; ", h.Tenant, h.Rule.Limit.Name, h.Rate, h.Meter)
		}
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v:\n got %s %v\nwant %s %v", c.chain, got, err, c.want, c.err)
		}
	}
	if r := rules.Find(&team, "requests"); r == nil || r.Limit.Rate.Units != 10 {
		t.Errorf("Find(team, requests) = %+v, want the override of 10/hour", r)
	}
	if r := rules.Find(nil, "requests"); r != nil {
		t.Errorf("Find(nil, requests) = %+v, want none: it is a plan's limit", r)
	}
	if r := rules.Find(nil, "login"); r == nil {
		t.Error("Find(nil, login): none, want the top level's")
	}
	p.DefaultPlan = ""
	if rules, err = CompilePolicy(p); err != nil {
		t.Fatal(err)
	}
	if _, err := rules.Chain([]Tenant{{ID: "stranger"}}); !errors.Is(err, ErrNoPlan) {
		t.Errorf("unknown tenant without a default plan: %v, want %v", err, ErrNoPlan)
	}
}

func TestZones(t *testing.T) {
	r, err := Compile(Limit{Name: "x", Algorithm: FixedWindow, Rate: rate(t, "1/day"), Zone: "Asia/Tokyo"})
	if err != nil {
		t.Fatal(err)
	}
	if start, _ := r.Window(time.Date(2026, 1, 1, 16, 0, 0, 0, time.UTC)); start.UTC().Hour() != 15 {
		t.Errorf("the day in Tokyo begins at %v, want 15:00 UTC", start.UTC())
	}
	for _, z := range []string{"Local", "Mars/Olympus", "../etc/passwd"} {
		if loc, err := LoadZone(z); err == nil {
			t.Errorf("zone %q is %v", z, loc)
		}
		// Never UTC without a word: windows would be others than the server's.
		if _, err := Compile(Limit{Name: "x", Zone: z}); !errors.Is(err, ErrZone) {
			t.Errorf("a limit in zone %q: got %v, want %v", z, err, ErrZone)
		}
	}
}

// A limit's units are called as the cost that they are of, and those of a limit that weighs as the limit, where no cost
// is called so.
func TestUnit(t *testing.T) {
	costs := NewCosts([]string{"out"})
	of := func(micros int64) Weighing { return Weighing{Weights: []Weight{{Cost: "out", Micros: micros}}} }
	for _, c := range []struct {
		limit Limit
		want  string
	}{
		{Limit{Name: "a"}, "requests"}, {Limit{Name: "out"}, "requests"}, {Limit{Name: "a", Slots: 5}, ""},
		{Limit{Name: "a", Cost: of(Micro)}, "out"}, {Limit{Name: "requests", Cost: of(Micro)}, "out"},
		{Limit{Name: "a", Cost: of(2)}, "a"}, {Limit{Name: "requests", Cost: of(2)}, ""}, {Limit{Name: "out", Cost: of(2)}, ""},
	} {
		r, err := compile(c.limit, costs)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Unit(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.limit, got, c.want)
		}
	}
}
