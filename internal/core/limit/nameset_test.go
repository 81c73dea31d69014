package limit

import "testing"

func TestNames(t *testing.T) {
	n, err := ParseNames([]string{"acme", "umbrella/*"}, ValidTenant)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"acme": true, "acme2": false, "acm": false, "umbrella/web": true, "umbrella/": true, "umbrella": false, "": false, "umbrella/*": true} {
		if got := n.Has(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
	for _, bad := range [][]string{{"*"}, {""}, {"a b"}, {"a*b"}, {"a**"}, make([]string, MaxNames+1)} {
		if _, err := ParseNames(bad, ValidTenant); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
