package leasing

import (
	"errors"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// What a soft limit admits above itself, and a shadow version's limits, are found with
// values and keys of their own; an agent that asks for what is not there is told so.
func TestKindsOfBuckets(t *testing.T) {
	rate := limit.Rate{Units: 100, Per: time.Hour, Calendar: limit.Hour}
	compile := func(burst int64) *limit.Rules {
		rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{
			{Name: "capped", Algorithm: limit.TokenBucket, Rate: rate, Burst: burst, Enforcement: limit.Soft, OveragePPM: 200_000},
			{Name: "uncapped", Algorithm: limit.TokenBucket, Rate: rate, Burst: burst, Enforcement: limit.Soft},
			{Name: "hard", Algorithm: limit.TokenBucket, Rate: rate, Burst: burst},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	now := &view.InForce{Rules: compile(50), Shadow: compile(500)}
	tenant := limit.Tenant{ID: "a", Exists: true, Plan: "p"}
	rules, err := now.Rules.Tenant(tenant)
	if err != nil {
		t.Fatal(err)
	}
	who := &tenantsByID{places: map[string]int{"a": 0}, all: []view.Resolved{{Tenant: tenant, Rules: rules}}}
	seen := make(map[string]bool)
	for _, c := range []struct {
		limit  string
		kind   quotav1.Renewal_Kind
		shadow bool
		burst  int64 // 0: unknown
	}{
		{"capped", quotav1.Renewal_KIND_LIMIT, false, 50},
		{"capped", quotav1.Renewal_KIND_OVERAGE, false, 10},
		{"capped", quotav1.Renewal_KIND_LIMIT, true, 500},
		{"capped", quotav1.Renewal_KIND_OVERAGE, true, 100},
		{"uncapped", quotav1.Renewal_KIND_LIMIT, false, 50},
		{"uncapped", quotav1.Renewal_KIND_OVERAGE, false, 0},
		{"hard", quotav1.Renewal_KIND_OVERAGE, false, 0},
		{"hard", quotav1.Renewal_KIND_LIMIT, true, 500},
		{"none", quotav1.Renewal_KIND_LIMIT, true, 0},
	} {
		r := &quotav1.Renewal{Limit: c.limit, Tenant: "a", Kind: c.kind, Shadow: c.shadow}
		rule, status := find(now, who, r)
		switch {
		case c.burst == 0:
			if rule != nil || status != quotav1.Grant_STATUS_UNKNOWN {
				t.Errorf("%v: got a rule and %v, want none and UNKNOWN", r, status)
			}
		case rule == nil || spec(rule, time.Unix(1e9, 0)).Burst != c.burst:
			t.Errorf("%v: got %+v, want burst %d", r, rule, c.burst)
		default:
			if key := bucketKey(keyName(r), r.Tenant, nil); seen[key] {
				t.Errorf("%v: key %q is another's", r, key)
			} else {
				seen[key] = true
			}
		}
	}
	now.Shadow = nil
	if rule, status := find(now, who, &quotav1.Renewal{Limit: "hard", Tenant: "a", Shadow: true}); rule != nil || status != quotav1.Grant_STATUS_UNKNOWN {
		t.Errorf("without a shadow version: got %v, %v, want none and UNKNOWN", rule, status)
	}
	who.all[0] = view.Resolved{Err: errors.New("away")}
	if _, status := find(now, who, &quotav1.Renewal{Limit: "hard", Tenant: "a"}); status != quotav1.Grant_STATUS_UNAVAILABLE {
		t.Errorf("a tenant that cannot be looked up: got %v, want UNAVAILABLE", status)
	}
}
