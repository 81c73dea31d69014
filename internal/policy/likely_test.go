package policy

import (
	"reflect"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A cost may say that what is likely is reserved of it.
func TestLikely(t *testing.T) {
	const plans = "\nplans: {p: {}}"
	for text, want := range map[string][]limit.Likely{
		"costs: [a, b]":         nil,
		"costs: [{name: a}, b]": nil,
		"costs: [a, {name: b, reserve: {quantile: 95%, by: model}}]":                             {{Cost: "b", QuantilePPM: 950_000, By: "model"}},
		"costs: [a, {name: b, reserve: {first: 256, quantile: 95%}}]":                            {{Cost: "b", QuantilePPM: 950_000, First: 256}},
		"costs: [{name: a, reserve: {quantile: 95%, by: m, first: 1000000000}}, b]":              {{Cost: "a", QuantilePPM: 950_000, By: "m", First: limit.MaxUnits}},
		"costs:\n- reserve:\n    by: tenant\n    quantile: 99.9%\n  name: a\n- b":                {{Cost: "a", QuantilePPM: 999_000, By: "tenant"}},
		"costs: [{name: a, reserve: {quantile: 50%}}, {name: b, reserve: {quantile: 90.1234%}}]": {{Cost: "a", QuantilePPM: 500_000}, {Cost: "b", QuantilePPM: 901_234}},
	} {
		d, err := Parse("", []byte(text+plans))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		p := d.Policy(1)
		if !reflect.DeepEqual(p.Likely, want) || !reflect.DeepEqual(p.Costs, []string{"a", "b"}) {
			t.Errorf("%q gives %q, %+v; want a and b, %+v", text, p.Costs, p.Likely, want)
		}
	}
}

func TestLikelyFaults(t *testing.T) {
	for text, want := range map[string]string{
		"[{reserve: {quantile: 95%}}]": "1: a cost has no name; write {name: tokens_out, reserve: {quantile: 95%}}",
		"[{}]":                         "a cost has no name",
		"[{name: a b}]":                "\"a b\" is not a name",
		"[{name: [a]}]":                "a cost must be a word, not a list",
		"[{name: requests, reserve: {quantile: 95%}}]": "costs names requests, which every request costs",
		"[a, {name: a}]":                                                   "costs names a twice",
		"[{name: a, weight: 3}]":                                           "unknown key \"weight\" in a cost; allowed are name, reserve",
		"[{name: a, name: b}]":                                             "twice",
		"[{name: a, reserve: 95%}]":                                        "reserve of cost a must be a mapping",
		"[{name: a, reserve: }]":                                           "reserve of cost a has no quantile",
		"[{name: a, reserve: {}}]":                                         "reserve of cost a has no quantile; write which part of the requests is to cost no more, such as quantile: 95%",
		"[{name: a, reserve: {by: model}}]":                                "reserve of cost a has no quantile",
		"[{name: a, reserve: {quantile: 0.95}}]":                           "quantile of reserve of cost a is \"0.95\"; it must be 50% to 99.9%, such as 95%",
		"[{name: a, reserve: {quantile: 49.9999%}}]":                       "it must be 50% to 99.9%",
		"[{name: a, reserve: {quantile: 99.9001%}}]":                       "it must be 50% to 99.9%",
		"[{name: a, reserve: {quantile: 100%}}]":                           "it must be 50% to 99.9%",
		"[{name: a, reserve: {quantile: -95%}}]":                           "it must be 50% to 99.9%",
		"[{name: a, reserve: {quantile: NaN%}}]":                           "it must be 50% to 99.9%",
		"[{name: a, reserve: {quantile: [95%]}}]":                          "quantile of reserve of cost a must be a word, not a list",
		"[{name: a, reserve: {quantile: }}]":                               "must be a word, not nothing",
		"[{name: a, reserve: {quantile: 95%, by: a b}}]":                   "\"a b\" is not a name; by of reserve of cost a has 1 to 64 of",
		"[{name: a, reserve: {quantile: 95%, by: }}]":                      "by of reserve of cost a must be a word, not nothing",
		"[{name: a, reserve: {quantile: 95%, half_life: 5}}]":              "unknown key \"half_life\" in reserve of cost a; allowed are by, first, quantile",
		"[{name: a, reserve: {quantile: 95%, first: 0}}]":                  "first of reserve of cost a is \"0\"; it must be a whole number of units, 1 to 1000000000",
		"[{name: a, reserve: {quantile: 95%, first: 1000000001}}]":         "first of reserve of cost a is \"1000000001\"; it must be a whole number of units, 1 to 1000000000",
		"[{name: a, reserve: {quantile: 95%, first: many}}]":               "first of reserve of cost a is \"many\"; it must be a whole number of units, 1 to 1000000000",
		"\n- name: a\n  reserve:\n    quantile: 95%\n    by: m\n    of: x": "6: unknown key \"of\"",
	} {
		_, err := Parse("quota.yaml", []byte("costs: "+text+"\nplans: {p: {}}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("costs: %s\ngave %v\nwant %q", text, err, want)
		}
	}
}

// A change of what is reserved is told in the words of a document.
func TestDiffOfLikely(t *testing.T) {
	parse := func(costs string) *Document {
		t.Helper()
		d, err := Parse("", []byte("costs: "+costs+"\nplans: {p: {}}"))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	all := []string{"[a, b]", "[a, {name: b, reserve: {quantile: 95%}}]", "[a, {name: b, reserve: {quantile: 99.5%, by: model}}]", "[a, {name: b, reserve: {quantile: 95%, first: 256}}]"}
	for i, older := range all {
		for j, newer := range all {
			var want []string
			if i != j {
				want = []string{"costs " + strings.Trim(older, "[]") + " → " + strings.Trim(newer, "[]")}
			}
			if got := Diff(parse(older), parse(newer)); !reflect.DeepEqual(got, want) {
				t.Errorf("from %s to %s: %q, want %q", older, newer, got, want)
			}
		}
	}
}
