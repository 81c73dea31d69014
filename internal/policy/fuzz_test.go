package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/f4ee788f/quota/internal/limit"
)

// render writes a document anew from what it was compiled to, with every value
// spelled out: JSON, which is YAML, in ASCII.
func render(d *Document) string {
	p := d.Policy(0)
	gateways := map[string]any{}
	for _, g := range p.Gateways {
		m := map[string]any{"descriptors": g.Descriptors}
		if g.Descriptors == nil {
			m["descriptors"] = map[string]string{}
		}
		if g.Domain != "" {
			m["domain"] = g.Domain
		}
		gateways[g.Name] = m
	}
	plans := map[string]any{}
	for _, plan := range p.Plans {
		plans[plan.Name] = map[string]any{"limits": renderLimits(plan.Limits)}
	}
	tenants := []any{}
	for _, t := range d.Tenants() {
		m := map[string]any{"id": t.ID, "plan": t.Plan, "limits": renderLimits(t.Overrides)}
		if t.Parent != "" {
			m["parent"] = t.Parent
		}
		tenants = append(tenants, m)
	}
	doc := map[string]any{
		"gateways": gateways, "limits": renderLimits(p.Limits), "plans": plans, "tenants": tenants, "slot": p.Slot.String(),
	}
	if p.DefaultPlan != "" {
		doc["default_plan"] = p.DefaultPlan
	}
	if d.zone != "" {
		doc["zone"] = d.zone
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	for _, r := range string(b) {
		if r < 0x80 && r != 0x7f {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\U%08X`, r)
		}
	}
	return out.String()
}

func renderLimits(limits []limit.Limit) []any {
	out := []any{}
	for _, l := range limits {
		m := map[string]any{"name": l.Name}
		match := map[string]any{}
		for _, c := range l.Match {
			match[c.Attribute] = c.Patterns
		}
		m["match"] = match
		m["by"] = append([]string{}, l.By...)
		if l.Meter != "" {
			m["meter"] = l.Meter
		}
		if !l.CountsOnly() {
			m["rate"] = l.Rate.String()
			m["algorithm"] = l.Algorithm.String()
			m["on_outage"] = l.OnOutage.String()
			m["enforcement"] = l.Enforcement.String()
			m["epsilon"] = percent(l.EpsilonPPM)
			if l.Algorithm == limit.TokenBucket {
				m["burst"] = l.Burst
			}
			if l.Algorithm == limit.FixedWindow && l.Rate.Calendar.Zoned() {
				m["zone"] = l.Zone
				if l.Zone == "" {
					m["zone"] = "UTC"
				}
			}
		}
		out = append(out, m)
	}
	return out
}

// FuzzParse: nothing panics; what does not hold says why, where; what holds
// compiles, is within all bounds, and says the same when written anew.
func FuzzParse(f *testing.F) {
	f.Add(string(readExample(f)))
	for _, s := range []string{
		"plans: {p: {}}",
		"zone: Europe/Berlin\nplans: {p: {limits: [{name: x, algorithm: fixed_window, rate: 1/month, match: {ip: [10.0.0.0/8, '2*']}}]}}",
		"plans: {p: {limits: [{name: x, rate: 9/7s, burst: 2, epsilon: 0.01%, by: [ip/24]}]}}\ntenants: [{id: a, plan: p, limits: [{name: x, rate: 3/h}, {name: c, meter: m}]}, {id: b, plan: p, parent: a}]",
		"limits: [{name: x, rate: 1/s, enforcement: strict, match: {a: \"\\u00e9*\"}}]\nplans: {p: {limits: []}}\ndefault_plan: p\nslot: 1m",
		"a: &a {b: *a}", "? [x]\n: y", "- - - -", "plans: !!binary x", "--- {}\n--- {}", "plans: {p: {limits: [{name: x, rate: 0/s}]}}", "\t", "'", "{", "%YAML 1.1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse("fuzz.yaml", []byte(text))
		if err != nil {
			var faults Faults
			if d != nil || !errors.As(err, &faults) || len(faults) == 0 || len(faults) > MaxFaults+1 {
				t.Fatalf("Parse = %v, %v", d, err)
			}
			lines := strings.Count(text, "\n") + strings.Count(text, "\r") + strings.Count(text, "\u0085") + strings.Count(text, "\u2028") + strings.Count(text, "\u2029")
			for i, f := range faults {
				if f.Line < 1 || f.Line > lines+2 || i > 0 && f.Line < faults[i-1].Line || f.Message == "" || !utf8.ValidString(f.Message) {
					t.Fatalf("fault %d of %d lines: %+v", i, lines, f)
				}
			}
			return
		}
		p := d.Policy(1)
		rules, err := limit.CompilePolicy(p)
		if err != nil {
			t.Fatalf("a valid document does not compile: %v", err)
		}
		if p.Slot < time.Second || time.Hour%p.Slot != 0 || len(p.Plans) == 0 || len(p.Plans) > limit.MaxPlans || len(p.Limits) > limit.MaxTopLimits {
			t.Fatalf("a valid document breaks a bound: %+v", p)
		}
		checkLimits(t, p.Limits)
		for _, plan := range p.Plans {
			checkLimits(t, plan.Limits)
		}
		for _, tenant := range d.Tenants() {
			checkLimits(t, tenant.Overrides)
			if _, err := rules.Tenant(tenant); err != nil {
				t.Fatalf("a valid tenant does not compile: %v", err)
			}
		}
		if diff := Diff(d, d); diff != nil {
			t.Fatalf("a document differs from itself: %q", diff)
		}
		text2 := render(d)
		d2, err := Parse("again.yaml", []byte(text2))
		if err != nil {
			t.Fatalf("written anew it does not hold:\n%v\n%s", err, text2)
		}
		if diff := Diff(d, d2); diff != nil {
			t.Fatalf("written anew it says something else: %q\n%s", diff, text2)
		}
		if a, b := d.Tenants(), d2.Tenants(); !reflect.DeepEqual(a, b) {
			t.Fatalf("written anew it has other tenants:\n%+v\n%+v", a, b)
		}
	})
}

func checkLimits(t *testing.T, limits []limit.Limit) {
	t.Helper()
	for _, l := range limits {
		if !limit.ValidName(l.Name) || l.Burst < 0 || l.Burst > limit.MaxUnits || l.EpsilonPPM < 0 || l.EpsilonPPM > limit.Micro || l.Rate.Validate() != nil ||
			!l.CountsOnly() && l.Algorithm == limit.TokenBucket && (l.Burst < 1 || l.Rate.Calendar >= limit.Month) ||
			l.CountsOnly() && l.Meter == "" || l.Algorithm == limit.FixedWindow && l.Burst != 0 {
			t.Fatalf("a valid limit breaks a bound: %+v", l)
		}
	}
}
