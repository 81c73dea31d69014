package view

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A stream that has everything gets nothing, one that is behind gets what it
// missed, and one that is too far behind, or ahead, is told so.
func TestJournal(t *testing.T) {
	var j journal
	j.restart(10)
	add := func(after, through int64, ids ...string) {
		c := change{after: after, through: through}
		for _, id := range ids {
			c.tenants = append(c.tenants, limit.Tenant{ID: id})
		}
		j.add(c)
	}
	add(10, 12, "a", "b")
	add(12, 13, "c")
	for _, c := range []struct {
		after int64
		want  string
		ok    bool
	}{
		{9, "", false},
		{10, "abc", true},
		{11, "abc", true}, // in the middle of a change: it is sent whole
		{12, "c", true},
		{13, "", true},
		{14, "", false},
	} {
		changes, ok := j.since(c.after)
		got := ""
		for _, ch := range changes {
			for _, tenant := range ch.tenants {
				got += tenant.ID
			}
		}
		if got != c.want || ok != c.ok {
			t.Errorf("since %d: got %q, %t, want %q, %t", c.after, got, ok, c.want, c.ok)
		}
	}
	if j.unchanged("c", 11) || !j.unchanged("c", 13) || !j.unchanged("a", 12) || j.unchanged("a", 9) {
		t.Error("unchanged does not say what the journal holds")
	}
}

// The journal keeps a bounded number of tenants, and knows what it dropped.
func TestJournalIsBounded(t *testing.T) {
	var j journal
	j.restart(0)
	for n := range int64(3 * keptChanges) {
		j.add(change{after: n, through: n + 1, tenants: []limit.Tenant{{ID: "x"}}})
	}
	if len(j.changes) > keptChanges {
		t.Errorf("%d changes kept, want at most %d", len(j.changes), keptChanges)
	}
	if _, ok := j.since(0); ok {
		t.Error("a stream that missed dropped changes was not told so")
	}
	if _, ok := j.since(j.head() - 1); !ok {
		t.Error("a stream that is one behind was told to ask for everything")
	}
}

// The cache forgets the tenant that was not used for longest, and never one in use.
func TestTenantCacheIsBounded(t *testing.T) {
	c := newTenantCache(3)
	for i := range 3 {
		c.put(limit.Tenant{ID: fmt.Sprint(i)}, &InForce{}, true)
	}
	if _, ok := c.get("0", &InForce{}); !ok {
		t.Fatal("tenant 0 is gone before the cache is full")
	}
	c.put(limit.Tenant{ID: "3"}, &InForce{}, true)
	for id, want := range map[string]bool{"0": true, "1": false, "2": true, "3": true} {
		if _, ok := c.get(id, &InForce{}); ok != want {
			t.Errorf("tenant %s kept: got %t, want %t", id, ok, want)
		}
	}
	c.replace(limit.Tenant{ID: "1", Plan: "paid"})
	if _, ok := c.get("1", &InForce{}); ok {
		t.Error("a changed tenant that nobody uses was brought in")
	}
	if c.len() != 3 {
		t.Errorf("%d tenants kept, want 3", c.len())
	}
}
