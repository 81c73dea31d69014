package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/stack"
)

// killsDefault is how often the gateway is killed; QUOTA_KILLS says otherwise.
const killsDefault = 50

// A gateway with a journal that asks as fast as it can is killed again and again, at any time, and starts
// anew each time. In the end the ledger has all that it counted, and besides at most the requests that were in flight at
// a kill: for each tenant, one limit or several, plain or below another tenant, of which the bucket is shared.
func TestKilledGatewaysLoseNothing(t *testing.T) {
	kills := killsDefault
	if s := os.Getenv("QUOTA_KILLS"); s != "" {
		var err error
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	policy := filepath.Join(dir, "quota.yaml")
	if err := os.WriteFile(policy, []byte(`
plans:
  plain:
    limits:
      - {name: requests, by: [tenant], rate: 1000000/second, burst: 1000000, meter: requests}
  scarce:
    limits:
      - {name: requests, by: [tenant], rate: 300/second, burst: 300, meter: requests}
  several:
    limits:
      - {name: requests, by: [tenant], rate: 2000/second, burst: 1000, meter: requests}
      - {name: calls, by: [tenant], rate: 500/second, burst: 100}
  soft:
    limits:
      - {name: requests, by: [tenant], rate: 200/second, burst: 100, meter: requests, enforcement: soft, overage: 100%}
tenants:
  - {id: plain, plan: plain}
  - {id: scarce, plan: scarce}
  - {id: several, plan: several}
  - {id: soft, plan: soft}
  - {id: org, plan: plain}
  - {id: team, plan: several, parent: org}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	tenants := []string{"plain", "scarce", "several", "soft", "org", "team"}
	server, loadtest := program(t, "quota-server"), program(t, "loadtest")
	at := address(t)
	web := address(t)
	run := start(t, "server", server, "--data-dir", filepath.Join(dir, "data"), "--policy", policy, "--grpc-addr", at, "--http-addr", web)
	run.waitReady(web, patience)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var demands []string
	for _, name := range tenants {
		demands = append(demands, name+"=50000")
	}
	journal := filepath.Join(dir, "journal")
	sum := gateway.NewCounts()
	var last *process
	for i := range kills + 1 {
		trail := filepath.Join(dir, fmt.Sprintf("%d.trail", i))
		last = start(t, fmt.Sprintf("gateway.%d", i), loadtest, "gateway", "--server", at, "--agent", "gateway",
			"--demand", strings.Join(demands, ","), "--trail", trail, "--journal", journal, "--report", "150ms")
		last.waitSaid("up gateway", patience)
		if i == kills {
			// On a busy machine the killed ones may have counted little: the last goes on until there was load to speak of.
			until(t, "every tenant has load to speak of", patience, last, func() bool {
				c, err := gateway.ReadTrail(trail)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range tenants {
					if len(sum.Admitted[name])+len(c.Admitted[name]) < kills*10 {
						return false
					}
				}
				return true
			})
			last.terminate(patience)
		} else {
			time.Sleep(50*time.Millisecond + time.Duration(random.Int64N(int64(500*time.Millisecond))))
			last.kill()
		}
		c, err := gateway.ReadTrail(trail)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(c)
	}
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ledger, err := stack.Usage(t.Context(), conn, "requests", tenants)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tenants {
		counted, open, got := int64(len(sum.Admitted[name])), sum.Open[name], ledger[name]
		t.Logf("%-8s counted %7d, in flight at a kill %3d, ledger %7d (%+d)", name, counted, open, got, got-counted)
		if name == "org" {
			open += sum.Open["team"] // whose units were its bucket's before they were known to be below it
		}
		if got < counted || got > counted+open {
			t.Errorf("%s: the ledger has %d units: %d were counted, %d were in flight at a kill", name, got, counted, open)
		}
	}
}
