package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/core/limit"
)

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
