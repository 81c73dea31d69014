package policy

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/prices"
	"github.com/f4ee788f/quota/internal/policy/strict"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Bounds of a document beside its size.
const (
	MaxTenants     = 10_000 // tenants that a document names; more belong in the API
	MaxGateways    = 64
	MaxDescriptors = 64 // of a gateway
	DefaultSlot    = 5 * time.Minute
)

// TenantSpec is a tenant as a document or the API names it: overrides are kept as
// written, and compiled against the plan in force.
type TenantSpec struct {
	ID        string
	Plan      string
	Parent    string // empty at the top
	Overrides []LimitSpec
	Billing   terms.Billing
	Cap       terms.Cap // the zero value for the plan's

	line  int
	lines map[string]int
}

// Document is a policy as it was written: valid, and immutable.
type Document struct {
	file    string
	text    string
	doubts  Faults
	zone    string
	policy  limit.Policy              // version 0
	tenants []TenantSpec              // by id
	prices  map[string]*billing.Price // by plan

	webhooks []Webhook            // by name
	alerts   []Alert              // by name
	caps     map[string]terms.Cap // by plan
}

// Parse reads and validates a document. file is its name in messages. The error is
// Faults: everything that is wrong, by line.
func Parse(file string, data []byte) (*Document, error) {
	if file == "" {
		file = "policy"
	}
	p := &parser{f: &strict.Collector{File: file}, doc: &Document{file: file, text: string(data)}}
	if n := strict.Root(p.f, data); n != nil {
		p.document(n)
	} else if len(p.f.List) == 0 {
		p.f.Add(1, "the document is empty; it needs plans, at least")
	}
	if err := p.f.Err(); err != nil {
		return nil, err
	}
	p.doc.doubts = p.f.Warnings
	return p.doc, nil
}

// Warnings returns, by line, text that is allowed but cannot be meant. It is no reason to refuse a document, because
// stored versions may hold such text too.
func (d *Document) Warnings() Faults { return d.doubts }

// File returns the name the document was read under.
func (d *Document) File() string { return d.file }

// Text returns the document as it was written.
func (d *Document) Text() string { return d.text }

// Policy returns the document's policy under a version's number. The caller must not change what it points to.
func (d *Document) Policy(version int64) *limit.Policy {
	p := d.policy
	p.Version = version
	return &p
}

// TenantSpecs returns the tenants the document names, by id, as written.
func (d *Document) TenantSpecs() []TenantSpec { return d.tenants }

func (d *Document) plansAre() string {
	if len(d.policy.Plans) == 0 {
		return "the document has no plans"
	}
	text := "the plans are "
	for i, p := range d.policy.Plans {
		if i == 20 {
			return text + ", …"
		}
		if i > 0 {
			text += ", "
		}
		text += p.Name
	}
	return text
}

// currency is the currency of a plan's price; empty for none.
func (d *Document) currency(plan string) string {
	if price := d.prices[plan]; price != nil {
		return price.Currency
	}
	return ""
}

// parser reads a document into doc and its faults into f.
type parser struct {
	f   *strict.Collector
	doc *Document
}

func (p *parser) document(n *yaml.Node) {
	d, f := p.doc, p.f
	d.policy.Slot = DefaultSlot
	if n.Kind != yaml.MappingNode {
		f.Add(n.Line, "the document must be a mapping of keys to values, not %s", strict.Kind(n))
		return
	}
	fields := strict.Mapping(f, n, "the document")
	at := make(map[string]strict.Field)
	for _, fd := range fields {
		at[fd.Name] = fd
		switch fd.Name {
		case "gateways", "limits", "plans", "tenants", "default_plan", "slot", "zone", "costs", "webhooks", "alerts":
		default:
			strict.Unknown(f, fd, "the document", "gateways", "limits", "plans", "tenants", "default_plan", "slot", "zone", "costs", "webhooks", "alerts")
		}
	}
	// The zone and costs come first, because limits refer to them. Plans come before everything that refers to them.
	if fd, ok := at["zone"]; ok {
		if z, ok := strict.Text(f, fd.Node, "zone"); ok {
			if _, err := limit.LoadZone(z); err != nil {
				f.Add(fd.Line, "zone: %v", err)
			} else {
				d.zone = canonicalZone(z)
			}
		}
	}
	if fd, ok := at["costs"]; ok {
		p.costs(fd)
	}
	if fd, ok := at["slot"]; ok {
		p.slot(fd)
	}
	if fd, ok := at["gateways"]; ok {
		p.gateways(fd)
	}
	if fd, ok := at["webhooks"]; ok {
		p.webhooks(fd)
	}
	top := make(map[string]int) // line of each limit of the top level
	if fd, ok := at["limits"]; ok {
		d.policy.Limits = p.limits(fd.Node, "limits", "", true, limit.MaxTopLimits, top, nil)
	}
	if fd, ok := at["plans"]; ok {
		p.plans(fd, top)
	}
	if len(d.policy.Plans) == 0 && len(f.List) == 0 {
		f.Add(n.Line, "the document has no plans; a tenant is admitted under a plan, so give it one")
	}
	if fd, ok := at["default_plan"]; ok {
		if s, ok := strict.Text(f, fd.Node, "default_plan"); ok {
			if d.policy.Plan(s) == nil {
				f.Add(fd.Line, "default_plan: there is no plan %s; %s", limit.Quote(s), d.plansAre())
			}
			d.policy.DefaultPlan = s
		}
	}
	if fd, ok := at["alerts"]; ok {
		p.alerts(fd)
	}
	if fd, ok := at["tenants"]; ok {
		p.tenants(fd)
	}
}

func (p *parser) slot(fd strict.Field) {
	s, ok := strict.Text(p.f, fd.Node, "slot")
	if !ok {
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d%time.Second != 0 || time.Hour%d != 0 {
		p.f.Add(fd.Line, "slot is %s; it must be whole seconds that divide an hour, such as 1m, 5m, 15m or 1h", limit.Quote(s))
		return
	}
	p.doc.policy.Slot = d
}

// limits reads a list of limits. plan is empty for the top level, whose names and
// meters a plan's must not repeat.
func (p *parser) limits(n *yaml.Node, what, plan string, top bool, most int, topNames map[string]int, topMeters map[string]string) []limit.Limit {
	f := p.f
	prefix := ""
	if plan != "" {
		prefix = "plan " + plan + ": "
	}
	var limits []limit.Limit
	names := make(map[string]int)
	meters := make(map[string]string)
	for _, e := range strict.Items(f, n, what, most) {
		s := readLimit(f, e)
		if s.Name == "" {
			continue
		}
		s.undated(f, prefix)
		line := s.lines["name"]
		if first, ok := names[s.Name]; ok {
			f.Add(line, "%slimit %s is there twice; the first is on line %d", prefix, s.Name, first)
			continue
		}
		names[s.Name] = line
		if first, ok := topNames[s.Name]; ok && !top {
			f.Add(line, "%slimit %s has the name of a limit of the top level (line %d); names tell buckets apart, so choose another", prefix, s.Name, first)
		}
		if top {
			topNames[s.Name] = line
		}
		l, problems := s.compile(place{top: top, zone: p.doc.zone, costs: p.doc.policy.Costs})
		s.report(f, prefix, problems)
		if l.Meter != "" {
			other, twice := meters[l.Meter]
			if !twice {
				other, twice = topMeters[l.Meter]
			}
			if twice {
				f.Add(s.lines["meter"], "%slimit %s: meter %s is fed by limit %s already; a meter is fed by one limit", prefix, s.Name, l.Meter, other)
			} else {
				meters[l.Meter] = s.Name
			}
		}
		limits = append(limits, l) // faulty or not: what refers to it is checked too
	}
	return limits
}

func (p *parser) plans(fd strict.Field, top map[string]int) {
	f, d := p.f, p.doc
	topMeters := make(map[string]string)
	always := 0
	for _, l := range d.policy.Limits {
		if l.Meter != "" {
			topMeters[l.Meter] = l.Name
		}
		if len(l.Match) == 0 {
			always++
		}
	}
	d.prices, d.caps = make(map[string]*billing.Price), make(map[string]terms.Cap)
	plans := strict.Mapping(f, fd.Node, "plans")
	if len(plans) > limit.MaxPlans {
		f.Add(fd.Line, "plans has %d elements; at most %d are allowed", len(plans), limit.MaxPlans)
	}
	for _, e := range plans {
		if !limit.ValidName(e.Name) {
			f.Add(e.Line, "%s is not a name; a plan's name has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(e.Name), limit.MaxNameLen)
		}
		plan := limit.Plan{Name: e.Name}
		var priced, capped *strict.Field
		what := "plan " + e.Name
		if strict.IsNull(e.Node) {
			f.Add(e.Line, "%s says nothing; give it limits, or write limits: [] for none", what)
		}
		for _, fd := range strict.Mapping(f, e.Node, what) {
			switch fd.Name {
			case "limits":
				plan.Limits = p.limits(fd.Node, "limits of "+what, e.Name, false, limit.MaxPlanLimits, top, topMeters)
			case "price":
				priced = &fd
			case "spending_cap":
				capped = &fd
			default:
				strict.Unknown(f, fd, what, "limits", "price", "spending_cap")
			}
		}
		if priced != nil { // once its meters are known
			if price := prices.Read(p.f, *priced, e.Name, slices.Concat(plan.Limits, p.doc.policy.Limits)); price != nil {
				d.prices[e.Name] = price
			}
		}
		if capped != nil { // once the plan's currency is known
			d.caps[e.Name] = p.spendingCap(*capped, what, d.currency(e.Name), false)
		}
		met := always
		for _, l := range plan.Limits {
			if len(l.Match) == 0 {
				met++
			}
		}
		if met > limit.MaxPerRequest {
			f.Add(e.Line, "%s: every request would meet %d limits; at most %d are allowed", what, met, limit.MaxPerRequest)
		}
		d.policy.Plans = append(d.policy.Plans, plan)
	}
}

// Price returns a plan's price; nil for a plan without one.
func (d *Document) Price(plan string) *billing.Price { return d.prices[plan] }
