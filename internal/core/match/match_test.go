package match

import (
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// held compiles a policy's only plan, and returns its limits as a tenant has them whose parent, of the same plan, has them too.
func held(t *testing.T, tenant, parent string, limits ...limit.Limit) []limit.Held {
	t.Helper()
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Plans: []limit.Plan{{Name: "p", Limits: limits}}})
	if err != nil {
		t.Fatal(err)
	}
	chain := []limit.Tenant{{ID: tenant, Exists: true, Plan: "p", Parent: parent}}
	if parent != "" {
		chain = append(chain, limit.Tenant{ID: parent, Exists: true, Plan: "p"})
	}
	all, err := rules.Chain(chain)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func perSecond(name string, units int64, meter string, by ...string) limit.Limit {
	return limit.Limit{Name: name, Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: units, Per: 1e9}, Burst: units, Meter: meter, By: by}
}

func slots(name string, n int64) limit.Limit {
	return limit.Limit{Name: name, Algorithm: limit.Concurrency, Slots: n}
}

func names(all []limit.Held, order []int) string {
	var s []string
	for _, i := range order {
		s = append(s, all[i].Rule.Limit.Name+"@"+all[i].Tenant)
	}
	return strings.Join(s, " ")
}

// Limits are asked in the order that takes the fewest units in vain; those that deny nothing are apart.
func TestOrder(t *testing.T) {
	shadow := perSecond("shadow", 1, "")
	shadow.Shadow = true
	all := held(t, "a", "org", limit.Limit{Name: "count", Meter: "counted"}, slots("jobs", 5), perSecond("billed", 3, "m"), perSecond("wide", 9, ""), perSecond("narrow", 2, ""), shadow)
	asked, tried := Order(all, "a")
	const want = "narrow@a narrow@org wide@a wide@org billed@org billed@a jobs@a jobs@org count@a"
	if got := names(all, asked); got != want {
		t.Errorf("asked in order\n%s, want\n%s", got, want)
	}
	if got := names(all, tried); got != "shadow@a shadow@org" {
		t.Errorf("tried %s", got)
	}
}

// Requests of two tenants of a tree ask for the slots that both may use in one order, whatever else they hold, so that
// they never wait for each other.
func TestSlotsAreAskedInOneOrder(t *testing.T) {
	limits := []limit.Limit{slots("a", 5), slots("b", 2), slots("c", 5), slots("d", 1)}
	var orders []string
	for _, turned := range []bool{false, true} {
		if turned {
			slices.Reverse(limits)
		}
		for _, tenant := range []string{"x", "z"} {
			all := held(t, tenant, "org", limits...)
			asked, _ := Order(all, tenant)
			asked = slices.DeleteFunc(asked, func(i int) bool { return all[i].Tenant != "org" })
			orders = append(orders, names(all, asked))
		}
	}
	if all := slices.Compact(slices.Clone(orders)); len(all) != 1 || all[0] != "d@org b@org a@org c@org" {
		t.Errorf("the slots are asked in orders %q", orders)
	}
}

// What may be put back although it is billed is announced: all but the last metered limit, and what an ancestor's limit bills.
func TestUnitsThatMayGoBackAreAnnounced(t *testing.T) {
	var lists Lists
	all := held(t, "a", "org", perSecond("first", 1, "m"), perSecond("second", 2, "n"))
	asked, _ := Order(all, "a")
	for i, it := range lists.Of(all, asked, "a", false).Items {
		h := all[asked[i]]
		if own := h.Tenant == "a"; it.Own != own || it.Inherited == own || !it.Metered || it.Hold != (i < 3) {
			t.Errorf("%s of %s: %+v", h.Rule.Limit.Name, h.Tenant, it)
		}
	}
	for _, it := range lists.Of(all, asked, "a", true).Items {
		if it.Metered || it.Hold || it.Inherited {
			t.Errorf("%s feeds a meter while it is on trial", it.Rule.Limit.Name)
		}
	}
}

// Tenants share a list if it says the same for them, and no other.
func TestListsAreShared(t *testing.T) {
	var lists Lists
	all := held(t, "a", "", perSecond("narrow", 1, "m"), perSecond("wide", 2, "m2"))
	other := slices.Clone(all) // of b, with the same rules
	for i := range other {
		other[i].Tenant = "b"
	}
	l := lists.Of(all, []int{0, 1}, "a", false)
	if lists.Of(other, []int{0, 1}, "b", false) != l {
		t.Error("two tenants of a plan have a list each")
	}
	for what, another := range map[string]*List{
		"in another order":        lists.Of(all, []int{1, 0}, "a", false),
		"on trial":                lists.Of(all, []int{0, 1}, "a", true),
		"held by an ancestor":     lists.Of(all, []int{0, 1}, "c", false),
		"fewer":                   lists.Of(all, []int{0}, "a", false),
		"none":                    lists.Of(nil, nil, "a", false),
		"of rules at other ranks": lists.Of(append(slices.Clone(all[1:]), all[0]), []int{1, 0}, "a", false),
	} {
		if another == l {
			t.Errorf("limits %s are the same list", what)
		}
	}
	if lists.Clear(); lists.Of(all, []int{0, 1}, "a", false) == l {
		t.Error("a list outlives its policy")
	}
}

// Of more limits than one matcher takes, each is met by the requests that it says.
func TestMatch(t *testing.T) {
	var limits []limit.Limit
	for i := range limit.MatcherRules + 5 {
		l := perSecond(string(rune('A'+i%26))+string(rune('a'+i/26)), int64(i+1), "", "user")
		l.Match = []limit.Match{{Attribute: "endpoint", Patterns: []string{"/" + l.Name}}}
		limits = append(limits, l)
	}
	var lists Lists
	all := held(t, "a", "", limits...)
	asked, _ := Order(all, "a")
	l := lists.Of(all, asked, "a", false)
	for i := range l.Items {
		request := []limit.Attribute{{Name: "endpoint", Value: "/" + l.Items[i].Rule.Limit.Name}}
		for first := 0; first < len(l.Items); first += limit.MatcherRules {
			want := uint64(0)
			if first == i/limit.MatcherRules*limit.MatcherRules {
				want = 1 << (i - first)
			}
			if got := l.Match(first, request); got != want {
				t.Errorf("limit %d: from %d on %b, want %b", i, first, got, want)
			}
		}
		if !l.Concerns(request) {
			t.Errorf("limit %d does not concern its request", i)
		}
	}
	if l.Concerns([]limit.Attribute{{Name: "endpoint", Value: "/"}}) {
		t.Error("a limit concerns a request that none names")
	}
}

// A key has a request's values in the limit's order, and gives them back.
func TestKeys(t *testing.T) {
	all := held(t, "a", "", perSecond("l", 1, "", "user", "region", "ip"))
	it := item(&all[0], 0, "a")
	one := held(t, "a", "", perSecond("user", 1, "", "user"), perSecond("block", 2, "", "ip/24"), perSecond("none", 3, ""))
	for i, want := range []string{"user", "", ""} {
		if got := item(&one[i], i, "a").Only; got != want || it.Only != "" {
			t.Errorf("by %q: only %q, want %q", one[i].Rule.Limit.By, got, want)
		}
	}
	for _, of := range [][3]string{{"u", "r", "10.0.0.1"}, {"", "r", ""}, {"u", "", ""}, {"", "", ""}} {
		key := string(it.AppendKey(nil, []limit.Attribute{{Name: "ip", Value: of[2]}, {Name: "region", Value: of[1]}, {Name: "user", Value: of[0]}, {Name: "user", Value: "second"}}))
		if got := AppendValues(nil, key); !slices.Equal(got, of[:]) || len(got) != it.Values() {
			t.Errorf("the key of %q has values %q", of, got)
		}
		for i, want := range of {
			if got := Value(key, i); got != want {
				t.Errorf("value %d of the key of %q is %q", i, of, got)
			}
		}
	}
}
