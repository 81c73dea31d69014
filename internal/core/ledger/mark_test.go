package ledger

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// Every real row's mark can be sent back, whatever characters its names have. It has at most MaxMark bytes, and
// is read as it was written.
func TestMarks(t *testing.T) {
	for _, c := range []string{"x", "&", "<", `"`, `\`, "\u2028", AttributeSep} {
		long := func(n int) string { return strings.Repeat(c, n/len(c)) }
		m := &BreakdownMark{
			Height: math.MaxInt64, Start: math.MinInt64,
			Names: []string{long(MaxTenant), long(MaxName), long(MaxName), long(MaxName), long(MaxAttributes), long(MaxAttributes), "", ""},
		}
		if c == AttributeSep {
			m.Names[5] = ""
		}
		text := m.String()
		if len(text) > MaxMark {
			t.Errorf("of %q: %d bytes, and at most %d are taken", c, len(text), MaxMark)
		}
		if got, err := ParseBreakdownMark(text); err != nil || got.Height != m.Height || got.Start != m.Start || !slices.Equal(got.Names, m.Names) {
			t.Errorf("of %q: read otherwise, %v", c, err)
		}
	}
}
