// Package policytest holds every policystore.Store to one suite: the contract in code.
package policytest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// Run holds the stores that open makes, each new and empty, to the contract. A
// store must keep working for the whole of its test.
func Run(t *testing.T, open func(t *testing.T) policystore.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s policystore.Store)
	}{
		{"Empty", testEmpty},
		{"Versions", testVersions},
		{"Conflict", testConflict},
		{"DryRun", testDryRun},
		{"Rollback", testRollback},
		{"Restarts", testRestarts},
		{"Shadow", testShadow},
		{"Suspended", testSuspended},
		{"Closed", testClosedTenant},
		{"Tenants", testTenants},
		{"DocumentTenants", testDocumentTenants},
		{"TenantLimit", testTenantLimit},
		{"LeftOut", testLeftOut},
		{"References", testReferences},
		{"Subscriptions", testSubscriptions},
		{"Payers", testPayers},
		{"PayersBounds", testPayersBounds},
		{"Statements", testStatements},
		{"Levels", testLevels},
		{"OverridesFollowThePlan", testOverridesFollow},
		{"Zone", testZone},
		{"TenantChanges", testTenantChanges},
		{"TenantPages", testTenantPages},
		{"Switches", testSwitches},
		{"SwitchRevisions", testSwitchRevisions},
		{"Keys", testKeys},
		{"KeyScopes", testKeyScopes},
		{"KeyRotation", testKeyRotation},
		{"KeysEver", testKeysEver},
		{"Parents", testParents},
		{"Audit", testAudit},
		{"Lead", testLead},
		{"Secret", testSecret},
		{"Credits", testCredits},
		{"Concurrent", testConcurrent},
		{"Ended", testEnded},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

const plans = `
default_plan: free
plans:
  free: {limits: [{name: requests, rate: 100/hour, burst: 200, meter: requests}]}
  paid: {limits: [{name: requests, rate: 1000/hour, burst: 2000, meter: requests}]}
`

func parse(t *testing.T, text string) *policy.Document {
	t.Helper()
	d, err := policy.Parse("quota.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}

func apply(t *testing.T, s policystore.Store, text string) policystore.Applied {
	t.Helper()
	a, err := s.Apply(t.Context(), "ann", parse(t, text), 0, false)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return a
}

func heads(t *testing.T, s policystore.Store) policystore.Heads {
	t.Helper()
	h, err := s.Heads(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func one(t *testing.T, s policystore.Store, id string) limit.Tenant {
	t.Helper()
	got, err := s.Tenants(t.Context(), []string{id})
	if err != nil || len(got) != 1 || got[0].ID != id {
		t.Fatalf("tenants(%s) = %+v, %v", id, got, err)
	}
	return got[0]
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func testEmpty(t *testing.T, s policystore.Store) {
	if h := heads(t, s); h != (policystore.Heads{}) {
		t.Errorf("heads of an empty store: %+v", h)
	}
	_, err := s.Version(t.Context(), 0)
	is(t, "the version in force before the first", err, policystore.ErrNotFound)
	_, err = s.CreateTenant(t.Context(), "ann", "acme", "free", "")
	is(t, "a tenant before the first policy", err, policystore.ErrInvalid)
	_, err = s.Rollback(t.Context(), "ann", 1)
	is(t, "rollback to nothing", err, policystore.ErrNotFound)
	if got := one(t, s, "acme"); got.Exists {
		t.Errorf("a tenant in an empty store: %+v", got)
	}
	if sw := must[limit.Switches](t)(s.Switches(t.Context())); sw.Mode != limit.ModeNormal || len(sw.Denied) != 0 {
		t.Errorf("switches of an empty store: %+v", sw)
	}
}

func testVersions(t *testing.T, s policystore.Store) {
	before := time.Now().Add(-time.Second)
	first := apply(t, s, plans)
	if !first.Changed || first.Version != 1 || !slices.Contains(first.Changes, "plan free added") {
		t.Errorf("the first version: %+v", first)
	}
	if again := apply(t, s, "# another way to write it\n"+plans); again.Changed || again.Version != 1 || again.Changes != nil {
		t.Errorf("the same again: %+v, want nothing changed", again)
	}
	second := strings.Replace(plans, "rate: 100/hour", "rate: 150/hour", 1)
	got := apply(t, s, second)
	want := policystore.Applied{Version: 2, Changed: true, Changes: []string{"plan free: limit requests: rate 100/hour → 150/hour"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the second version:\n got %+v\nwant %+v", got, want)
	}
	for number, text := range map[int64]string{1: plans, 2: second, 0: second} {
		v := must[policystore.Version](t)(s.Version(t.Context(), number))
		if v.Text != text || v.Author != "ann" || v.File != "quota.yaml" || v.Created.Before(before) || v.Created.After(time.Now().Add(time.Second)) {
			t.Errorf("version %d: %+v", number, v)
		}
		if number == 0 && v.Number != 2 {
			t.Errorf("the version in force is %d, want 2", v.Number)
		}
	}
	_, err := s.Version(t.Context(), 3)
	is(t, "version 3", err, policystore.ErrNotFound)
	list := must[[]policystore.Version](t)(s.Versions(t.Context(), 0, 10))
	if len(list) != 2 || list[0].Number != 2 || list[1].Number != 1 || list[0].Text != "" || list[0].Author != "ann" {
		t.Errorf("versions: %+v", list)
	}
	if list = must[[]policystore.Version](t)(s.Versions(t.Context(), 2, 10)); len(list) != 1 || list[0].Number != 1 {
		t.Errorf("versions before 2: %+v", list)
	}
	if list = must[[]policystore.Version](t)(s.Versions(t.Context(), 0, 1)); len(list) != 1 || list[0].Number != 2 {
		t.Errorf("one version: %+v", list)
	}
	if h := heads(t, s); h.Version != 2 {
		t.Errorf("heads: %+v, want version 2", h)
	}
}

func testConflict(t *testing.T, s policystore.Store) {
	apply(t, s, plans)
	other := parse(t, plans+"\nslot: 1m\n")
	_, err := s.Apply(t.Context(), "ann", other, 2, false)
	is(t, "a change made from version 2", err, policystore.ErrConflict)
	if h := heads(t, s); h.Version != 1 {
		t.Errorf("version %d is in force, want 1", h.Version)
	}
	if a, err := s.Apply(t.Context(), "ann", other, 1, false); err != nil || a.Version != 2 {
		t.Errorf("a change made from version 1: %+v, %v", a, err)
	}
}

func testDryRun(t *testing.T, s policystore.Store) {
	doc := parse(t, plans+"\ntenants: [{id: acme, plan: paid}]\n")
	for range 2 {
		a, err := s.Apply(t.Context(), "ann", doc, 0, true)
		if err != nil || !a.Changed || a.Version != 0 || !slices.Contains(a.Changes, "tenant acme added, plan paid") {
			t.Errorf("dry run: %+v, %v", a, err)
		}
	}
	if h := heads(t, s); h != (policystore.Heads{}) {
		t.Errorf("a dry run moved %+v", h)
	}
	if got := one(t, s, "acme"); got.Exists {
		t.Errorf("a dry run made %+v", got)
	}
	if rows := must[[]policystore.AuditRow](t)(s.Audit(t.Context(), policystore.AuditQuery{N: 10})); len(rows) != 0 {
		t.Errorf("a dry run was audited: %+v", rows)
	}
	apply(t, s, plans)
	a, err := s.Apply(t.Context(), "ann", doc, 0, true)
	if err != nil || a.Version != 1 || len(a.Changes) != 1 {
		t.Errorf("dry run over version 1: %+v, %v", a, err)
	}
	_, err = s.Apply(t.Context(), "ann", doc, 7, true)
	is(t, "dry run from another version", err, policystore.ErrConflict)
}

func testRollback(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: acme, plan: free}]\n")
	apply(t, s, strings.Replace(plans, "100/hour", "7/hour", 1)+"tenants: [{id: acme, plan: paid}]\n")
	a, err := s.Rollback(t.Context(), "bob", 1)
	if err != nil || a.Version != 3 || !a.Changed {
		t.Fatalf("rollback: %+v, %v", a, err)
	}
	v := must[policystore.Version](t)(s.Version(t.Context(), 0))
	if v.Number != 3 || v.Author != "bob" || !strings.Contains(v.Text, "100/hour") {
		t.Errorf("in force: %+v, want the first document as version 3, by bob", v)
	}
	if got := one(t, s, "acme"); got.Plan != "free" {
		t.Errorf("acme has the plan %s, want free as in version 1", got.Plan)
	}
	_, err = s.Rollback(t.Context(), "bob", 9)
	is(t, "rollback to version 9", err, policystore.ErrNotFound)
	if a, err := s.Rollback(t.Context(), "bob", 3); err != nil || a.Changed {
		t.Errorf("rollback to what is in force: %+v, %v; want nothing changed", a, err)
	}
}

// The document's default zone is part of what an override says.
func testZone(t *testing.T, s policystore.Store) {
	tenants := "tenants: [{id: acme, plan: free, limits: [{name: daily, algorithm: fixed_window, rate: 9/day}]}]\n"
	apply(t, s, plans+tenants)
	a := apply(t, s, plans+tenants+"zone: Asia/Tokyo\n")
	if want := []string{"default zone UTC → Asia/Tokyo"}; !slices.Equal(a.Changes, want) {
		t.Errorf("changes %q, want %q", a.Changes, want)
	}
	if got := one(t, s, "acme"); got.Overrides[0].Zone != "Asia/Tokyo" || got.Revision != 2 {
		t.Errorf("acme's day is that of %q, revision %d; want Asia/Tokyo, 2", got.Overrides[0].Zone, got.Revision)
	}
}

func testSwitches(t *testing.T, s policystore.Store) {
	set := must[limit.Switches](t)(s.SetSwitches(t.Context(), "ann", limit.Switches{Mode: limit.ModeShadowAll, Denied: []string{"b", "a", "b"}}))
	want := limit.Switches{Mode: limit.ModeShadowAll, Denied: []string{"a", "b"}, Revision: 1}
	if got := must[limit.Switches](t)(s.Switches(t.Context())); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(set, want) {
		t.Errorf("set %+v, stored %+v, want %+v", set, got, want)
	}
	h := heads(t, s)
	if h.Switches != 1 {
		t.Errorf("heads: %+v, want one change of switches", h)
	}
	must[limit.Switches](t)(s.SetSwitches(t.Context(), "ann", limit.Switches{Mode: want.Mode, Denied: want.Denied}))
	if got := heads(t, s); got != h {
		t.Errorf("setting the same moved %+v to %+v", h, got)
	}
	for _, bad := range []limit.Switches{{Mode: 9}, {Revision: -1}, {Denied: []string{"a b"}}, {Denied: make([]string, limit.MaxDenied+1)}} {
		_, err := s.SetSwitches(t.Context(), "ann", bad)
		is(t, "bad switches", err, policystore.ErrInvalid)
	}
}

func testKeys(t *testing.T, s policystore.Store) {
	hash := func(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
	k := policystore.Key{ID: "k2", Role: policystore.RoleAgent, Agent: "gw-1", Note: "gateway", Hash: hash("secret")}
	created := must[policystore.Key](t)(s.CreateKey(t.Context(), "ann", k))
	if created.Created.IsZero() || !created.Revoked.IsZero() || created.Hash != k.Hash {
		t.Errorf("created %+v", created)
	}
	must[policystore.Key](t)(s.CreateKey(t.Context(), "ann", policystore.Key{ID: "k1", Role: policystore.RoleAdmin, Hash: hash("other")}))
	_, err := s.CreateKey(t.Context(), "ann", policystore.Key{ID: "k2", Role: policystore.RoleAdmin, Hash: hash("third")})
	is(t, "an id that is taken", err, policystore.ErrExists)
	_, err = s.CreateKey(t.Context(), "ann", policystore.Key{ID: "k3", Role: policystore.RoleAdmin, Hash: hash("secret")})
	is(t, "a hash that is taken", err, policystore.ErrExists)
	for what, bad := range map[string]policystore.Key{
		"no hash":                     {ID: "k4", Role: policystore.RoleAdmin},
		"no role":                     {ID: "k4", Hash: hash("x")},
		"an id of blanks":             {ID: " ", Role: policystore.RoleAdmin, Hash: hash("x")},
		"an admin's agent":            {ID: "k4", Role: policystore.RoleAdmin, Agent: "gw", Hash: hash("x")},
		"an agent's without an agent": {ID: "k4", Role: policystore.RoleAgent, Hash: hash("x")},
		"an agent's for any agent":    {ID: "k4", Role: policystore.RoleAgent, Agent: "*", Hash: hash("x")},
		"an admin's of some tenants":  {ID: "k4", Role: policystore.RoleAdmin, Scope: policystore.Scope{Tenants: []string{"acme"}}, Hash: hash("x")},
		"a viewer's of some limits":   {ID: "k4", Role: policystore.RoleViewer, Scope: policystore.Scope{Limits: []string{"a"}}, Hash: hash("x")},
		"a subtree of nothing":        {ID: "k4", Role: policystore.RoleViewer, Scope: policystore.Scope{Subtree: true}, Hash: hash("x")},
		"a tenant that is none":       {ID: "k4", Role: policystore.RoleViewer, Scope: policystore.Scope{Tenants: []string{"a b"}}, Hash: hash("x")},
		"one that has ended":          {ID: "k4", Role: policystore.RoleViewer, Expires: time.Now().Add(-time.Second), Hash: hash("x")},
		"a long note":                 {ID: "k4", Role: policystore.RoleAdmin, Note: strings.Repeat("x", 257), Hash: hash("x")},
	} {
		_, err := s.CreateKey(t.Context(), "ann", bad)
		is(t, what, err, policystore.ErrInvalid)
	}
	h := heads(t, s)
	revoked := must[policystore.Key](t)(s.RevokeKey(t.Context(), "ann", "k2"))
	if revoked.Revoked.IsZero() || heads(t, s).Keys != h.Keys+1 {
		t.Errorf("revoked %+v, heads %+v then %+v", revoked, h, heads(t, s))
	}
	if again := must[policystore.Key](t)(s.RevokeKey(t.Context(), "ann", "k2")); !again.Revoked.Equal(revoked.Revoked) || heads(t, s).Keys != h.Keys+1 {
		t.Errorf("revoked again: %+v", again)
	}
	_, err = s.RevokeKey(t.Context(), "ann", "nobody")
	is(t, "revoking a key that is not there", err, policystore.ErrNotFound)
	keys := must[[]policystore.Key](t)(s.Keys(t.Context(), "", 10, false))
	if len(keys) != 2 || keys[0].ID != "k1" || keys[1].ID != "k2" || keys[1].Hash != k.Hash || keys[1].Agent != "gw-1" ||
		keys[1].Note != "gateway" || keys[1].Revoked.IsZero() || !keys[0].Revoked.IsZero() || !keys[1].Created.Equal(created.Created) {
		t.Errorf("keys: %+v", keys)
	}
}

// Each change has its row, with who, what, before and after, and no secret.
func testAudit(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	apply(t, s, plans+"tenants: [{id: acme, plan: free}]\n")
	must[limit.Tenant](t)(s.CreateTenant(ctx, "bob", "b", "free", "acme"))
	must[limit.Tenant](t)(s.SetTenantPlan(ctx, "bob", "b", "paid"))
	must[limit.Switches](t)(s.SetSwitches(ctx, "cy", limit.Switches{Mode: limit.ModeAllowAll}))
	must[policystore.Key](t)(s.CreateKey(ctx, "cy", policystore.Key{ID: "k", Role: policystore.RoleViewer, Hash: sha256.Sum256([]byte("secret"))}))
	must[policystore.Key](t)(s.RevokeKey(ctx, "cy", "k"))
	if _, err := s.CreateTenant(ctx, "bob", "b", "free", ""); err == nil {
		t.Error("a second b was made")
	}
	rows := must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{N: 100}))
	var got []string
	for i, r := range rows {
		if i > 0 && r.Number != rows[i-1].Number-1 {
			t.Errorf("audit row %d after %d", r.Number, rows[i-1].Number)
		}
		if r.At.IsZero() || strings.Contains(r.After, "secret") {
			t.Errorf("audit row %+v", r)
		}
		got = append(got, fmt.Sprintf("%s %s %s %s > %s", r.Actor, r.Action, r.Object, r.Before, r.After))
	}
	want := []string{
		`cy key.revoke k {"agent":"","note":"","revoked":false,"role":"viewer"} > {"agent":"","note":"","revoked":true,"role":"viewer"}`,
		`cy key.create k  > {"agent":"","note":"","revoked":false,"role":"viewer"}`,
		`cy switches.set switches {"denied":[],"mode":"normal"} > {"denied":[],"mode":"allow_all"}`,
		`bob tenant.set-plan b {"parent":"acme","plan":"free"} > {"parent":"acme","plan":"paid"}`,
		`bob tenant.create b  > {"parent":"acme","plan":"free"}`,
		`ann policy.apply 1 {"version":0} > {"version":1,"changes":["default plan none → free","plan free added",` +
			`"plan free: limit requests added: token_bucket 100/hour, burst 200, meter requests","plan paid added",` +
			`"plan paid: limit requests added: token_bucket 1000/hour, burst 2000, meter requests","tenant acme added, plan free"]}`,
		`ann tenant.apply acme  > {"plan":"free"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for want, q := range map[int]policystore.AuditQuery{
		1: {Action: "tenant.set-plan"}, 3: {Action: "tenant"}, 2: {Actor: "bob"}, 0: {Actor: "bob", Object: "acme"},
	} {
		if q.N = 10; len(must[[]policystore.AuditRow](t)(s.Audit(ctx, q))) != want {
			t.Errorf("audit of %+v: want %d rows", q, want)
		}
	}
	if page := must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{Before: rows[1].Number, N: 2})); len(page) != 2 || page[0].Number != rows[2].Number {
		t.Errorf("a page of the audit log: %+v", page)
	}
}

// Every caller that asks for a secret is given the same one.
func testSecret(t *testing.T, s policystore.Store) {
	first := must[[]byte](t)(s.Secret(t.Context(), "switches"))
	again := must[[]byte](t)(s.Secret(t.Context(), "switches"))
	other := must[[]byte](t)(s.Secret(t.Context(), "other"))
	if len(first) != 32 || !bytes.Equal(first, again) || bytes.Equal(first, other) {
		t.Errorf("secrets %x, %x again, and %x of another name; want 32 bytes, the same, and others", first, again, other)
	}
}

// One leads at a time, until its term ends or for as long as it says so.
func testLead(t *testing.T, s policystore.Store) {
	lead := func(task, holder string, term time.Duration) bool {
		return must[bool](t)(s.Lead(t.Context(), task, holder, term))
	}
	if !lead("close", "a", time.Hour) || lead("close", "b", time.Hour) || !lead("other", "b", time.Hour) || !lead("close", "a", 0) || !lead("close", "b", time.Hour) || lead("close", "a", time.Hour) {
		t.Error("two lead, or none does")
	}
}

// Concurrent changes are serialized: none is lost, no number is given twice, and polling shows each of them.
func testConcurrent(t *testing.T, s policystore.Store) {
	const writers, each = 6, 8
	apply(t, s, plans)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make(chan map[string]bool)
	go func() {
		all := make(map[string]bool)
		after := int64(0)
		for len(all) < writers*each && ctx.Err() == nil {
			page, through, err := s.TenantChanges(ctx, after, 3)
			if err != nil {
				break
			}
			for _, x := range page {
				all[x.ID] = true
			}
			after = through
		}
		seen <- all
	}()
	var wg sync.WaitGroup
	errs := make(chan error, writers*each)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				_, err := s.CreateTenant(ctx, "ann", fmt.Sprintf("w%d-%d", w, i), "free", "")
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
			stop()
		}
	}
	timer := time.AfterFunc(20*time.Second, stop)
	defer timer.Stop()
	if all := <-seen; len(all) != writers*each {
		t.Errorf("the reader saw %d tenants, want %d", len(all), writers*each)
	}
	if h := heads(t, s); h.Tenants != writers*each {
		t.Errorf("heads say %d changes, want %d", h.Tenants, writers*each)
	}
	revisions := make(map[int64]bool)
	for _, x := range must[[]limit.Tenant](t)(s.TenantPage(t.Context(), "", 1000)) {
		revisions[x.Revision] = true
	}
	if len(revisions) != writers*each {
		t.Errorf("%d revisions for %d tenants", len(revisions), writers*each)
	}
}
