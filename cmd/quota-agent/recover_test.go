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
		Lives: []client.RecoveredLife{{Agent: "edge-1", Host: "gw-7", Epoch: 7, Units: 42, Settled: 40, Aside: 2, Reports: 3}},
		Usage: []client.RecoveredUsage{{Tenant: "acme", Meter: "requests", Admitted: 42, Denied: 5}},
	}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) < 5 || strings.Join(strings.Fields(lines[1]), " ") != "edge-1 gw-7 7 42 40 2 3" || strings.Join(strings.Fields(lines[4]), " ") != "acme requests 42 5" {
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
