package quotactl

import (
	"strings"
	"testing"
)

// A tenant that was deleted is shown as closed, and its last period can be looked at.
func TestTenantDelete(t *testing.T) {
	e := start(t, nil)
	e.ok("tenant", "create", "globex", "--plan", "paid")
	if _, errs, code := e.run("tenant", "delete", "acme"); code != 1 || !strings.Contains(errs, "policy version 1 names tenant acme") {
		t.Errorf("one that the policy names: exit %d, %q", code, errs)
	}
	e.want("delete", e.ok("tenant", "delete", "globex"),
		"tenant globex is closed; its usage and statements are kept, and quotactl statement close --tenant globex closes its last period (revision 3)\n")
	if out := e.ok("get", "tenants"); !strings.Contains(out, "globex  paid  -       -          closed            3\n") {
		t.Errorf("get tenants:\n%s", out)
	}
	if out := e.ok("tenant", "plans", "globex"); !strings.Contains(out, "  -     closed\n") {
		t.Errorf("tenant plans:\n%s", out)
	}
	if out := e.ok("statement", "preview", "--tenant", "globex"); !strings.Contains(out, "globex, ") {
		t.Errorf("its last period:\n%s", out)
	}
	if _, errs, code := e.run("tenant", "create", "globex", "--plan", "free"); code != 1 || !strings.Contains(errs, "was closed at") {
		t.Errorf("its id again: exit %d, %q", code, errs)
	}
	if _, errs, code := e.run("tenant", "resume", "globex"); code != 1 || !strings.Contains(errs, "was closed at") {
		t.Errorf("going on: exit %d, %q", code, errs)
	}
}
