package policy

import (
	"sort"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

// LimitSpec is a limit as a document writes it. An empty field (of lists, mappings and numbers: nil) takes its default.
// In a tenant's override it takes the value of the plan's limit of that name. Stores keep overrides as its JSON, so
// that they follow the plan when it changes. A key that came later is left out while it is empty, so that stored text
// reads as before.
type LimitSpec struct {
	Name         string              `json:"name"`
	Match        map[string][]string `json:"match"`
	By           []string            `json:"by"`
	Algorithm    string              `json:"algorithm,omitempty"`
	Rate         string              `json:"rate,omitempty"`
	Burst        *int64              `json:"burst,omitempty"`
	Meter        string              `json:"meter,omitempty"`
	Zone         string              `json:"zone,omitempty"`
	OnOutage     string              `json:"on_outage,omitempty"`
	Enforcement  string              `json:"enforcement,omitempty"`
	Epsilon      string              `json:"epsilon,omitempty"`
	Slots        *int64              `json:"slots,omitempty"`
	Queue        *int64              `json:"queue,omitempty"`
	Wait         string              `json:"wait,omitempty"`
	Overage      string              `json:"overage,omitempty"`
	Borrow       *int64              `json:"borrow,omitempty"`
	Lockout      string              `json:"lockout,omitempty"`
	Shadow       *bool               `json:"shadow,omitempty"`
	Allow        map[string][]string `json:"allow,omitzero"`
	Deny         map[string][]string `json:"deny,omitzero"`
	Reserve      *ReserveSpec        `json:"reserve,omitempty"`
	Variants     []VariantSpec       `json:"variants,omitzero"`
	FirstTouch   string              `json:"first_touch,omitempty"`
	FallbackHold string              `json:"fallback_hold,omitempty"`
	OnChange     string              `json:"on_change,omitempty"`
	Cost         *CostSpec           `json:"cost,omitempty"`
	// From and Until are when a tenant's override is in effect, Unix milliseconds; 0 for always.
	From  int64 `json:"from,omitempty"`
	Until int64 `json:"until,omitempty"`

	line  int
	lines map[string]int // of its keys
}

// ReserveSpec is a limit's reserve as a document writes it: percentages; empty for none.
type ReserveSpec struct {
	Low    string `json:"low,omitempty"`
	Normal string `json:"normal,omitempty"`
}

// VariantSpec is one of a limit's variants as a document writes it.
type VariantSpec struct {
	Name  string `json:"name"`
	Share string `json:"share"`
	Rate  string `json:"rate,omitempty"`
	Burst *int64 `json:"burst,omitempty"`
	Slots *int64 `json:"slots,omitempty"`
}

// given says which keys that shape a limit are written. These are all keys but the name, match, by, cost and meter.
func (s *LimitSpec) given() map[string]bool {
	all := map[string]bool{
		"algorithm": s.Algorithm != "", "rate": s.Rate != "", "burst": s.Burst != nil, "zone": s.Zone != "",
		"on_outage": s.OnOutage != "", "enforcement": s.Enforcement != "", "epsilon": s.Epsilon != "",
		"slots": s.Slots != nil, "queue": s.Queue != nil, "wait": s.Wait != "", "overage": s.Overage != "",
		"borrow": s.Borrow != nil, "lockout": s.Lockout != "", "shadow": s.Shadow != nil,
		"allow": s.Allow != nil, "deny": s.Deny != nil, "reserve": s.Reserve != nil, "variants": s.Variants != nil,
		"first_touch": s.FirstTouch != "", "fallback_hold": s.FallbackHold != "", "on_change": s.OnChange != "",
	}
	for key, given := range all {
		if !given {
			delete(all, key)
		}
	}
	return all
}

// problem is a fault of one key of a limit.
type problem struct {
	key  string // of LimitSpec.lines; empty for the limit as a whole
	text string
}

func (s *LimitSpec) report(f *strict.Collector, what string, problems []problem) {
	for _, p := range problems {
		line, ok := s.lines[p.key]
		if !ok {
			line = s.line
		}
		f.Add(line, "%slimit %s: %s", what, s.Name, p.text)
	}
}

// place says where a limit stands, which decides its defaults and what it may say.
type place struct {
	top    bool         // at the policy's top level; otherwise of a plan or a tenant
	tenant bool         // one of a tenant's
	base   *limit.Limit // what an override changes; nil for a limit of its own
	zone   string       // the document's default zone
	costs  []string     // that the document names
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
