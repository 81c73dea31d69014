package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// costed is a document whose limit x has more text; costs are tokens_in, tokens_out and bytes.
func costed(more string) string {
	return "costs: [tokens_in, tokens_out, bytes]\nplans:\n  p:\n    limits:\n      - name: x\n        rate: 1000/minute\n        " +
		strings.ReplaceAll(more, "\n", "\n        ") + "\n"
}

// A limit counts requests, one cost, a weighted sum, or a sum whose weights an attribute chooses.
func TestCosts(t *testing.T) {
	in := func(micros int64) limit.Weight { return limit.Weight{Cost: "tokens_in", Micros: micros} }
	out := func(micros int64) limit.Weight { return limit.Weight{Cost: "tokens_out", Micros: micros} }
	for text, want := range map[string]limit.Weighing{
		"":                                      {},
		"cost: requests":                        {},
		"cost: {requests: 1.0}":                 {},
		"cost: tokens_in":                       {Weights: []limit.Weight{in(1e6)}},
		"cost: {tokens_in: 1}":                  {Weights: []limit.Weight{in(1e6)}},
		"cost: {tokens_out: 4.5, tokens_in: 1}": {Weights: []limit.Weight{in(1e6), out(4_500_000)}},
		"cost: {tokens_in: 0, tokens_out: 0.000001}":         {Weights: []limit.Weight{in(0), out(1)}},
		"cost: {tokens_in: 1000000000, tokens_out: '00.50'}": {Weights: []limit.Weight{in(1e15), out(500_000)}},
		"cost: {by: model, weights: {small: {tokens_in: 0.15, tokens_out: 0.6}, free: {requests: 0}, '*': {tokens_out: 2}}}": {
			By: "model", Rows: []limit.WeighingRow{
				{Value: "*", Weights: []limit.Weight{out(2e6)}},
				{Value: "free", Weights: []limit.Weight{{Cost: "requests"}}},
				{Value: "small", Weights: []limit.Weight{in(150_000), out(600_000)}},
			},
		},
	} {
		d, err := Parse("", []byte(costed(text)))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := d.Policy(1).Plans[0].Limits[0].Cost; !reflect.DeepEqual(got, want) {
			t.Errorf("%q gives %+v, want %+v", text, got, want)
		}
		if got, want := d.Policy(1).Costs, []string{"tokens_in", "tokens_out", "bytes"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%q: the costs are %q, want %q", text, got, want)
		}
	}
}

// What cannot be is refused with its line and a sentence that says what can.
func TestCostFaults(t *testing.T) {
	many := make([]string, 257)
	for i := range many {
		many[i] = fmt.Sprintf("m%d: {bytes: 1}", i)
	}
	const plans = "\nplans: {p: {}}"
	for text, want := range map[string]string{
		"costs: tokens" + plans:                            "quota.yaml:1: costs must be a list of names such as [tokens_in, tokens_out], not the word \"tokens\"",
		"costs: {tokens: 1}" + plans:                       "1: costs must be a list",
		"costs:" + plans:                                   "not nothing",
		"costs: [a, b c]" + plans:                          "\"b c\" is not a name",
		"costs:\n- a\n- requests" + plans:                  "3: costs names requests, which every request costs",
		"costs: [weights]" + plans:                         "costs names weights, which is a word of a limit's cost",
		"costs: [a, b, a]" + plans:                         "costs names a twice",
		"costs: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p]" + plans: "costs has 16 elements; at most 15 are allowed",

		costed("cost: tokens"):                       "quota.yaml:7: plan p: limit x: there is no cost \"tokens\"; the costs are requests, tokens_in, tokens_out, bytes",
		costed("cost: [tokens_in]"):                  "must be a word, not a list",
		costed("cost:"):                              "must be a word, not nothing",
		costed("cost: {}"):                           "no cost has a weight above 0",
		costed("cost: {bytes: 0}"):                   "no cost has a weight above 0",
		costed("cost:\n  bytes: 1\n  tokens: 2"):     "9: plan p: limit x: there is no cost \"tokens\"",
		costed("cost:\n  bytes: 1\n  tokens_in: -1"): "9: plan p: limit x: the weight of tokens_in is \"-1\"; it must be a decimal of 0 to 1000000000 with at most six decimals, such as 4.5",
		costed("cost: {bytes: .nan}"):                "is \".nan\"; it must be a decimal",
		costed("cost: {bytes: NaN}"):                 "it must be a decimal",
		costed("cost: {bytes: .inf}"):                "it must be a decimal",
		costed("cost: {bytes: 1e3}"):                 "is \"1e3\"; it must be a decimal",
		costed("cost: {bytes: 0x10}"):                "it must be a decimal",
		costed("cost: {bytes: +1}"):                  "it must be a decimal",
		costed("cost: {bytes: 1_000}"):               "it must be a decimal",
		costed("cost: {bytes: '١'}"):                 "it must be a decimal",
		costed("cost: {bytes: 1.}"):                  "it must be a decimal",
		costed("cost: {bytes: .5}"):                  "it must be a decimal",
		costed("cost: {bytes: 1.2.3}"):               "it must be a decimal",
		costed("cost: {bytes: ''}"):                  "it must be a decimal",
		costed("cost: {bytes: 0.0000001}"):           "it must be a decimal",
		costed("cost: {bytes: 1000000000.1}"):        "it must be a decimal",
		costed("cost: {bytes: 1000000001}"):          "it must be a decimal",
		costed("cost: {bytes: 9223372036854775808}"): "it must be a decimal",
		costed("cost: {bytes: [1]}"):                 "the weight of \"bytes\" in cost of limit x must be a word, not a list",
		costed("cost: {bytes: }"):                    "must be a word, not nothing",
		costed("cost: {bytes: 1, bytes: 2}"):         "twice",

		costed("cost: {by: model}"):                                                               "by: model needs weights, by the attribute's value",
		costed("cost: {weights: {a: {bytes: 1}}}"):                                                "its weights need an attribute",
		costed("cost: {by: model, weights: {}}"):                                                  "by: model needs weights",
		costed("cost: {by: 'a b', weights: {a: {bytes: 1}}}"):                                     "\"a b\" is not a name",
		costed("cost: {by: model, weights: {a: {}}}"):                                             "the weights of \"a\" are empty; write requests: 0",
		costed("cost: {by: model, weights: {a*: {bytes: 1}}}"):                                    "\"a*\" has a *; write a whole value",
		costed("cost: {by: model, weights: {'': {bytes: 1}}}"):                                    "is not an attribute's value",
		costed("cost: {by: model, weights: {a: 5}}"):                                              "must be a mapping",
		costed("cost: {by: model, weights: 5}"):                                                   "must be a mapping",
		costed("cost: {by: model, bytes: 5}"):                                                     "unknown key \"bytes\" in cost of limit x; allowed are by, weights",
		costed("cost:\n  by: model\n  weights:\n    a:\n      bytes: 1\n    b:\n      tokens: 1"): "13: plan p: limit x: there is no cost \"tokens\"",
		costed("cost: {by: model, weights: {" + strings.Join(many, ", ") + "}}"):                  "weights has 257 values; at most 256 are allowed",
		costed("cost: bytes\nalgorithm: concurrency\nslots: 5"):                                   "the slots of a concurrency limit are of requests",
	} {
		_, err := Parse("quota.yaml", []byte(text))
		var faults Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v\nwant %q", text, err, want)
		}
	}
}

// An override has the cost of the plan's limit, unless it says another. What does not fit the document any more is said.
func TestCostsOfOverrides(t *testing.T) {
	d, err := Parse("", []byte(costed("cost: bytes")+`
tenants:
  - {id: a, plan: p, limits: [{name: x, rate: 5/minute}]}
  - {id: b, plan: p, limits: [{name: x, cost: {tokens_in: 2}}]}
  - {id: c, plan: p, limits: [{name: x, cost: requests}]}
  - {id: d, plan: p, limits: [{name: x, algorithm: concurrency, slots: 5}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"bytes", "{tokens_in: 2}", "", ""} {
		l := d.Tenants()[i].Overrides[0]
		if got := weighing(&l.Cost); got != want {
			t.Errorf("the override of %s has cost %q, want %q", d.Tenants()[i].ID, got, want)
		}
	}
	kept, err := json.Marshal(d.TenantSpecs()[1].Overrides)
	if err != nil {
		t.Fatal(err)
	}
	spec := TenantSpec{ID: "b", Plan: "p"}
	if err := json.Unmarshal(kept, &spec.Overrides); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Tenant(spec); err != nil || !reflect.DeepEqual(got, d.Tenants()[1]) {
		t.Errorf("kept as %s the override is %+v %v", kept, got, err)
	}
	other, err := Parse("", []byte("costs: [bytes]\nplans: {p: {limits: [{name: x, rate: 5/minute}]}}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Tenant(spec); err == nil || !strings.Contains(err.Error(), "there is no cost \"tokens_in\"; the costs are requests, bytes") {
		t.Errorf("under a document without the cost: %v", err)
	}
	o, err := ParseOverride("x", map[string]string{"cost": "{by: model, weights: {a: {bytes: 1.5}}}"})
	if err != nil || o.Cost.Rows["a"]["bytes"] != "1.5" {
		t.Errorf("an override by the API: %+v %v", o.Cost, err)
	}
}

// What a change of costs does is told in the words of a document.
func TestDiffOfCosts(t *testing.T) {
	parse := func(text string) *Document {
		t.Helper()
		d, err := Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	older := parse("costs: [bytes]\nplans: {p: {limits: [{name: x, rate: 5/minute}, {name: c, meter: m}]}}")
	newer := parse(`costs: [bytes, tokens]
plans:
  p:
    limits:
      - {name: x, rate: 5/minute, cost: {bytes: 0.25, tokens: 3}}
      - {name: c, meter: m, cost: {by: model, weights: {"*": {tokens: 1}, a: {bytes: 0.5}}}}
      - {name: y, rate: 9/minute, cost: tokens}
      - {name: z, meter: n, cost: bytes}`)
	want := []string{
		"costs bytes → bytes, tokens",
		"plan p: limit x: cost none → {bytes: 0.25, tokens: 3}",
		"plan p: limit c: cost none → by model {*: {tokens: 1}, a: {bytes: 0.5}}",
		"plan p: limit y added: token_bucket 9/minute, burst 9, cost tokens",
		"plan p: limit z added: counts bytes for meter n",
	}
	if got := Diff(older, newer); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got := Diff(newer, newer); got != nil {
		t.Errorf("from itself: %q", got)
	}
}
