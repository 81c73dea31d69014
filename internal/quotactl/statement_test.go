package quotactl

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/boot"
)

// previewed is a statement as of a block that has all the units.
func (e *env) previewed(units int64, words ...string) (*billing.Statement, string) {
	e.t.Helper()
	for range 6000 {
		document := e.ok(append([]string{"statement", "preview", "-o", "json"}, words...)...)
		s := new(billing.Statement)
		if err := json.Unmarshal([]byte(document), s); err != nil {
			e.t.Fatal(err)
		}
		got := int64(0)
		for _, term := range s.Terms {
			for _, u := range term.Used {
				got += u.Admitted
			}
		}
		if got == units {
			return s, document
		}
		time.Sleep(10 * time.Millisecond) // until the next fold
	}
	e.t.Fatalf("no block with %d units", units)
	return nil, ""
}

func TestStatementPreview(t *testing.T) {
	e := start(t, func(c *boot.Config) { c.FoldInterval = 20 * time.Millisecond })
	out := e.ok("statement", "preview", "--tenant", "acme")
	if !strings.Contains(out, "at no block: nothing was sealed yet") || !regexp.MustCompile(`(?m)^fee +paid +.* USD$`).MatchString(out) {
		t.Errorf("before anything was sealed:\n%s", out)
	}
	slot := e.now.Truncate(5 * time.Minute).Unix()
	row := ledger.Row{Slot: slot, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 1234, Denied: 7}
	other := row
	other.Tenant, other.Admitted = "globex", 5
	e.settle(row, other)
	s, document := e.previewed(1234, "--tenant", "acme")
	if _, again := e.previewed(1234, "--tenant", "acme"); again != document {
		t.Errorf("at one block two statements:\n%s%s", document, again)
	}
	usage := s.Lines[len(s.Lines)-1]
	if usage.Kind != billing.KindUsage || usage.Units != 1234 || usage.Included > 10 || usage.Amount != (1234-usage.Included)*5 || s.Block.Height < 1 || len(s.Block.Hash) != 64 {
		t.Errorf("the statement: %s", document)
	}
	for format, part := range map[string]string{
		"table": "usage  paid  requests   1234", "csv": ",usage,paid,requests,1234,", "html": "<td>requests: 1234 units, ",
	} {
		out, errs, code := e.run("statement", "preview", "--tenant", "acme", "-o", format)
		if code != 0 || !strings.Contains(out, part) || !strings.Contains(out+errs, "at block ") || !strings.Contains(out+errs, "complete through ") {
			t.Errorf("-o %s: exit %d, %s%s", format, code, out, errs)
		}
	}
	// The period under way is the tenant's first: it cannot be closed.
	for words, want := range map[string]string{
		"close --tenant acme": "has not ended; it will at ", "close --tenant acme --force gone": "has not ended", "close": "whose?",
		"show acme 2026-01": "no statement of tenant \"acme\" was closed", "show acme": "takes TENANT PERIOD", "list": "takes TENANT",
	} {
		if _, errs, code := e.run(append([]string{"statement"}, strings.Fields(words)...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("statement %s: exit %d, %q, want %q", words, code, errs, want)
		}
	}
	e.want("statement list", e.ok("statement", "list", "acme"), "NUMBER  PERIOD  BLOCK  CLOSED  BY  FORCED  DIGEST\n")
	for words, want := range map[string]string{
		"--tenant nobody":                   "tenant \"nobody\" (NotFound)",
		"--tenant globex":                   "tenant \"globex\" (NotFound)", // admitted under the default plan, and never made
		"--tenant acme --period 2026-13":    "write the month that it begins in",
		"--tenant acme --period 9998-01":    "has not begun; it will at 9998-01-01",
		"--tenant acme --output xml":        "must be table, json, csv or html",
		"":                                  "whose?",
		"acme":                              "takes no arguments",
		"--tenant acme --period 2026-01-01": "write the month",
	} {
		if _, errs, code := e.run(append([]string{"statement", "preview"}, strings.Fields(words)...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("preview %s: exit %d, %q, want %q", words, code, errs, want)
		}
	}
}
