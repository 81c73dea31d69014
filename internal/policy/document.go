package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
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
	p := &parser{f: &faults{file: file}, doc: &Document{file: file, text: string(data)}}
	if n := root(p.f, data); n != nil {
		p.document(n)
	} else if len(p.f.list) == 0 {
		p.f.add(1, "the document is empty; it needs plans, at least")
	}
	if err := p.f.err(); err != nil {
		return nil, err
	}
	p.doc.doubts = p.f.warnings
	return p.doc, nil
}

// Warnings returns what the document may say and cannot mean, by line. It is no reason to refuse one: versions that are stored say it too.
func (d *Document) Warnings() Faults { return d.doubts }

// File returns the name the document was read under.
func (d *Document) File() string { return d.file }

// Text returns the document as it was written.
func (d *Document) Text() string { return d.text }

// Policy returns what the document says, as that version. The caller must not
// change what it points to.
func (d *Document) Policy(version int64) *limit.Policy {
	p := d.policy
	p.Version = version
	return &p
}

// TenantSpecs returns the tenants the document names, by id, as written.
func (d *Document) TenantSpecs() []TenantSpec { return d.tenants }

// Tenants returns the tenants the document names, by id, with their overrides
// compiled; their Revision is 0.
func (d *Document) Tenants() []limit.Tenant {
	tenants := make([]limit.Tenant, len(d.tenants))
	for i := range d.tenants {
		tenants[i], _ = d.tenant(&d.tenants[i]) // validated by Parse
	}
	return tenants
}

// Tenant compiles a stored tenant against this document. The error wraps
// fault.ErrInvalid when the document lacks its plan, or its overrides do not fit the plan.
func (d *Document) Tenant(s TenantSpec) (limit.Tenant, error) {
	f := &faults{file: "tenant"}
	t := d.check(f, &s)
	if len(f.list) > 0 {
		return t, fmt.Errorf("%w: %s", fault.ErrInvalid, f.list[0].Message)
	}
	return t, nil
}

// overrideProblem is a problem with one of a tenant's overrides.
type overrideProblem struct {
	spec *LimitSpec
	problem
}

// tenant compiles s; its plan is known.
func (d *Document) tenant(s *TenantSpec) (limit.Tenant, []overrideProblem) {
	t := limit.Tenant{ID: s.ID, Exists: true, Plan: s.Plan, Parent: s.Parent}
	plan := d.policy.Plan(s.Plan)
	var problems []overrideProblem
	bad := func(o *LimitSpec, key, format string, args ...any) {
		problems = append(problems, overrideProblem{o, problem{key, fmt.Sprintf(format, args...)}})
	}
	for i := range s.Overrides {
		o := &s.Overrides[i]
		at := place{tenant: true, zone: d.zone}
		if plan != nil {
			for j := range plan.Limits {
				if plan.Limits[j].Name == o.Name {
					at.base = &plan.Limits[j]
				}
			}
		}
		for _, top := range d.policy.Limits {
			if top.Name == o.Name {
				bad(o, "name", "the policy's top level has a limit of that name, which a tenant cannot override; choose another name")
			}
		}
		l, found := o.compile(at)
		for _, p := range found {
			problems = append(problems, overrideProblem{o, p})
		}
		t.Overrides = append(t.Overrides, l)
	}
	if len(problems) > 0 || plan == nil {
		return t, problems
	}
	limits, _ := d.policy.TenantLimits(t)
	if len(limits) > limit.MaxPlanLimits {
		bad(&s.Overrides[0], "", "with its overrides the tenant has %d limits; at most %d are allowed", len(limits), limit.MaxPlanLimits)
	}
	feeds := make(map[string]string)
	for _, l := range d.policy.Limits {
		if l.Meter != "" {
			feeds[l.Meter] = l.Name
		}
	}
	for _, l := range limits {
		if l.Meter == "" {
			continue
		}
		if other, ok := feeds[l.Meter]; ok {
			for i := range s.Overrides {
				if o := &s.Overrides[i]; o.Name == l.Name || o.Name == other {
					bad(o, "meter", "meter %s is fed by limit %s already; a meter is fed by one limit", l.Meter, otherThan(o.Name, l.Name, other))
					break
				}
			}
		}
		feeds[l.Meter] = l.Name
	}
	return t, problems
}

func otherThan(name, a, b string) string {
	if a == name {
		return b
	}
	return a
}

// check compiles s and reports what does not fit.
func (d *Document) check(f *faults, s *TenantSpec) limit.Tenant {
	if d.policy.Plan(s.Plan) == nil {
		f.add(s.at("plan"), "tenant %s: there is no plan %s; %s", s.ID, limit.Quote(s.Plan), d.plansAre())
		return limit.Tenant{ID: s.ID}
	}
	t, problems := d.tenant(s)
	for _, p := range problems {
		p.spec.report(f, "tenant "+s.ID+": ", []problem{p.problem})
	}
	return t
}

func (s *TenantSpec) at(key string) int {
	if line, ok := s.lines[key]; ok {
		return line
	}
	return s.line
}

// At are sentences about a tenant that the document names, at the line that names it.
func (d *Document) At(s *TenantSpec, sentences []string) (all Faults) {
	for _, said := range sentences {
		all = append(all, Fault{File: d.file, Line: s.line, Message: said})
	}
	return all
}

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

// currency is that of a plan's price; empty for none.
func (d *Document) currency(plan string) string {
	if price := d.prices[plan]; price != nil {
		return price.Currency
	}
	return ""
}

// parser reads a document into doc and what is wrong with it into f.
type parser struct {
	f   *faults
	doc *Document
}

func (p *parser) document(n *yaml.Node) {
	d, f := p.doc, p.f
	d.policy.Slot = DefaultSlot
	if n.Kind != yaml.MappingNode {
		f.add(n.Line, "the document must be a mapping of keys to values, not %s", kind(n))
		return
	}
	fields := mapping(f, n, "the document")
	at := make(map[string]field)
	for _, fd := range fields {
		at[fd.name] = fd
		switch fd.name {
		case "gateways", "limits", "plans", "tenants", "default_plan", "slot", "zone", "webhooks", "alerts":
		default:
			unknown(f, fd, "the document", "gateways", "limits", "plans", "tenants", "default_plan", "slot", "zone", "webhooks", "alerts")
		}
	}
	// The zone comes first, for it is a default of the limits; plans before what refers to them.
	if fd, ok := at["zone"]; ok {
		if z, ok := text(f, fd.node, "zone"); ok {
			if _, err := limit.LoadZone(z); err != nil {
				f.add(fd.line, "zone: %v", err)
			} else {
				d.zone = canonicalZone(z)
			}
		}
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
		d.policy.Limits = p.limits(fd.node, "limits", "", true, limit.MaxTopLimits, top, nil)
	}
	if fd, ok := at["plans"]; ok {
		p.plans(fd, top)
	}
	if len(d.policy.Plans) == 0 && len(f.list) == 0 {
		f.add(n.Line, "the document has no plans; a tenant is admitted under a plan, so give it one")
	}
	if fd, ok := at["default_plan"]; ok {
		if s, ok := text(f, fd.node, "default_plan"); ok {
			if d.policy.Plan(s) == nil {
				f.add(fd.line, "default_plan: there is no plan %s; %s", limit.Quote(s), d.plansAre())
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

func (p *parser) slot(fd field) {
	s, ok := text(p.f, fd.node, "slot")
	if !ok {
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d%time.Second != 0 || time.Hour%d != 0 {
		p.f.add(fd.line, "slot is %s; it must be whole seconds that divide an hour, such as 1m, 5m, 15m or 1h", limit.Quote(s))
		return
	}
	p.doc.policy.Slot = d
}

func (p *parser) gateways(fd field) {
	f := p.f
	gateways := mapping(f, fd.node, "gateways")
	if len(gateways) > MaxGateways {
		f.add(fd.line, "gateways has %d elements; at most %d are allowed", len(gateways), MaxGateways)
	}
	domains := make(map[string]string)
	for _, g := range gateways {
		if !limit.ValidName(g.name) {
			f.add(g.line, "%s is not a name; a gateway's name has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(g.name), limit.MaxNameLen)
		}
		out := limit.Gateway{Name: g.name}
		what := "gateway " + g.name
		if isNull(g.node) {
			f.add(g.line, "%s says nothing; give it descriptors", what)
		}
		keys := mapping(f, g.node, what)
		if !slices.ContainsFunc(keys, func(fd field) bool { return fd.name == "domain" }) {
			if other, ok := domains[""]; ok {
				f.add(g.line, "%s has no domain, and neither has gateway %s; only one can be for any domain", what, other)
			}
			domains[""] = g.name
		}
		for _, fd := range keys {
			switch fd.name {
			case "domain":
				if s, ok := text(f, fd.node, "domain of "+what); ok {
					if s == "" || !limit.ValidValue(s) {
						f.add(fd.line, "domain of %s must have 1 to %d bytes without control characters", what, limit.MaxValueLen)
					}
					if other, ok := domains[s]; ok {
						f.add(fd.line, "%s has the domain %s, which gateway %s has already", what, limit.Quote(s), other)
					}
					domains[s] = g.name
					out.Domain = s
				}
			case "descriptors":
				entries := mapping(f, fd.node, "descriptors of "+what)
				if len(entries) > MaxDescriptors {
					f.add(fd.line, "descriptors of %s has %d entries; at most %d are allowed", what, len(entries), MaxDescriptors)
				}
				out.Descriptors = make(map[string]string, len(entries))
				for _, e := range entries {
					if e.name == "" || !limit.ValidValue(e.name) {
						f.add(e.line, "a descriptor of %s must have 1 to %d bytes without control characters", what, limit.MaxValueLen)
					}
					if header, ok := strings.CutPrefix(strings.ToLower(e.name), "header:"); ok && (header == "" || "header:"+header != e.name) {
						f.add(e.line, "descriptor %s of %s: write header: and a header's name in lower case, such as header:x-tenant", limit.Quote(e.name), what)
					}
					if to, ok := name(f, e.node, fmt.Sprintf("the attribute of descriptor %s", limit.Quote(e.name))); ok {
						out.Descriptors[e.name] = to
					}
				}
			case "after":
				out.After = p.after(fd, what)
			default:
				unknown(f, fd, what, "domain", "descriptors", "after")
			}
		}
		if len(out.After) > 0 && len(out.Descriptors) == 0 {
			f.add(g.line, "%s has after and no descriptors: nothing of its calls is known; give it descriptors", what)
		}
		p.doc.policy.Gateways = append(p.doc.policy.Gateways, out)
	}
}

// after reads the descriptor keys that tell of usage which happened already.
func (p *parser) after(fd field, what string) (keys []string) {
	f := p.f
	for _, n := range items(f, fd.node, "after of "+what, MaxDescriptors) {
		key, ok := text(f, n, "after of "+what)
		switch {
		case !ok:
		case key == "" || !limit.ValidValue(key):
			f.add(n.Line, "after of %s names descriptor keys; each has 1 to %d bytes without control characters", what, limit.MaxValueLen)
		case strings.HasPrefix(strings.ToLower(key), "header:"):
			f.add(n.Line, "after of %s has %s; it names keys of descriptors, which headers are not", what, limit.Quote(key))
		case slices.Contains(keys, key):
			f.add(n.Line, "after of %s has %s twice", what, limit.Quote(key))
		default:
			keys = append(keys, key)
		}
	}
	return keys
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
	for _, e := range items(f, n, what, most) {
		s := readLimit(f, e)
		if s.Name == "" {
			continue
		}
		s.undated(f, prefix)
		line := s.lines["name"]
		if first, ok := names[s.Name]; ok {
			f.add(line, "%slimit %s is there twice; the first is on line %d", prefix, s.Name, first)
			continue
		}
		names[s.Name] = line
		if first, ok := topNames[s.Name]; ok && !top {
			f.add(line, "%slimit %s has the name of a limit of the top level (line %d); names tell buckets apart, so choose another", prefix, s.Name, first)
		}
		if top {
			topNames[s.Name] = line
		}
		l, problems := s.compile(place{top: top, zone: p.doc.zone})
		s.report(f, prefix, problems)
		if l.Meter != "" {
			other, twice := meters[l.Meter]
			if !twice {
				other, twice = topMeters[l.Meter]
			}
			if twice {
				f.add(s.lines["meter"], "%slimit %s: meter %s is fed by limit %s already; a meter is fed by one limit", prefix, s.Name, l.Meter, other)
			} else {
				meters[l.Meter] = s.Name
			}
		}
		limits = append(limits, l) // faulty or not: what refers to it is checked too
	}
	return limits
}

func (p *parser) plans(fd field, top map[string]int) {
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
	plans := mapping(f, fd.node, "plans")
	if len(plans) > limit.MaxPlans {
		f.add(fd.line, "plans has %d elements; at most %d are allowed", len(plans), limit.MaxPlans)
	}
	for _, e := range plans {
		if !limit.ValidName(e.name) {
			f.add(e.line, "%s is not a name; a plan's name has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(e.name), limit.MaxNameLen)
		}
		plan := limit.Plan{Name: e.name}
		var priced, capped *field
		what := "plan " + e.name
		if isNull(e.node) {
			f.add(e.line, "%s says nothing; give it limits, or write limits: [] for none", what)
		}
		for _, fd := range mapping(f, e.node, what) {
			switch fd.name {
			case "limits":
				plan.Limits = p.limits(fd.node, "limits of "+what, e.name, false, limit.MaxPlanLimits, top, topMeters)
			case "price":
				priced = &fd
			case "spending_cap":
				capped = &fd
			default:
				unknown(f, fd, what, "limits", "price", "spending_cap")
			}
		}
		if priced != nil { // once its meters are known
			if price := p.price(*priced, e.name, plan.Limits); price != nil {
				d.prices[e.name] = price
			}
		}
		if capped != nil { // once the plan's currency is known
			d.caps[e.name] = p.spendingCap(*capped, what, d.currency(e.name), false)
		}
		met := always
		for _, l := range plan.Limits {
			if len(l.Match) == 0 {
				met++
			}
		}
		if met > limit.MaxPerRequest {
			f.add(e.line, "%s: every request would meet %d limits; at most %d are allowed", what, met, limit.MaxPerRequest)
		}
		d.policy.Plans = append(d.policy.Plans, plan)
	}
}

func (p *parser) tenants(fd field) {
	f, d := p.f, p.doc
	first := make(map[string]*TenantSpec)
	list := items(f, fd.node, "tenants", MaxTenants)
	specs := make([]TenantSpec, 0, len(list)) // never grows: first points into it
	for _, e := range list {
		s, ok := p.tenant(e)
		if !ok {
			continue
		}
		if other, ok := first[s.ID]; ok {
			f.add(s.line, "tenant %s is there twice; the first is on line %d", s.ID, other.line)
			continue
		}
		specs = append(specs, s)
		first[s.ID] = &specs[len(specs)-1]
	}
	for i := range specs {
		s := &specs[i]
		if s.Plan != "" {
			d.check(f, s)
		}
		if s.Parent == "" && s.Billing.ParentPays {
			f.add(s.at("billing"), "tenant %s: it has no parent that could pay for it; give it one, or leave pays out", s.ID)
		}
		if s.Parent != "" && first[s.Parent] == nil {
			f.add(s.at("parent"), "tenant %s: its parent %s is not in the document", s.ID, limit.Quote(s.Parent))
		}
	}
	for i := range specs {
		levels, at := 1, &specs[i]
		for at.Parent != "" && first[at.Parent] != nil && levels <= limit.MaxTenantLevels {
			at = first[at.Parent]
			levels++
			if at == &specs[i] {
				f.add(at.at("parent"), "tenant %s is its own ancestor; parents must not form a circle", at.ID)
				break
			}
		}
		if levels > limit.MaxTenantLevels && at != &specs[i] {
			f.add(specs[i].at("parent"), "tenant %s is more than %d levels deep, itself and its root counted", specs[i].ID, limit.MaxTenantLevels)
		}
	}
	slices.SortFunc(specs, func(a, b TenantSpec) int { return compare(a.ID, b.ID) })
	d.tenants = specs
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (p *parser) tenant(n *yaml.Node) (TenantSpec, bool) {
	f := p.f
	var capped *field
	s := TenantSpec{line: n.Line, lines: make(map[string]int)}
	if isNull(n) {
		f.add(n.Line, "a tenant must be a mapping of keys to values, not nothing")
		return s, false
	}
	what := "a tenant"
	for _, fd := range mapping(f, n, what) {
		s.lines[fd.name] = fd.line
		switch fd.name {
		case "id":
			id, ok := text(f, fd.node, "id of a tenant")
			if !ok {
				continue
			}
			if !limit.ValidTenant(id) {
				f.add(fd.line, "%s is not a tenant's id; it has %s", limit.Quote(id), limit.TenantForm)
				continue
			}
			s.ID, what = id, "tenant "+id
		case "plan":
			s.Plan, _ = name(f, fd.node, "the plan of "+what)
		case "parent":
			s.Parent, _ = text(f, fd.node, "the parent of "+what)
		case "limits":
			names := make(map[string]int)
			for _, e := range items(f, fd.node, "limits of "+what, limit.MaxPlanLimits) {
				o := readLimit(f, e)
				if o.Name == "" {
					continue
				}
				if first, ok := names[o.Name]; ok {
					f.add(o.lines["name"], "%s: limit %s is there twice; the first is on line %d", what, o.Name, first)
					continue
				}
				names[o.Name] = o.lines["name"]
				o.dated(f, what)
				s.Overrides = append(s.Overrides, o)
			}
		case "billing":
			s.Billing = readBilling(f, fd.node, fd.line, what)
		case "spending_cap":
			capped = &fd
		default:
			unknown(f, fd, what, "id", "plan", "parent", "limits", "billing", "spending_cap")
		}
	}
	if capped != nil { // once its plan is known
		s.Cap = p.spendingCap(*capped, what, p.doc.currency(s.Plan), true)
	}
	if n.Kind != yaml.MappingNode {
		return s, false
	}
	if _, ok := s.lines["id"]; !ok {
		f.add(n.Line, "a tenant has no id; give it one")
	}
	if _, ok := s.lines["plan"]; !ok {
		f.add(n.Line, "%s has no plan; give it one", what)
	}
	return s, s.ID != ""
}
