package main

import (
	"io"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/pkg/client"
)

func TestRecoverIsUnderstood(t *testing.T) {
	c, err := parse([]string{"recover", "--server", "quota:7600", "/mnt/journal"}, io.Discard)
	if err != nil || !c.recovers || c.journal != "/mnt/journal" || c.server != "quota:7600" {
		t.Errorf("%+v: %v", c, err)
	}
	for _, args := range [][]string{{"recover"}, {"recover", "one", "two"}, {"--server", "quota:7600", "recover", "dir"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q is understood", args)
		}
	}
	if c, err := parse([]string{"--journal", "dir"}, io.Discard); err != nil || c.recovers || c.journal != "dir" {
		t.Errorf("%+v: %v", c, err)
	}
}

func TestRecoveredIsPrinted(t *testing.T) {
	var b strings.Builder
	if err := printRecovered(&b, client.Recovered{
		Lives: []client.RecoveredLife{{Agent: "edge-1", Host: "gw-7", Epoch: 7, Units: 42, Settled: 40, Unsealed: 4, Aside: 2, Reports: 3}},
		Usage: []client.RecoveredUsage{{Tenant: "acme", Meter: "requests", Admitted: 42, Denied: 5}},
	}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) < 5 || strings.Join(strings.Fields(lines[1]), " ") != "edge-1 gw-7 7 42 40 4 2 3" || strings.Join(strings.Fields(lines[4]), " ") != "acme requests 42 5" {
		t.Errorf("got\n%s", b.String())
	}
	b.Reset()
	if err := printRecovered(&b, client.Recovered{ResentReports: 4, ResentUnits: 310, ForgottenUnits: 7}); err != nil ||
		!strings.Contains(b.String(), "sent again what the ledger had forgotten: 310 units in 4 reports") || !strings.Contains(b.String(), "no more in the journal: 7 units") {
		t.Errorf("got %q: %v", b.String(), err)
	}
	b.Reset()
	if err := printRecovered(&b, client.Recovered{Refused: 70}); err != nil || !strings.Contains(b.String(), "kept aside: 70 bytes") {
		t.Errorf("got %q: %v", b.String(), err)
	}
	b.Reset()
	if err := printRecovered(&b, client.Recovered{}); err != nil || !strings.Contains(b.String(), "nothing") {
		t.Errorf("got %q: %v", b.String(), err)
	}
}

// What a journal says of itself is whoever's who wrote on that disk: none of it acts upon the terminal.
func TestRecoveredIsPrintedEscaped(t *testing.T) {
	const bad = "a\x1b[31mred\u202egnp\x00\r\nb\tc\xff"
	var b strings.Builder
	if err := printRecovered(&b, client.Recovered{
		Lives: []client.RecoveredLife{{Agent: bad, Host: bad, Epoch: 7, Units: 42, Settled: 40, Aside: 2, Reports: 3}},
		Usage: []client.RecoveredUsage{{Tenant: bad, Meter: bad, Admitted: 42, Denied: 5}},
	}); err != nil {
		t.Fatal(err)
	}
	const told = `a\u001b[31mred\u202egnp\u0000\u000d\u000ab\u0009c\xff`
	if lines := strings.Split(b.String(), "\n"); len(lines) != 6 || strings.Count(lines[1], told) != 2 || strings.Count(lines[4], told) != 2 {
		t.Errorf("got\n%q", b.String())
	}
}
