package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

func (p *parser) gateways(fd strict.Field) {
	f := p.f
	gateways := strict.Mapping(f, fd.Node, "gateways")
	if len(gateways) > MaxGateways {
		f.Add(fd.Line, "gateways has %d elements; at most %d are allowed", len(gateways), MaxGateways)
	}
	domains := make(map[string]string)
	for _, g := range gateways {
		if !limit.ValidName(g.Name) {
			f.Add(g.Line, "%s is not a name; a gateway's name has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(g.Name), limit.MaxNameLen)
		}
		out := limit.Gateway{Name: g.Name}
		what := "gateway " + g.Name
		if strict.IsNull(g.Node) {
			f.Add(g.Line, "%s says nothing; give it descriptors", what)
		}
		keys := strict.Mapping(f, g.Node, what)
		if !slices.ContainsFunc(keys, func(fd strict.Field) bool { return fd.Name == "domain" }) {
			if other, ok := domains[""]; ok {
				f.Add(g.Line, "%s has no domain, and neither has gateway %s; only one can be for any domain", what, other)
			}
			domains[""] = g.Name
		}
		for _, fd := range keys {
			switch fd.Name {
			case "domain":
				if s, ok := strict.Text(f, fd.Node, "domain of "+what); ok {
					if s == "" || !limit.ValidValue(s) {
						f.Add(fd.Line, "domain of %s must have 1 to %d bytes without control characters", what, limit.MaxValueLen)
					}
					if other, ok := domains[s]; ok {
						f.Add(fd.Line, "%s has the domain %s, which gateway %s has already", what, limit.Quote(s), other)
					}
					domains[s] = g.Name
					out.Domain = s
				}
			case "descriptors":
				entries := strict.Mapping(f, fd.Node, "descriptors of "+what)
				if len(entries) > MaxDescriptors {
					f.Add(fd.Line, "descriptors of %s has %d entries; at most %d are allowed", what, len(entries), MaxDescriptors)
				}
				out.Descriptors = make(map[string]string, len(entries))
				for _, e := range entries {
					if e.Name == "" || !limit.ValidValue(e.Name) {
						f.Add(e.Line, "a descriptor of %s must have 1 to %d bytes without control characters", what, limit.MaxValueLen)
					}
					if header, ok := strings.CutPrefix(strings.ToLower(e.Name), "header:"); ok && (header == "" || "header:"+header != e.Name) {
						f.Add(e.Line, "descriptor %s of %s: write header: and a header's name in lower case, such as header:x-tenant", limit.Quote(e.Name), what)
					}
					if to, ok := strict.Name(f, e.Node, fmt.Sprintf("the attribute of descriptor %s", limit.Quote(e.Name))); ok {
						out.Descriptors[e.Name] = to
					}
				}
			case "after":
				out.After = p.after(fd, what)
			case "hits":
				out.Hits = p.hits(fd, what)
			default:
				strict.Unknown(f, fd, what, "domain", "descriptors", "after", "hits")
			}
		}
		if len(out.After) > 0 && len(out.Descriptors) == 0 {
			f.Add(g.Line, "%s has after and no descriptors: nothing of its calls is known; give it descriptors", what)
		}
		p.doc.policy.Gateways = append(p.doc.policy.Gateways, out)
	}
}

// after reads the descriptor keys that report usage after the fact.
func (p *parser) after(fd strict.Field, what string) (keys []string) {
	f := p.f
	for _, n := range strict.Items(f, fd.Node, "after of "+what, MaxDescriptors) {
		key, ok := strict.Text(f, n, "after of "+what)
		switch {
		case !ok:
		case key == "" || !limit.ValidValue(key):
			f.Add(n.Line, "after of %s names descriptor keys; each has 1 to %d bytes without control characters", what, limit.MaxValueLen)
		case strings.HasPrefix(strings.ToLower(key), "header:"):
			f.Add(n.Line, "after of %s has %s; it names keys of descriptors, which headers are not", what, limit.Quote(key))
		case slices.Contains(keys, key):
			f.Add(n.Line, "after of %s has %s twice", what, limit.Quote(key))
		default:
			keys = append(keys, key)
		}
	}
	return keys
}

// hits reads what descriptors' hits are units of: a cost, or costs by descriptor keys.
func (p *parser) hits(fd strict.Field, what string) map[string]string {
	f, what := p.f, "hits of "+what
	if fd.Node.Kind != yaml.MappingNode {
		return map[string]string{"": p.hit(fd.Node, what)}
	}
	entries := strict.Mapping(f, fd.Node, what)
	if len(entries) > MaxDescriptors {
		f.Add(fd.Line, "%s has %d entries; at most %d are allowed", what, len(entries), MaxDescriptors)
	}
	hits := make(map[string]string, len(entries))
	for _, e := range entries {
		if e.Name == "" || !limit.ValidValue(e.Name) || strings.HasPrefix(strings.ToLower(e.Name), "header:") {
			f.Add(e.Line, "%s names descriptor keys; each has 1 to %d bytes without control characters, and no header: before it", what, limit.MaxValueLen)
		}
		hits[e.Name] = p.hit(e.Node, what)
	}
	return hits
}

// hit reads the name of a cost.
func (p *parser) hit(n *yaml.Node, what string) string {
	name, ok := strict.Name(p.f, n, what)
	if ok && name != limit.Requests && !slices.Contains(p.doc.policy.Costs, name) {
		p.f.Add(n.Line, "%s names %s, which costs does not list", what, limit.Quote(name))
	}
	return name
}
