package server

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
)

// restored is a policy store in whose place another can be put, as where its database is restored from a backup.
type restored struct{ policy.Store }

// storeOf is a store that a text was applied to at a time, after another.
func storeOf(t *testing.T, at time.Time, texts ...string) policy.Store {
	t.Helper()
	_, _, store := onSQLite(t, func() time.Time { return at })
	for _, text := range texts {
		doc, err := policy.Parse("quota.yaml", []byte(text))
		if err == nil {
			_, err = store.Apply(t.Context(), "ann", doc, 0, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// Of a version whose number came again after a restore, the price is the one that it has now, also where an older
// number came again than the newest, and where the newest has the number that the newest had.
func TestPricesOfARestoredPolicy(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	first := pricedPolicy
	dear := strings.Replace(pricedPolicy, "31.00 USD", "62.00 USD", 1)
	dearer := strings.Replace(pricedPolicy, "31.00 USD", "93.00 USD", 1)
	s := &restored{storeOf(t, at, first, dear)}
	p := newPrices(s)
	monthly := func() (all []string) {
		t.Helper()
		versions, err := p.during(t.Context(), []billing.Period{{From: at.Unix(), To: at.AddDate(0, 1, 0).Unix()}}, []int64{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			all = append(all, billing.Money{Amount: v.Prices["paid"].Monthly, Currency: "USD"}.String())
		}
		return all
	}
	wants := func(what string, want ...string) {
		t.Helper()
		if got := monthly(); strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	wants("at first", "31.00 USD", "62.00 USD")
	s.Store = storeOf(t, at.Add(time.Hour), first, dearer)
	wants("the newest came again", "31.00 USD", "93.00 USD")
	s.Store = storeOf(t, at.Add(2*time.Hour), first, strings.Replace(pricedPolicy, "31.00 USD", "124.00 USD", 1), first)
	wants("one below the newest came again", "31.00 USD", "124.00 USD", "31.00 USD")
}

// What the judge knew of the policy and the tenants of before it does not hold against rows of a restored one.
func TestJudgeOfARestoredPolicy(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	const before, after = "plans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}\ntenants: [{id: acme, plan: p}, {id: late, plan: p}]",
		"plans: {p: {limits: [{name: b, rate: 1/s, meter: b}]}}\ntenants: [{id: acme, plan: p}]"
	s := &restored{storeOf(t, at, before)}
	j := NewJudge(s)
	accepts := func(what, meter, tenant string, want bool) {
		t.Helper()
		if err := verdict(t, j, ledger.Row{Tenant: tenant, Limit: meter, Meter: meter, Version: 1}); (err == nil) != want {
			t.Errorf("%s: meter %s of tenant %s: %v", what, meter, tenant, err)
		}
	}
	accepts("at first", "a", "late", true)
	accepts("at first", "b", "acme", false)
	s.Store = storeOf(t, at.Add(time.Hour), after)
	j.Forget()
	accepts("restored", "a", "acme", false)
	accepts("restored", "b", "acme", true)
	accepts("restored", "b", "late", false)
}

// reading is a store during whose reads something happens.
type reading struct {
	policy.Store
	during func()
}

func (r *reading) Version(ctx context.Context, number int64) (policy.Version, error) {
	v, err := r.Store.Version(ctx, number)
	if r.during != nil {
		r.during()
	}
	return v, err
}

// What was being read of the policy of before when it was found to be another is not remembered.
func TestJudgeForgetsWhatItReads(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	r := &reading{Store: storeOf(t, at, "default_plan: p\nplans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}")}
	j := NewJudge(r)
	row := ledger.Row{Tenant: "acme", Limit: "b", Meter: "b", Version: 1}
	r.during = j.Forget
	if err := verdict(t, j, row); err == nil {
		t.Fatal("a meter that there is not was accepted")
	}
	r.Store, r.during = storeOf(t, at, "default_plan: p\nplans: {p: {limits: [{name: b, rate: 1/s, meter: b}]}}"), nil
	if err := verdict(t, j, row); err != nil {
		t.Errorf("a meter of the policy that there is now: %v", err)
	}
}

// A server finds out that its policy store is another by numbers that fell, and its ledger by its name. Either way
// what was known of the one before is forgotten.
func TestServerForgetsARestoredPolicy(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	const text = "plans: {p: {limits: [{name: a, rate: 1/s}]}}"
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s := &restored{storeOf(t, at, text, text+" # again", strings.Replace(text, "1/s", "2/s", 1))}
	v := newView(s, nobody{}, slog.New(slog.NewTextHandler(io.Discard, nil)), m)
	forgot := 0
	v.replaced = func() { forgot++ }
	for _, c := range []struct {
		what  string
		texts []string // in the store that comes in place; nil for none
		want  int
	}{
		{"first seen", nil, 0},
		{"seen again", nil, 0},
		{"the version fell", []string{text}, 1},
		{"seen again", nil, 1},
		{"one more version", []string{text, strings.Replace(text, "1/s", "3/s", 1)}, 1},
	} {
		if c.texts != nil {
			s.Store = storeOf(t, at, c.texts...)
		}
		if err := v.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if forgot != c.want {
			t.Errorf("%s: forgot %d times, want %d", c.what, forgot, c.want)
		}
	}
}
