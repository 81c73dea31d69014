package quotactl

import (
	"strings"
	"testing"
)

func TestStatementsDue(t *testing.T) {
	e := start(t, nil)
	if out, errs, code := e.run("statement", "close-due"); code != 0 || !strings.HasPrefix(out, "TENANT") || errs != "1 tenants, 0 periods due, 0 refused\n" {
		t.Errorf("nothing is due: exit %d, %s%s", code, out, errs)
	}
	e.want("a simulation before any period ended", e.ok("statement", "simulate", "--plan", "free"), "TENANT  PERIOD  WAS  WOULD BE  DIFFERENCE\n")
	for words, want := range map[string]string{
		"close-due --grace -1s": "grace_ms", "close-due --grace 2161h": "grace_ms", "close-due acme": "takes no arguments", "simulate": "what is tried?",
		"simulate --plan gold": "no plan \"gold\"", "simulate -f none.yaml": "no such file", "simulate --plan free --periods 25": "periods is 25; it must be 0 to 24",
		"simulate --tenant nobody --plan free": "tenant \"nobody\"", "simulate -f " + e.file("bad.yaml", "plans: {free: {limit: 3}}"): "bad.yaml:1: ",
	} {
		if _, errs, code := e.run(append([]string{"statement"}, strings.Fields(words)...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("statement %s: exit %d, %q, want %q", words, code, errs, want)
		}
	}
}
