package policy

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

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
		at := place{tenant: true, zone: d.zone, costs: d.policy.Costs}
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

// check compiles s and reports overrides that do not fit.
func (d *Document) check(f *strict.Collector, s *TenantSpec) limit.Tenant {
	if d.policy.Plan(s.Plan) == nil {
		f.Add(s.at("plan"), "tenant %s: there is no plan %s; %s", s.ID, limit.Quote(s.Plan), d.plansAre())
		return limit.Tenant{ID: s.ID}
	}
	t, problems := d.tenant(s)
	for _, p := range problems {
		p.spec.report(f, "tenant "+s.ID+": ", []problem{p.problem})
	}
	return t
}

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
	f := &strict.Collector{File: "tenant"}
	t := d.check(f, &s)
	if len(f.List) > 0 {
		return t, fmt.Errorf("%w: %s", fault.ErrInvalid, f.List[0].Message)
	}
	return t, nil
}

func (s *TenantSpec) at(key string) int {
	if line, ok := s.lines[key]; ok {
		return line
	}
	return s.line
}

// At puts sentences about a tenant at the line of the document that names it.
func (d *Document) At(s *TenantSpec, sentences []string) (all Faults) {
	for _, said := range sentences {
		all = append(all, Fault{File: d.file, Line: s.line, Message: said})
	}
	return all
}

func (p *parser) tenants(fd strict.Field) {
	f, d := p.f, p.doc
	first := make(map[string]*TenantSpec)
	list := strict.Items(f, fd.Node, "tenants", MaxTenants)
	specs := make([]TenantSpec, 0, len(list)) // never grows: first points into it
	for _, e := range list {
		s, ok := p.tenant(e)
		if !ok {
			continue
		}
		if other, ok := first[s.ID]; ok {
			f.Add(s.line, "tenant %s is there twice; the first is on line %d", s.ID, other.line)
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
			f.Add(s.at("billing"), "tenant %s: it has no parent that could pay for it; give it one, or leave pays out", s.ID)
		}
		if s.Parent != "" && first[s.Parent] == nil {
			f.Add(s.at("parent"), "tenant %s: its parent %s is not in the document", s.ID, limit.Quote(s.Parent))
		}
	}
	for i := range specs {
		levels, at := 1, &specs[i]
		for at.Parent != "" && first[at.Parent] != nil && levels <= limit.MaxTenantLevels {
			at = first[at.Parent]
			levels++
			if at == &specs[i] {
				f.Add(at.at("parent"), "tenant %s is its own ancestor; parents must not form a circle", at.ID)
				break
			}
		}
		if levels > limit.MaxTenantLevels && at != &specs[i] {
			f.Add(specs[i].at("parent"), "tenant %s is more than %d levels deep, itself and its root counted", specs[i].ID, limit.MaxTenantLevels)
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
	var capped *strict.Field
	s := TenantSpec{line: n.Line, lines: make(map[string]int)}
	if strict.IsNull(n) {
		f.Add(n.Line, "a tenant must be a mapping of keys to values, not nothing")
		return s, false
	}
	what := "a tenant"
	for _, fd := range strict.Mapping(f, n, what) {
		s.lines[fd.Name] = fd.Line
		switch fd.Name {
		case "id":
			id, ok := strict.Text(f, fd.Node, "id of a tenant")
			if !ok {
				continue
			}
			if !limit.ValidTenant(id) {
				f.Add(fd.Line, "%s is not a tenant's id; it has %s", limit.Quote(id), limit.TenantForm)
				continue
			}
			s.ID, what = id, "tenant "+id
		case "plan":
			s.Plan, _ = strict.Name(f, fd.Node, "the plan of "+what)
		case "parent":
			s.Parent, _ = strict.Text(f, fd.Node, "the parent of "+what)
		case "limits":
			names := make(map[string]int)
			for _, e := range strict.Items(f, fd.Node, "limits of "+what, limit.MaxPlanLimits) {
				o := readLimit(f, e)
				if o.Name == "" {
					continue
				}
				if first, ok := names[o.Name]; ok {
					f.Add(o.lines["name"], "%s: limit %s is there twice; the first is on line %d", what, o.Name, first)
					continue
				}
				names[o.Name] = o.lines["name"]
				o.dated(f, what)
				s.Overrides = append(s.Overrides, o)
			}
		case "billing":
			s.Billing = readBilling(f, fd.Node, fd.Line, what)
		case "spending_cap":
			capped = &fd
		default:
			strict.Unknown(f, fd, what, "id", "plan", "parent", "limits", "billing", "spending_cap")
		}
	}
	if capped != nil { // once its plan is known
		s.Cap = p.spendingCap(*capped, what, p.doc.currency(s.Plan), true)
	}
	if n.Kind != yaml.MappingNode {
		return s, false
	}
	if _, ok := s.lines["id"]; !ok {
		f.Add(n.Line, "a tenant has no id; give it one")
	}
	if _, ok := s.lines["plan"]; !ok {
		f.Add(n.Line, "%s has no plan; give it one", what)
	}
	return s, s.ID != ""
}
