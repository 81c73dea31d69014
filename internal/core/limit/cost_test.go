package limit

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// What a request costs is read by name, in the policy's order, and nothing that cannot be passes.
func TestAmounts(t *testing.T) {
	costs := NewCosts([]string{"in", "out"})
	for _, c := range []struct {
		requests int64
		costs    []Cost
		want     Amounts
		err      string // empty for none
	}{
		{1, nil, Amounts{1}, ""},
		{0, []Cost{{"out", 7}}, Amounts{0, 0, 7}, ""},
		{2, []Cost{{"out", 0}, {"in", MaxUnits}}, Amounts{2, MaxUnits, 0}, ""},
		{-1, nil, Amounts{}, "cost requests is -1 units; it must be 0 to 1000000000"},
		{MaxUnits + 1, nil, Amounts{}, "cost requests is 1000000001 units"},
		{1, []Cost{{"in", -1}}, Amounts{1}, "cost in is -1 units; it must be 0 to 1000000000"},
		{1, []Cost{{"in", MaxUnits + 1}}, Amounts{1}, "cost in is 1000000001 units"},
		{1, []Cost{{"in", -1 << 63}}, Amounts{1}, "it must be 0 to"},
		{1, []Cost{{"in", 1<<63 - 1}}, Amounts{1}, "it must be 0 to"},
		{1, []Cost{{"in", 3}, {"out", 4}, {"in", 3}}, Amounts{1, 3, 4}, "cost in is there twice"},
		{1, []Cost{{"bytes", 3}, {"out", 4}}, Amounts{1, 0, 4}, `there is no cost "bytes"; the policy names in, out`},
		{1, []Cost{{"", 3}}, Amounts{1}, `there is no cost ""`},
		{1, []Cost{{"requests", 3}}, Amounts{1}, "requests is no cost to be named"},
	} {
		var a Amounts
		err := costs.Amounts(&a, c.requests, c.costs)
		if a != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%d requests and %v: %v, %v; want %v, %q", c.requests, c.costs, a, err, c.want, c.err)
		}
	}
	var a Amounts
	if err := (*Costs)(nil).Amounts(&a, 3, []Cost{{"in", 1}}); a[0] != 3 || err == nil || !strings.Contains(err.Error(), "the policy names none") {
		t.Errorf("without a policy's names: %v, %v", a, err)
	}
	if n := testing.AllocsPerRun(100, func() {
		a = Amounts{}
		if costs.Amounts(&a, 1, []Cost{{"in", 3}, {"out", 4}}) != nil {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("reading costs allocates %v times", n)
	}
}

// Whatever the weights and the costs, a limit's units are the exact sum, rounded up once, or there are too many.
func TestUnitsAreExact(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"}
	costs := NewCosts(names)
	all := append([]string{Requests}, names...)
	r := rand.New(rand.NewPCG(46, 1))
	sizes := func(most int64) int64 { // of every order of magnitude, and those at the edges
		switch r.IntN(8) {
		case 0:
			return 0
		case 1:
			return most
		case 2:
			return min(Micro, most)
		}
		return r.Int64N(r.Int64N(most) + 1)
	}
	over, rounded, booked := 0, 0, 0
	for range 200_000 {
		var weights []Weight
		for _, i := range r.Perm(len(all))[:1+r.IntN(len(all))] {
			weights = append(weights, Weight{all[i], sizes([]int64{10, Micro, 1e10, MaxWeight * Micro}[r.IntN(4)])})
		}
		var a Amounts
		for i := range a {
			a[i] = sizes([]int64{10, 1e5, MaxUnits}[r.IntN(3)])
		}
		sum := new(big.Int)
		for _, w := range weights {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(w.Micros), big.NewInt(a[costs.index(w.Cost)])))
		}
		want, rest := new(big.Int).QuoRem(sum, big.NewInt(Micro), new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
			rounded++
		}
		n, ok := newWeights(weights, costs).Units(&a)
		if fits := want.Cmp(big.NewInt(MaxUnits)) <= 0; ok != fits || ok && n != want.Int64() {
			t.Fatalf("%v of %v are %d, %t; want %v, %t", weights, a, n, ok, want, fits)
		} else if !fits {
			over++
		}
		n, ok = newWeights(weights, costs).Booked(&a)
		if fits := want.Cmp(big.NewInt(MaxBooked)) <= 0; ok != fits || ok && n != want.Int64() {
			t.Fatalf("%v of %v that happened are %d, %t; want %v, %t", weights, a, n, ok, want, fits)
		} else if fits && n > MaxUnits {
			booked++
		}
		down, ok := newWeights(weights, costs).Refunded(&a)
		if fits := want.Cmp(big.NewInt(MaxBooked)) <= 0; ok != fits || ok && down != n-int64(rest.Sign()) {
			t.Fatalf("%v of %v given back are %d, %t; want %v less %d", weights, a, down, ok, want, rest.Sign())
		}
	}
	if over < 1000 || rounded < 1000 || booked < 1000 {
		t.Errorf("%d were too many, %d were rounded and %d booked above MaxUnits; the cases are too alike", over, rounded, booked)
	}
}

// The weights of a request are those of its row, of the row for all others, or none.
func TestWeightsByAttribute(t *testing.T) {
	table := Weighing{By: "model", Rows: []WeighingRow{
		{"*", []Weight{{"out", 2 * Micro}}}, {"small", []Weight{{"out", Micro / 2}}}, {"free", []Weight{{Requests, 0}}},
	}}
	strict := Weighing{By: "model", Rows: table.Rows[1:]}
	for _, c := range []struct {
		cost  Weighing
		model string
		units int64
		ok    bool
	}{
		{table, "small", 5, true}, {table, "large", 18, true}, {table, "", 18, true}, {table, "*", 18, true}, {table, "free", 0, true},
		{strict, "small", 5, true}, {strict, "large", 0, false}, {strict, "", 0, false}, {strict, "*", 0, false},
		{Weighing{}, "small", 1, true},
		{Weighing{Weights: []Weight{{"out", Micro}}}, "small", 9, true},
		{Weighing{Weights: []Weight{{"gone", Micro}}}, "small", 0, true}, // of a tenant's limit that outlived it
	} {
		rules, err := CompilePolicy(&Policy{Costs: []string{"out"}, Plans: []Plan{{Name: "p", Limits: []Limit{{Name: "l", Algorithm: TokenBucket, Rate: Rate{Units: 1, Per: 1e9}, Burst: 1, Cost: c.cost}}}}})
		if err != nil {
			t.Fatal(err)
		}
		rule := rules.Find(&Tenant{ID: "a", Exists: true, Plan: "p"}, "l")
		var a Amounts
		if err := rules.Costs().Amounts(&a, 1, []Cost{{"out", 9}}); err != nil {
			t.Fatal(err)
		}
		w, ok := rule.Weights([]Attribute{{"model", c.model}})
		if ok != c.ok || rule.Weighs() == c.cost.Plain() {
			t.Errorf("%+v of model %q: weights %t, want %t", c.cost, c.model, ok, c.ok)
			continue
		}
		if !ok {
			continue
		}
		if n, fits := w.Units(&a); n != c.units || !fits {
			t.Errorf("%+v of model %q: %d units, want %d", c.cost, c.model, n, c.units)
		}
	}
}

// A tenant's own limit, an overage and a variant have the cost of the limit that they are of.
func TestCostsOfWhatALimitBecomes(t *testing.T) {
	l := Limit{Name: "l", Algorithm: TokenBucket, Rate: Rate{Units: 100, Per: 1e9}, Burst: 100, Enforcement: Soft, OveragePPM: Micro / 2, EpsilonPPM: 1,
		Cost: Weighing{Weights: []Weight{{"out", 3 * Micro}}}, Variants: []Variant{{Name: "v", SharePPM: Micro, Burst: 7}}}
	other := l
	other.Rate.Units, other.Variants = 5, nil
	rules, err := CompilePolicy(&Policy{Costs: []string{"out"}, Plans: []Plan{{Name: "p", Limits: []Limit{l}}}})
	if err != nil {
		t.Fatal(err)
	}
	varied := rules.Find(&Tenant{ID: "a", Exists: true, Plan: "p"}, "l")
	own := rules.Find(&Tenant{ID: "b", Exists: true, Plan: "p", Overrides: []Limit{other}}, "l")
	if varied.Limit.Burst != 7 || own.Limit.Rate.Units != 5 {
		t.Fatalf("got %+v and %+v", varied.Limit, own.Limit)
	}
	for name, r := range map[string]*Rule{"variant": varied, "its overage": varied.Overage(), "override": own, "the override's overage": own.Overage()} {
		w, _ := r.Weights(nil)
		if n, ok := w.Units(&Amounts{1, 5}); n != 15 || !ok {
			t.Errorf("%s: %d units, want 15", name, n)
		}
	}
	plain := l
	plain.Cost = Weighing{}
	if l.Like(&plain) || !l.Like(&l) {
		t.Error("limits of other costs are alike")
	}
}
