package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/stack"
)

// lostLine is what quotactl says of a killed start.
type lostLine struct {
	Agent, State, Reason, Since string
	Epoch                       int64
	Most                        *int64 `json:"most_units"`
	Limits                      []struct {
		Limit string
		Most  *int64 `json:"most_units"`
	}
}

// Gateways are killed and start anew under the same name. Without a journal each killed start has a line in usage and
// in verify, and what they counted and the ledger lacks is no more than the lines say. The ledger is sound, and complete
// through lately all the same. With a journal nothing is lost, and no line says so.
func TestKilledGatewaysSayWhatMayBeMissing(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "quota.yaml")
	if err := os.WriteFile(policy, []byte(`
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 2000/second, burst: 2000, meter: requests}
      - {name: unmetered, by: [tenant], rate: 100000/second, burst: 100000}
  counted:
    limits:
      - {name: only-counted, by: [tenant], meter: calls}
tenants: [{id: acme, plan: free}, {id: umbrella, plan: free}, {id: initech, plan: free}, {id: hooli, plan: counted}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	server, loadtest, quotactl := program(t, "quota-server"), program(t, "loadtest"), program(t, "quotactl")
	at, web := address(t), address(t)
	run := start(t, "server", server, "--data-dir", filepath.Join(dir, "data"), "--policy", policy, "--grpc-addr", at, "--http-addr", web)
	run.waitReady(web, patience)
	const kills = 4
	// life runs a gateway, and returns what it counted.
	life := func(name string, n int, demand string, killed bool, more ...string) *gateway.Counts {
		t.Helper()
		trail := filepath.Join(dir, fmt.Sprintf("%s.%d.trail", name, n))
		p := start(t, fmt.Sprintf("%s.%d", name, n), loadtest, append([]string{"gateway", "--server", at, "--agent", name,
			"--demand", demand, "--trail", trail, "--report", "2s"}, more...)...)
		p.waitSaid("up "+name, patience)
		time.Sleep(3 * time.Second)
		if killed {
			p.kill()
		} else {
			p.terminate(patience)
		}
		c, err := gateway.ReadTrail(trail)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sum := gateway.NewCounts()
	journal := filepath.Join(dir, "journal")
	for i := range kills {
		sum.Add(life("bare", i, "acme=500,umbrella=300", true))
		sum.Add(life("kept", i, "initech=500", true, "--journal", journal))
	}
	sum.Add(life("counts", 0, "hooli=100", true))
	// The next starts of all: those without a journal go on reporting until the others are known to be lost.
	sum.Add(life("kept", kills, "initech=500", false, "--journal", journal))
	for _, next := range []string{"bare", "counts"} {
		start(t, next+".next", loadtest, "gateway", "--server", at, "--agent", next, "--demand", "nobody=1", "--trail",
			filepath.Join(dir, next+".trail"), "--report", "2s").waitSaid("up "+next, patience)
	}
	ctl := func(into any, args ...string) {
		t.Helper()
		out, err := exec.Command(quotactl, append([]string{"--server", at, "-o", "json"}, args...)...).Output()
		if err == nil {
			err = json.Unmarshal(out, into)
		}
		if err != nil {
			t.Fatalf("quotactl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	type answer struct {
		Sound    bool
		Lost     []lostLine
		Complete time.Time `json:"complete_through"`
	}
	var verified answer
	until(t, "each killed start is named", patience, run, func() bool {
		verified = answer{}
		ctl(&verified, "ledger", "verify") // which ends with 0
		return len(verified.Lost) >= kills+1
	})
	if !verified.Sound || len(verified.Lost) != kills+1 {
		t.Errorf("verify: sound %v, lost %+v", verified.Sound, verified.Lost)
	}
	most := int64(0)
	for _, l := range verified.Lost {
		t.Logf("%+v, limits %d, most %v", l, len(l.Limits), l.Most)
		if l.Agent == "counts" {
			if l.Most != nil {
				t.Errorf("of a limit without leases it is known that at most %d are missing", *l.Most)
			}
			continue
		}
		if l.Agent != "bare" || l.State != "lost" || l.Most == nil || len(l.Limits) != 1 || l.Limits[0].Limit != "requests" {
			t.Errorf("lost: %+v", l)
			continue
		}
		most += *l.Most
	}
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tenants := []string{"acme", "umbrella", "initech"}
	ledger, err := stack.Usage(t.Context(), conn, "requests", tenants)
	if err != nil {
		t.Fatal(err)
	}
	missing := int64(0)
	for _, name := range tenants {
		counted, open := int64(len(sum.Admitted[name])), sum.Open[name]
		t.Logf("%-8s counted %d, in flight %d, ledger %d", name, counted, open, ledger[name])
		if name == "initech" {
			if ledger[name] < counted {
				t.Errorf("with a journal the ledger has %d of %d", ledger[name], counted)
			}
			continue
		}
		missing += counted - ledger[name]
	}
	t.Logf("%d are missing, at most %d may be", missing, most)
	if missing <= 0 || missing > most {
		t.Errorf("%d units are missing, and the lines say at most %d", missing, most)
	}
	for _, name := range append(tenants, "hooli") {
		var u answer
		ctl(&u, "usage", "--tenant", name)
		want := map[string]int{"acme": kills, "umbrella": kills, "initech": 0, "hooli": 1}[name]
		if len(u.Lost) != want || slices.ContainsFunc(u.Lost, func(l lostLine) bool { return l.Since == "" }) {
			t.Errorf("usage of %s names %d lost starts, want %d: %+v", name, len(u.Lost), want, u.Lost)
		}
		if time.Since(u.Complete) > 20*time.Second {
			t.Errorf("usage of %s is complete through %v only", name, u.Complete)
		}
	}
	out, err := exec.Command(quotactl, "--server", at, "usage", "--tenant", "acme").Output()
	if err != nil || strings.Count(string(out), "may be missing: at most ") != kills {
		t.Errorf("usage prints %v\n%s", err, out)
	}
	t.Logf("%s", out)
}
