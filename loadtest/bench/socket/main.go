// Command socket measures decisions that are asked for over a socket, in turns. It asks a quota-agent by each of its
// doors. It asks token buckets in one Redis Cluster (redis_rate, and a plain Lua bucket), once for each request. It
// tells what a decision costs the processes that answer, and how long callers wait.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/engines"
	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
)

const (
	tenants = 1000
	policy  = `default_plan: free
gateways:
  envoy: {domain: edge, descriptors: {tenant: tenant}}
plans:
  free: {limits: [{name: requests, by: [tenant], rate: 1000000/second, burst: 1000000, meter: requests}]}
`
	// bucket is a token bucket of rate ARGV[1] a second and burst ARGV[2], on the node's clock.
	bucket = `
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local b = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = math.min(tonumber(ARGV[2]), (tonumber(b[1]) or tonumber(ARGV[2])) + (now - (tonumber(b[2]) or now)) * ARGV[1])
local allowed = 0
if level >= 1 then allowed, level = 1, level - 1 end
redis.call('HSET', KEYS[1], 'level', tostring(level), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], 60000)
return allowed`
)

// Programs that answer, as the system names them.
const (
	agentName  = "quota-agent"
	serverName = "quota-server"
	redisName  = "redis-server"
)

// candidate is one way to ask.
type candidate struct {
	name    string
	servers []string // the programs that answer, whatever else they do included
	door    int      // of the agent that each turn begins with
	asks    func(a *sidecar) ask
}

// ask reports whether a tenant's request is allowed.
type ask func(ctx context.Context, tenant int) (bool, error)

// row is the result of one candidate: medians of its turns.
type row struct {
	Name         string  `json:"name"`
	PerSecond    float64 `json:"decisions_per_second"`
	ServerCPUUS  float64 `json:"server_cpu_us"` // a decision, of the programs that answer
	AgentCPUUS   float64 `json:"agent_cpu_us"`  // of these quota-agent
	LeaseCPUUS   float64 `json:"lease_cpu_us"`  // and quota-server
	RedisCPUUS   float64 `json:"redis_cpu_us"`
	P50US        float64 `json:"p50_us"`
	P99US        float64 `json:"p99_us"`
	Callers      int     `json:"callers"`
	ServerCPUOfA float64 `json:"server_cpu_ratio"` // the first row's ÷ this one's
	P99OfA       float64 `json:"p99_ratio"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "socket: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	bin := flag.String("bin", "../../bin", "directory of quota-server and quota-agent")
	out := flag.String("json", "", "write the rows to this file")
	callers := flag.Int("callers", 16, "requests under way at a time")
	turn := flag.Duration("turn", 3*time.Second, "how long a candidate's turn is")
	warm := flag.Duration("warm", 15*time.Second, "how long each turn runs before it is measured: its leases begin and grow")
	only := flag.String("only", "", "candidates whose name has this in it")
	turns := flag.Int("turns", 3, "turns of each")
	flag.Parse()
	if *callers < 1 || *turns < 1 || *turn <= 0 || *warm < 0 {
		return errors.New("-callers, -turns and -turn must be above 0, and -warm not below")
	}
	dir, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	s, err := stack.Start(ctx, stack.Real, stack.Server{Policy: policy, Program: filepath.Join(dir, "quota-server")}, os.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	program := filepath.Join(dir, "quota-agent")

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Redis, PoolSize: *callers})
	defer cluster.Close()
	limiter, script := redis_rate.NewLimiter(cluster), redis.NewScript(bucket)
	keys := make([]string, tenants)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%05d", i)
	}
	ours := []string{agentName, serverName, redisName}
	theirs := []string{redisName}
	candidates := []candidate{
		{"quota-agent, thin client, Unix", ours, unixDoor, func(a *sidecar) ask { return thinly(a.thin, keys) }},
		{"quota-agent, thin client, TCP", ours, tcpDoor, func(a *sidecar) ask { return thinly(a.thin, keys) }},
		{"quota-agent, Envoy, Unix", ours, unixDoor, func(a *sidecar) ask { return asker(a.conn, keys) }},
		{"quota-agent, Envoy, TCP", ours, tcpDoor, func(a *sidecar) ask { return asker(a.conn, keys) }},
		{"quota-agent, HTTP /check, Unix", ours, unixDoor, func(a *sidecar) ask { return check(a.http, keys) }},
		{"redis_rate", theirs, noDoor, func(*sidecar) ask {
			return func(ctx context.Context, t int) (bool, error) {
				r, err := limiter.Allow(ctx, keys[t], redis_rate.Limit{Rate: 1_000_000, Burst: 1_000_000, Period: time.Second})
				return err == nil && r.Allowed > 0, err
			}
		}},
		{"plain Lua bucket", theirs, noDoor, func(*sidecar) ask {
			return func(ctx context.Context, t int) (bool, error) {
				n, err := script.Run(ctx, cluster, []string{"lua:" + keys[t]}, 1_000_000, 1_000_000).Int()
				return n == 1, err
			}
		}},
	}
	candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return !strings.Contains(c.name, *only) })
	if len(candidates) == 0 {
		return fmt.Errorf("-only %s: no such candidate", *only)
	}
	rows := make([]row, len(candidates))
	taken := make([][]row, len(candidates))
	for range *turns {
		for i, c := range candidates {
			r, err := c.take(ctx, program, s.Addr, *callers, *warm, *turn)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			taken[i] = append(taken[i], r)
		}
	}
	for i, c := range candidates {
		median := func(f func(r row) float64) float64 {
			v := make([]float64, 0, len(taken[i]))
			for _, r := range taken[i] {
				v = append(v, f(r))
			}
			slices.Sort(v)
			return v[len(v)/2]
		}
		rows[i] = row{
			Name: c.name, Callers: *callers,
			PerSecond:   median(func(r row) float64 { return r.PerSecond }),
			ServerCPUUS: median(func(r row) float64 { return r.ServerCPUUS }),
			AgentCPUUS:  median(func(r row) float64 { return r.AgentCPUUS }),
			LeaseCPUUS:  median(func(r row) float64 { return r.LeaseCPUUS }),
			RedisCPUUS:  median(func(r row) float64 { return r.RedisCPUUS }),
			P50US:       median(func(r row) float64 { return r.P50US }),
			P99US:       median(func(r row) float64 { return r.P99US }),
		}
		rows[i].ServerCPUOfA, rows[i].P99OfA = rows[0].ServerCPUUS/rows[i].ServerCPUUS, rows[0].P99US/rows[i].P99US
	}
	fmt.Printf("%-32s %12s %16s %8s %8s %8s %10s %10s %16s %14s\n", "", "decisions/s", "server CPU, µs =", "agent +", "server +", "Redis", "p50, µs", "p99, µs", "first's CPU ÷ its", "first's p99 ÷")
	for _, r := range rows {
		fmt.Printf("%-32s %12.0f %16.2f %8.2f %8.2f %8.2f %10.0f %10.0f %16.3f %14.2f\n",
			r.Name, r.PerSecond, r.ServerCPUUS, r.AgentCPUUS, r.LeaseCPUUS, r.RedisCPUUS, r.P50US, r.P99US, r.ServerCPUOfA, r.P99OfA)
	}
	if *out == "" {
		return nil
	}
	b, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(b, '\n'), 0o644)
}

// take is a turn. It has an agent of its own, which gives its leases back at the end. Otherwise server and Redis would
// take them back during the next candidate's turn, at its cost.
func (c *candidate) take(ctx context.Context, program, server string, callers int, warm, turn time.Duration) (r row, err error) {
	a := &sidecar{}
	if c.door != noDoor {
		if a, err = startSidecar(ctx, program, server, c.door); err != nil {
			return r, err
		}
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	asks := c.asks(a)
	if warm > 0 {
		if _, err := c.measure(ctx, asks, callers, warm); err != nil {
			return r, err
		}
	}
	return c.measure(ctx, asks, callers, turn)
}

// Doors of an agent, by their kind of socket.
const (
	noDoor = iota
	unixDoor
	tcpDoor
)

// sidecar is a quota-agent process, and connections to its doors.
type sidecar struct {
	conn  *grpc.ClientConn
	thin  *agentclient.Client
	http  *http.Client // of a Unix socket
	stops []func() error
}

func (a *sidecar) stop() error {
	var errs []error
	for _, f := range slices.Backward(a.stops) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func startSidecar(ctx context.Context, program, server string, door int) (a *sidecar, err error) {
	dir, err := engines.TempDir("socket")
	if err != nil {
		return nil, err
	}
	a = &sidecar{}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.stop())
		}
	}()
	web, addr, httpAddr := filepath.Join(dir, "web.sock"), "127.0.0.1:7691", ""
	if door == unixDoor {
		addr, httpAddr = "unix:"+filepath.Join(dir, "agent.sock"), "unix:"+web
	}
	unit, err := engines.Start(ctx, engines.Command{
		Name: "agent", Path: program, Dir: dir, Quit: syscall.SIGTERM,
		Args: []string{"--server", server, "--agent-id", "agent", "--http-addr", httpAddr, "--grpc-addr", addr, "--log-level", "error"},
	})
	if err != nil {
		return a, err
	}
	a.stops = append(a.stops, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return unit.Quit(ctx)
	})
	if a.conn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return a, err
	}
	a.stops = append(a.stops, a.conn.Close)
	if a.thin, err = agentclient.Dial(ctx, addr, agentclient.WithFirstWait(0)); err != nil {
		return a, err
	}
	a.stops = append(a.stops, func() error { return a.thin.Close(context.Background()) })
	a.http = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 1024,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", web)
		},
	}}
	a.stops = append(a.stops, func() error { a.http.CloseIdleConnections(); return nil })
	// It is up once it decides.
	for !a.thin.Allow(ctx, client.Tenant("first")).Allowed {
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return a, nil
}

// thinly asks an agent like a process without leases: all callers share one connection.
func thinly(thin *agentclient.Client, keys []string) ask {
	return func(ctx context.Context, tenant int) (bool, error) {
		d := thin.Allow(ctx, client.Tenant(keys[tenant]))
		if d.Reason != client.ReasonLimit {
			return false, fmt.Errorf("not decided: %s", d.Reason)
		}
		return d.Allowed, nil
	}
}

// check asks an agent as nginx does.
func check(door *http.Client, keys []string) ask {
	return func(ctx context.Context, tenant int) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/check", nil)
		if err != nil {
			return false, err
		}
		r.Header.Set("X-Tenant", keys[tenant])
		answer, err := door.Do(r)
		if err != nil {
			return false, err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode == http.StatusOK, errors.Join(err, answer.Body.Close())
	}
}

// asker asks an agent as Envoy does.
func asker(conn *grpc.ClientConn, keys []string) ask {
	requests := make([]*rls.RateLimitRequest, len(keys))
	for i, k := range keys {
		requests[i] = &rls.RateLimitRequest{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "tenant", Value: k}}},
		}}
	}
	service := rls.NewRateLimitServiceClient(conn)
	return func(ctx context.Context, tenant int) (bool, error) {
		answer, err := service.ShouldRateLimit(ctx, requests[tenant], grpc.WaitForReady(true))
		return answer.GetOverallCode() == rls.RateLimitResponse_OK, err
	}
}

// measure asks for a turn's length.
func (c *candidate) measure(ctx context.Context, asks ask, callers int, turn time.Duration) (r row, err error) {
	before, err := stack.CPU()
	if err != nil {
		return r, err
	}
	begin := time.Now()
	took, faults := make([][]time.Duration, callers), make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				if start.Sub(begin) > turn {
					return
				}
				allowed, err := asks(ctx, rand.IntN(tenants))
				if err == nil && !allowed {
					err = errors.New("denied, where nothing is to be")
				}
				if err != nil {
					faults[i] = err
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	group.Wait()
	seconds := time.Since(begin).Seconds()
	after, err := stack.CPU()
	if err = errors.Join(append(faults, err, ctx.Err())...); err != nil {
		return r, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return r, errors.New("no answer in a whole turn")
	}
	slices.Sort(all)
	us := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Nanoseconds()) / 1e3 }
	each := func(name string) float64 {
		if !slices.Contains(c.servers, name) {
			return 0
		}
		return (after[name] - before[name]) * 1e6 / float64(len(all))
	}
	r = row{
		PerSecond: float64(len(all)) / seconds, P50US: us(0.5), P99US: us(0.99),
		AgentCPUUS: each(agentName), LeaseCPUUS: each(serverName), RedisCPUUS: each(redisName),
	}
	r.ServerCPUUS = r.AgentCPUUS + r.LeaseCPUUS + r.RedisCPUUS
	return r, nil
}
