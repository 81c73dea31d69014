package view

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// spoiled is a view of a store whose rows a test can spoil.
type spoiled struct {
	*servertest.Spoilt
	v        *View
	log      bytes.Buffer
	registry *prometheus.Registry // of the last view
}

func newSpoiled(t *testing.T, on servertest.Engine) *spoiled {
	t.Helper()
	s := &spoiled{Spoilt: servertest.NewSpoilt(t, on)}
	s.v = s.another()
	s.look()
	return s
}

// another is the view of a server that begins.
func (s *spoiled) another() *View {
	s.T.Helper()
	s.registry = prometheus.NewRegistry()
	v, err := New(s.Store, servertest.Nobody{}, time.Now, slog.New(slog.NewTextHandler(&s.log, nil)), s.registry)
	if err != nil {
		s.T.Fatal(err)
	}
	return v
}

func (s *spoiled) look() {
	s.T.Helper()
	if err := s.v.Look(context.Background()); err != nil {
		s.T.Fatalf("the view does not look: %v", err)
	}
}

// wants checks the burst of each tenant; 0 is an error.
func (s *spoiled) wants(when string, bursts map[string]int64) {
	s.T.Helper()
	var ids []string
	for id := range bursts {
		ids = append(ids, id)
	}
	for i, r := range s.v.Tenants(s.T.Context(), ids) {
		want := bursts[ids[i]]
		switch {
		case r.Err != nil && want != 0:
			s.T.Errorf("%s: tenant %s: %v", when, ids[i], r.Err)
		case r.Err != nil:
			if !errors.Is(r.Err, policystore.ErrInvalid) || !strings.Contains(r.Err.Error(), ids[i]) {
				s.T.Errorf("%s: tenant %s: the error says %v", when, ids[i], r.Err)
			}
		case want == 0:
			s.T.Errorf("%s: tenant %s is answered: %+v", when, ids[i], r.Tenant)
		case len(r.Rules) != 1 || r.Rules[0].Limit.Burst != want:
			s.T.Errorf("%s: tenant %s: got %+v, want a burst of %d", when, ids[i], r.Tenant, want)
		}
	}
}

// told checks how many times the log says something, and the metric.
func (s *spoiled) told(when string, what string, times int, faulty float64) {
	s.T.Helper()
	if got := strings.Count(s.log.String(), what); got != times {
		s.T.Errorf("%s: %q was logged %d times, want %d:\n%s", when, what, got, times, s.log.String())
	}
	if got := servertest.Gauge(s.T, s.registry, "quota_server_faulty_tenants"); got != faulty {
		s.T.Errorf("%s: %v tenants are counted as faulty, want %v", when, got, faulty)
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
func TestFaultyTenantChanges(t *testing.T) { servertest.OnEngines(t, testFaultyTenantChanges) }

func testFaultyTenantChanges(t *testing.T, on servertest.Engine) {
	s := newSpoiled(t, on)
	s.wants("at first", map[string]int64{"a": 1, "b": 5, "c": 6})
	at := Cursor{Tenants: s.v.Current().Heads.Tenants}
	news := func() (told string) {
		t.Helper()
		messages, _, err := s.v.News(&at)
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
	s.Spoil("b")
	s.Override("c", "x", 7)
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
	s.Exec(`UPDATE tenants SET overrides = '[{"name": "x", "burst": 8}]' WHERE id = 'b'`)
	s.patient()
	s.wants("mended by hand", map[string]int64{"b": 8})
	s.told("mended by hand", again, 1, 0)

	s.Spoil("b")
	s.look()
	s.wants("spoiled again", map[string]int64{"a": 1, "b": 8, "c": 7})
	s.told("spoiled again", cannot, 2, 1)
	s.Override("b", "x", 9)
	s.look()
	if got := news(); got != "b " {
		t.Errorf("streams are told of %q, want b", got)
	}
	s.wants("mended", map[string]int64{"a": 1, "b": 9, "c": 7})
	s.told("mended", again, 2, 0)
}

// A tenant that a server knows nothing of but that it cannot be made out is an error of its own,
// and of nobody else in the batch.
func TestFaultyTenantUnknown(t *testing.T) { servertest.OnEngines(t, testFaultyTenantUnknown) }

func testFaultyTenantUnknown(t *testing.T, on servertest.Engine) {
	s := newSpoiled(t, on)
	s.Spoil("b")
	s.v = s.another()
	s.look()
	for range 3 {
		s.wants("at first", map[string]int64{"a": 1, "b": 0, "c": 6, "nobody": 1})
		s.patient()
	}
	s.told("at first", cannot, 1, 1)
	// A policy that has the limit makes it sound.
	s.Apply("default_plan: p\nplans: {p: {limits: [{name: gone, rate: 1/s, meter: x}]}}\ntenants: [{id: c, plan: p, limits: [{name: gone, burst: 7}]}]")
	s.look()
	s.wants("with a policy that has it", map[string]int64{"a": 1, "b": 9, "c": 7})
	s.told("with a policy that has it", cannot, 1, 0)
}

// A key for a subtree settles for a tenant of it that cannot be made out, and not for one that left it so: where a
// tenant is, is known all the same, and its agent would be held up for ever.
func TestFaultyTenantsAreInTheirSubtree(t *testing.T) {
	servertest.OnEngines(t, testFaultyTenantsAreInTheirSubtree)
}

func testFaultyTenantsAreInTheirSubtree(t *testing.T, on servertest.Engine) {
	s := newSpoiled(t, on)
	s.Apply(strings.Replace(servertest.FaultyPolicy, "{id: b, plan: p,", "{id: top, plan: p}, {id: other, plan: p}, {id: low, plan: p, parent: b}, {id: b, plan: p, parent: top,", 1))
	s.look()
	tree := &struct{ *View }{s.v}
	key, err := authn.NewScope(&policystore.Key{ID: "k", Scope: policystore.Scope{Tenants: []string{"top"}, Subtree: true}}, tree)
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
	s.Spoil("b")
	s.look()
	wants("once it was known", authn.Within, authn.Within, authn.Outside)
	s.Exec(`UPDATE tenants SET parent = 'other' WHERE id = 'b'`)
	s.patient()
	wants("moved", authn.Outside, authn.Outside, authn.Outside)
	s.Exec(`UPDATE tenants SET parent = 'top' WHERE id = 'b'`)
	s.v = s.another() // to which it was never sound
	s.look()
	tree.View = s.v
	wants("never known", authn.Within, authn.Within, authn.Outside)
	wants("again, without a look", authn.Within, authn.Within, authn.Outside)
}
