package policytest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

func hashOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// oneKey reads a key.
func oneKey(t *testing.T, s policystore.Store, id string) policystore.Key {
	t.Helper()
	for _, k := range must[[]policystore.Key](t)(s.Keys(t.Context(), "", policystore.MaxPage, false)) {
		if k.ID == id {
			return k
		}
	}
	t.Fatalf("there is no key %s", id)
	return policystore.Key{}
}

// What a key is for is kept, and is in the audit log.
func testKeyScopes(t *testing.T, s policystore.Store) {
	ends := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	must[policystore.Key](t)(s.CreateKey(t.Context(), "ann", policystore.Key{
		ID: "k1", Role: policystore.RoleAgent, Agent: "gw-*", Hash: hashOf("k1"), Expires: ends,
		Scope: policystore.Scope{Tenants: []string{"b/*", "acme"}, Subtree: true, Limits: []string{"requests"}},
	}))
	k := oneKey(t, s, "k1")
	if fmt.Sprint(k.Tenants, k.Subtree, k.Limits) != "[acme b/*] true [requests]" || k.Agent != "gw-*" || !k.Expires.Equal(ends) {
		t.Errorf("the key is %+v", k)
	}
	row := must[[]policystore.AuditRow](t)(s.Audit(t.Context(), policystore.AuditQuery{N: 1}))[0]
	for _, want := range []string{`"tenants":["acme","b/*"]`, `"subtree":true`, `"limits":["requests"]`, `"expires":"`} {
		if !strings.Contains(row.After, want) {
			t.Errorf("the audit log has %s, want %s in it", row.After, want)
		}
	}
}

// A key is rotated once: its successor has the same rights, and it ends after the overlap. Noting its use is no change.
func testKeyRotation(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	must[policystore.Key](t)(s.CreateKey(ctx, "ann", policystore.Key{
		ID: "k1", Role: policystore.RoleAgent, Agent: "gw-1", Note: "edge", Hash: hashOf("k1"), Scope: policystore.Scope{Tenants: []string{"acme"}, Limits: []string{"a"}},
	}))
	before := heads(t, s).Keys
	next := must[policystore.Key](t)(s.RotateKey(ctx, "ann", "k1", policystore.Key{ID: "k2", Hash: hashOf("k2")}, time.Hour))
	if next.Role != policystore.RoleAgent || next.Agent != "gw-1" || next.Note != "edge" || !slices.Equal(next.Tenants, []string{"acme"}) || !slices.Equal(next.Limits, []string{"a"}) || !next.Expires.IsZero() {
		t.Errorf("the successor is %+v", next)
	}
	old := oneKey(t, s, "k1")
	if left := time.Until(old.Expires); old.Successor != "k2" || left < 59*time.Minute || left > time.Hour {
		t.Errorf("the old key is %+v, want an end in an hour", old)
	}
	if heads(t, s).Keys == before {
		t.Error("servers are not told of a rotation")
	}
	for what, c := range map[string]struct {
		old     string
		next    policystore.Key
		overlap time.Duration
		want    error
	}{
		"a key that was rotated":  {"k1", policystore.Key{ID: "k3", Hash: hashOf("k3")}, 0, policystore.ErrInvalid},
		"no key":                  {"k9", policystore.Key{ID: "k3", Hash: hashOf("k3")}, 0, policystore.ErrNotFound},
		"an id that is taken":     {"k2", policystore.Key{ID: "k1", Hash: hashOf("k3")}, 0, policystore.ErrExists},
		"an overlap below 0":      {"k2", policystore.Key{ID: "k3", Hash: hashOf("k3")}, -1, policystore.ErrInvalid},
		"an overlap for too long": {"k2", policystore.Key{ID: "k3", Hash: hashOf("k3")}, policystore.MaxOverlap + 1, policystore.ErrInvalid},
	} {
		_, err := s.RotateKey(ctx, "ann", c.old, c.next, c.overlap)
		is(t, what, err, c.want)
	}
	if k := oneKey(t, s, "k2"); k.Successor != "" || !k.Expires.IsZero() {
		t.Errorf("a rotation that was refused left %+v", k)
	}
	// A key with an end does not go on longer under another name.
	ends := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	must[policystore.Key](t)(s.CreateKey(ctx, "ann", policystore.Key{ID: "k4", Role: policystore.RoleViewer, Hash: hashOf("k4"), Expires: ends}))
	if k := must[policystore.Key](t)(s.RotateKey(ctx, "ann", "k4", policystore.Key{ID: "k5", Hash: hashOf("k5")}, 0)); !k.Expires.Equal(ends) {
		t.Errorf("the successor of a key that ends at %v ends at %v", ends, k.Expires)
	}
	must[policystore.Key](t)(s.RevokeKey(ctx, "ann", "k2"))
	_, err := s.RotateKey(ctx, "ann", "k2", policystore.Key{ID: "k3", Hash: hashOf("k3")}, 0)
	is(t, "a revoked key", err, policystore.ErrInvalid)

	head := heads(t, s)
	used := time.Now().Truncate(time.Millisecond)
	for _, at := range []time.Time{used, used.Add(-time.Minute)} { // what is earlier comes late
		if err := s.UseKeys(ctx, map[string]time.Time{"k1": at, "nobody": at}); err != nil {
			t.Fatal(err)
		}
	}
	if k := oneKey(t, s, "k1"); !k.Used.Equal(used) || heads(t, s) != head {
		t.Errorf("the key was used at %s, want %s, and no change of heads", k.Used, used)
	}
}

// Keys come by pages, the good ones or all, however many there ever were.
func testKeysEver(t *testing.T, s policystore.Store) {
	ctx := t.Context()
	for i := range 5 {
		id := fmt.Sprint("k", i)
		must[policystore.Key](t)(s.CreateKey(ctx, "ann", policystore.Key{ID: id, Role: policystore.RoleAdmin, Hash: hashOf(id)}))
		if i%2 == 1 {
			must[policystore.Key](t)(s.RevokeKey(ctx, "ann", id))
		}
	}
	for good, want := range map[bool]string{true: "[k0 k2 k4]", false: "[k0 k1 k2 k3 k4]"} {
		var ids []string
		for after := ""; ; after = ids[len(ids)-1] {
			page := must[[]policystore.Key](t)(s.Keys(ctx, after, 2, good))
			for _, k := range page {
				ids = append(ids, k.ID)
			}
			if len(page) < 2 {
				break
			}
		}
		if fmt.Sprint(ids) != want {
			t.Errorf("good %t: got %v, want %s", good, ids, want)
		}
	}
}

// Parents are those of tenants by id and by how ids begin.
func testParents(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: org, plan: free}, {id: top, plan: free}]\n")
	for id, parent := range map[string]string{"org/a": "org", "org/b": "org", "org2": "top", "orf": "top", "acme": ""} {
		must[limit.Tenant](t)(s.CreateTenant(t.Context(), "ann", id, "free", parent))
	}
	for _, c := range []struct {
		ids, prefixes []string
		want          string
	}{
		{nil, nil, "[]"},
		{[]string{"acme", "nobody", "org"}, nil, "[]"},
		{[]string{"org/a", "orf"}, nil, "[org top]"},
		{nil, []string{"org/"}, "[org]"},
		{nil, []string{"org"}, "[org top]"},
		{[]string{"orf"}, []string{"org/a", "x"}, "[org top]"},
	} {
		if got := must[[]string](t)(s.Parents(t.Context(), c.ids, c.prefixes)); fmt.Sprint(got) != c.want {
			t.Errorf("parents of %q and %q: got %v, want %s", c.ids, c.prefixes, got, c.want)
		}
	}
}
