package integration

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/stack"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// subject is a tenant of the test: what its plan allows, and what its callers ask
// for at each gateway, in requests a second.
type subject struct {
	tenant      string
	rate, burst float64
	asks        float64
}

var subjects = []subject{
	{"crowd", 400, 200, 250}, // two and a half times its rate over four gateways
	{"edge", 1000, 500, 240}, // just below its rate
	{"calm", 5000, 1000, 100},
	{"small", 20, 10, 15}, // a few tokens a second for four gateways
}

const (
	gateways = 4
	load     = 30 * time.Second
	epsilon  = 0.05
)

// document is the policy of the subjects.
func document() string {
	var plans, tenants strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&plans, "  %s:\n    limits:\n      - {name: requests, by: [tenant], rate: %.0f/second, burst: %.0f, meter: requests}\n", s.tenant, s.rate, s.burst)
		fmt.Fprintf(&tenants, "  - {id: %s, plan: %s}\n", s.tenant, s.tenant)
	}
	return "plans:\n" + plans.String() + "tenants:\n" + tenants.String()
}

// Two servers on a Redis Cluster and a Postgres, four gateways in processes of their own,
// thirty seconds of load. In the middle a server is killed and comes back, and a gateway
// ends gracefully. The ledger then has what the gateways admitted, to the unit, and
// no limit was exceeded by more than it may.
func TestProduction(t *testing.T) {
	redis, postgres := testenv.SteadyRedis(t), testenv.Postgres(t)
	server, loadtest := program(t, "quota-server"), program(t, "loadtest")

	app := postgres.AppURL()
	migrate := start(t, "migrate", server, "migrate", "--ledger-owner-url", postgres.OwnerURL())
	select {
	case <-migrate.done:
		if migrate.err != nil {
			t.Fatalf("migrate: %v", migrate.err)
		}
	case <-time.After(patience):
		t.Fatal("migrate has not ended")
	}

	type node struct{ grpc, http string }
	nodes := []node{{address(t), address(t)}, {address(t), address(t)}}
	run := func(i int) *process {
		p := start(t, fmt.Sprintf("server-%d", i), server,
			"--lease-store", "redis://"+strings.Join(redis.Addrs(), ","), "--ledger", app,
			"--grpc-addr", nodes[i].grpc, "--http-addr", nodes[i].http)
		return p
	}
	servers := []*process{run(0), run(1)}

	conn, err := grpc.NewClient(nodes[1].grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	starting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := stack.Apply(starting, conn, document()); err != nil {
		t.Fatal(err)
	}
	for i, p := range servers {
		p.waitReady(nodes[i].http, patience)
	}

	var demands []string
	for _, s := range subjects {
		demands = append(demands, fmt.Sprintf("%s=%g", s.tenant, s.asks))
	}
	dir := t.TempDir()
	record := func(i int) string { return filepath.Join(dir, fmt.Sprintf("gateway-%d", i)) }
	var running []*process
	for i := range gateways {
		// Half of the gateways try the one server first, half the other.
		target := nodes[i%2].grpc + "," + nodes[1-i%2].grpc
		running = append(running, start(t, fmt.Sprintf("gateway-%d", i), loadtest, "gateway",
			"--server", target, "--agent", fmt.Sprintf("gateway-%d", i), "--demand", strings.Join(demands, ","),
			"--record", record(i), "--report", "3s"))
	}
	for _, p := range running {
		p.waitSaid("up gateway", patience)
	}
	begin := time.Now()
	at := func(d time.Duration) {
		select {
		case <-time.After(time.Until(begin.Add(d))):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}

	at(load / 3)
	servers[0].kill()
	t.Logf("%v: server-0 killed", time.Since(begin).Round(time.Millisecond))
	at(load/3 + 4*time.Second)
	servers[0] = run(0)
	servers[0].waitReady(nodes[0].http, patience)
	t.Logf("%v: server-0 ready again", time.Since(begin).Round(time.Millisecond))
	at(load * 2 / 3)
	running[2].terminate(patience)
	t.Logf("%v: gateway-2 ended", time.Since(begin).Round(time.Millisecond))
	at(load)
	for i, p := range running {
		if i != 2 {
			p.terminate(patience)
		}
	}

	sum := gateway.NewRecord()
	for i := range running {
		r, err := gateway.ReadFile(record(i))
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(r)
	}
	reading, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var tenants []string
	for _, s := range subjects {
		tenants = append(tenants, s.tenant)
	}
	ledger, err := stack.Usage(reading, conn, "requests", tenants)
	if err != nil {
		t.Fatal(err)
	}
	settled(t, ledger, sum)
	reported(t, servers[0], nodes[0].http, nodes[0].grpc, sum.Totals())
	bounded(t, sum)
	for _, p := range servers {
		p.terminate(patience)
	}
}

// reported holds the report of sealed usage to the gateways' own counts, once all is sealed: as
// it is over REST, and as quotactl prints it.
func reported(t *testing.T, server *process, rest, grpc string, totals map[string]int64) {
	t.Helper()
	quotactl := program(t, "quotactl")
	var last []string
	until(t, "the report over REST is what gateways counted", 2*time.Minute, server, func() bool {
		answer := new(quotav1.ListBreakdownResponse)
		if err := get(t, "http://"+rest+"/v1/usage/breakdown?by=tenant&meter=requests", answer); err != nil {
			last = []string{err.Error()}
			return false
		}
		got := make(map[string]int64)
		for _, r := range answer.Rows {
			got[r.Names[0]] = r.Admitted
		}
		if diff := differences(got, totals); !slices.Equal(diff, last) {
			t.Logf("report of block %d: %v", answer.Origin.GetHeight(), diff)
			last = diff
		}
		return len(last) == 0
	})
	out, err := exec.CommandContext(t.Context(), quotactl, "--server", grpc, "usage", "report", "--by", "tenant", "--meter", "requests", "-o", "csv").Output()
	if err != nil {
		t.Fatalf("quotactl usage report: %v: %s", err, out)
	}
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatalf("quotactl usage report: %v: %s", err, out)
	}
	tenant, admitted := slices.Index(rows[0], "tenant"), slices.Index(rows[0], "admitted")
	if tenant < 0 || admitted < 0 {
		t.Fatalf("quotactl usage report: %s", out)
	}
	got := make(map[string]int64)
	for _, r := range rows[1:] {
		if got[r[tenant]], err = strconv.ParseInt(r[admitted], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range differences(got, totals) {
		t.Errorf("quotactl usage report: %s", d)
	}
}

// get reads a message from a server over REST.
func get(t *testing.T, url string, to proto.Message) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	if err != nil {
		return err
	}
	return protojson.Unmarshal(body, to)
}

// settled holds the ledger to the gateways' own counts. That it would notice is tried
// first: with a unit more and with a unit less it must find a difference.
func settled(t *testing.T, ledger map[string]int64, sum *gateway.Record) {
	t.Helper()
	totals := sum.Totals()
	for _, s := range subjects {
		t.Logf("%-6s admitted %6d denied %6d ledger %6d", s.tenant, totals[s.tenant], sum.Denied[s.tenant], ledger[s.tenant])
		for _, n := range []int64{-1, 1} {
			wrong := maps.Clone(totals)
			wrong[s.tenant] += n
			if slices.Equal(differences(ledger, totals), differences(ledger, wrong)) {
				t.Errorf("%s: a record with %+d units makes no difference to this check", s.tenant, n)
			}
		}
	}
	for _, d := range differences(ledger, totals) {
		t.Error(d)
	}
}

func differences(ledger, admitted map[string]int64) (list []string) {
	for _, s := range subjects {
		if got, want := ledger[s.tenant], admitted[s.tenant]; got != want {
			list = append(list, fmt.Sprintf("%s: ledger %d, admitted %d (%+d)", s.tenant, got, want, got-want))
		}
	}
	if n := ledger[stack.Others]; n != 0 {
		list = append(list, fmt.Sprintf("the ledger has %d units of tenants whom nobody asked for", n))
	}
	return list
}

// bounded holds every limit to its bound in windows of several lengths, and to having
// been used: a service that denies everything keeps every bound.
func bounded(t *testing.T, sum *gateway.Record) {
	t.Helper()
	totals := sum.Totals()
	for _, s := range subjects {
		a := gateway.Allowance{Rate: s.rate, Burst: s.burst, Epsilon: epsilon}
		for _, window := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second} {
			p := sum.Peak(s.tenant, a, window)
			t.Logf("%-6s fullest window: %v", s.tenant, p)
			if p.Over() {
				t.Errorf("%s: admitted %v", s.tenant, p)
			}
		}
		// What was asked, of what should be: two thirds of the load have four gateways, one third three.
		nominal := s.asks * load.Seconds() * (gateways - 1.0/3)
		asked := float64(totals[s.tenant] + sum.Denied[s.tenant])
		if asked < nominal/4 {
			t.Errorf("%s: %.0f requests of %.0f came: no load to speak of", s.tenant, asked, nominal)
		}
		allowed := min(asked, s.rate*load.Seconds()+s.burst)
		if got := float64(totals[s.tenant]); got < 0.8*allowed {
			t.Errorf("%s: admitted %.0f of about %.0f that one central limiter would have, want at least four fifths", s.tenant, got, allowed)
		}
		if denied := sum.Denied[s.tenant]; s.tenant == "calm" && denied > totals[s.tenant]/20 {
			t.Errorf("%s: denied %d times though it asked for a tenth of its rate; admitted %d", s.tenant, denied, totals[s.tenant])
		}
	}
}
