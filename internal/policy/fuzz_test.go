package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// render writes a document anew from what it was compiled to, with every value
// spelled out: JSON, which is YAML, in ASCII.
func render(d *Document) string {
	p := d.Policy(0)
	gateways := map[string]any{}
	for _, g := range p.Gateways {
		m := map[string]any{"descriptors": g.Descriptors}
		if len(g.After) > 0 {
			m["after"] = g.After
		}
		if cost, all := g.Hits[""]; all {
			m["hits"] = cost
		} else if len(g.Hits) > 0 {
			m["hits"] = g.Hits
		}
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
		m := map[string]any{"limits": renderLimits(plan.Limits, false)}
		if price := d.Price(plan.Name); price != nil {
			m["price"] = renderPrice(price)
		}
		plans[plan.Name] = m
	}
	tenants := []any{}
	for _, t := range d.Tenants() {
		m := map[string]any{"id": t.ID, "plan": t.Plan, "limits": renderLimits(t.Overrides, true)}
		if t.Parent != "" {
			m["parent"] = t.Parent
		}
		tenants = append(tenants, m)
	}
	doc := map[string]any{
		"gateways": gateways, "limits": renderLimits(p.Limits, false), "plans": plans, "tenants": tenants, "slot": p.Slot.String(),
	}
	if len(p.Costs) > 0 {
		costs := []any{}
		for _, name := range p.Costs {
			costs = append(costs, name)
		}
		for _, l := range p.Likely {
			reserve := map[string]any{"quantile": percent(l.QuantilePPM)}
			if l.By != "" {
				reserve["by"] = l.By
			}
			if l.First > 0 {
				reserve["first"] = strconv.FormatInt(l.First, 10)
			}
			costs[slices.Index(p.Costs, l.Cost)] = map[string]any{"name": l.Cost, "reserve": reserve}
		}
		doc["costs"] = costs
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

// renderLimits writes what an override has none of as none, so that it does not follow the plan.
func renderLimits(limits []limit.Limit, overrides bool) []any {
	out := []any{}
	for _, l := range limits {
		m := map[string]any{"name": l.Name, "match": renderMatches(l.Match)}
		m["by"] = append([]string{}, l.By...)
		if l.Meter != "" {
			m["meter"] = l.Meter
		}
		if !l.Cost.Plain() {
			m["cost"] = renderCost(&l.Cost)
		}
		if !l.CountsOnly() {
			renderShape(m, &l)
			renderOptions(m, &l, overrides)
		}
		out = append(out, m)
	}
	return out
}

func renderCost(w *limit.Weighing) any {
	if w.By == "" {
		return renderWeights(w.Weights)
	}
	rows := map[string]any{}
	for _, r := range w.Rows {
		rows[r.Value] = renderWeights(r.Weights)
	}
	return map[string]any{"by": w.By, "weights": rows}
}

func renderWeights(all []limit.Weight) map[string]any {
	out := map[string]any{}
	for _, w := range all {
		out[w.Cost] = decimal(w.Micros)
	}
	return out
}

func renderMatches(matches []limit.Match) map[string]any {
	out := map[string]any{}
	for _, c := range matches {
		out[c.Attribute] = c.Patterns
	}
	return out
}

func renderShape(m map[string]any, l *limit.Limit) {
	m["algorithm"] = l.Algorithm.String()
	m["on_outage"] = l.OnOutage.String()
	if l.Algorithm == limit.Concurrency {
		m["slots"] = l.Slots
		return
	}
	m["rate"] = l.Rate.String()
	m["enforcement"] = l.Enforcement.String()
	m["first_touch"] = l.FirstTouch.String()
	if l.Algorithm != limit.SlidingWindowLog {
		m["epsilon"] = percent(l.EpsilonPPM)
	}
	if l.Enforcement == limit.Soft {
		m["overage"] = orUnlimited(l.OveragePPM)
	}
	if l.Burst > 0 {
		m["burst"] = l.Burst
	}
	if l.Algorithm == limit.FixedWindow {
		m["on_change"] = l.OnChange.String()
		if l.Rate.Calendar.Zoned() {
			m["zone"] = orUTC(l.Zone)
		}
	}
}

func renderOptions(m map[string]any, l *limit.Limit, override bool) {
	has := func(key string, value any) {
		if without[l.Algorithm][key] == "" {
			m[key] = value
		}
	}
	has("wait", l.Wait.String())
	has("lockout", l.Lockout.String())
	has("fallback_hold", l.FallbackHold.String())
	has("queue", l.Queue)
	has("borrow", l.Borrow)
	has("shadow", l.Shadow)
	has("allow", renderMatches(l.Allow))
	has("deny", renderMatches(l.Deny))
	if r := l.Reserve; override || r != (limit.Reserve{}) {
		reserve := map[string]any{}
		for _, p := range []struct {
			key string
			ppm int64
		}{{"low", r.LowPPM}, {"normal", r.NormalPPM}} {
			if p.ppm > 0 {
				reserve[p.key] = percent(p.ppm)
			}
		}
		m["reserve"] = reserve
	}
	var all []any
	for _, v := range l.Variants {
		variant := map[string]any{"name": v.Name, "share": percent(v.SharePPM)}
		if v.Rate != (limit.Rate{}) {
			variant["rate"] = v.Rate.String()
		}
		if v.Burst > 0 {
			variant["burst"] = v.Burst
		}
		if v.Slots > 0 {
			variant["slots"] = v.Slots
		}
		all = append(all, variant)
	}
	if all != nil {
		m["variants"] = all
	}
}

// FuzzParse: nothing panics; what does not hold says why, where; what holds
// compiles, is within all bounds, and says the same when written anew.
func FuzzParse(f *testing.F) {
	f.Add(string(readExample(f)))
	for _, s := range []string{
		"plans: {p: {}}",
		"plans: {p: {limits: [{name: x, meter: m}, {name: y, meter: n}], price: {monthly: 49.00 USD, meters: {m: {included: 5, mode: volume, tiers: [{up_to: 9, unit: 0.5}, {unit: 1}], overage: 2}, n: {package: {size: 7, price: 3}}}}}}",
		"zone: Europe/Berlin\nplans: {p: {limits: [{name: x, algorithm: fixed_window, rate: 1/month, match: {ip: [10.0.0.0/8, '2*']}}]}}",
		"plans: {p: {limits: [{name: x, rate: 9/7s, burst: 2, epsilon: 0.01%, by: [ip/24]}]}}\ntenants: [{id: a, plan: p, limits: [{name: x, rate: 3/h}, {name: c, meter: m}]}, {id: b, plan: p, parent: a}]",
		"limits: [{name: x, rate: 1/s, enforcement: strict, match: {a: \"\\u00e9*\"}}]\nplans: {p: {limits: []}}\ndefault_plan: p\nslot: 1m",
		"plans: {p: {limits: [{name: x, algorithm: concurrency, slots: 5, queue: 10, wait: 2s, fallback_hold: 30s}, {name: y, algorithm: leaky_bucket, rate: 5/s, queue: 3, allow: {ip: 10.0.0.0/8}, deny: {user: [a, 'b*']}}]}}",
		"plans: {p: {limits: [{name: x, algorithm: sliding_window_log, rate: 5/min, lockout: 15m, shadow: true}, {name: y, rate: 5/s, enforcement: soft, overage: 20%, borrow: 3, meter: m, first_touch: admit}]}}\ntenants: [{id: a, plan: p, limits: [{name: x, algorithm: sliding_window, lockout: 0s}, {name: y, enforcement: hard}]}]",
		"plans: {p: {limits: [{name: x, rate: 50/s, reserve: {low: 20%, normal: 5%}, variants: [{name: a, share: 10%, rate: 100/s}, {name: b, share: 5%, burst: 7}]}, {name: y, algorithm: fixed_window, rate: 9/day, on_change: prorate, enforcement: soft}]}}",
		"costs: [a, b]\nplans: {p: {limits: [{name: x, rate: 5/s, cost: a}, {name: y, rate: 9/s, cost: {a: 0.5, requests: 1}}, {name: z, meter: m, cost: {by: model, weights: {s: {b: 0.000001}, '*': {a: 1000000000}}}}]}}\ntenants: [{id: t, plan: p, limits: [{name: x, cost: {b: 2}}]}]",
		"costs: [a, {name: b, reserve: {quantile: 95%, by: model}}, {name: c}, {reserve: {quantile: 99.9%}, name: d}]\nplans: {p: {}}",
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
		for _, spec := range d.TenantSpecs() {
			kept, err := json.Marshal(spec.Overrides)
			if err != nil {
				t.Fatal(err)
			}
			again := TenantSpec{ID: spec.ID, Plan: spec.Plan, Parent: spec.Parent}
			if err := json.Unmarshal(kept, &again.Overrides); err != nil {
				t.Fatal(err)
			}
			a, _ := d.Tenant(spec)
			b, err := d.Tenant(again)
			if err != nil || !reflect.DeepEqual(a, b) {
				t.Fatalf("kept as JSON it compiles to something else: %v\n%s\n%+v\n%+v", err, kept, a, b)
			}
		}
		if a, b := d.Tenants(), d2.Tenants(); !reflect.DeepEqual(a, b) {
			t.Fatalf("written anew it has other tenants:\n%+v\n%+v", a, b)
		}
	})
}

func checkLimits(t *testing.T, limits []limit.Limit) {
	t.Helper()
	for _, l := range limits {
		bad := func(what string) { t.Fatalf("a valid limit breaks a bound (%s): %+v", what, l) }
		fixed := l.Rate.Calendar < limit.Month
		total := int64(0)
		for _, v := range l.Variants {
			total += v.SharePPM
			if v.Rate == (limit.Rate{}) && v.Burst == 0 && v.Slots == 0 || v.Burst > limit.MaxUnits || v.SharePPM < 1 {
				bad("a variant")
			}
		}
		switch {
		case !limit.ValidName(l.Name), l.Burst < 0, l.Burst > limit.MaxUnits, l.EpsilonPPM < 0, l.EpsilonPPM > limit.Micro, l.Rate.Validate() != nil:
			bad("ranges")
		case l.CountsOnly() && l.Meter == "", l.CountsOnly() && (l.Burst != 0 || l.Lockout != 0 || l.Shadow || l.Enforcement != limit.Hard):
			bad("counts only")
		case l.CountsOnly():
		case (l.Algorithm == limit.TokenBucket || l.Algorithm == limit.LeakyBucket) != (l.Burst >= 1):
			bad("burst")
		case l.Algorithm != limit.FixedWindow && (!fixed || l.Zone != "" || l.OnChange != limit.ChangeKeep):
			bad("windows")
		case (l.Algorithm == limit.Concurrency) != (l.Slots > 0), l.Slots > 0 && l.Rate.Units > 0, l.Slots > 0 && l.Meter != "":
			bad("slots")
		case l.Algorithm == limit.SlidingWindowLog && (l.Rate.Units > limit.MaxLog || l.EpsilonPPM != 0):
			bad("log")
		case l.Queue > 0 && l.Algorithm != limit.LeakyBucket && l.Algorithm != limit.Concurrency, l.Queue == 0 && l.Wait > 0:
			bad("queue")
		case l.Enforcement == limit.Strict && (l.EpsilonPPM != 0 || l.Borrow > 0), l.OveragePPM > 0 && l.Enforcement != limit.Soft:
			bad("enforcement")
		case l.Shadow && l.Meter != "", l.Reserve.NormalPPM > l.Reserve.LowPPM, total > limit.Micro:
			bad("options")
		}
	}
}
