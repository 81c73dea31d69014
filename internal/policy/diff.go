package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// MaxChanges is how many sentences Diff returns at most; the last then counts the rest.
const MaxChanges = 500

// Diff says, a sentence each, what newer changes against older; nil if nothing. Order, comments and ways of writing the
// same are no difference.
func Diff(older, newer *Document) []string {
	changes := DiffPolicy(older, newer)
	if older == nil {
		older = &Document{}
	}
	before := make(map[string]limit.Tenant)
	billed, caps := make(map[string]terms.Billing), make(map[string]terms.Cap)
	for i, t := range older.Tenants() {
		before[t.ID] = t
		billed[t.ID], caps[t.ID] = older.tenants[i].Billing, older.tenants[i].Cap
	}
	for i, t := range newer.Tenants() {
		changes = append(changes, DiffTenant(before[t.ID], t)...)
		changes = append(changes, terms.DiffBilling(t.ID, billed[t.ID], newer.tenants[i].Billing)...)
		changes = append(changes, terms.DiffCap(t.ID, caps[t.ID], newer.tenants[i].Cap)...)
		delete(before, t.ID)
	}
	for _, id := range sortedKeys(before) {
		changes = append(changes, fmt.Sprintf("tenant %s is no longer in the document, and stays as it is", id))
	}
	return Bounded(changes)
}

// Bounded keeps a list of changes short enough to send and to read.
func Bounded(changes []string) []string {
	if len(changes) <= MaxChanges {
		return changes
	}
	return append(changes[:MaxChanges-1:MaxChanges-1], fmt.Sprintf("and %d more changes", len(changes)-MaxChanges+1))
}

// Untried says, a sentence each, which limits of a document have no effect while it is a shadow.
func Untried(doc *Document) []string {
	var all []string
	add := func(where string, limits []limit.Limit) {
		for i := range limits {
			if limits[i].Algorithm == limit.Concurrency {
				all = append(all, where+"limit "+limits[i].Name+" is not tried: whether slots are free is known only of requests that hold them")
			}
		}
	}
	add("", doc.policy.Limits)
	for i := range doc.policy.Plans {
		add("plan "+doc.policy.Plans[i].Name+": ", doc.policy.Plans[i].Limits)
	}
	return all
}

// DiffPolicy is Diff without the tenants that the documents name, and unbounded.
func DiffPolicy(before, after *Document) []string {
	if before == nil {
		before = &Document{policy: limit.Policy{Slot: DefaultSlot}}
	}
	older, newer := &before.policy, &after.policy
	var changes []string
	add := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }
	if older.DefaultPlan != newer.DefaultPlan {
		add("default plan %s → %s", orNone(older.DefaultPlan), orNone(newer.DefaultPlan))
	}
	if older.Slot != newer.Slot {
		add("slot %s → %s", limit.ShortDuration(older.Slot), limit.ShortDuration(newer.Slot))
	}
	if before.zone != after.zone {
		add("default zone %s → %s", orUTC(before.zone), orUTC(after.zone))
	}
	if a, b := costsOf(older), costsOf(newer); a != b {
		add("costs %s → %s", orNone(a), orNone(b))
	}
	gateways := make(map[string]limit.Gateway)
	for _, g := range older.Gateways {
		gateways[g.Name] = g
	}
	for _, g := range newer.Gateways {
		was, ok := gateways[g.Name]
		delete(gateways, g.Name)
		if !ok {
			add("gateway %s added", g.Name)
			continue
		}
		if was.Domain != g.Domain {
			add("gateway %s: domain %s → %s", g.Name, orNone(was.Domain), orNone(g.Domain))
		}
		if a, b := descriptors(was), descriptors(g); a != b {
			add("gateway %s: descriptors %s → %s", g.Name, orNone(a), orNone(b))
		}
		if a, b := reportsOf(was), reportsOf(g); a != b {
			add("gateway %s: after %s → %s", g.Name, orNone(a), orNone(b))
		}
		if a, b := hitsOf(was), hitsOf(g); a != b {
			add("gateway %s: hits %s → %s", g.Name, orNone(a), orNone(b))
		}
	}
	for _, name := range sortedKeys(gateways) {
		add("gateway %s removed", name)
	}
	changes = append(changes, diffLimits("", older.Limits, newer.Limits)...)
	plans := make(map[string]limit.Plan)
	for _, p := range older.Plans {
		plans[p.Name] = p
	}
	for _, p := range newer.Plans {
		was, ok := plans[p.Name]
		delete(plans, p.Name)
		if !ok {
			add("plan %s added", p.Name)
		}
		changes = append(changes, diffLimits("plan "+p.Name+": ", was.Limits, p.Limits)...)
		if a, b := before.Price(p.Name).String(), after.Price(p.Name).String(); a != b {
			add("plan %s: price %s → %s", p.Name, orNone(a), orNone(b))
		}
	}
	for _, name := range sortedKeys(plans) {
		add("plan %s removed", name)
	}
	return append(changes, diffAlerts(before, after)...)
}

// hitsOf writes the gateway's `hits`.
func hitsOf(g limit.Gateway) string {
	var all []string
	for _, key := range sortedKeys(g.Hits) {
		if key == "" {
			all = append(all, g.Hits[key])
			continue
		}
		all = append(all, key+": "+g.Hits[key])
	}
	return strings.Join(all, ", ")
}

// reportsOf writes the gateway's `after`; the order of keys means nothing.
func reportsOf(g limit.Gateway) string {
	return strings.Join(slices.Sorted(slices.Values(g.After)), ", ")
}

func descriptors(g limit.Gateway) string {
	var b strings.Builder
	for i, k := range sortedKeys(g.Descriptors) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %s", k, g.Descriptors[k])
	}
	return b.String()
}

// DiffTenant says what changes between before, which may not exist, and after.
func DiffTenant(before, after limit.Tenant) []string {
	var changes []string
	prefix := "tenant " + after.ID + ": "
	if !before.Exists {
		changes = append(changes, fmt.Sprintf("tenant %s added, plan %s", after.ID, after.Plan))
		if after.Parent != "" {
			changes = append(changes, prefix+"parent none → "+after.Parent)
		}
	} else {
		if before.Plan != after.Plan {
			changes = append(changes, fmt.Sprintf("%splan %s → %s", prefix, before.Plan, after.Plan))
		}
		if before.Parent != after.Parent {
			changes = append(changes, fmt.Sprintf("%sparent %s → %s", prefix, orNone(before.Parent), orNone(after.Parent)))
		}
		if before.Suspended != after.Suspended {
			changes = append(changes, fmt.Sprintf("%ssuspended %t → %t", prefix, before.Suspended, after.Suspended))
		}
	}
	return append(changes, diffLimits(prefix+"override of ", before.Overrides, after.Overrides)...)
}

func diffLimits(prefix string, older, newer []limit.Limit) []string {
	was := make(map[string]*limit.Limit)
	for i := range older {
		was[older[i].Name] = &older[i]
	}
	var changes []string
	for i := range newer {
		l := &newer[i]
		o, ok := was[l.Name]
		delete(was, l.Name)
		if !ok {
			changes = append(changes, fmt.Sprintf("%slimit %s added: %s", prefix, l.Name, describe(l)))
			continue
		}
		a, b := properties(o), properties(l)
		for k := range a {
			if a[k].value != b[k].value {
				changes = append(changes, fmt.Sprintf("%slimit %s: %s %s → %s", prefix, l.Name, a[k].key, orNone(a[k].value), orNone(b[k].value)))
			}
		}
	}
	for i := range older {
		if was[older[i].Name] != nil {
			changes = append(changes, fmt.Sprintf("%slimit %s removed", prefix, older[i].Name))
		}
	}
	return changes
}

type property struct{ key, value string }

// properties lists all properties of a limit, always in the same order.
func properties(l *limit.Limit) []property {
	algorithm, enforcement, overage, outage, epsilon, touch := "", "", "", "", "", ""
	if !l.CountsOnly() {
		algorithm, enforcement, outage = l.Algorithm.String(), l.Enforcement.String(), l.OnOutage.String()
		epsilon, touch = percent(l.EpsilonPPM), l.FirstTouch.String()
	}
	if l.Enforcement == limit.Soft {
		overage = orUnlimited(l.OveragePPM)
	}
	shadow, change := "", ""
	if l.Shadow {
		shadow = "true"
	}
	if l.Algorithm == limit.FixedWindow {
		change = l.OnChange.String()
	}
	return []property{
		{"rate", l.Rate.String()}, {"cost", weighing(&l.Cost)}, {"slots", whole(l.Slots)}, {"burst", whole(l.Burst)}, {"algorithm", algorithm},
		{"by", strings.Join(l.By, ", ")}, {"match", Conditions(l.Match)}, {"meter", l.Meter}, {"zone", l.Zone},
		{"on_outage", outage}, {"enforcement", enforcement}, {"overage", overage}, {"epsilon", epsilon},
		{"queue", whole(l.Queue)}, {"wait", span(l.Wait)}, {"borrow", whole(l.Borrow)}, {"lockout", span(l.Lockout)},
		{"shadow", shadow}, {"allow", Conditions(l.Allow)}, {"deny", Conditions(l.Deny)}, {"reserve", reserve(l.Reserve)},
		{"variants", variants(l.Variants)}, {"first_touch", touch}, {"fallback_hold", span(l.FallbackHold)}, {"on_change", change},
	}
}

// whole writes a number; empty for none.
func whole(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Conditions writes the conditions of requests as a document does, without its outer braces.
func Conditions(matches []limit.Match) string {
	var b strings.Builder
	for i, m := range matches {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(m.Attribute + ": [")
		for j, p := range m.Patterns {
			if j > 0 {
				b.WriteString(", ")
			}
			b.WriteString(strconv.Quote(p))
		}
		b.WriteString("]")
	}
	return b.String()
}

func orUnlimited(ppm int64) string {
	if ppm == 0 {
		return unlimited
	}
	return percent(ppm)
}

func reserve(r limit.Reserve) string {
	switch {
	case r == limit.Reserve{}:
		return ""
	case r.NormalPPM == 0:
		return "low " + percent(r.LowPPM)
	}
	return "low " + percent(r.LowPPM) + ", normal " + percent(r.NormalPPM)
}

func variants(all []limit.Variant) string {
	var b strings.Builder
	for i, v := range all {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s for %s:", v.Name, percent(v.SharePPM))
		for _, p := range []property{{"rate", v.Rate.String()}, {"burst", whole(v.Burst)}, {"slots", whole(v.Slots)}} {
			if p.value != "" {
				fmt.Fprintf(&b, " %s %s", p.key, p.value)
			}
		}
	}
	return b.String()
}

// describe describes a new limit: its shape, and every option that is not the default.
func describe(l *limit.Limit) string {
	if l.CountsOnly() {
		if cost := weighing(&l.Cost); cost != "" {
			return "counts " + cost + " for meter " + l.Meter
		}
		return "counts for meter " + l.Meter
	}
	s := fmt.Sprintf("%s %s", l.Algorithm, l.Rate)
	if l.Slots > 0 {
		s = fmt.Sprintf("%s %d slots", l.Algorithm, l.Slots)
	}
	if l.Burst > 0 {
		s += fmt.Sprintf(", burst %d", l.Burst)
	}
	for _, p := range []property{{"meter", l.Meter}, {"", Options(l)}} {
		if p.value != "" {
			s += ", " + strings.TrimSpace(p.key+" "+p.value)
		}
	}
	return s
}

// Options writes every option of a limit that is not the default, in the words of a document.
func Options(l *limit.Limit) string {
	usual := limit.Limit{
		Algorithm: l.Algorithm, Rate: l.Rate, Slots: l.Slots, Burst: l.Burst, EpsilonPPM: limit.DefaultEpsilonPPM,
		By: l.By, Match: l.Match, Zone: l.Zone, Meter: l.Meter,
	}
	if l.Enforcement == limit.Strict || isExact(l.Algorithm) {
		usual.EpsilonPPM = 0
	}
	var all []string
	a, b := properties(&usual), properties(l)
	for i := range b {
		if a[i].value != b[i].value {
			all = append(all, b[i].key+" "+b[i].value)
		}
	}
	return strings.Join(all, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func orUTC(zone string) string {
	if zone == "" {
		return "UTC"
	}
	return zone
}
