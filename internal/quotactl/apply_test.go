package quotactl

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/server/boot"
)

// apply says by name what was set by hand and is taken back, before and after; and that the server's policy file rules.
func TestApplySaysWhatItTakesBack(t *testing.T) {
	var rules string
	e := start(t, func(c *boot.Config) { rules = c.Policy })
	e.ok("tenant", "create", "globex", "--plan", "free")
	_, _, _ = e.run("tenant", "set-limit", "acme", "requests", "--rate", "70/hour")
	// What sets something by hand says that the policy names the tenant.
	if _, errs, code := e.run("tenant", "set-plan", "acme", "free"); code != exitOK || !strings.Contains(errs, "warning: policy version 1 names tenant acme with the plan paid") {
		t.Errorf("set-plan: exit %d, %q", code, errs)
	}
	if _, errs, code := e.run("tenant", "set-plan", "acme", "paid", "--at", "2099-01-01"); code != exitOK || errs != "" {
		t.Errorf("set-plan to what it says: exit %d, %q", code, errs)
	}
	next := e.file("next.yaml", strings.Replace(policyText, "100/hour", "150/hour", 1)+"  - {id: globex, plan: paid}\n")
	for _, words := range [][]string{{"diff", "-f", next}, {"apply", "-f", next, "--dry-run"}, {"apply", "-f", next}} {
		_, errs, code := e.run(words...)
		for _, want := range []string{
			"next.yaml:12: warning: tenant acme: its plan free was set by hand; the document makes it paid\n",
			"next.yaml:12: warning: tenant acme: its override of limit requests was set by hand; the document takes it back\n",
			"next.yaml:13: warning: tenant globex was not made by the document in force; this one says what it has from now on\n",
			"next.yaml:13: warning: tenant globex: its plan free was set by hand; the document makes it paid\n",
			"quotactl: warning: the policy file " + rules + " rules on this server",
		} {
			if code != exitOK || !strings.Contains(errs, want) {
				t.Errorf("%s: exit %d\n%s\nwant %s", words, code, errs, want)
			}
		}
	}
	// Rolled back, the file says the same again: there is nothing to tell.
	e.ok("tenant", "set-plan", "acme", "free")
	_, errs, _ := e.run("rollback", "1")
	if !strings.Contains(errs, "warning: tenant acme: its plan free was set by hand; the document makes it paid\n") || strings.Contains(errs, " rules ") {
		t.Errorf("rollback: %s", errs)
	}
	// Once the file says it too, nothing takes the change back.
	text, err := os.ReadFile(next)
	if err == nil {
		err = os.WriteFile(rules, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, _ := e.run("apply", "-f", next); errs != "" {
		t.Errorf("a document that the file says too: %s", errs)
	}
	var got struct {
		PolicyFile string `json:"policy_file"`
	}
	if err := json.Unmarshal([]byte(e.ok("diff", "-f", e.file("more.yaml", policyText), "-o", "json")), &got); err != nil || got.PolicyFile != rules {
		t.Errorf("json: %+v, %v", got, err)
	}
}
