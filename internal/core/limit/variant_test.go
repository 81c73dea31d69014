package limit

import (
	"fmt"
	"math"
	"testing"
)

// Points are part of the contract between servers and agents of all releases.
func TestPointIsFixed(t *testing.T) {
	for _, c := range []struct {
		name, tenant string
		want         int64
	}{
		{"requests", "acme", 97_398},
		{"requests", "acme/web", 907_652},
		{"requests", "", 660_068},
		{"exports", "acme", 338_220},
	} {
		if got := Point(c.name, c.tenant); got != c.want {
			t.Errorf("%s of %s: point %d, want %d", c.name, c.tenant, got, c.want)
		}
	}
}

func variants(shares ...int64) *Limit {
	l := &Limit{Name: "requests", Rate: Rate{Units: 100, Per: 3600e9, Calendar: Hour}, Burst: 100}
	for i, s := range shares {
		l.Variants = append(l.Variants, Variant{Name: fmt.Sprint("v", i), SharePPM: s, Burst: int64(i + 1)})
	}
	return l
}

// Shares hold, for ids that count up as well as for any others, and two limits spread
// the same tenants independently.
func TestVariantsHaveTheirShares(t *testing.T) {
	const n = 200_000
	shares := []int64{10_000, 200_000, 300_000}
	l := variants(shares...)
	other := variants(shares...)
	other.Name = "exports"
	for _, format := range []string{"%d", "tenant-%08d", "org/%d/team", "%x-4fa1"} {
		count, both := make(map[int]int), 0
		for i := range n {
			id := fmt.Sprintf(format, i)
			v := l.Variant(id)
			count[v]++
			if v == 1 && other.Variant(id) == 1 {
				both++
			}
		}
		within := func(what string, got int, share float64) {
			// Five standard deviations of as many independent choices.
			if d := 5 * math.Sqrt(n*share*(1-share)); math.Abs(float64(got)-n*share) > d {
				t.Errorf("%s: %s has %d of %d tenants, want %.0f ± %.0f", format, what, got, n, n*share, d)
			}
		}
		for i, s := range shares {
			within(fmt.Sprint("variant ", i), count[i], float64(s)/Micro)
		}
		within("the limit itself", count[-1], 0.49)
		within("variant 1 of both limits", both, 0.04)
	}
}

// A tenant moves only when a variant grows into it or shrinks away from it.
func TestVariantsAreStable(t *testing.T) {
	type move struct{ from, to int }
	moves := func(a, b *Limit) map[move]int {
		out := make(map[move]int)
		for i := range 50_000 {
			id := fmt.Sprint("tenant-", i)
			if v, w := a.Variant(id), b.Variant(id); v != w {
				out[move{v, w}]++
			}
		}
		return out
	}
	for _, c := range []struct {
		what string
		a, b *Limit
		may  []move
	}{
		{"the last one grows", variants(100_000, 200_000), variants(100_000, 400_000), []move{{-1, 1}}},
		{"it is rolled out to all", variants(0, 10_000), variants(0, 1_000_000), []move{{-1, 1}}},
		{"one is added", variants(100_000), variants(100_000, 50_000), []move{{-1, 1}}},
		{"the last one shrinks", variants(100_000, 200_000), variants(100_000, 50_000), []move{{1, -1}}},
		{"the first one grows", variants(100_000, 200_000), variants(150_000, 200_000), []move{{1, 0}, {-1, 1}}},
	} {
		got := moves(c.a, c.b)
		for _, m := range c.may {
			if got[m] == 0 {
				t.Errorf("%s: nobody moved %v", c.what, m)
			}
			delete(got, m)
		}
		if len(got) > 0 {
			t.Errorf("%s: moved %v besides", c.what, got)
		}
	}
}

// The rules of a tenant are those of its variant, for its own limits and an ancestor's;
// an override has none.
func TestRulesVary(t *testing.T) {
	l := *variants(500_000)
	rules, err := CompilePolicy(&Policy{Version: 1, Plans: []Plan{{Name: "p", Limits: []Limit{l}}}})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[int64]bool)
	for i := range 100 {
		id := fmt.Sprint(i)
		got, err := rules.Tenant(Tenant{ID: id, Exists: true, Plan: "p"})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		want := int64(100)
		if l.Variant(id) == 0 {
			want = 1
		}
		if got[0].Limit.Burst != want {
			t.Errorf("tenant %s: burst %d, want %d", id, got[0].Limit.Burst, want)
		}
		seen[want] = true
		if found := rules.Find(&Tenant{ID: id, Exists: true, Plan: "p"}, "requests"); found.Limit.Burst != want {
			t.Errorf("tenant %s: found burst %d, want %d", id, found.Limit.Burst, want)
		}
		chain, err := rules.Chain([]Tenant{{ID: "child", Exists: true, Plan: "p", Parent: id}, {ID: id, Exists: true, Plan: "p"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range chain {
			if h.Tenant == id && h.Rule.Limit.Burst != want {
				t.Errorf("ancestor %s: burst %d, want %d", id, h.Rule.Limit.Burst, want)
			}
		}
		o := l
		o.Burst = 77
		own, err := rules.Tenant(Tenant{ID: id, Exists: true, Plan: "p", Overrides: []Limit{o}})
		if err != nil || own[0].Limit.Burst != 77 {
			t.Errorf("tenant %s with an override: burst %d, want 77", id, own[0].Limit.Burst)
		}
	}
	if len(seen) != 2 {
		t.Errorf("only bursts %v were seen", seen)
	}
}

func TestOverage(t *testing.T) {
	for _, c := range []struct {
		units, burst, ppm    int64
		wantUnits, wantBurst int64
	}{
		{1000, 2000, 200_000, 200, 400},
		{3, 3, 200_000, 1, 1},
		{10, 0, 250_000, 2, 0},
		{MaxUnits, MaxUnits, 1000 * Micro, MaxUnits, MaxUnits},
		{999_999_999, 1, 999_999, 999_998_999, 1},
		{100, 100, 0, 0, 0},
	} {
		l := Limit{Enforcement: Soft, Rate: Rate{Units: c.units, Per: 1e9}, Burst: c.burst, OveragePPM: c.ppm}
		o := l.Overage()
		if o.Rate.Units != c.wantUnits || o.Burst != c.wantBurst || o.Enforcement != Hard {
			t.Errorf("%+v: got %d and %d, want %d and %d", c, o.Rate.Units, o.Burst, c.wantUnits, c.wantBurst)
		}
	}
}
