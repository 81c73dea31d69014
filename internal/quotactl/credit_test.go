package quotactl

import (
	"strings"
	"testing"
)

func TestCredits(t *testing.T) {
	e := start(t, nil)
	give := []string{"credit", "give", "acme", "50.00 USD", "--id", "welcome", "--expires", "9000-01-01", "--rollover", "10.00 USD", "--note", "welcome", "--priority", "3"}
	e.want("give", e.ok(give...), "credit welcome: tenant acme has 50.00 USD\n")
	e.want("give again", e.ok(give...), "credit welcome: tenant acme has 50.00 USD\n")
	if out := e.ok("credit", "give", "acme", "5 USD", "--priority", "9"); !strings.Contains(out, ": tenant acme has 5.00 USD") {
		t.Error(out)
	}
	if out := e.ok("statement", "preview", "--tenant", "acme"); !strings.Contains(out, "credit  welcome") {
		t.Errorf("the statement: %s", out)
	}
	e.want("void", e.ok("credit", "void", "welcome", "--reason", "a mistake"), "credit welcome is void since TIME; the 50.00 USD that are left pay only for periods that ended before\n")
	if out := e.ok("credit", "list", "acme", "-o", "csv"); !strings.HasPrefix(out, "id,amount,left,priority,given,expires,rollover,voided,note\n") || !strings.Contains(out, "\nwelcome,50.00 USD,50.00 USD,3,") || !strings.Contains(out, "9000-01-01T00:00:00Z,10.00 USD,") {
		t.Error(out)
	}
	for words, want := range map[string]string{
		"give acme": "takes TENANT AMOUNT", "give acme 50": "is not an amount of money", "give nobody 5=USD": "tenant \"nobody\"", "void welcome": "why?", "void none --reason x": "credit \"none\"",
		"list": "takes TENANT", "give acme 5=USD --expires -1h": "which is past", "give acme 5=USD --id welcome": "says something else",
	} {
		fields := strings.Fields(words)
		for i := range fields {
			fields[i] = strings.ReplaceAll(fields[i], "=", " ")
		}
		if _, errs, code := e.run(append([]string{"credit"}, fields...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("credit %s: exit %d, %q, want %q", words, code, errs, want)
		}
	}
}

// A credit that no statement could ever use is refused, in the words of what plans cost.
func TestCreditsInACurrencyThatNobodyPays(t *testing.T) {
	e := start(t, nil)
	if _, errs, code := e.run("credit", "give", "acme", "5.00 EUR"); code != 1 || !strings.Contains(errs, "no plan costs EUR") || !strings.Contains(errs, "plans cost USD") {
		t.Errorf("EUR: exit %d, %q", code, errs)
	}
	e.ok("credit", "give", "acme", "5.00 USD")
	// What plans cost before is paid on statements of that time.
	e.ok("apply", "-f", e.file("next.yaml", strings.ReplaceAll(policyText, "USD", "EUR")))
	e.ok("credit", "give", "acme", "5.00 USD")
	e.ok("credit", "give", "acme", "5.00 EUR")
	if _, errs, code := e.run("credit", "give", "nobody", "5.00 USD"); code != 1 || !strings.Contains(errs, "not found") {
		t.Errorf("to nobody: exit %d, %q", code, errs)
	}
}
