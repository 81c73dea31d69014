package policy

import (
	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// readBilling reads a tenant's billing.
func readBilling(f *strict.Collector, n *yaml.Node, line int, what string) (b terms.Billing) {
	what = "billing of " + what
	if strict.IsNull(n) {
		f.Add(line, "%s says nothing; give it zone, period or pays, or leave it out", what)
	}
	pays := false
	for _, k := range strict.Mapping(f, n, what) {
		var s string
		switch k.Name {
		case "zone":
			if strict.Word(f, k, what, &s); s == "" {
				continue
			}
			if _, err := limit.LoadZone(s); err != nil {
				f.Add(k.Line, "zone of %s: %v", what, err)
				continue
			}
			b.Zone = canonicalZone(s)
		case "period":
			switch strict.Word(f, k, what, &s); s {
			case "", "calendar":
			case "anniversary":
				b.Anniversary = true
			default:
				f.Add(k.Line, "period of %s is %s; allowed are calendar and anniversary", what, limit.Quote(s))
			}
		case "from":
			b.From = moment(f, k, what)
		case "pays":
			pays = true
			switch strict.Word(f, k, what, &s); s {
			case "", "self":
			case "parent":
				b.ParentPays = true
			default:
				f.Add(k.Line, "pays of %s is %s; allowed are self and parent", what, limit.Quote(s))
			}
		default:
			strict.Unknown(f, k, what, "zone", "period", "pays", "from")
		}
	}
	if b.From != 0 && !pays {
		f.Add(line, "%s: from says since when pays holds; give it pays: self or pays: parent, or leave from out", what)
	}
	return b
}
