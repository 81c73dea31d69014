package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/f4ee788f/quota/internal/engines"
	"github.com/f4ee788f/quota/loadtest/load"
)

// Programs, by the names under which the load test tells their processor time.
const (
	serverName   = "quota-server"
	redisName    = "redis-server"
	postgresName = "postgres"
)

// loadtest runs the load test, which starts engines and a server for each load.
type loadtest struct {
	program string
}

// ready reports what is missing. It is asked before anything is measured, because the other figures take minutes.
func (l loadtest) ready() error {
	var faults []error
	for _, file := range []string{l.program, filepath.Join(filepath.Dir(l.program), serverName)} {
		if _, err := os.Stat(file); err != nil {
			faults = append(faults, fmt.Errorf("%w: make build makes it", err))
		}
	}
	_, noRedis := engines.FindRedis()
	_, noPostgres := engines.FindPostgres()
	if err := errors.Join(append(faults, noRedis, noPostgres)...); err != nil {
		return fmt.Errorf("costs on real engines cannot be measured here; -engines=false leaves their table as it is:\n%w", err)
	}
	return nil
}

// run is the result of a load. It fails if the ledger is not what was admitted.
func (l loadtest) run(args ...string) (*load.Result, error) {
	dir, err := os.MkdirTemp("", "curves-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "result.json")
	c := exec.CommandContext(context.Background(), l.program, append(args, "--engines", "real", "--json", file)...)
	c.Stderr = os.Stderr // it says there why it fails
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w", c.Args, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return read(b)
}

// read decodes a result, and refuses one that lacks a part.
func read(b []byte) (*load.Result, error) {
	r := new(load.Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("the load test's result: %w", err)
	}
	if r.OfRedis == nil || r.ReportRowsPerSecond == nil || r.ObservedSeconds <= 0 {
		return nil, errors.New("the load test's result does not tell of Redis or of Postgres")
	}
	for _, name := range []string{serverName, redisName, postgresName} {
		if _, ok := r.CPUSeconds[name]; !ok {
			return nil, fmt.Errorf("the load test's result does not tell what %s took of the processor", name)
		}
	}
	return r, nil
}

// engineCurves are the curves of the figure engines: the cost of a renewed bucket, of a live bucket, and of the
// ledger's rows.
var engineCurves = []string{
	"server, µs a renewal", "Redis, µs a renewal", "Redis commands a renewal", "scripts a renewal", "renewals/s",
	"server, µs/s a live bucket", "Redis commands/s a live bucket",
	"report rows/h", "report rows/h a live bucket", "Postgres, µs a row",
}

// costs are a load's values for them.
func costs(r *load.Result) ([]float64, error) {
	renewed, live, rows := r.RenewedPerSecond, float64(r.Buckets), *r.ReportRowsPerSecond
	if renewed <= 0 || live <= 0 || rows <= 0 {
		return nil, fmt.Errorf("%d × %d: nothing to divide by: %g renewals/s, %g live buckets, %g report rows/s", r.Gateways, r.Tenants, renewed, live, rows)
	}
	micros := func(program string) float64 { return r.CPUSeconds[program] / r.ObservedSeconds * 1e6 } // a second
	return []float64{
		micros(serverName) / renewed, micros(redisName) / renewed, r.RedisCommandsPerSecond / renewed, r.RedisScriptsPerSecond / renewed, renewed,
		micros(serverName) / live, r.RedisCommandsPerSecond / live,
		rows * 3600, rows * 3600 / live, micros(postgresName) / rows,
	}, nil
}

// byEngines measures the cost of the buckets of real loads, at one rate of requests. With more buckets each has a
// smaller part of it.
func (l loadtest) byEngines(part int) (f figure, err error) {
	f = figure{
		title: "What a renewed and a live bucket cost the server, Redis and the ledger", point: "live buckets (gateways × tenants)", charted: 2,
		curves: named(engineCurves...),
	}
	less := min(part, 10)
	arguments := func(gateways, tenants, rate int) []string {
		return []string{
			"--gateways", fmt.Sprint(gateways), "--tenants", fmt.Sprint(tenants), "--rate", fmt.Sprint(rate),
			"--warm", (10 * time.Second / time.Duration(less)).String(), "--duration", (20 * time.Second / time.Duration(less)).String(),
			"--report-interval", (10 * time.Second / time.Duration(less)).String(),
		}
	}
	fmt.Fprintln(os.Stderr, "curves: engines that are idle")
	idle, err := l.run(arguments(1, 1, 1)...)
	if err != nil {
		return f, err
	}
	for _, size := range []struct{ gateways, tenants int }{{10, 100}, {10, 1_000}, {10, 5_000}, {50, 1_000}} {
		gateways, tenants := size.gateways, size.tenants/less
		r, err := l.run(append(arguments(gateways, tenants, 100_000), "--distribution", "zipf", "--saturated", "20", "--burst", "10s")...)
		if err != nil {
			return f, err
		}
		fmt.Fprintf(os.Stderr, "curves: %d gateways × %s tenants on real engines, %s decisions/s\n", gateways, thousands(int64(tenants)), number(r.DecisionsPerSecond))
		values, err := costs(r)
		if err != nil {
			return f, err
		}
		f.add(fmt.Sprintf("%s (%d × %s)", thousands(r.Buckets), gateways, thousands(int64(tenants))), values...)
	}
	percent := func(program string) string { return number(idle.CPUSeconds[program] / idle.ObservedSeconds * 100) }
	f.note = "One run each of `loadtest` on a Redis Cluster of six nodes, a durable Postgres and a quota-server of its own, for 20 s that begin 10 s after the first leases, which are young then and renewed more often than later: 100,000 requests a second asked in all, zipf, a fifth of the tenants beyond their limit, a report of each gateway every 10 s. " +
		"The rate is the same in every row, so that with more buckets each has fewer requests, smaller leases, and more of its requests are renewals. Growth worse than linear would show as a renewal, or a live bucket, that costs more the more there are. " +
		"All is divided and nothing subtracted: a program's whole time, replicas, what the server folds and Postgres does for it, and the load test's own questions each second are included; commands are the masters', those of scripts with them. " +
		fmt.Sprintf("With one bucket, asked for once a second, the same programs take of a core: server %s %%, Redis %s %%, Postgres %s %%, and Redis has %s commands/s; where renewals and rows are few, that is much of what one is said to cost. ",
			percent(serverName), percent(redisName), percent(postgresName), number(idle.RedisCommandsPerSecond)) +
		"A report has a row of each bucket that was used since the one before, some 360 an hour at most; the server's entries are of tenants and not of gateways, one of each in each fold."
	return f, nil
}
