package limit

import (
	"reflect"
	"testing"
)

// Every field of a limit but its rate and burst makes another limit of it.
func TestLike(t *testing.T) {
	var plain Limit
	for i := range reflect.TypeFor[Limit]().NumField() {
		field := reflect.TypeFor[Limit]().Field(i)
		other := plain
		set(t, reflect.ValueOf(&other).Elem().Field(i))
		want := field.Name == "Rate" || field.Name == "Burst"
		if got := plain.Like(&other); got != want {
			t.Errorf("a limit with another %s: alike %v, want %v", field.Name, got, want)
		}
		if same := other; !same.Like(&other) {
			t.Errorf("a limit with %s is not like itself", field.Name)
		}
	}
	for i := range reflect.TypeFor[Match]().NumField() {
		var other Match
		set(t, reflect.ValueOf(&other).Elem().Field(i))
		for _, l := range []Limit{{Match: []Match{other}}, {Allow: []Match{other}}, {Deny: []Match{other}}} {
			if none := (Limit{Match: make([]Match, len(l.Match)), Allow: make([]Match, len(l.Allow)), Deny: make([]Match, len(l.Deny))}); l.Like(&none) {
				t.Errorf("a condition with another %s is taken for the same: %+v", reflect.TypeFor[Match]().Field(i).Name, l)
			}
		}
	}
	for _, other := range []Match{{"b", []string{"x"}}, {"a", []string{"y"}}, {"a", []string{"x", "y"}}} {
		a, b := Limit{Match: []Match{{"a", []string{"x"}}}}, Limit{Match: []Match{other}}
		if a.Like(&b) {
			t.Errorf("%v is taken for %v", a.Match, b.Match)
		}
	}
}

// set gives a field a value that is not zero.
func set(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		set(t, v.Field(0))
	default:
		t.Fatalf("how is a %s set?", v.Type())
	}
}

// A tenant's override has the plan's rule if it differs only in rate and burst, and one of its own otherwise.
// By itself it says what the override does.
func TestOverridesShareRules(t *testing.T) {
	each := Limit{Name: "each", By: []string{"user"}, Match: []Match{{"path", []string{"/a*"}}}, Algorithm: TokenBucket, Rate: rate(t, "10/second"), Burst: 20, Meter: "calls"}
	soft := Limit{Name: "soft", Algorithm: TokenBucket, Rate: rate(t, "10/second"), Burst: 20, Enforcement: Soft, OveragePPM: 100_000}
	counts := Limit{Name: "counts", Meter: "calls"}
	slots := Limit{Name: "slots", Algorithm: Concurrency, Slots: 5}
	varied := Limit{Name: "varied", Algorithm: TokenBucket, Rate: rate(t, "10/second"), Burst: 20, Variants: []Variant{{Name: "v", SharePPM: Micro, Burst: 40}}}
	rules, err := CompilePolicy(&Policy{Plans: []Plan{{Name: "p", Limits: []Limit{each, soft, counts, slots, varied}}}})
	if err != nil {
		t.Fatal(err)
	}
	with := func(l Limit, change func(*Limit)) Limit {
		change(&l)
		return l
	}
	size := func(l *Limit) { l.Rate, l.Burst = rate(t, "7/minute"), 9 }
	bare := func(l *Limit) { l.Variants = nil; size(l) }
	for _, c := range []struct {
		what   string
		o      Limit
		shares bool
	}{
		{"rate and burst", with(each, size), true},
		{"nothing", each, true},
		{"what tells buckets apart", with(each, func(l *Limit) { l.By = []string{"ip"} }), false},
		{"what it holds", with(each, func(l *Limit) { l.Match = nil }), false},
		{"the meter", with(each, func(l *Limit) { l.Meter = "" }), false},
		{"no rate any more", with(each, func(l *Limit) { l.Rate, l.Burst = Rate{}, 0 }), false},
		{"a soft limit's rate, which its overage goes by", with(soft, size), false},
		{"a rate where there was none", with(counts, size), false},
		{"slots", with(slots, func(l *Limit) { l.Slots = 7 }), false},
		{"a variant's rate", with(varied, bare), true},
		{"a limit that the plan has not", with(each, func(l *Limit) { l.Name = "other" }), false},
	} {
		tenant := Tenant{ID: "acme", Exists: true, Plan: "p", Overrides: []Limit{c.o}}
		own, err := rules.Own(tenant)
		if err != nil {
			t.Fatal(err)
		}
		shares := false
		for _, r := range rules.plans["p"] {
			for _, h := range own {
				if h.Rule.Limit.Name == c.o.Name && h.Rule == r.For("acme") {
					shares = true
				}
			}
		}
		if shares != c.shares {
			t.Errorf("an override of %s: shares the plan's rule %v, want %v", c.what, shares, c.shares)
		}
		for _, h := range own {
			if h.Rule.Limit.Name == c.o.Name && (h.Rate != c.o.Rate || h.Burst != c.o.Burst || h.Meter != c.o.Meter || h.Tenant != "acme") {
				t.Errorf("an override of %s: held %+v, want %+v", c.what, h, c.o)
			}
		}
		alone := rules.Find(&tenant, c.o.Name)
		if alone == nil || !reflect.DeepEqual(alone.Limit, c.o) {
			t.Errorf("an override of %s: found %+v, want %+v", c.what, alone, c.o)
			continue
		}
		if got, want := (alone.Overage() != nil), c.o.soft(); got != want {
			t.Errorf("an override of %s: has an overage %v, want %v", c.what, got, want)
		}
	}
	if got := rules.plans["p"][0].Limit; !reflect.DeepEqual(got, each) {
		t.Errorf("the plan's limit became %+v", got)
	}
}

// What a rule of its own says of requests, an override says that shares the plan's: the same are held, in the same buckets.
func TestSharedRulesHoldTheSame(t *testing.T) {
	l := Limit{
		Name: "l", By: []string{"user", "ip/24"}, Match: []Match{{"path", []string{"/a*"}}}, Allow: []Match{{"user", []string{"root"}}},
		Algorithm: TokenBucket, Rate: rate(t, "10/second"), Burst: 20, Zone: "Asia/Tokyo",
	}
	rules, err := CompilePolicy(&Policy{Plans: []Plan{{Name: "p", Limits: []Limit{l}}}})
	if err != nil {
		t.Fatal(err)
	}
	o := l
	o.Rate, o.Burst = rate(t, "3/day"), 3
	alone := rules.Find(&Tenant{ID: "acme", Exists: true, Plan: "p", Overrides: []Limit{o}}, "l")
	compiled, err := Compile(o)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(alone, compiled) {
		t.Errorf("by itself it is %+v, want %+v", alone, compiled)
	}
}
