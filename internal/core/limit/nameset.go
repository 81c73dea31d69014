package limit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxNames bounds the patterns of Names.
const MaxNames = 64

// Names is a set of names. A pattern gives one name ("acme"), or all with a prefix ("acme/*"). The zero Names
// holds none.
type Names struct {
	exact    map[string]struct{}
	prefixes []string
}

// ParseNames reads patterns; valid says what a name is. A lone "*" is refused: to mean all names, give no
// pattern.
func ParseNames(patterns []string, valid func(string) bool) (Names, error) {
	if len(patterns) > MaxNames {
		return Names{}, fmt.Errorf("there are %d names; at most %d are allowed", len(patterns), MaxNames)
	}
	n := Names{exact: make(map[string]struct{})}
	for _, p := range patterns {
		begin, some := strings.CutSuffix(p, "*")
		switch {
		case some && begin != "" && valid(begin+"a"): // it need not be a name itself: umbrella/
			n.prefixes = append(n.prefixes, begin)
		case some || !valid(p):
			return Names{}, fmt.Errorf("%s is not a name, nor how names begin followed by *", Quote(p))
		default:
			n.exact[p] = struct{}{}
		}
	}
	return n, nil
}

// Has reports whether s is one of them.
func (n *Names) Has(s string) bool {
	if _, ok := n.exact[s]; ok {
		return true
	}
	for _, p := range n.prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// None reports whether there are none.
func (n *Names) None() bool { return len(n.exact) == 0 && len(n.prefixes) == 0 }

// Split returns the names that are given whole, sorted, and how the others begin.
func (n *Names) Split() (exact, prefixes []string) {
	return slices.Sorted(maps.Keys(n.exact)), slices.Clone(n.prefixes)
}
