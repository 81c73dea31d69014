package agent

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A bucket that allows requests together with the same others says so without allocating, and tells the truth when
// they change; it does not keep others that are no more.
func TestCompany(t *testing.T) {
	entry := func() *Entry {
		s := newScope()
		s.goBy(termsAlone(new(limit.Limit)))
		e := new(Entry)
		e.init(s, nil, true, 0)
		return e
	}
	own, tenant, ip, elsewhere := entry(), entry(), entry(), entry()
	it := new(Item)
	of := func(third *Entry) Company {
		return Company{Item: it, Entry: tenant, Others: [3]*Entry{own, third}}
	}
	first := own.With(of(ip))
	if *first != of(ip) {
		t.Fatal("it is in another company than was said")
	}
	if n := testing.AllocsPerRun(100, func() {
		if own.With(of(ip)) != first {
			t.Fatal("the same company is another")
		}
	}); n != 0 {
		t.Errorf("the same company again allocates %.0f times, want 0", n)
	}
	if next := own.With(of(elsewhere)); *next != of(elsewhere) || *first != of(ip) {
		t.Error("what was told of one company is told of another")
	}
	own.Disband()
	if own.seldom().company.Load() == nil {
		t.Error("a company of buckets that there are is forgotten")
	}
	elsewhere.marks.set(dead, true)
	own.Disband()
	if own.seldom().company.Load() != nil {
		t.Error("a bucket that is no more is kept")
	}
}
