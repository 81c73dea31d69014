package policy

import (
	"strings"
	"testing"
)

func TestTakenBack(t *testing.T) {
	over := func(rate string) []LimitSpec { return []LimitSpec{{Name: "requests", Rate: rate}} }
	for _, c := range []struct {
		what   string
		stored TenantSpec
		older  *TenantSpec
		newer  TenantSpec
		want   string
	}{
		{"nothing was set by hand", TenantSpec{Plan: "a", Overrides: over("1/s")}, &TenantSpec{Plan: "a", Overrides: over("1/s")}, TenantSpec{Plan: "b"}, ""},
		{"what was set by hand stays", TenantSpec{Plan: "b", Overrides: over("2/s")}, &TenantSpec{Plan: "a"}, TenantSpec{Plan: "b", Overrides: over("2/s")}, ""},
		{"a plan", TenantSpec{Plan: "b"}, &TenantSpec{Plan: "a"}, TenantSpec{Plan: "a"}, "tenant acme: its plan b was set by hand; the document makes it a"},
		{"an override", TenantSpec{Plan: "a", Overrides: over("2/s")}, &TenantSpec{Plan: "a"}, TenantSpec{Plan: "a"}, "tenant acme: its override of limit requests was set by hand; the document takes it back"},
		{"another override", TenantSpec{Plan: "a", Overrides: over("2/s")}, &TenantSpec{Plan: "a", Overrides: over("1/s")}, TenantSpec{Plan: "a", Overrides: over("3/s")}, "tenant acme: its override of limit requests was set by hand; the document says otherwise"},
		{"an override taken back", TenantSpec{Plan: "a"}, &TenantSpec{Plan: "a", Overrides: over("1/s")}, TenantSpec{Plan: "a", Overrides: over("1/s")}, "tenant acme: its override of limit requests was taken back by hand; the document sets it again"},
		{"a tenant made by hand", TenantSpec{Plan: "a", Parent: "p"}, nil, TenantSpec{Plan: "b"}, "tenant acme was not made by the document in force; this one says what it has from now on\ntenant acme: its plan a was set by hand; the document makes it b\ntenant acme: its parent p was set by hand; the document makes it none"},
		{"one made by hand that is said as it is", TenantSpec{Plan: "a"}, nil, TenantSpec{Plan: "a", Overrides: over("1/s")}, ""},
	} {
		c.stored.ID = "acme"
		if got := strings.Join(TakenBack(c.stored, c.older, c.newer), "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
}
