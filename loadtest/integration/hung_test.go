package integration

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/loadtest/chaos/proxy"
	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/stack"
)

// asked is a limit that callers ask for at a multiple of its rate, and what it may admit.
type asked struct {
	name    string
	policy  string
	tenants int     // that have it, each to itself
	rate    float64 // requests a second for each tenant, of all gateways together
	spans   []span
	least   int // units that each tenant is admitted in a run at least: a service that denies everything keeps every bound
}

// span is a stretch of time and the most units that calls within it may be given.
type span struct {
	length  time.Duration
	aligned bool // cut from the Unix epoch; else it begins anywhere
	most    int64
}

var (
	hardLimits = []asked{
		{"hard-1s", "algorithm: fixed_window, rate: 500/1s", 1, 1500, []span{{time.Second, true, 525}}, 2000},
		{"hard-2s", "algorithm: fixed_window, rate: 500/2s", 1, 750, []span{{2 * time.Second, true, 525}}, 1000},
	}
	exactLimits = []asked{
		{"strict-1s", "algorithm: fixed_window, rate: 500/1s, enforcement: strict", 1, 1500, []span{{time.Second, true, 500}}, 2000},
		{"strict-2s", "algorithm: fixed_window, rate: 500/2s, enforcement: strict", 1, 750, []span{{2 * time.Second, true, 500}}, 1000},
		{"bucket", "rate: 500/second, burst: 100, enforcement: strict", 1, 1500, []span{
			{time.Second, false, 600}, {2 * time.Second, false, 1100}, {5 * time.Second, false, 2600}, {10 * time.Second, false, 5100},
		}, 2000},
		{"log", "algorithm: sliding_window_log, rate: 5/2s", 4, 50, []span{{2 * time.Second, false, 5}}, 10},
	}
	allLimits = slices.Concat(hardLimits, exactLimits)
)

const (
	hungGateways = 5
	hungLasts    = 14 * time.Second
	ms           = time.Millisecond
	late         = 50 * ms // after its admission a unit may be known
)

// fleet is the processes of one row.
type fleet struct{ servers, gateways []*process }

// hung is a row: which processes are stopped the n-th time, for how long and how often, and what the network does.
type hung struct {
	name    string
	limits  []asked
	servers int // one has its own ledger and leases; two share Redis and Postgres
	who     func(f *fleet, n int) []*process
	stopped time.Duration
	every   time.Duration
	far     time.Duration // calls of every other gateway take up to it each way
}

var (
	nobody      = func(*fleet, int) []*process { return nil }
	allServers  = func(f *fleet, _ int) []*process { return f.servers }
	oneServer   = func(f *fleet, _ int) []*process { return f.servers[:1] }
	twoGateways = func(f *fleet, n int) []*process {
		return []*process{f.gateways[n%hungGateways], f.gateways[(n+2)%hungGateways]}
	}
)

// Processes hang (SIGSTOP) and go on while gateways ask for three times what limits allow. By the clock and counts of
// the gateways, which are not the client's, no window and no other span is above its bound. Each time windows are at
// another phase.
//
// When a unit was admitted is known to lie between two readings of that clock: as its request was asked, at most `late`
// before it was answered, and as it was answered. Time in which the gateway did not run does not count: it notes that, and
// has one processor so that none of its goroutines goes on alone. A unit counts for a span only if both are in it.
// That is the one allowance that this test makes.
func TestHungProcessesKeepTheBound(t *testing.T) {
	var rows sync.WaitGroup // not t.Parallel, which runs no more rows at once than there are processors; they mostly wait
	for _, row := range []hung{
		{name: "server", limits: allLimits, servers: 1, who: allServers, stopped: 1500 * ms, every: 2700 * ms},
		{name: "gateways", limits: allLimits, servers: 1, who: twoGateways, stopped: 1400 * ms, every: 1900 * ms},
		{name: "servers", limits: allLimits, servers: 2, who: allServers, stopped: 1500 * ms, every: 2700 * ms},
		// Gateways that know the hung server only go on, with hard limits beyond the bound.
		{name: "one-of-two", limits: exactLimits, servers: 2, who: oneServer, stopped: 10_000 * ms, every: hungLasts},
		{name: "far", limits: exactLimits, servers: 1, who: nobody, every: hungLasts, far: 200 * ms},
	} {
		rows.Go(func() { t.Run(row.name, row.run) })
	}
	rows.Wait()
}

func (h hung) run(t *testing.T) {
	dir := t.TempDir()
	var plans, tenants strings.Builder
	var demands []string
	for _, l := range h.limits {
		fmt.Fprintf(&plans, "  %s: {limits: [{name: %s, by: [tenant], %s}]}\n", l.name, l.name, l.policy)
		for i := range l.tenants {
			fmt.Fprintf(&tenants, "  - {id: %s, plan: %s}\n", h.tenant(l, i), l.name)
			demands = append(demands, fmt.Sprintf("%s=%g", h.tenant(l, i), l.rate/hungGateways))
		}
	}
	f, targets := h.serve(t, "plans:\n"+plans.String()+"tenants:\n"+tenants.String())
	trail := func(i int) string { return filepath.Join(dir, fmt.Sprintf("trail-%d", i)) }
	for i := range hungGateways {
		f.gateways = append(f.gateways, start(t, fmt.Sprintf("%s-gateway-%d", h.name, i), "/usr/bin/env", "GOMAXPROCS=1", program(t, "loadtest"), "gateway",
			"--server", targets[i%len(targets)], "--agent", fmt.Sprintf("%s-%d", h.name, i),
			"--demand", strings.Join(demands, ","), "--trail", trail(i)))
	}
	for _, p := range f.gateways {
		p.waitSaid("up ", patience)
	}
	begin := time.Now().Truncate(2 * time.Second).Add(2 * time.Second) // an edge of all windows
	t.Logf("begins at %s", begin.Format("05.000"))
	for n, at := 0, 2100*time.Millisecond; at+h.stopped < hungLasts; n, at = n+1, at+h.every {
		who := h.who(f, n)
		sleepTo(t, begin.Add(at))
		for _, p := range who {
			p.signal(syscall.SIGSTOP)
		}
		sleepTo(t, begin.Add(at+h.stopped))
		for _, p := range who {
			p.signal(syscall.SIGCONT)
		}
	}
	sleepTo(t, begin.Add(hungLasts))
	counts := gateway.NewCounts()
	for i, p := range f.gateways {
		p.kill() // a trail is whole however its gateway ends
		c, err := gateway.ReadTrail(trail(i))
		if err != nil {
			t.Fatal(err)
		}
		c.Narrow(late)
		counts.Add(c)
	}
	for _, l := range h.limits {
		for i := range l.tenants {
			l.hold(t, counts.Admitted[h.tenant(l, i)], counts.Denied[h.tenant(l, i)])
		}
	}
}

// tenant is a tenant of the limit in this row: rows share a Redis.
func (h hung) tenant(l asked, i int) string { return fmt.Sprintf("%s.%s.%d", h.name, l.name, i) }

// serve starts the servers, and returns what gateways may be told of them.
func (h hung) serve(t *testing.T, policy string) (f *fleet, targets []string) {
	t.Helper()
	server := program(t, "quota-server")
	f = new(fleet)
	if h.servers == 1 {
		dir := t.TempDir()
		file := filepath.Join(dir, "quota.yaml")
		if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
			t.Fatal(err)
		}
		at, web := address(t), address(t)
		p := start(t, h.name+"-server", server, "--data-dir", filepath.Join(dir, "data"), "--policy", file, "--grpc-addr", at, "--http-addr", web)
		p.waitReady(web, patience)
		f.servers = append(f.servers, p)
		if h.far == 0 {
			return f, []string{at}
		}
		link, err := proxy.NewLink(at, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Close() })
		link.Delay(0, h.far)
		return f, []string{link.Addr(), at}
	}
	redis, postgres := testenv.Redis(t), testenv.Postgres(t)
	migrate := start(t, "migrate", server, "migrate", "--ledger-owner-url", postgres.OwnerURL())
	<-migrate.done
	if migrate.err != nil {
		t.Fatalf("migrate: %v", migrate.err)
	}
	var at, web [2]string
	for i := range at {
		at[i], web[i] = address(t), address(t)
		f.servers = append(f.servers, start(t, fmt.Sprintf("%s-server-%d", h.name, i), server, "--ledger", postgres.AppURL(),
			"--lease-store", "redis://"+strings.Join(redis.Addrs(), ","), "--grpc-addr", at[i], "--http-addr", web[i]))
	}
	conn, err := grpc.NewClient(at[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	starting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := stack.Apply(starting, conn, policy); err != nil {
		t.Fatal(err)
	}
	for i, p := range f.servers {
		p.waitReady(web[i], patience)
	}
	// Some gateways know one server only, others both.
	return f, []string{at[0], at[1] + "," + at[0], at[1], at[0] + "," + at[1]}
}

// hold holds what was admitted to the limit's spans.
func (l asked) hold(t *testing.T, units []gateway.Unit, denied int64) {
	t.Helper()
	if n := len(units); n < l.least {
		t.Errorf("%s: %d admitted of %d, want at least %d", l.name, n, n+int(denied), l.least)
	}
	for _, s := range l.spans {
		fullest, at, above, all := s.fullest(units)
		say := t.Logf
		if fullest > s.most {
			say = t.Errorf
		}
		say("%-9s admitted %5d of %5d; at most %4d in %v from %s, bound %d, above in %d of %d", l.name, len(units), int64(len(units))+denied,
			fullest, s.length, at.Format("05.000"), s.most, above, all)
	}
}

// fullest returns the most units in a span, when it began, and how many spans of all are above the bound. A unit asked
// before an edge and known behind it is in neither of the two.
func (s span) fullest(units []gateway.Unit) (most int64, at time.Time, above, all int) {
	length := s.length.Microseconds()
	units = slices.SortedFunc(slices.Values(units), func(a, b gateway.Unit) int { return cmp.Compare(a.Asked, b.Asked) })
	counts := make(map[int64]int64) // by the span's begin
	for i, u := range units {
		begin := u.Asked
		if s.aligned {
			begin -= begin % length
		}
		if counts[begin] > 0 {
			continue
		}
		for j := i; j < len(units) && units[j].Asked < begin+length; j++ {
			if units[j].Known < begin+length {
				counts[begin]++
			}
		}
	}
	for begin, n := range counts {
		if n > most {
			most, at = n, time.UnixMicro(begin)
		}
		if n > s.most {
			above++
		}
	}
	return most, at, above, len(counts)
}

// The count of spans finds a unit too many, and takes none for too many that may have been admitted elsewhere.
func TestFullestSpan(t *testing.T) {
	const ms = 1000 // microseconds
	for _, test := range []struct {
		name    string
		aligned bool
		units   []gateway.Unit
		most    int64
		above   int
	}{
		{"none", true, nil, 0, 0},
		{"three within a window", true, []gateway.Unit{{Asked: 2000 * ms, Known: 2001 * ms}, {Asked: 2500 * ms, Known: 2500 * ms}, {Asked: 2990 * ms, Known: 2999 * ms}}, 3, 1},
		{"the third ends behind the edge", true, []gateway.Unit{{Asked: 2000 * ms, Known: 2001 * ms}, {Asked: 2500 * ms, Known: 2500 * ms}, {Asked: 2990 * ms, Known: 3000 * ms}}, 2, 0},
		{"the first began before the edge", true, []gateway.Unit{{Asked: 1999 * ms, Known: 2001 * ms}, {Asked: 2500 * ms, Known: 2500 * ms}, {Asked: 2990 * ms, Known: 2999 * ms}}, 2, 0},
		{"three across an edge", true, []gateway.Unit{{Asked: 2500 * ms, Known: 2500 * ms}, {Asked: 2990 * ms, Known: 2999 * ms}, {Asked: 3000 * ms, Known: 3001 * ms}}, 2, 0},
		{"three within any second", false, []gateway.Unit{{Asked: 2500 * ms, Known: 2500 * ms}, {Asked: 2990 * ms, Known: 2999 * ms}, {Asked: 3400 * ms, Known: 3499 * ms}}, 3, 1},
		{"three within a second and no less", false, []gateway.Unit{{Asked: 2500 * ms, Known: 2500 * ms}, {Asked: 2990 * ms, Known: 2999 * ms}, {Asked: 3400 * ms, Known: 3500 * ms}}, 2, 0},
	} {
		most, _, above, _ := span{time.Second, test.aligned, 2}.fullest(test.units)
		if most != test.most || above != test.above {
			t.Errorf("%s: got %d, %d above; want %d, %d", test.name, most, above, test.most, test.above)
		}
	}
}

func sleepTo(t *testing.T, at time.Time) {
	t.Helper()
	select {
	case <-time.After(time.Until(at)):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
