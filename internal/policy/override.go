package policy

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

// LimitChange is the effect of setting a tenant's override.
type LimitChange struct {
	Tenant   limit.Tenant
	Changed  bool     // false when the tenant has it so already
	Changes  []string // the difference, a sentence each
	Warnings []string // what will take it back, a sentence each
}

// ParseOverride reads a tenant's override of the limit of that name. values has, by key, what a document writes after
// the key, in YAML. The error wraps fault.ErrInvalid and lists all faults. Document.Tenant says whether the override
// fits the tenant's plan.
func ParseOverride(name string, values map[string]string) (LimitSpec, error) {
	f := &strict.Collector{File: "override"}
	if len(values) == 0 {
		f.Add(1, "the override of limit %s says nothing; give it a rate, at least", limit.Quote(name))
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Line: 1}
	put := func(key string, value *yaml.Node) {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: 1}, value)
	}
	put("name", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: 1})
	for _, key := range sortedKeys(values) {
		before := len(f.List)
		value := strict.Root(f, []byte(values[key]))
		switch {
		case len(f.List) > before:
			f.List[before].Message = fmt.Sprintf("%s of limit %s: %s", limit.Quote(key), name, f.List[before].Message)
		case value == nil:
			f.Add(1, "%s of limit %s is empty; leave it out or give it a value", limit.Quote(key), name)
		default:
			put(key, value)
		}
	}
	s := readLimit(f, n)
	s.dated(f, "the override")
	if len(f.List) == 0 {
		return s, nil
	}
	var all []string
	for _, fault := range f.List {
		all = append(all, fault.Message)
	}
	return LimitSpec{}, fmt.Errorf("%w: %s", fault.ErrInvalid, strings.Join(all, "; "))
}
