// Package match says which limits hold a request, in what order they are asked, and by what key each finds the request's
// bucket. It is pure. item.go has a compiled limit and its keys, list.go the limits that tenants share, order.go the order.
package match

import (
	"strings"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Item is a limit of a List.
type Item struct {
	// Rule is the limit's rule. Tenants that differ in rate and burst share it.
	Rule *limit.Rule
	// Rank orders by strictness, strictest first, whatever the order of asking.
	Rank uint16
	// Only is the one attribute that tells the limit's buckets apart, uncut; empty for none.
	Only string
	// Own: the tenant's own plan has it, not an ancestor's or the policy's top level.
	Own bool
	// Metered: a meter is fed, this tenant's or, where Inherited, an ancestor's.
	Metered bool
	// Hold: units taken may yet be put back although they are billed, or are billed elsewhere, so they are announced.
	Hold bool
	// Inherited: the limit is an ancestor's and metered there; these units are not billed there.
	Inherited bool
	// Weighs: units may be others than the request's units of requests.
	Weighs bool
	// Slots: units are slots, which the request gives back at its end.
	Slots bool
	// Queues: a request waits its turn.
	Queues bool
	// Vet: the limit's lists, or a reserve, may decide before the bucket does.
	Vet bool
	// Soft: units that the bucket denies may be admitted above it.
	Soft bool
}

func item(h *limit.Held, rank int, tenant string) Item {
	l := &h.Rule.Limit
	it := Item{
		Rule: h.Rule, Rank: uint16(rank), Own: h.Tenant == tenant && tenant != "",
		Vet:    len(l.Allow) > 0 || len(l.Deny) > 0 || l.Reserve != limit.Reserve{},
		Weighs: h.Rule.Weighs(), Slots: l.Slots > 0, Queues: l.Slots > 0 && l.Queue > 0, Soft: h.Rule.Overage() != nil,
	}
	if len(l.By) == 1 && !strings.Contains(l.By[0], "/") {
		it.Only = l.By[0]
	}
	return it
}

// Values returns how many values tell the limit's buckets apart.
func (it *Item) Values() int { return len(it.Rule.Limit.By) }

// sep joins the values of a key; no value may hold it.
const sep = "\x1f"

// AppendKey appends what tells the request's bucket from others of the limit.
func (it *Item) AppendKey(dst []byte, attributes []limit.Attribute) []byte {
	for i := range it.Rule.Limit.By {
		if i > 0 {
			dst = append(dst, sep...)
		}
		dst = it.Rule.AppendValue(dst, i, attributes)
	}
	return dst
}

// Join makes one string of the names of a key's values.
func Join(names []string) string { return strings.Join(names, sep) }

// AppendValues appends the values of a key of at least one.
func AppendValues(to []string, key string) []string {
	for v := range strings.SplitSeq(key, sep) {
		to = append(to, v)
	}
	return to
}

// Value returns one of a key's values.
func Value(key string, i int) string {
	for v := range strings.SplitSeq(key, sep) {
		if i == 0 {
			return v
		}
		i--
	}
	return ""
}

// Lookup returns the first value of that name, empty when there is none.
func Lookup(attributes []limit.Attribute, name string) string {
	for i := range attributes {
		if attributes[i].Name == name {
			return attributes[i].Value
		}
	}
	return ""
}
