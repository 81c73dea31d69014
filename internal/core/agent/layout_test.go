//go:build !interleave

package agent

import (
	"testing"
	"unsafe"
)

// What a decision reads lies in whole cache lines: sizes are those of allocation
// classes that are aligned to them. Where the orders of operations are tested, what is shared has others in its place.
func TestLayout(t *testing.T) {
	var e Entry
	var s Set
	var n Tenant
	var known Resolution
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"an entry", unsafe.Sizeof(e), 80},
		{"where an entry's values are", unsafe.Offsetof(entryOf[[16]byte]{}.values), unsafe.Sizeof(e)},
		{"where an entry has its values from", unsafe.Offsetof(entryOf[string]{}.values), unsafe.Sizeof(e)},
		{"a group of the table", unsafe.Sizeof(group[Entry]{}), 64},
		{"a cell", unsafe.Sizeof(cell{}), 64},
		{"what requests touch", unsafe.Sizeof(hot{}), 24},
		{"what requests touch, in a cell", unsafe.Offsetof(cell{}.hot), 0},
		{"a group of the memo", unsafe.Sizeof(memoGroup{}), 64},
		{"what asking needs of a resolution", unsafe.Offsetof(known.entries), 64},
		{"a resolution", unsafe.Sizeof(known), 128},
		{"a set", unsafe.Sizeof(s), 128},
		{"a set's hot part", unsafe.Offsetof(s.Trial), 64},
		{"a tenant's hot part", max(unsafe.Offsetof(n.touched)+1, 64), 64},
		{"the rest of a tenant's last line", unsafe.Sizeof(n) % 64, 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, c.got, c.want)
		}
	}
}
