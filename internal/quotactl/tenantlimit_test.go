package quotactl

import (
	"encoding/json"
	"strings"
	"testing"
)

// One limit of one tenant is set by a command, which says what it changed and what would take it back.
func TestTenantSetLimit(t *testing.T) {
	e := start(t, nil)
	e.ok("tenant", "create", "globex", "--plan", "free")
	e.want("set", e.ok("tenant", "set-limit", "globex", "requests", "--rate", "500/hour"),
		"tenant globex: override of limit requests added: token_bucket 500/hour, burst 1000, meter requests\n")
	e.want("again", e.ok("tenant", "set-limit", "globex", "requests", "--rate", "500/hour"),
		"nothing to change: tenant globex has this override already of limit requests\n")
	if out := e.ok("get", "tenants"); !strings.Contains(out, "requests 500/hour") {
		t.Errorf("get tenants:\n%s", out)
	}
	var got struct {
		Changed bool
		Tenant  struct{ Overrides []map[string]any }
	}
	out := e.ok("tenant", "set-limit", "globex", "requests", "--rate", "600/hour", "--on-outage", "closed", "--by", "[user]", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || !got.Changed || len(got.Tenant.Overrides) != 1 || got.Tenant.Overrides[0]["on_outage"] != "OUTAGE_CLOSED" {
		t.Errorf("json: %v, %s", err, out)
	}
	for _, c := range []struct {
		words []string
		code  int
		want  string
	}{
		{[]string{"globex", "requests"}, exitUsage, "Give --rate"},
		{[]string{"globex"}, exitUsage, "ID LIMIT"},
		{[]string{"glo bex", "requests", "--rate", "1/s"}, exitFailed, "id is"},
		{[]string{"nobody", "requests", "--rate", "1/s"}, exitFailed, "nobody"},
		{[]string{"globex", "requets", "--rate", "1/s"}, exitFailed, "has no limit requets; it has requests, by-endpoint"},
		{[]string{"globex", "requests", "--rate", "0/s"}, exitFailed, "0 units would deny everything"},
		{[]string{"globex", "requests", "--rate", ""}, exitFailed, "\"rate\" of limit requests is empty"},
		{[]string{"globex", "requests", "--burst", "1e10"}, exitFailed, "whole number of units, 1 to 1000000000"},
	} {
		if _, errs, code := e.run(append([]string{"tenant", "set-limit"}, c.words...)...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("set-limit %q: exit %d, %s, want %q", c.words, code, errs, c.want)
		}
	}
	if _, errs, _ := e.run("tenant", "set-limit", "acme", "requests", "--rate", "70/hour"); !strings.Contains(errs, "warning: policy version 1 names tenant acme") {
		t.Errorf("a tenant that the policy names: %s", errs)
	}
	e.want("unset", e.ok("tenant", "unset-limit", "globex", "requests"), "tenant globex: override of limit requests removed\n")
	e.want("again", e.ok("tenant", "unset-limit", "globex", "requests"), "nothing to change: tenant globex has no override of limit requests\n")
}
