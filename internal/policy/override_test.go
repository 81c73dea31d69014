package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/fault"
)

// What is wrong with an override that comes by the API is said in the words of a document's faults.
func TestParseOverride(t *testing.T) {
	for _, c := range []struct {
		name   string
		values map[string]string
		want   string // empty: it is right
	}{
		{"requests", map[string]string{"rate": "5000/hour", "burst": "7", "by": "[user, ip/24]", "match": `{endpoint: "POST /a*"}`, "from": "2026-12-01", "until": "2026-12-02T00:00:00+01:00"}, ""},
		{"requests", map[string]string{"allow": "{}", "reserve": "{low: 20%}", "shadow": "false", "overage": "20%"}, ""},
		{"requests", nil, "says nothing"},
		{"re quests", map[string]string{"rate": "1/s"}, "is not a name"},
		{"requests", map[string]string{"rates": "1/s"}, "unknown key \"rates\""},
		{"requests", map[string]string{"name": "other"}, "the key \"name\" twice"},
		{"requests", map[string]string{"rate": ""}, "is empty"},
		{"requests", map[string]string{"burst": "0"}, "1 to 1000000000"},
		{"requests", map[string]string{"burst": "1e3"}, "1 to 1000000000"},
		{"requests", map[string]string{"rate": "[1]"}, "must be a word, not a list"},
		{"requests", map[string]string{"by": "*user"}, "\"by\" of limit requests: this is not YAML"},
		{"requests", map[string]string{"match": "{a: b"}, "\"match\" of limit requests: this is not YAML"},
		{"requests", map[string]string{"rate": "a\n---\nb"}, "one document"},
		{"requests", map[string]string{"from": "2026-12-02", "until": "2026-12-01"}, "ends before it begins"},
		{"requests", map[string]string{"burst": "0", "rates": "1/s"}, "1 to 1000000000; unknown key"},
	} {
		s, err := ParseOverride(c.name, c.values)
		switch {
		case c.want == "" && (err != nil || s.Name != c.name):
			t.Errorf("%v: %v", c.values, err)
		case c.want != "" && (!errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want %q", c.values, err, c.want)
		}
	}
}
