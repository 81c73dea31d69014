package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/server/authn"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const faultyPolicy = `default_plan: p
plans: {p: {limits: [{name: x, rate: 1/s, meter: x}]}}
tenants: [{id: a, plan: p}, {id: b, plan: p, limits: [{name: x, burst: 5}]}, {id: c, plan: p, limits: [{name: x, burst: 6}]}]
`

// spoiled is a view of a store whose rows a test can spoil.
type spoiled struct {
	t        *testing.T
	v        *view
	store    *sqlstore.Store
	l        ledger.Store
	log      bytes.Buffer
	registry *prometheus.Registry // of the last view
}

func newSpoiled(t *testing.T, on engine) *spoiled {
	t.Helper()
	s := &spoiled{t: t}
	s.l, _, s.store = on(t, time.Now)
	s.apply(faultyPolicy)
	s.v = s.another()
	s.look()
	return s
}

// another is the view of a server that begins.
func (s *spoiled) another() *view {
	s.t.Helper()
	s.registry = prometheus.NewRegistry()
	m, err := newMetrics(s.registry)
	if err != nil {
		s.t.Fatal(err)
	}
	return newView(s.store, nobody{}, slog.New(slog.NewTextHandler(&s.log, nil)), m)
}

func (s *spoiled) apply(text string) {
	s.t.Helper()
	doc, err := policy.Parse("quota.yaml", []byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.store.Apply(s.t.Context(), "ann", doc, 0, false); err != nil {
		s.t.Fatal(err)
	}
}

func (s *spoiled) exec(query string) {
	s.t.Helper()
	var err error
	switch l := s.l.(type) {
	case *sqliteledger.Store:
		_, err = l.DB().ExecContext(s.t.Context(), query)
	case *pgledger.Store:
		_, err = l.Pool().Exec(s.t.Context(), query)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// override gives a tenant another burst of a limit, as a change; nothing checks that its plan has the limit.
func (s *spoiled) override(id, name string, burst int) {
	s.t.Helper()
	s.exec(`UPDATE policy_heads SET tenants = tenants + 1`)
	s.exec(fmt.Sprintf(`UPDATE tenants SET overrides = '[{"name": %q, "burst": %d}]', change = (SELECT tenants FROM policy_heads) WHERE id = '%s'`, name, burst, id))
}

// spoil gives a tenant overrides of a limit that its plan has not.
func (s *spoiled) spoil(id string) { s.t.Helper(); s.override(id, "gone", 9) }

func (s *spoiled) look() {
	s.t.Helper()
	if err := s.v.look(context.Background()); err != nil {
		s.t.Fatalf("the view does not look: %v", err)
	}
}

// wants checks the burst of each tenant; 0 is an error.
func (s *spoiled) wants(when string, bursts map[string]int64) {
	s.t.Helper()
	var ids []string
	for id := range bursts {
		ids = append(ids, id)
	}
	for i, r := range s.v.tenants(s.t.Context(), ids) {
		want := bursts[ids[i]]
		switch {
		case r.err != nil && want != 0:
			s.t.Errorf("%s: tenant %s: %v", when, ids[i], r.err)
		case r.err != nil:
			if !errors.Is(r.err, policy.ErrInvalid) || !strings.Contains(r.err.Error(), ids[i]) {
				s.t.Errorf("%s: tenant %s: the error says %v", when, ids[i], r.err)
			}
		case want == 0:
			s.t.Errorf("%s: tenant %s is answered: %+v", when, ids[i], r.tenant)
		case len(r.rules) != 1 || r.rules[0].Limit.Burst != want:
			s.t.Errorf("%s: tenant %s: got %+v, want a burst of %d", when, ids[i], r.tenant, want)
		}
	}
}

// told checks how many times the log says something, and the metric.
func (s *spoiled) told(when string, what string, times int, faulty float64) {
	s.t.Helper()
	if got := strings.Count(s.log.String(), what); got != times {
		s.t.Errorf("%s: %q was logged %d times, want %d:\n%s", when, what, got, times, s.log.String())
	}
	if got := gauge(s.t, s.registry, "quota_server_faulty_tenants"); got != faulty {
		s.t.Errorf("%s: %v tenants are counted as faulty, want %v", when, got, faulty)
	}
}

// patient has the faulty tenants read again when they are next asked for.
func (s *spoiled) patient() {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	for id, f := range s.v.faulty {
		f.again = time.Time{}
		s.v.faulty[id] = f
	}
}

const (
	cannot = "a tenant cannot be made out"
	again  = "a tenant can be made out again"
)

// A tenant that cannot be made out keeps what it had in force, and no other tenant waits for it:
// their changes go on, and reach the streams. Mended, it is taken up again.
func TestFaultyTenantChanges(t *testing.T) { onEngines(t, testFaultyTenantChanges) }

func testFaultyTenantChanges(t *testing.T, on engine) {
	s := newSpoiled(t, on)
	s.wants("at first", map[string]int64{"a": 1, "b": 5, "c": 6})
	at := cursor{tenants: s.v.current().heads.Tenants}
	news := func() (told string) {
		t.Helper()
		messages, _, err := s.v.news(&at)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if m.RefreshTenants {
				told += "all "
			}
			for _, x := range m.Tenants {
				told += x.Id + " "
			}
		}
		return told
	}
	news()
	s.spoil("b")
	s.override("c", "x", 7)
	s.look()
	if got := news(); got != "c " {
		t.Errorf("streams are told of %q, want c alone", got)
	}
	for range 3 {
		s.wants("spoiled", map[string]int64{"a": 1, "b": 5, "c": 7})
		s.patient()
		s.look()
	}
	s.told("spoiled", cannot, 1, 1)

	s.v.mu.Lock()
	s.v.cache.age() // as after more changes than are told one by one
	s.v.mu.Unlock()
	s.wants("read anew", map[string]int64{"a": 1, "b": 5, "c": 7})
	s.told("read anew", cannot, 1, 1)

	// By hand, without a change number.
	s.exec(`UPDATE tenants SET overrides = '[{"name": "x", "burst": 8}]' WHERE id = 'b'`)
	s.patient()
	s.wants("mended by hand", map[string]int64{"b": 8})
	s.told("mended by hand", again, 1, 0)

	s.spoil("b")
	s.look()
	s.wants("spoiled again", map[string]int64{"a": 1, "b": 8, "c": 7})
	s.told("spoiled again", cannot, 2, 1)
	s.override("b", "x", 9)
	s.look()
	if got := news(); got != "b " {
		t.Errorf("streams are told of %q, want b", got)
	}
	s.wants("mended", map[string]int64{"a": 1, "b": 9, "c": 7})
	s.told("mended", again, 2, 0)
}

// A tenant that a server knows nothing of but that it cannot be made out is an error of its own,
// and of nobody else in the batch.
func TestFaultyTenantUnknown(t *testing.T) { onEngines(t, testFaultyTenantUnknown) }

func testFaultyTenantUnknown(t *testing.T, on engine) {
	s := newSpoiled(t, on)
	s.spoil("b")
	s.v = s.another()
	s.look()
	for range 3 {
		s.wants("at first", map[string]int64{"a": 1, "b": 0, "c": 6, "nobody": 1})
		s.patient()
	}
	s.told("at first", cannot, 1, 1)
	// A policy that has the limit makes it sound.
	s.apply("default_plan: p\nplans: {p: {limits: [{name: gone, rate: 1/s, meter: x}]}}\ntenants: [{id: c, plan: p, limits: [{name: gone, burst: 7}]}]")
	s.look()
	s.wants("with a policy that has it", map[string]int64{"a": 1, "b": 9, "c": 7})
	s.told("with a policy that has it", cannot, 1, 0)
}

// What a faulty tenant used is judged by the policy alone, and no row of another tenant is let
// through unjudged for it.
func TestFaultyTenantJudged(t *testing.T) { onEngines(t, testFaultyTenantJudged) }

func testFaultyTenantJudged(t *testing.T, on engine) {
	s := newSpoiled(t, on)
	s.spoil("b")
	j := NewJudge(s.store)
	if err := verdict(t, j, ledger.Row{Tenant: "b", Limit: "own", Meter: "own", Version: 1}); err != nil {
		t.Errorf("a meter that the faulty tenant may have: %v", err)
	}
	if err := verdict(t, j, ledger.Row{Tenant: "a", Limit: "own", Meter: "own", Version: 1}); err == nil {
		t.Error("a meter that there is not was accepted, because another tenant is faulty")
	}
}

// Periods of other tenants are closed, and its own too: what is billed is not in its overrides.
func TestFaultyTenantDue(t *testing.T) { onEngines(t, testFaultyTenantDue) }

func testFaultyTenantDue(t *testing.T, on engine) {
	b := newBilledOn(t, on)
	(&spoiled{t: t, l: b.store}).spoil("acme")
	resp, err := b.s.CloseDue(asAnn(t.Context()), &quotav1.CloseDueRequest{DryRun: true})
	if err != nil || resp.Tenants != 1 {
		t.Errorf("looked at %d tenants: %v", resp.GetTenants(), err)
	}
}

// A list has all tenants, says which of them cannot be made out and why, and goes on behind them; who mends one may.
func TestFaultyTenantListed(t *testing.T) { onEngines(t, testFaultyTenantListed) }

func testFaultyTenantListed(t *testing.T, on engine) {
	s := newSpoiled(t, on)
	s.spoil("b")
	admin := &adminService{store: s.store}
	var ids []string
	for after := ""; ; {
		resp, err := admin.ListTenants(t.Context(), &quotav1.ListTenantsRequest{PageSize: 2, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range resp.Tenants {
			ids = append(ids, tenant.Id+" "+tenant.Plan)
			if why, faulty := resp.Faulty[tenant.Id]; faulty != (tenant.Id == "b") || faulty && !strings.Contains(why, "gone") {
				t.Errorf("tenant %s: faulty %t, %s", tenant.Id, faulty, why)
			}
		}
		if after = resp.NextAfter; after == "" {
			break
		}
	}
	if got := strings.Join(ids, ", "); got != "a p, b p, c p" {
		t.Errorf("listed %s", got)
	}
	s.apply(faultyPolicy + "# and b as it was\n")
	if resp, err := admin.ListTenants(t.Context(), &quotav1.ListTenantsRequest{}); err != nil || len(resp.Faulty) != 0 {
		t.Errorf("mended: %v, %v", resp, err)
	}
}

// A key for a subtree settles for a tenant of it that cannot be made out, and not for one that left it so: where a tenant is, is known
// all the same, and its agent would be held up for ever.
func TestFaultyTenantsAreInTheirSubtree(t *testing.T) {
	onEngines(t, testFaultyTenantsAreInTheirSubtree)
}

func testFaultyTenantsAreInTheirSubtree(t *testing.T, on engine) {
	s := newSpoiled(t, on)
	s.apply(strings.Replace(faultyPolicy, "{id: b, plan: p,", "{id: top, plan: p}, {id: other, plan: p}, {id: low, plan: p, parent: b}, {id: b, plan: p, parent: top,", 1))
	s.look()
	tree := &struct{ *view }{s.v}
	key, err := authn.NewScope(&policy.Key{ID: "k", Scope: policy.Scope{Tenants: []string{"top"}, Subtree: true}}, tree)
	if err != nil {
		t.Fatal(err)
	}
	wants := func(when string, want ...authn.Reach) {
		t.Helper()
		if got := key.Reach(t.Context(), []string{"b", "low", "c"}); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
	}
	wants("sound", authn.Within, authn.Within, authn.Outside)
	s.spoil("b")
	s.look()
	wants("once it was known", authn.Within, authn.Within, authn.Outside)
	s.exec(`UPDATE tenants SET parent = 'other' WHERE id = 'b'`)
	s.patient()
	wants("moved", authn.Outside, authn.Outside, authn.Outside)
	s.exec(`UPDATE tenants SET parent = 'top' WHERE id = 'b'`)
	s.v = s.another() // to which it was never sound
	s.look()
	tree.view = s.v
	wants("never known", authn.Within, authn.Within, authn.Outside)
	wants("again, without a look", authn.Within, authn.Within, authn.Outside)
}

// nobody is who may call where that does not matter.
type nobody struct{}

func (nobody) Load([]policy.Key, bool)       {}
func (nobody) Moved(map[string]string, bool) {}
func (nobody) FlushUsed(context.Context, func(context.Context, map[string]time.Time) error) error {
	return nil
}
func (nobody) Sweep() {}
