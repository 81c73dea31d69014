package policy

import (
	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// readBilling reads a tenant's billing.
func readBilling(f *faults, n *yaml.Node, line int, what string) (b terms.Billing) {
	what = "billing of " + what
	if isNull(n) {
		f.add(line, "%s says nothing; give it zone, period or pays, or leave it out", what)
	}
	pays := false
	for _, k := range mapping(f, n, what) {
		var s string
		switch k.name {
		case "zone":
			if word(f, k, what, &s); s == "" {
				continue
			}
			if _, err := limit.LoadZone(s); err != nil {
				f.add(k.line, "zone of %s: %v", what, err)
				continue
			}
			b.Zone = canonicalZone(s)
		case "period":
			switch word(f, k, what, &s); s {
			case "", "calendar":
			case "anniversary":
				b.Anniversary = true
			default:
				f.add(k.line, "period of %s is %s; allowed are calendar and anniversary", what, limit.Quote(s))
			}
		case "from":
			b.From = moment(f, k, what)
		case "pays":
			pays = true
			switch word(f, k, what, &s); s {
			case "", "self":
			case "parent":
				b.ParentPays = true
			default:
				f.add(k.line, "pays of %s is %s; allowed are self and parent", what, limit.Quote(s))
			}
		default:
			unknown(f, k, what, "zone", "period", "pays", "from")
		}
	}
	if b.From != 0 && !pays {
		f.add(line, "%s: from says since when pays holds; give it pays: self or pays: parent, or leave from out", what)
	}
	return b
}
