// Command socket measures decisions that are asked for over a socket: of a quota-agent, and of token
// buckets in Redis asked once for each request (redis_rate, and a plain Lua bucket), on one
// Redis Cluster, in turns. It tells what a decision costs the processes that answer, and how long callers wait.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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

// candidate answers whether a tenant's request is allowed.
type candidate struct {
	name    string
	servers []string // the programs that answer, as the system names them
	ask     func(ctx context.Context, tenant int) (bool, error)
}

// row is what one candidate came to: medians of its turns.
type row struct {
	Name         string  `json:"name"`
	PerSecond    float64 `json:"decisions_per_second"`
	ServerCPUUS  float64 `json:"server_cpu_us"` // a decision, of the programs that answer
	P50US        float64 `json:"p50_us"`
	P99US        float64 `json:"p99_us"`
	Callers      int     `json:"callers"`
	ServerCPUOfA float64 `json:"server_cpu_ratio"` // quota-agent's over TCP ÷ this one's
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
	turns := flag.Int("turns", 3, "turns of each")
	flag.Parse()
	if *callers < 1 || *turns < 1 || *turn <= 0 {
		return errors.New("-callers, -turns and -turn must be above 0")
	}
	dir, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	s, err := stack.Start(ctx, stack.Real, filepath.Join(dir, "quota-server"), policy, os.Stdout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	door, closeAgent, err := startAgent(ctx, filepath.Join(dir, "quota-agent"), s.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAgent()) }()

	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Redis, PoolSize: *callers})
	defer client.Close()
	limiter, script := redis_rate.NewLimiter(client), redis.NewScript(bucket)
	keys := make([]string, tenants)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%05d", i)
	}
	candidates := []candidate{
		{"quota-agent, Envoy's protocol", []string{"quota-agent", "quota-server", "redis-server"}, asker(door[0], keys)},
		{"quota-agent, Unix socket", []string{"quota-agent", "quota-server", "redis-server"}, asker(door[1], keys)},
		{"redis_rate", []string{"redis-server"}, func(ctx context.Context, t int) (bool, error) {
			r, err := limiter.Allow(ctx, keys[t], redis_rate.Limit{Rate: 1_000_000, Burst: 1_000_000, Period: time.Second})
			return err == nil && r.Allowed > 0, err
		}},
		{"plain Lua bucket", []string{"redis-server"}, func(ctx context.Context, t int) (bool, error) {
			n, err := script.Run(ctx, client, []string{"lua:" + keys[t]}, 1_000_000, 1_000_000).Int()
			return n == 1, err
		}},
	}
	rows := make([]row, len(candidates))
	taken := make([][]row, len(candidates))
	for n := range *turns + 1 { // the first is to warm up
		for i, c := range candidates {
			r, err := c.measure(ctx, *callers, *turn)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if n > 0 {
				taken[i] = append(taken[i], r)
			}
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
			P50US:       median(func(r row) float64 { return r.P50US }),
			P99US:       median(func(r row) float64 { return r.P99US }),
		}
		rows[i].ServerCPUOfA, rows[i].P99OfA = rows[0].ServerCPUUS/rows[i].ServerCPUUS, rows[0].P99US/rows[i].P99US
	}
	fmt.Printf("%-32s %12s %14s %10s %10s %18s %12s\n", "", "decisions/s", "server CPU, µs", "p50, µs", "p99, µs", "agent's CPU ÷ its", "agent's p99 ÷")
	for _, r := range rows {
		fmt.Printf("%-32s %12.0f %14.1f %10.0f %10.0f %18.2f %12.2f\n", r.Name, r.PerSecond, r.ServerCPUUS, r.P50US, r.P99US, r.ServerCPUOfA, r.P99OfA)
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

// startAgent starts a quota-agent process, and connects to its door over TCP and over a Unix socket.
func startAgent(ctx context.Context, program, server string) (doors [2]*grpc.ClientConn, stop func() error, err error) {
	dir, err := engines.TempDir("socket")
	if err != nil {
		return doors, nil, err
	}
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, f := range slices.Backward(stops) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	fail := func(err error) ([2]*grpc.ClientConn, func() error, error) {
		return doors, nil, errors.Join(err, stop())
	}
	socket := filepath.Join(dir, "agent.sock")
	for i, addr := range []string{"127.0.0.1:7691", "unix:" + socket} {
		name := fmt.Sprintf("agent-%d", i)
		unit, err := engines.Start(ctx, engines.Command{
			Name: name, Path: program, Dir: dir, Quit: syscall.SIGTERM,
			Args: []string{"--server", server, "--agent-id", name, "--http-addr", "", "--grpc-addr", addr, "--log-level", "error"},
		})
		if err != nil {
			return fail(err)
		}
		stops = append(stops, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return unit.Quit(ctx)
		})
		if doors[i], err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			return fail(err)
		}
		stops = append(stops, doors[i].Close)
	}
	return doors, stop, nil
}

// asker asks an agent as Envoy does.
func asker(conn *grpc.ClientConn, keys []string) func(ctx context.Context, tenant int) (bool, error) {
	requests := make([]*rls.RateLimitRequest, len(keys))
	for i, k := range keys {
		requests[i] = &rls.RateLimitRequest{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "tenant", Value: k}}},
		}}
	}
	client := rls.NewRateLimitServiceClient(conn)
	return func(ctx context.Context, tenant int) (bool, error) {
		answer, err := client.ShouldRateLimit(ctx, requests[tenant], grpc.WaitForReady(true))
		return answer.GetOverallCode() == rls.RateLimitResponse_OK, err
	}
}

// measure asks for a turn's length.
func (c *candidate) measure(ctx context.Context, callers int, turn time.Duration) (r row, err error) {
	before, err := c.cpu()
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
				allowed, err := c.ask(ctx, rand.IntN(tenants))
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
	after, err := c.cpu()
	if err = errors.Join(append(faults, err, ctx.Err())...); err != nil {
		return r, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return r, errors.New("no answer in a whole turn")
	}
	slices.Sort(all)
	us := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Nanoseconds()) / 1e3 }
	return row{PerSecond: float64(len(all)) / seconds, ServerCPUUS: (after - before) * 1e6 / float64(len(all)), P50US: us(0.5), P99US: us(0.99)}, nil
}

// cpu is the processor's seconds of the programs that answer, what they do besides included.
func (c *candidate) cpu() (s float64, err error) {
	all, err := stack.CPU()
	for _, name := range c.servers {
		s += all[name]
	}
	return s, err
}
