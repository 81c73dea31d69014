package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// What a policy says of costs is checked by whoever receives it: a weight beyond its bound would not fit the arithmetic.
func TestCostBounds(t *testing.T) {
	many := func(n int) (all []*quotav1.Weight) {
		for i := range n {
			all = append(all, &quotav1.Weight{Cost: fmt.Sprintf("c%d", i), Micros: 1})
		}
		return all
	}
	row := func(value string, weights ...*quotav1.Weight) *quotav1.WeighingRow {
		return &quotav1.WeighingRow{Value: value, Weights: weights}
	}
	rows := func(n int) (all []*quotav1.WeighingRow) {
		for i := range n {
			all = append(all, row(fmt.Sprint(i), many(1)...))
		}
		return all
	}
	for says, w := range map[string]*quotav1.Weighing{
		"":                nil,
		" ":               {Weights: many(16)},
		"  ":              {By: "model", Rows: rows(256)},
		"either weights":  {},
		"either weights ": {By: "model", Weights: many(1), Rows: rows(1)},
		"one goes with":   {By: "model"},
		"one goes with ":  {Weights: many(1), Rows: rows(1)},
		"by must be":      {By: "a b", Rows: rows(1)},
		"weights has 17":  {Weights: many(17)},
		"rows has 257":    {By: "model", Rows: rows(257)},
		"has two weights": {Weights: append(many(1), many(1)...)},
		"a cost is":       {Weights: []*quotav1.Weight{{Cost: "a b", Micros: 1}}},
		"a cost is ":      {Weights: []*quotav1.Weight{nil}},
		"micros is -1":    {Weights: []*quotav1.Weight{{Cost: "a", Micros: -1}}},
		"micros is 10000": {Weights: []*quotav1.Weight{{Cost: "a", Micros: limit.MaxWeight*limit.Micro + 1}}},
		"micros is 92233": {Weights: []*quotav1.Weight{{Cost: "a", Micros: 1<<63 - 1}}},
		"each once":       {By: "model", Rows: append(rows(1), rows(1)...)},
		"value is \"\"":   {By: "model", Rows: []*quotav1.WeighingRow{nil}},
		"1 to 256 bytes":  {By: "model", Rows: []*quotav1.WeighingRow{row("a\x00", many(1)...)}},
		"has no weights":  {By: "model", Rows: []*quotav1.WeighingRow{row("a")}},
		"row \"a\": ":     {By: "model", Rows: []*quotav1.WeighingRow{row("a", many(17)...)}},
	} {
		l, err := LimitFromProto(&quotav1.Limit{Name: "x", Algorithm: quotav1.Limit_ALGORITHM_TOKEN_BUCKET, Cost: w})
		switch fine := strings.TrimSpace(says) == ""; {
		case fine && (err != nil || l.Cost.Plain() != (w == nil)):
			t.Errorf("%v: got %+v, %v", w, l.Cost, err)
		case !fine && (!errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), strings.TrimSpace(says))):
			t.Errorf("%v: got %v, want an error that says %q", w, err, says)
		}
	}
	for _, names := range [][]string{{"requests"}, {"a", "a"}, {"a b"}, {""}, strings.Split("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", ",")} {
		if _, err := PolicyFromProto(&quotav1.Policy{SlotSeconds: 300, Costs: names}); !errors.Is(err, fault.ErrInvalid) {
			t.Errorf("costs %q: %v, want %v", names, err, fault.ErrInvalid)
		}
	}
}

// So is what a policy says of what is likely.
func TestLikelyBounds(t *testing.T) {
	for says, likely := range map[string][]*quotav1.Likely{
		"":                             {{Cost: "b", QuantilePpm: 500_000}, {Cost: "a", QuantilePpm: 999_000, By: "model", First: limit.MaxUnits}},
		"quantile_ppm is 0":            {nil},
		"quantile_ppm is 499999":       {{Cost: "a", QuantilePpm: 499_999}},
		"quantile_ppm is 999001":       {{Cost: "a", QuantilePpm: 999_001}},
		"quantile_ppm is -1":           {{Cost: "a", QuantilePpm: -1}},
		"first is -1":                  {{Cost: "a", QuantilePpm: 950_000, First: -1}},
		"first is 1000000001":          {{Cost: "a", QuantilePpm: 950_000, First: limit.MaxUnits + 1}},
		`likely names "c", which is`:   {{Cost: "c", QuantilePpm: 950_000}},
		`likely names "requests"`:      {{Cost: "requests", QuantilePpm: 950_000}},
		`likely names cost "a" twice`:  {{Cost: "a", QuantilePpm: 950_000}, {Cost: "a", QuantilePpm: 950_000}},
		"by must be at most 64 bytes":  {{Cost: "a", QuantilePpm: 950_000, By: strings.Repeat("x", 65)}},
		"by must be at most 64 bytes ": {{Cost: "a", QuantilePpm: 950_000, By: "a b"}},
	} {
		p, err := PolicyFromProto(&quotav1.Policy{SlotSeconds: 300, Costs: []string{"a", "b"}, Likely: likely})
		switch says = strings.TrimSpace(says); {
		case says == "":
			if want := (limit.Likely{Cost: "a", QuantilePPM: 999_000, By: "model", First: limit.MaxUnits}); err != nil || len(p.Likely) != 2 || p.Likely[1] != want {
				t.Errorf("%v: got %+v, %v", likely, p, err)
			}
		case !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), says):
			t.Errorf("%v: got %v, want an error that says %q", likely, err, says)
		}
	}
}
