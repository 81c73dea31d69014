package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Bounds of a document's alerts.
const (
	MaxWebhooks   = 16 // each has its own queue on the server that leads
	MaxAlerts     = 64
	MaxThresholds = 10 // of an alert
	MaxNamed      = 64 // plans, or tenants, that an alert names
	maxURL        = 1024
	maxThreshold  = 10 * limit.Micro // 1000 %

	// SecretPrefix begins the names of the variables that secrets are read from. A document must not turn any other
	// variable of a server's environment into a secret.
	SecretPrefix = "QUOTA_WEBHOOK_"

	// TestName is the name of a test's event.
	TestName = "test"
)

// Alert says which events to tell of, and where: one of Quota, Spending and Denials.
type Alert struct {
	Name    string
	Quota   string // the limit whose calendar window fills
	Denials string // the limit that denies more than it used to
	// Spending is set for alerts on a period's charges: on Amount, or on the tenant's own cap where that is zero.
	Spending bool
	Amount   billing.Money

	At       []int64       // thresholds in parts per million, ascending
	Over     time.Duration // of Denials: the time that is looked at
	Against  time.Duration // and the past that it is held against
	Least    int64         // denied units in Over that are worth an alert
	Plans    []string      // of these alone; none for all
	Tenants  []string      // likewise
	Webhooks []string
}

// Holds reports whether the alert is for a tenant of that plan.
func (a *Alert) Holds(tenant, plan string) bool {
	return (len(a.Plans) == 0 || slices.Contains(a.Plans, plan)) && (len(a.Tenants) == 0 || slices.Contains(a.Tenants, tenant))
}

// Alerts returns the alerts, by name.
func (d *Document) Alerts() []Alert { return d.alerts }

// names reads a list of names. known says whether a name exists; nil accepts any.
func (p *parser) names(fd strict.Field, what string, valid, known func(string) bool, are string) []string {
	list, _ := strict.Texts(p.f, fd.Node, fd.Name+" of "+what, MaxNamed)
	var all []string
	for _, s := range list {
		switch {
		case slices.Contains(all, s):
			p.f.Add(fd.Line, "%s of %s names %s twice", fd.Name, what, limit.Quote(s))
			continue
		case !valid(s):
			p.f.Add(fd.Line, "%s of %s: %s is no name", fd.Name, what, limit.Quote(s))
		case known != nil && !known(s):
			p.f.Add(fd.Line, "%s of %s: there is no %s; %s", fd.Name, what, limit.Quote(s), are)
		}
		all = append(all, s)
	}
	if len(list) == 0 {
		p.f.Add(fd.Line, "%s of %s is empty; leave it out or name one", fd.Name, what)
	}
	slices.Sort(all)
	return all
}

func (p *parser) alerts(fd strict.Field) {
	first := map[string]int{}
	for _, n := range strict.Items(p.f, fd.Node, "alerts", MaxAlerts) {
		a, line := p.alert(n)
		if a.Name == "" {
			continue
		}
		if was, ok := first[a.Name]; ok {
			p.f.Add(line, "alert %s is there twice; the first is on line %d", a.Name, was)
			continue
		}
		first[a.Name] = line
		p.doc.alerts = append(p.doc.alerts, a)
	}
	slices.SortFunc(p.doc.alerts, func(a, b Alert) int { return strings.Compare(a.Name, b.Name) })
}

var alertKeys = []string{"name", "quota", "spending", "denials", "at", "over", "against", "least", "plans", "tenants", "webhooks"}

// alert reads one element of the list, and the line that it is on.
func (p *parser) alert(n *yaml.Node) (Alert, int) {
	f, a, what := p.f, Alert{}, "an alert"
	if strict.IsNull(n) {
		f.Add(n.Line, "an alert must be a mapping of keys to values, not nothing")
		return a, n.Line
	}
	lines := map[string]int{"": n.Line}
	fields := strict.Mapping(f, n, what)
	for _, k := range fields {
		if k.Name == "name" {
			if a.Name, _ = strict.Name(f, k.Node, "the name of an alert"); a.Name != "" {
				what = "alert " + a.Name
			}
		}
	}
	var of []string
	for _, k := range fields {
		lines[k.Name] = k.Line
		switch k.Name {
		case "name":
			if a.Name == terms.CapName || a.Name == TestName {
				f.Add(k.Line, "an alert cannot be called %s: that is what the event of a spending cap, or of a test, is called", a.Name)
			}
		case "quota":
			of = append(of, k.Name)
			a.Quota, _ = strict.Name(f, k.Node, "the limit of "+what)
		case "denials":
			of = append(of, k.Name)
			a.Denials, _ = strict.Name(f, k.Node, "the limit of "+what)
		case "spending":
			of = append(of, k.Name)
			a.Spending = true
			p.spending(k, &a, what)
		case "at":
			a.At = p.thresholds(k, what)
		case "over":
			a.Over = p.alertSpan(k, what, billing.Grid*time.Second, 24*time.Hour)
		case "against":
			a.Against = p.alertSpan(k, what, time.Hour, 31*24*time.Hour)
		case "least":
			if n := strict.Number(f, k, what, "denied units", 1, limit.MaxUnits); n != nil {
				a.Least = *n
			}
		case "plans":
			a.Plans = p.names(k, what, limit.ValidName, func(s string) bool { return p.doc.policy.Plan(s) != nil }, p.doc.plansAre())
		case "tenants":
			a.Tenants = p.names(k, what, limit.ValidTenant, nil, "")
		case "webhooks":
			a.Webhooks = p.webhookNames(k, what)
		default:
			strict.Unknown(f, k, what, slices.Clone(alertKeys)...)
		}
	}
	if n.Kind != yaml.MappingNode {
		return a, n.Line
	}
	if _, ok := lines["name"]; !ok {
		f.Add(n.Line, "an alert has no name; give it one, by which its events are told apart")
	}
	if len(of) != 1 {
		said := "none"
		if len(of) > 0 {
			said = strings.Join(of, " and ")
		}
		f.Add(n.Line, "%s needs one of quota, spending and denials, and has %s", what, said)
		return a, n.Line
	}
	p.alertOf(&a, what, lines)
	return a, n.Line
}

// alertOf checks an alert against its limit or plans, and fills in what it leaves out.
func (p *parser) alertOf(a *Alert, what string, lines map[string]int) {
	f := p.f
	if a.Denials == "" {
		for _, key := range []string{"over", "against", "least"} {
			if line, ok := lines[key]; ok {
				f.Add(line, "%s of %s goes with denials, which are held against their own past", key, what)
			}
		}
		if _, ok := lines["at"]; !ok {
			a.At = []int64{500_000, 800_000, 1_000_000}
		}
	} else {
		if _, ok := lines["at"]; !ok {
			a.At = []int64{3_000_000}
		}
		if len(a.At) > 0 && a.At[0] <= limit.Micro {
			f.Add(lines["at"], "at of %s: a rise is a share above 100%% of what it was, such as 300%%", what)
		}
		for key, d := range map[string]struct {
			to    *time.Duration
			usual time.Duration
		}{"over": {&a.Over, 15 * time.Minute}, "against": {&a.Against, 24 * time.Hour}} {
			if _, ok := lines[key]; !ok {
				*d.to = d.usual
			}
		}
		if _, ok := lines["least"]; !ok {
			a.Least = 100
		}
		if a.Over > 0 && a.Against > 0 && a.Against < 2*a.Over {
			f.Add(lines["denials"], "%s is over %s against %s of past; the past must be twice as long at least", what, limit.ShortDuration(a.Over), limit.ShortDuration(a.Against))
		}
	}
	if name := a.Quota + a.Denials; name != "" {
		p.alertLimit(a, name, what, lines)
	}
}

// alertLimit checks that the limit exists, and that the ledger counts what the alert needs.
func (p *parser) alertLimit(a *Alert, limitName, what string, lines map[string]int) {
	line := max(lines["quota"], lines["denials"])
	found := false
	check := func(l *limit.Limit, by []string) {
		if l.Name != limitName {
			return
		}
		found = true
		problem := ""
		switch {
		case l.CountsOnly() && a.Denials != "":
			problem = "it only counts, and never denies"
		case a.Quota == "":
		case l.Algorithm != limit.FixedWindow || !l.Rate.Calendar.Zoned():
			problem = "it has no window of the calendar, so nothing fills up; it needs algorithm: fixed_window and a rate by day, week, month or year"
		case len(by) > 0:
			problem = fmt.Sprintf("it counts by %s, and an alert is of a tenant's whole quota", strings.Join(by, ", "))
		case l.Meter == "":
			problem = "it feeds no meter, so the ledger does not count what it admits; give it one"
		}
		if problem != "" {
			p.f.Add(line, "%s is of limit %s: %s", what, limitName, problem)
		}
	}
	for i := range p.doc.policy.Limits {
		l := &p.doc.policy.Limits[i]
		check(l, slices.DeleteFunc(slices.Clone(l.By), func(by string) bool { return by == limit.AttrTenant }))
		if l.Name == limitName && !slices.Contains(l.By, limit.AttrTenant) {
			p.f.Add(line, "%s is of limit %s, whose buckets are not by tenant", what, limitName)
		}
	}
	for i := range p.doc.policy.Plans {
		plan := &p.doc.policy.Plans[i]
		if len(a.Plans) > 0 && !slices.Contains(a.Plans, plan.Name) {
			continue
		}
		for j := range plan.Limits {
			check(&plan.Limits[j], plan.Limits[j].By)
		}
	}
	if !found {
		p.f.Add(line, "%s: no plan that it is for has a limit %s, nor has the top level", what, limit.Quote(limitName))
	}
}

func (p *parser) spending(k strict.Field, a *Alert, what string) {
	var s string
	if strict.Word(p.f, k, what, &s); s == "" || s == "cap" {
		return
	}
	m, err := billing.ParseMoney(s)
	if err != nil || m.Amount <= 0 {
		p.f.Add(k.Line, "spending of %s is %s; write an amount such as 100.00 USD, or cap for each tenant's spending_cap", what, limit.Quote(s))
		return
	}
	a.Amount = m
}

func (p *parser) thresholds(k strict.Field, what string) (all []int64) {
	list, _ := strict.Texts(p.f, k.Node, "at of "+what, MaxThresholds)
	for _, s := range list {
		ppm, ok := parsePercentUpTo(s, maxThreshold)
		switch {
		case !ok || ppm < 10_000:
			p.f.Add(k.Line, "at of %s: %s is no threshold; write percentages from 1%% to 1000%%, such as [50%%, 80%%, 100%%]", what, limit.Quote(s))
		case len(all) > 0 && ppm <= all[len(all)-1]:
			p.f.Add(k.Line, "at of %s: thresholds must be in ascending order, each once", what)
		default:
			all = append(all, ppm)
		}
	}
	if len(list) == 0 && k.Node.Kind == yaml.SequenceNode {
		p.f.Add(k.Line, "at of %s is empty; leave it out, or give it a threshold", what)
	}
	return all
}

// alertSpan reads a duration of whole slots.
func (p *parser) alertSpan(k strict.Field, what string, least, most time.Duration) time.Duration {
	var s string
	if strict.Word(p.f, k, what, &s); s == "" {
		return 0
	}
	d, ok := parseSpan(s, most)
	if !ok || d < least || d%least != 0 {
		p.f.Add(k.Line, "%s of %s is %s; it must be a whole multiple of %s, up to %s", k.Name, what, limit.Quote(s), limit.ShortDuration(least), limit.ShortDuration(most))
		return 0
	}
	return d
}

func (a *Alert) String() string {
	var parts []string
	switch {
	case a.Quota != "":
		parts = append(parts, "quota "+a.Quota)
	case a.Denials != "":
		parts = append(parts, fmt.Sprintf("denials %s over %s against %s, at least %d", a.Denials, limit.ShortDuration(a.Over), limit.ShortDuration(a.Against), a.Least))
	case a.Amount.Amount > 0:
		parts = append(parts, "spending "+a.Amount.String())
	default:
		parts = append(parts, "spending cap")
	}
	at := make([]string, len(a.At))
	for i, ppm := range a.At {
		at[i] = percent(ppm)
	}
	parts = append(parts, "at "+strings.Join(at, ", "))
	for _, l := range []struct {
		word  string
		names []string
	}{{"plans", a.Plans}, {"tenants", a.Tenants}, {"to", a.Webhooks}} {
		if len(l.names) > 0 {
			parts = append(parts, l.word+" "+strings.Join(l.names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// Percent writes a threshold as a document does.
func Percent(ppm int64) string { return percent(ppm) }

// diffAlerts says what changes in webhooks, alerts and the plans' caps.
func diffAlerts(before, after *Document) (changes []string) {
	each := func(what string, was, is map[string]string) {
		for _, name := range sortedKeys(is) {
			if old, ok := was[name]; !ok {
				changes = append(changes, fmt.Sprintf("%s %s added: %s", what, name, is[name]))
			} else if old != is[name] {
				changes = append(changes, fmt.Sprintf("%s %s: %s → %s", what, name, old, is[name]))
			}
		}
		for _, name := range sortedKeys(was) {
			if _, ok := is[name]; !ok {
				changes = append(changes, fmt.Sprintf("%s %s removed", what, name))
			}
		}
	}
	webhooks := func(d *Document) map[string]string {
		all := map[string]string{}
		for _, w := range d.webhooks {
			all[w.Name] = w.String()
		}
		return all
	}
	alerts := func(d *Document) map[string]string {
		all := map[string]string{}
		for i := range d.alerts {
			all[d.alerts[i].Name] = d.alerts[i].String()
		}
		return all
	}
	each("webhook", webhooks(before), webhooks(after))
	each("alert", alerts(before), alerts(after))
	for _, p := range after.policy.Plans {
		changes = append(changes, terms.DiffCapOf("plan "+p.Name, before.caps[p.Name], after.caps[p.Name])...)
	}
	return changes
}
