package policy

import (
	"encoding/json"
	"fmt"
)

// TakenBack says, a sentence each, which settings of a stored tenant were made by hand and are changed by a document
// that says newer. older is the tenant in the document in force; nil if that does not name it. A setting that only
// documents change was not made by hand.
func TakenBack(stored TenantSpec, older *TenantSpec, newer TenantSpec) (said []string) {
	was := TenantSpec{}
	if older != nil {
		was = *older
	}
	add := func(format string, args ...any) {
		said = append(said, fmt.Sprintf("tenant %s: ", stored.ID)+fmt.Sprintf(format, args...))
	}
	if stored.Plan != newer.Plan && stored.Plan != was.Plan {
		add("its plan %s was set by hand; the document makes it %s", stored.Plan, newer.Plan)
	}
	if stored.Parent != newer.Parent && stored.Parent != was.Parent {
		add("its parent %s was set by hand; the document makes it %s", orNone(stored.Parent), orNone(newer.Parent))
	}
	has, had, will := overridesOf(stored), overridesOf(was), overridesOf(newer)
	for _, name := range sortedKeys(has) {
		if has[name] == had[name] || has[name] == will[name] {
			continue
		}
		if will[name] == "" {
			add("its override of limit %s was set by hand; the document takes it back", name)
		} else {
			add("its override of limit %s was set by hand; the document says otherwise", name)
		}
	}
	for _, name := range sortedKeys(will) {
		if has[name] == "" && had[name] != "" {
			add("its override of limit %s was taken back by hand; the document sets it again", name)
		}
	}
	if older == nil && len(said) > 0 {
		said = append([]string{fmt.Sprintf("tenant %s was not made by the document in force; this one says what it has from now on", stored.ID)}, said...)
	}
	return said
}

// overridesOf are a tenant's overrides by their limits, as a store keeps each.
func overridesOf(s TenantSpec) map[string]string {
	all := make(map[string]string)
	for i := range s.Overrides {
		text, err := json.Marshal(s.Overrides[i])
		if err != nil {
			panic(err) // strings, numbers and lists of them
		}
		all[s.Overrides[i].Name] = string(text)
	}
	return all
}
