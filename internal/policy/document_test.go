package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

const example = "../../examples/quota.yaml"

func readExample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustParse(t testing.TB, text string) *Document {
	t.Helper()
	d, err := Parse("quota.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}

func rate(t testing.TB, s string) limit.Rate {
	t.Helper()
	r, err := limit.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestExample(t *testing.T) {
	d := mustParse(t, string(readExample(t)))
	p := d.Policy(7)
	if p.Version != 7 || p.DefaultPlan != "free" || p.Slot != 5*time.Minute {
		t.Errorf("version %d, default plan %q, slot %v; want 7, free, 5m", p.Version, p.DefaultPlan, p.Slot)
	}
	for plan, units := range map[string]int64{"free": 100, "paid": 1000, "enterprise": 10000} {
		got := p.Plan(plan).Limits[0]
		want := limit.Limit{
			Name: "requests", Algorithm: limit.TokenBucket, Rate: rate(t, fmt.Sprintf("%d/hour", units)),
			Burst: 2 * units, Meter: "requests", EpsilonPPM: limit.DefaultEpsilonPPM,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("plan %s:\n got %+v\nwant %+v", plan, got, want)
		}
	}
	var ids []string
	for _, x := range d.Tenants() {
		ids = append(ids, x.ID+"="+x.Plan)
	}
	if got, want := strings.Join(ids, " "), "acme=free globex=paid initech=enterprise"; got != want {
		t.Errorf("tenants %s, want %s", got, want)
	}
	if o := d.Tenants()[2].Overrides; len(o) != 1 || o[0].Rate.Units != 20000 || o[0].Burst != 40000 || o[0].Meter != "requests" {
		t.Errorf("initech's overrides are %+v, want one of requests with 20000/hour and twice that as burst", o)
	}
	if got := p.Gateways[0].Descriptors["header:x-tenant"]; got != "tenant" {
		t.Errorf(`gateway envoy maps header:x-tenant to %q, want "tenant"`, got)
	}
	if _, err := limit.CompilePolicy(p); err != nil {
		t.Errorf("the example does not compile: %v", err)
	}
}

// Every limit in one plan, as written and as compiled.
func TestLimits(t *testing.T) {
	hard := func(l limit.Limit) limit.Limit {
		if l.Algorithm == 0 {
			l.Algorithm = limit.TokenBucket
		}
		if l.EpsilonPPM == 0 && l.Enforcement != limit.Strict && !isExact(l.Algorithm) {
			l.EpsilonPPM = limit.DefaultEpsilonPPM
		}
		l.Name = "x"
		return l
	}
	for _, c := range []struct {
		text string
		want limit.Limit
	}{
		{`rate: 10/second`, limit.Limit{Rate: rate(t, "10/second"), Burst: 10}},
		{`rate: 10/30s, burst: 1`, limit.Limit{Rate: rate(t, "10/30s"), Burst: 1}},
		{`rate: 10/day`, limit.Limit{Rate: rate(t, "10/day"), Burst: 10}},
		{`rate: 10/second, by: tenant`, limit.Limit{Rate: rate(t, "10/second"), Burst: 10}},
		{`rate: 10/second, by: [tenant, user, ip/24]`, limit.Limit{Rate: rate(t, "10/second"), Burst: 10, By: []string{"user", "ip/24"}}},
		{`rate: 10/second, match: {method: [PUT, POST], endpoint: /a*}`, limit.Limit{Rate: rate(t, "10/second"), Burst: 10,
			Match: []limit.Match{{Attribute: "endpoint", Patterns: []string{"/a*"}}, {Attribute: "method", Patterns: []string{"PUT", "POST"}}}}},
		{`rate: 10/second, match: {version: 2}`, limit.Limit{Rate: rate(t, "10/second"), Burst: 10, Match: []limit.Match{{Attribute: "version", Patterns: []string{"2"}}}}},
		{`rate: 10/month, algorithm: fixed_window`, limit.Limit{Rate: rate(t, "10/month"), Algorithm: limit.FixedWindow, Zone: "Europe/Berlin"}},
		{`rate: 10/month, algorithm: fixed_window, zone: UTC`, limit.Limit{Rate: rate(t, "10/month"), Algorithm: limit.FixedWindow}},
		{`rate: 10/day, algorithm: fixed_window, zone: Asia/Tokyo`, limit.Limit{Rate: rate(t, "10/day"), Algorithm: limit.FixedWindow, Zone: "Asia/Tokyo"}},
		{`rate: 10/hour, algorithm: fixed_window`, limit.Limit{Rate: rate(t, "10/hour"), Algorithm: limit.FixedWindow}},
		{`meter: calls, by: [tenant, endpoint]`, limit.Limit{Meter: "calls", By: []string{"endpoint"}}},
		{`rate: 1/s, on_outage: open`, limit.Limit{Rate: rate(t, "1/s"), Burst: 1, OnOutage: limit.OutageOpen}},
		{`rate: 1/s, on_outage: closed, epsilon: 0.5%`, limit.Limit{Rate: rate(t, "1/s"), Burst: 1, OnOutage: limit.OutageClosed, EpsilonPPM: 5000}},
		{`rate: 1/s, enforcement: strict`, limit.Limit{Rate: rate(t, "1/s"), Burst: 1, Enforcement: limit.Strict}},
		{`rate: 10/s, algorithm: leaky_bucket`, limit.Limit{Rate: rate(t, "10/s"), Algorithm: limit.LeakyBucket, Burst: 1}},
		{`rate: 10/s, algorithm: leaky_bucket, burst: 3, queue: 100, wait: 1500ms`, limit.Limit{Rate: rate(t, "10/s"), Algorithm: limit.LeakyBucket, Burst: 3, Queue: 100, Wait: 1500 * time.Millisecond}},
		{`rate: 10/day, algorithm: sliding_window`, limit.Limit{Rate: rate(t, "10/day"), Algorithm: limit.SlidingWindow}},
		{`rate: 5/min, algorithm: sliding_window_log, lockout: 15m`, limit.Limit{Rate: rate(t, "5/min"), Algorithm: limit.SlidingWindowLog, Lockout: 15 * time.Minute}},
		{`slots: 50, algorithm: concurrency, queue: 100, wait: 2s`, limit.Limit{Algorithm: limit.Concurrency, Slots: 50, Queue: 100, Wait: 2 * time.Second}},
		{`slots: 50, algorithm: concurrency, queue: 0, wait: 0s, fallback_hold: 30s`, limit.Limit{Algorithm: limit.Concurrency, Slots: 50, FallbackHold: 30 * time.Second}},
		{`rate: 10/s, enforcement: soft, overage: 20%, meter: m`, limit.Limit{Rate: rate(t, "10/s"), Burst: 10, Enforcement: limit.Soft, OveragePPM: 200_000, Meter: "m"}},
		{`rate: 10/s, enforcement: soft`, limit.Limit{Rate: rate(t, "10/s"), Burst: 10, Enforcement: limit.Soft}},
		{`rate: 10/s, enforcement: soft, overage: unlimited`, limit.Limit{Rate: rate(t, "10/s"), Burst: 10, Enforcement: limit.Soft}},
		{`rate: 10/s, borrow: 5, shadow: true`, limit.Limit{Rate: rate(t, "10/s"), Burst: 10, Borrow: 5, Shadow: true}},
		{`rate: 10/s, allow: {ip: 10.0.0.0/8, user: [root, 'ops-*']}, deny: {user: mallory}`, limit.Limit{Rate: rate(t, "10/s"), Burst: 10,
			Allow: []limit.Match{{Attribute: "ip", Patterns: []string{"10.0.0.0/8"}}, {Attribute: "user", Patterns: []string{"root", "ops-*"}}},
			Deny:  []limit.Match{{Attribute: "user", Patterns: []string{"mallory"}}}}},
		{`rate: 50/s, reserve: {low: 20%, normal: 5%}`, limit.Limit{Rate: rate(t, "50/s"), Burst: 50, Reserve: limit.Reserve{LowPPM: 200_000, NormalPPM: 50_000}}},
		{`rate: 50/s, burst: 100, variants: [{name: a, share: 10%, rate: 80/s}, {name: b, share: 0.5%, burst: 7}]`, limit.Limit{Rate: rate(t, "50/s"), Burst: 100,
			Variants: []limit.Variant{{Name: "a", SharePPM: 100_000, Rate: rate(t, "80/s"), Burst: 160}, {Name: "b", SharePPM: 5000, Burst: 7}}}},
		{`slots: 5, algorithm: concurrency, variants: [{name: a, share: 100%, slots: 9}]`, limit.Limit{Algorithm: limit.Concurrency, Slots: 5,
			Variants: []limit.Variant{{Name: "a", SharePPM: limit.Micro, Slots: 9}}}},
		{`rate: 10/s, first_touch: admit`, limit.Limit{Rate: rate(t, "10/s"), Burst: 10, FirstTouch: limit.TouchAdmit}},
		{`rate: 10/month, algorithm: fixed_window, zone: UTC, on_change: prorate`, limit.Limit{Rate: rate(t, "10/month"), Algorithm: limit.FixedWindow, OnChange: limit.ChangeProrate}},
		{`rate: 1/s, enforcement: hard, epsilon: 100%`, limit.Limit{Rate: rate(t, "1/s"), Burst: 1, EpsilonPPM: limit.Micro}},
	} {
		d, err := Parse("", []byte("zone: Europe/Berlin\nplans: {p: {limits: [{name: x, "+c.text+"}]}}"))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got, want := d.Policy(0).Plans[0].Limits[0], hard(c.want); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.text, got, want)
		}
	}
}

// An override inherits what it does not name; its burst keeps the plan's proportion.
func TestOverrides(t *testing.T) {
	const plans = `
plans:
  p:
    limits:
      - {name: x, rate: 1000/hour, burst: 2000, meter: m, by: [user], on_outage: open, enforcement: strict}
      - {name: w, algorithm: fixed_window, rate: 10/day, zone: Asia/Tokyo, on_change: prorate, borrow: 2}
      - {name: c, algorithm: concurrency, slots: 5, queue: 9, wait: 2s}
      - {name: o, rate: 50/s, enforcement: soft, overage: 20%%, lockout: 0s, fallback_hold: 30s, allow: {user: root}, variants: [{name: v, share: 50%%, rate: 9/s}]}
      - {name: r, rate: 50/s, reserve: {low: 20%%, normal: 10%%}, lockout: 1m}
tenants:
  - {id: a, plan: p, limits: [{name: %s}]}
`
	base := mustParse(t, fmt.Sprintf(plans, "x")).Policy(0).Plans[0].Limits
	for _, c := range []struct {
		text string
		from int
		want func(l *limit.Limit)
	}{
		{"x", 0, func(*limit.Limit) {}},
		{"x, rate: 5000/hour", 0, func(l *limit.Limit) { l.Rate, l.Burst = rate(t, "5000/hour"), 10000 }},
		{"x, rate: 7/second", 0, func(l *limit.Limit) { l.Rate, l.Burst = rate(t, "7/second"), 14 }},
		{"x, rate: 5000/hour, burst: 3", 0, func(l *limit.Limit) { l.Rate, l.Burst = rate(t, "5000/hour"), 3 }},
		{"x, burst: 3", 0, func(l *limit.Limit) { l.Burst = 3 }},
		{"x, by: []", 0, func(l *limit.Limit) { l.By = nil }},
		{"x, enforcement: hard", 0, func(l *limit.Limit) { l.Enforcement, l.EpsilonPPM = limit.Hard, limit.DefaultEpsilonPPM }},
		{"x, algorithm: fixed_window", 0, func(l *limit.Limit) { l.Algorithm, l.Burst = limit.FixedWindow, 0 }},
		{"w, rate: 20/day", 1, func(l *limit.Limit) { l.Rate = rate(t, "20/day") }},
		{"w, rate: 20/hour", 1, func(l *limit.Limit) { l.Rate, l.Zone = rate(t, "20/hour"), "" }},
		{"w, algorithm: token_bucket", 1, func(l *limit.Limit) {
			l.Algorithm, l.Burst, l.Zone, l.OnChange = limit.TokenBucket, 10, "", limit.ChangeKeep
		}},
		{"w, algorithm: leaky_bucket", 1, func(l *limit.Limit) {
			l.Algorithm, l.Burst, l.Zone, l.OnChange, l.Borrow = limit.LeakyBucket, 1, "", limit.ChangeKeep, 0
		}},
		{"w, algorithm: sliding_window_log", 1, func(l *limit.Limit) {
			l.Algorithm, l.Zone, l.OnChange, l.Borrow, l.EpsilonPPM = limit.SlidingWindowLog, "", limit.ChangeKeep, 0, 0
		}},
		{"w, on_change: keep, borrow: 0", 1, func(l *limit.Limit) { l.OnChange, l.Borrow = limit.ChangeKeep, 0 }},
		{"w, algorithm: concurrency, slots: 3", 1, func(l *limit.Limit) {
			*l = limit.Limit{Name: "w", Algorithm: limit.Concurrency, Slots: 3}
		}},
		{"c, slots: 50", 2, func(l *limit.Limit) { l.Slots = 50 }},
		{"c, queue: 0", 2, func(l *limit.Limit) { l.Queue, l.Wait = 0, 0 }},
		{"c, algorithm: token_bucket, rate: 4/s", 2, func(l *limit.Limit) {
			*l = limit.Limit{Name: "c", Algorithm: limit.TokenBucket, Rate: rate(t, "4/s"), Burst: 4, EpsilonPPM: limit.DefaultEpsilonPPM}
		}},
		{"o", 3, func(l *limit.Limit) { l.Variants = nil }},
		{"o, enforcement: hard", 3, func(l *limit.Limit) { l.Variants, l.Enforcement, l.OveragePPM = nil, limit.Hard, 0 }},
		{"o, overage: unlimited, allow: {}, fallback_hold: 0s", 3, func(l *limit.Limit) {
			l.Variants, l.OveragePPM, l.Allow, l.FallbackHold = nil, 0, nil, 0
		}},
		{"r, reserve: {low: 30%}", 4, func(l *limit.Limit) { l.Reserve = limit.Reserve{LowPPM: 300_000} }},
		{"r, reserve: {}, lockout: 0s", 4, func(l *limit.Limit) { l.Reserve, l.Lockout = limit.Reserve{}, 0 }},
	} {
		d, err := Parse("", []byte(fmt.Sprintf(plans, c.text)))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		want := base[c.from]
		c.want(&want)
		if got := d.Tenants()[0].Overrides[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.text, got, want)
		}
	}
}

// faultsOf parses and renders the faults as line:message, one per line.
func faultsOf(t *testing.T, text string) string {
	t.Helper()
	d, err := Parse("quota.yaml", []byte(text))
	if err == nil {
		return "none"
	}
	var faults Faults
	if d != nil || !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("Parse = %v, %v; want no document and Faults", d, err)
	}
	var b strings.Builder
	for i, f := range faults {
		if f.File != "quota.yaml" || i > 0 && f.Line < faults[i-1].Line {
			t.Errorf("fault %d is %+v after line %d", i, f, faults[max(0, i-1)].Line)
		}
		fmt.Fprintf(&b, "%d: %s\n", f.Line, f.Message)
	}
	return b.String()
}

// Everything that is wrong is said at once, each with its line.
func TestAllFaultsAtOnce(t *testing.T) {
	got := faultsOf(t, `gatewais: {}
limits:
  - name: login
    rate: 0/minute
    lockdown: 15m
  - name: login
    rate: 5/minute
plans:
  free:
    limits:
      - {name: requests, rate: 100/fortnight, burst: 0, meter: requests}
      - {name: more, rate: 1/hour, meter: requests, enforcement: lax}
    price: {}
tenants:
  - {id: acme, plan: payed}
  - {id: "a b", plan: free}
default_plan: gold
`)
	want := `1: unknown key "gatewais" in the document; allowed are alerts, costs, default_plan, gateways, limits, plans, slot, tenants, webhooks, zone
4: limit login: invalid rate "0/minute": 0 units would deny everything; at least 1 (leave the rate out for a limit that only counts)
5: unknown key "lockdown" in limit login; allowed are algorithm, allow, borrow, burst, by, cost, deny, enforcement, epsilon, fallback_hold, first_touch, lockout, match, meter, name, on_change, on_outage, overage, queue, rate, reserve, shadow, slots, variants, wait, zone
6: limit login is there twice; the first is on line 3
11: burst of limit requests is "0"; it must be a whole number of units, 1 to 1000000000
11: plan free: limit requests: invalid rate "100/fortnight": "fortnight" is not a unit of time; write second, minute, hour, day, week, month, year or a duration such as 30s, 500ms or 1h30m
12: plan free: limit more: enforcement is "lax"; allowed are strict, hard and soft
12: plan free: limit more: meter requests is fed by limit requests already; a meter is fed by one limit
13: the price of plan free prices nothing; give it monthly or meters, or leave it out
15: tenant acme: there is no plan "payed"; the plans are free
16: "a b" is not a tenant's id; it has 1 to 128 bytes of [A-Za-z0-9._:@/-], without empty, . or .. elements between slashes
17: default_plan: there is no plan "gold"; the plans are free
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFaults(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	limits := func(s string) string { return "plans:\n  p:\n    limits:\n      - {name: x, " + s + "}\n" }
	tenants := func(s string) string {
		return "plans: {p: {limits: [{name: x, rate: 1000000000/hour, burst: 1000000000, meter: m}, {name: y, rate: 1/h}]}}\ntenants:\n" + s
	}
	for _, c := range []struct{ text, says string }{
		{"", "1: the document is empty"},
		{"# nothing\n", "1: the document is empty"},
		{"{}", "1: the document has no plans"},
		{"plans:", "1: the document has no plans"},
		{"[]", "1: the document must be a mapping"},
		{"plans: [", "1: this is not YAML"},
		{"plans:\n  p:\n x: [", "not YAML"},
		{"plans: {p: {limits: []}}\n---\nplans: {}", "a file holds one document"},
		{"plans: \xff", "not UTF-8"},
		{strings.Repeat("#", strict.MaxDocument+1), "at most 1048576"},
		{strings.Repeat("[", 100) + strings.Repeat("]", 100), "nest too deeply"},
		{"plans: {p: {limits: []}}\nplans: {}", `2: the document has the key "plans" twice; the first is on line 1`},
		{"a: &a [x]\nplans: *a", "2: aliases (*a) are not supported"},
		{"a: &a [x]\nplans: *a", "1: anchors (&a) are not supported"},
		{"plans: !!map {}", "tags"},
		{"plans: {? [a] : {}}", "a key of plans must be a word"},
		{"plans: {p: }", "plan p says nothing"},
		{"plans: {p: {limits: {}}}", "must be a list"},
		{"plans: {'a b': {}}", "not a name"},
		{"plans: {" + strings.Repeat("x", 65) + ": {}}", "not a name"},
		{"plans: {" + many(257, "p%d: {}, ") + "}", "at most 256"},
		{"plans: {p: {limits: [" + many(65, "{name: x%d, rate: 1/h}, ") + "]}}", "at most 64"},
		{"limits: [" + many(257, "{name: x%d, rate: 1/h}, ") + "]", "at most 256"},
		{"limits: [" + many(60, "{name: x%d, rate: 1/h}, ") + "]\nplans: {p: {limits: [" + many(5, "{name: y%d, rate: 1/h}, ") + "]}}", "2: plan p: every request would meet 65 limits; at most 64"},
		{"plans: {p: {limits: [x]}}", "a limit must be a mapping"},
		{"plans: {p: {limits: [~]}}", "not nothing"},
		{"plans: {p: {limits: [{rate: 1/h}]}}", "a limit has no name"},
		{"plans: {p: {limits: [{name: '', rate: 1/h}]}}", "not a name"},
		{"limits: [{name: x, rate: 1/h}]\nplans:\n  p: {limits: [{name: x, rate: 1/h}]}", "3: plan p: limit x has the name of a limit of the top level (line 1)"},
		{"limits: [{name: x, meter: m, rate: 1/h, by: [ip]}]", "must have tenant in its by"},
		{"limits: [{name: x, meter: m, by: [tenant]}]\nplans: {p: {limits: [{name: y, meter: m}]}}", "2: plan p: limit y: meter m is fed by limit x already"},
		{limits("burst: 5"), "neither a rate nor a meter"},
		{limits("meter: m, burst: 5"), "4: plan p: limit x: burst needs a rate"},
		{limits("meter: m, on_outage: open, algorithm: token_bucket, epsilon: 1%, zone: UTC, enforcement: hard"), "algorithm needs a rate"},
		{limits("rate: "), `rate of limit x must be a word, not nothing`},
		{limits("rate: ''"), `rate of limit x is empty`},
		{limits("rate: [1/h]"), `rate of limit x must be a word, not a list`},
		{limits("rate: 1000000001/h"), "at most 1000000000 units"},
		{limits("rate: 99999999999999999999999/h"), "at most 1000000000 units"},
		{limits("rate: 1/h, burst: 99999999999999999999"), "1 to 1000000000"},
		{limits("rate: 1/h, burst: 1.5"), "whole number"},
		{limits("rate: 1/h, burst: -1"), "whole number"},
		{limits("rate: 10/month"), "a token bucket fills evenly, and a month has no fixed length"},
		{limits("rate: 10/year"), "a year has no fixed length"},
		{limits("rate: 10/day, algorithm: fixed_window, burst: 10"), "no burst"},
		{limits("rate: 10/1500us, algorithm: fixed_window"), "whole milliseconds"},
		{limits("rate: 10/day, algorithm: leaking"), "allowed are token_bucket, leaky_bucket, fixed_window, sliding_window, sliding_window_log and concurrency"},
		{limits("rate: 10/day, zone: UTC"), "a time zone matters only"},
		{limits("rate: 10/hour, algorithm: fixed_window, zone: UTC"), "a time zone matters only"},
		{limits("rate: 10/day, algorithm: fixed_window, zone: Mars"), "not an IANA time zone"},
		{limits("rate: 10/day, algorithm: fixed_window, zone: Local"), "not an IANA time zone"},
		{"zone: Mars\nplans: {p: {}}", "1: zone:"},
		{limits("rate: 1/h, on_outage: maybe"), "allowed are fallback, open and closed"},
		{limits("rate: 1/h, enforcement: maybe"), "allowed are strict, hard and soft"},
		{limits("rate: 1/h, epsilon: 5"), "must be a percentage"},
		{limits("rate: 1/h, epsilon: 101%"), "must be a percentage"},
		{limits("rate: 1/h, epsilon: -1%"), "must be a percentage"},
		{limits("rate: 1/h, epsilon: 0.00001%"), "must be a percentage"},
		{limits("rate: 1/h, epsilon: 1%, enforcement: strict"), "strict means an epsilon of 0%"},
		{limits("rate: 1/h, by: [user/24]"), "only ip can be cut"},
		{limits("rate: 1/h, by: [ip/4]"), "ip/8 to ip/32"},
		{limits("rate: 1/h, by: [user, user]"), "twice"},
		{limits("rate: 1/h, by: [a,b,c,d,e,f,g,h,i]"), "at most 8"},
		{limits("rate: 1/h, by: {a: b}"), "must be a word or a list"},
		{limits("rate: 1/h, match: [a]"), "must be a mapping"},
		{limits("rate: 1/h, match: "), "leave it out"},
		{limits("rate: 1/h, match: {a: []}"), "1 to 64 patterns"},
		{limits("rate: 1/h, match: {a: b*c}"), "before its end"},
		{limits("rate: 1/h, match: {ip: 10.0.0.1/8}"), "did you mean 10.0.0.0/8?"},
		{limits("rate: 1/h, match: {a: x, a: y}"), "twice"},
		{limits("rate: 1/h, match: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}"), "at most 8"},
		{limits("rate: 5/month, algorithm: leaky_bucket"), "a leaky bucket drains evenly"},
		{limits("rate: 5/month, algorithm: sliding_window"), "a sliding window has a fixed length"},
		{limits("rate: 5/year, algorithm: sliding_window_log"), "a sliding window has a fixed length"},
		{limits("rate: 5/day, algorithm: sliding_window, zone: UTC"), "a time zone matters only"},
		{limits("rate: 5/1500us, algorithm: sliding_window"), "whole milliseconds"},
		{limits("rate: 1001/hour, algorithm: sliding_window_log"), "it has at most 1000"},
		{limits("rate: 5/s, algorithm: sliding_window, burst: 3"), "a sliding window has no burst"},
		{limits("rate: 5/s, algorithm: sliding_window_log, burst: 3"), "a sliding window has no burst"},
		{limits("rate: 5/s, algorithm: sliding_window_log, epsilon: 1%"), "this algorithm is exact"},
		{limits("rate: 5/s, algorithm: sliding_window_log, borrow: 1"), "lends nothing"},
		{limits("rate: 5/s, algorithm: sliding_window_log, first_touch: admit"), "a sliding_window_log is exact"},
		{limits("algorithm: concurrency"), "needs slots"},
		{limits("algorithm: concurrency, rate: 5/s"), "needs slots"},
		{limits("algorithm: concurrency, slots: 5, rate: 5/s"), "slots and no rate"},
		{limits("algorithm: concurrency, slots: 5, meter: m"), "feeds no meter"},
		{limits("algorithm: concurrency, slots: 5, enforcement: strict"), "leave enforcement out"},
		{limits("algorithm: concurrency, slots: 5, lockout: 5s"), "has no lockout"},
		{limits("algorithm: concurrency, slots: 5, wait: 5s"), "give a queue too"},
		{limits("algorithm: concurrency, slots: 0"), "1 to 1000000000"},
		{limits("algorithm: concurrency, slots: 5, queue: 10001"), "0 to 10000"},
		{limits("algorithm: concurrency, slots: 5, queue: 1, wait: 2h"), "up to 1h"},
		{limits("algorithm: concurrency, slots: 5, queue: 1, wait: 5"), "it must be a duration"},
		{limits("slots: 5"), "slots need algorithm: concurrency"},
		{limits("rate: 5/s, slots: 5"), "slots are a concurrency limit's"},
		{limits("rate: 5/s, queue: 5"), "only a leaky_bucket and a concurrency limit"},
		{limits("rate: 5/s, algorithm: leaky_bucket, borrow: 5"), "a leaky bucket paces"},
		{limits("rate: 5/s, algorithm: leaky_bucket, enforcement: soft"), "a leaky bucket paces"},
		{limits("rate: 5/s, overage: 5%"), "only enforcement: soft"},
		{limits("rate: 5/s, enforcement: soft, overage: 0%"), "write unlimited for no cap"},
		{limits("rate: 5/s, enforcement: soft, overage: 5%"), "less than one unit"},
		{limits("rate: 1000/hour, algorithm: sliding_window_log, enforcement: soft, overage: 200%"), "more than 1000 units"},
		{limits("rate: 5/s, enforcement: soft, overage: 100001%"), "up to 100000%"},
		{limits("rate: 5/s, enforcement: strict, borrow: 5"), "borrow goes above the limit"},
		{limits("rate: 5/s, enforcement: strict, first_touch: admit"), "enforcement: strict gives none"},
		{limits("rate: 5/s, enforcement: soft, lockout: 5s"), "a lockout denies"},
		{limits("rate: 5/s, algorithm: leaky_bucket, queue: 5, lockout: 5s"), "a queue lets requests wait"},
		{limits("rate: 5/s, lockout: 5s, first_touch: admit"), "the lockout keeps out"},
		{limits("rate: 5/s, lockout: 5"), "it must be a duration"},
		{limits("rate: 5/s, lockout: -5s"), "it must be a duration"},
		{limits("rate: 5/s, lockout: 9000h"), "up to 8784h"},
		{limits("rate: 5/s, fallback_hold: 61m"), "up to 1h"},
		{limits("rate: 5/s, shadow: yes"), "it must be true or false"},
		{limits("rate: 5/s, shadow: true, meter: m"), "a shadow limit bills nothing"},
		{limits("rate: 5/s, shadow: true, enforcement: soft"), "there is no overage"},
		{limits("slots: 5, algorithm: concurrency, shadow: true"), "a shadow limit holds no request"},
		{limits("meter: m, shadow: true"), "shadow needs a rate"},
		{limits("rate: 5/s, allow: [a]"), "must be a mapping"},
		{limits("rate: 5/s, allow: "), "allow of limit x is empty"},
		{limits("rate: 5/s, deny: {ip: 10.0.0.1/8}"), "did you mean 10.0.0.0/8?"},
		{limits("rate: 5/s, deny: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x}"), "deny has 9 conditions"},
		{limits("rate: 50/s, reserve: {}"), "reserve says nothing"},
		{limits("rate: 50/s, reserve: {high: 5%}"), "allowed are low, normal"},
		{limits("rate: 50/s, reserve: {low: 100%}"), "above 0% and below 100%"},
		{limits("rate: 50/s, reserve: {low: 5%, normal: 6%}"), "must be at least that of normal (6%)"},
		{limits("rate: 5/s, reserve: {low: 10%}"), "less than one unit"},
		{limits("rate: 5/s, algorithm: leaky_bucket, reserve: {low: 10%}"), "less than one unit"},
		{limits("rate: 50/s, enforcement: soft, reserve: {low: 10%}"), "a reserve keeps"},
		{limits("rate: 5/s, first_touch: maybe"), "allowed are credit, ask and admit"},
		{limits("rate: 5/s, on_change: keep"), "only a fixed_window"},
		{limits("rate: 5/s, algorithm: fixed_window, on_change: maybe"), "allowed are keep and prorate"},
		{limits("rate: 5/s, variants: [{share: 5%}]"), "a variant has no name"},
		{limits("rate: 5/s, variants: [{name: a, share: 5%}]"), "it changes nothing"},
		{limits("rate: 5/s, variants: [{name: a, share: 60%, rate: 1/s}, {name: b, share: 50%, rate: 1/s}]"), "sum to 110%"},
		{limits("rate: 5/s, variants: [{name: a, share: 6%, rate: 1/s}, {name: a, share: 5%, rate: 1/s}]"), "there twice"},
		{limits("rate: 5/s, variants: [{name: a, share: 0%, rate: 1/s}]"), "share is"},
		{limits("rate: 5/s, variants: [{name: a, share: 1%, slots: 1}]"), "slots are a concurrency limit's"},
		{limits("rate: 5/s, variants: [{name: a, share: 1%, rate: 1/month}]"), "fills evenly"},
		{limits("rate: 5/day, algorithm: fixed_window, variants: [{name: a, share: 1%, rate: 1/hour}]"), "windows must be those of the limit"},
		{limits("rate: 5/s, variants: [{name: a, size: 1%}]"), "allowed are burst, name, rate, share, slots"},
		{limits("rate: 5/s, variants: [a]"), "must be a mapping"},
		{"limits: [{name: x, rate: 5/s, variants: [{name: a, share: 1%, rate: 1/s}]}]", "a limit of the top level has none"},
		{tenants("  - {id: a, plan: p, limits: [{name: y, variants: [{name: a, share: 1%, rate: 1/s}]}]}"), "this is one tenant's"},
		{tenants("  - {id: a, plan: p, limits: [{name: x, shadow: true}]}"), "a shadow limit bills nothing"},
		{tenants("  - {id: a, plan: p, limits: [{name: x, algorithm: concurrency, slots: 5}]}"), "feeds no meter"},
		{limits("rate: 1/h, shades: true"), `unknown key "shades"`},
		{"default_plan: p", `there is no plan "p"; the document has no plans`},
		{"slot: 7m\nplans: {p: {}}", "1: slot is"},
		{"slot: 0s\nplans: {p: {}}", "divide an hour"},
		{"slot: 2h\nplans: {p: {}}", "divide an hour"},
		{"slot: 500ms\nplans: {p: {}}", "divide an hour"},
		{"slot: 300\nplans: {p: {}}", "divide an hour"},
		{"gateways: {g: {domane: x}}", "allowed are after, descriptors, domain, hits"},
		{"gateways: {g: {descriptors: {a: b}, hits: gold}}", "which costs does not list"},
		{"gateways: {g: {descriptors: {a: b}, hits: {'': requests}}}", "has 1 to"},
		{"gateways: {g: {descriptors: {a: b}, hits: {'header:x': requests}}}", "no header: before it"},
		{"gateways: {g: {after: [x]}}", "has after and no descriptors"},
		{"gateways: {g: {descriptors: {a: b}, after: x}}", "must be a list"},
		{"gateways: {g: {descriptors: {a: b}, after: [x, x]}}", "twice"},
		{"gateways: {g: {descriptors: {a: b}, after: ['']}}", "has 1 to"},
		{"gateways: {g: {descriptors: {a: b}, after: ['header:x']}}", "which headers are not"},
		{"gateways: {g: {domain: x}, h: {domain: x}}", "gateway g has already"},
		{"gateways: {g: {descriptors: {path: 'a b'}}}", "not a name"},
		{"gateways: {g: {}, h: {}}", "gateway h has no domain, and neither has gateway g"},
		{"gateways: {g: {descriptors: {'header:X-A': a}}}", "in lower case"},
		{"gateways: {g: {descriptors: {'Header:x-a': a}}}", "in lower case"},
		{"gateways: {g: {descriptors: {'header:': a}}}", "in lower case"},
		{"gateways: {g: {descriptors: [path]}}", "must be a mapping"},
		{"gateways: {g: }", "says nothing"},
		{"gateways: {" + many(65, "g%d: {domain: d}, ") + "}", "at most 64"},
		{tenants("  - {id: a}"), "3: tenant a has no plan"},
		{tenants("  - {plan: p}"), "3: a tenant has no id"},
		{tenants("  - ~"), "not nothing"},
		{tenants("  - x"), "must be a mapping"},
		{tenants("  - {id: a, plan: q}"), "there is no plan"},
		{tenants("  - {id: a, plan: p}\n  - {id: a, plan: p}"), "4: tenant a is there twice; the first is on line 3"},
		{tenants("  - {id: a, plan: p, parent: b}"), `its parent "b" is not in the document`},
		{tenants("  - {id: a, plan: p, parent: a}"), "tenant a is its own ancestor"},
		{tenants("  - {id: a, plan: p, parent: b}\n  - {id: b, plan: p, parent: a}"), "4: tenant b is its own ancestor"},
		{tenants("  - {id: t0, plan: p}\n" + chainOf(9)), "tenant t8 is more than 8 levels deep"},
		{tenants("  - {id: a, plan: p, suspended: true}"), `unknown key "suspended"`},
		{tenants("  - {id: a, plan: p, limits: [{name: x, rate: 1/month}]}"), "3: tenant a: limit x: a token bucket fills evenly"},
		{tenants("  - {id: a, plan: p, limits: [{name: z, burst: 3}]}"), "3: tenant a: limit z: it has neither"},
		{tenants("  - {id: a, plan: p, limits: [{name: y, meter: m}]}"), "3: tenant a: limit y: meter m is fed by limit x already"},
		{tenants("  - {id: a, plan: p, limits: [{name: x}, {name: x}]}"), "limit x is there twice"},
		{"limits: [{name: top, rate: 1/h}]\n" + tenants("  - {id: a, plan: p, limits: [{name: top, rate: 1/h}]}"), "which a tenant cannot override"},
		{tenants("  - {id: a, plan: p, limits: [" + many(63, "{name: n%d, rate: 1/h}, ") + "]}"), "65 limits; at most 64"},
		{"plans: {p: {limits: [{name: x, rate: 1/h, burst: 1000000000}]}}\ntenants: [{id: a, plan: p, limits: [{name: x, rate: 2/h}]}]", "the burst would be 2000000000"},
	} {
		if got := faultsOf(t, c.text); !strings.Contains(got, c.says) {
			t.Errorf("%.300s\n got %s\nwant %s", c.text, got, c.says)
		}
	}
}

// chainOf returns tenants t1 to tn-1, each below the one before.
func chainOf(n int) string {
	var b strings.Builder
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, "  - {id: t%d, plan: p, parent: t%d}\n", i, i-1)
	}
	return b.String()
}

func TestLevelsAllowed(t *testing.T) {
	mustParse(t, "plans: {p: {}}\ntenants:\n  - {id: t0, plan: p}\n"+chainOf(limit.MaxTenantLevels))
}

func TestFaultsAreBounded(t *testing.T) {
	_, err := Parse("", []byte(strings.Repeat("x: 1\n", 1000)))
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != MaxFaults+1 || !strings.Contains(faults[MaxFaults].Message, "more faults") {
		t.Errorf("got %d faults, want %d and a count of the rest", len(faults), MaxFaults)
	}
}

func TestDiff(t *testing.T) {
	older := `
slot: 5m
default_plan: free
gateways: {envoy: {domain: edge, descriptors: {path: endpoint}}, old: {}}
limits:
  - {name: login, rate: 5/minute, by: [ip]}
plans:
  free: {limits: [{name: requests, rate: 100/hour, burst: 200, meter: requests}, {name: gone, rate: 1/s}]}
  basic: {}
tenants:
  - {id: acme, plan: free}
  - {id: left, plan: free}
`
	newer := `
# The same in another order, but for what the sentences say.
slot: 1m
zone: Asia/Tokyo
plans:
  free: {limits: [{name: new, algorithm: fixed_window, rate: 5/month}, {name: requests, by: tenant, rate: 200/hour, burst: 200, meter: requests, epsilon: 1%}]}
  paid: {limits: [{name: count, meter: calls}]}
limits:
  - {name: login, rate: 5/minute, by: [ip/24], match: {endpoint: [/login, /signin]}}
gateways: {envoy: {domain: edge, descriptors: {path: route}, after: [used]}, http: {}}
tenants:
  - {id: new, plan: paid, parent: acme}
  - {id: acme, plan: paid, limits: [{name: own, rate: 7/s}]}
`
	got := strings.Join(Diff(mustParse(t, older), mustParse(t, newer)), "\n")
	want := strings.TrimSpace(`
default plan free → none
slot 5m → 1m
default zone UTC → Asia/Tokyo
gateway envoy: descriptors path: endpoint → path: route
gateway envoy: after none → used
gateway http added
gateway old removed
limit login: by ip → ip/24
limit login: match none → endpoint: ["/login", "/signin"]
plan free: limit new added: fixed_window 5/month
plan free: limit requests: rate 100/hour → 200/hour
plan free: limit requests: epsilon 5% → 1%
plan free: limit gone removed
plan paid added
plan paid: limit count added: counts for meter calls
plan basic removed
tenant acme: plan free → paid
tenant acme: override of limit own added: token_bucket 7/second, burst 7
tenant new added, plan paid
tenant new: parent none → acme
tenant left is no longer in the document, and stays as it is`)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if same := Diff(mustParse(t, newer), mustParse(t, newer)); same != nil {
		t.Errorf("a document differs from itself: %q", same)
	}
	if first := Diff(nil, mustParse(t, "plans: {p: {}}")); len(first) != 1 || first[0] != "plan p added" {
		t.Errorf("the first version: %q, want plan p added", first)
	}
}

func TestPercent(t *testing.T) {
	for text, ppm := range map[string]int64{"0%": 0, "5%": 50_000, "0.5%": 5000, "100%": 1_000_000, "0.0001%": 1, "12.3456%": 123_456} {
		if got, ok := parsePercent(text); !ok || got != ppm {
			t.Errorf("%s is %d, %v; want %d", text, got, ok, ppm)
		}
		if got := percent(ppm); got != text {
			t.Errorf("%d is written %s, want %s", ppm, got, text)
		}
	}
}

// Every document in examples/ holds and compiles, without an override that does not fit.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("examples: %q, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		compiles(t, filepath.Base(file), string(data))
	}
}

func compiles(t *testing.T, what, text string) *Document {
	t.Helper()
	d, err := Parse(what, []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	rules, err := limit.CompilePolicy(d.Policy(1))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, tenant := range d.Tenants() {
		if _, err := rules.Tenant(tenant); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	return d
}

// Every YAML block of docs/policy.md holds: a whole document, a list of limits of a plan,
// or a part of a document that needs plans besides. Together they name every key.
func TestReference(t *testing.T) {
	data, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	named := make(map[string]bool)
	for rest := string(data); ; {
		_, after, ok := strings.Cut(rest, "```yaml\n")
		if !ok {
			break
		}
		text, more, ok := strings.Cut(after, "```")
		if !ok {
			t.Fatal("a block has no end")
		}
		rest = more
		if strings.HasPrefix(text, "- ") {
			text = "plans:\n  p:\n    limits:\n      " + strings.ReplaceAll(text, "\n", "\n      ")
		} else if !strings.Contains(text, "plans:") {
			text += "plans: {p: {}}\n"
		}
		compiles(t, fmt.Sprintf("block %d", len(blocks)+1), text)
		blocks = append(blocks, text)
		for _, key := range limitKeys {
			if strings.Contains(text, key+":") {
				named[key] = true
			}
		}
	}
	for _, key := range append(slices.Clone(limitKeys), "tenants", "gateways", "default_plan", "slot", "zone",
		"currency", "monthly", "minimum", "meters", "included", "unit", "tiers", "up_to", "mode", "package", "size", "price", "billing", "period",
		"webhooks", "alerts", "at", "plans", "spending_cap", "amount") {
		if !strings.Contains(string(data), "`"+key+"`") {
			t.Errorf("docs/policy.md does not say what %s is", key)
		}
		if slices.Contains(limitKeys, key) && !named[key] {
			t.Errorf("docs/policy.md has no example of %s", key)
		}
	}
	alerts, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"webhooks", "url", "secret", "quota", "spending", "denials", "at", "over", "against", "least", "plans", "tenants"} {
		if !strings.Contains(string(alerts), "`"+key+"`") {
			t.Errorf("docs/alerts.md does not say what %s is", key)
		}
	}
	_, after, _ := strings.Cut(string(alerts), "```yaml\n")
	text, _, _ := strings.Cut(after, "```")
	if all := mustParse(t, text).Alerts(); len(all) != 4 {
		t.Errorf("docs/alerts.md has %d alerts, want one of each kind", len(all))
	}
	d := mustParse(t, blocks[0])
	if got := d.Tenants()[0].Overrides[0].Burst; got != 10_000 {
		t.Errorf("acme's override has a burst of %d, the text says 10,000", got)
	}
	if got := d.Policy(0).Plan("free").Limits[1].Zone; got != "Europe/Berlin" {
		t.Errorf("the monthly limit's zone is %q, want the document's", got)
	}
}
