package limit

import "testing"

// Another spelling of a path must not escape its limit.
func TestCleanPath(t *testing.T) {
	for _, test := range []struct{ path, want string }{
		{"", "/"},
		{"/", "/"},
		{"//", "/"},
		{"/orders", "/orders"},
		{"/orders/", "/orders/"},
		{"//orders//", "/orders/"},
		{"/./orders", "/orders"},
		{"/x/../orders/", "/orders/"},
		{"/orders/.", "/orders"},
		{"/../../orders//7", "/orders/7"},
		{"orders", "/orders"},
		{"*", "/*"},
	} {
		if got := CleanPath(test.path); got != test.want {
			t.Errorf("%q: got %q, want %q", test.path, got, test.want)
		}
	}
	for _, p := range []string{"/", "/orders", "/orders/"} {
		if n := testing.AllocsPerRun(100, func() { CleanPath(p) }); n != 0 {
			t.Errorf("%q is clean already: got %v allocations, want none", p, n)
		}
	}
}
