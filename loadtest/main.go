// Command loadtest drives many gateways, each a full client, against a quota server,
// counts what is admitted, and holds the ledger to it. Without --server it starts
// everything itself: a Redis Cluster of six nodes, a Postgres and a server.
// docs/loadtest.md says how to read what it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/hugepages"
	"github.com/f4ee788f/quota/internal/version"
	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/load"
	"github.com/f4ee788f/quota/loadtest/size"
	"github.com/f4ee788f/quota/loadtest/stack"
)

// errLedger means that the ledger is not what was admitted.
var errLedger = errors.New("the ledger differs from what was admitted")

// given is the word for the engines of a server that was running already.
const given = "given"

// errUsage means that the flags were not understood; flag has said so already.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "loadtest: FAILED: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "gateway" {
		return gateway.Command(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "size" {
		err := size.Command(args[1:], stdout, stderr)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return nil
		case err != nil:
			fmt.Fprintf(stderr, "loadtest: %v\n", err)
			return errUsage
		}
		return nil
	}
	return runLoad(ctx, args, stdout, stderr)
}

func runLoad(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := load.Config{Progress: stdout}
	var server, adminKey, engines, file, page string
	var metrics, redis, postgres string
	var apply, showVersion, journal bool
	var journals string
	var fold time.Duration
	f := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "loadtest drives gateways, each a full client, against a quota server, and holds the ledger\n"+
			"to what they admitted: it ends with 0 only if the two are equal. docs/loadtest.md has more.\n\nFlags:\n")
		f.PrintDefaults()
	}
	f.IntVar(&c.Gateways, "gateways", 4, "gateways, each a client of its own")
	f.IntVar(&c.Tenants, "tenants", 100, "tenants that ask")
	f.DurationVar(&c.Duration, "duration", 10*time.Second, "how long to measure")
	f.DurationVar(&c.Warm, "warm", 2*time.Second, "how long at most to load before measuring, while leases are new")
	f.Int64Var(&c.Rate, "rate", 0, "decisions a second of all gateways; 0 for as many as possible")
	f.StringVar(&c.Shape, "distribution", load.Uniform, "how requests spread over tenants: uniform or zipf")
	f.IntVar(&c.Limits, "limits", 1, "limits that each request meets")
	f.IntVar(&c.Saturated, "saturated", 0, "size the limits to --rate, so that this percentage of the tenants asks for 1.5 to 3 times its limit; 0 for limits of their own")
	f.DurationVar(&c.Burst, "burst", 10*time.Second, "burst of sized limits, as a time at their rate")
	f.IntVar(&c.Cold, "cold", 0, "requests a second of tenants that were never seen before")
	f.DurationVar(&c.Changes, "changes", 0, "how often a tenant's plan changes, of a load with --saturated; 0 for never")
	f.DurationVar(&c.Report, "report-interval", 0, "how often a gateway reports usage; 0 for the client's default")
	f.Uint64Var(&c.Seed, "seed", 1, "seed of the requests' order")
	f.BoolVar(&journal, "journal", true, "each gateway has a journal, so that a crash loses nothing")
	f.StringVar(&journals, "journal-dir", memory(), "directory that journals are made in; all gateways share its disk, so by default one in memory where there is one")
	f.BoolVar(&c.Touch, "touch", true, "each tenant asks once at each gateway before anything is measured")
	f.IntVar(&c.Workers, "workers", 0, "goroutines that ask; 0 for 64 for each gateway")
	f.StringVar(&server, "server", "", "a quota server, HOST:PORT, several with commas between; empty starts one")
	f.StringVar(&c.Key, "key", "", "agent key for --server, bound to no agent id")
	f.StringVar(&adminKey, "admin-key", "", "key for --server that may read usage, and with --apply change the policy")
	f.BoolVar(&apply, "apply", false, "apply the load's own policy to --server, in place of the one in force")
	f.StringVar(&metrics, "metrics", "", "address of --server's metrics, HOST:PORT, several with commas between; renewals and processor time are read there")
	f.StringVar(&redis, "redis", "", "nodes of --server's lease store, HOST:PORT with commas between; commands and their processor time are read there")
	f.StringVar(&postgres, "postgres", "", "URL of --server's ledger: report rows are counted there")
	f.StringVar(&c.Prefix, "tenant-prefix", load.Prefix, "prefix of the tenants' ids, which differs between loads that share a server")
	f.StringVar(&engines, "engines", stack.Auto, "engines of a started server: real (Redis Cluster, Postgres), memory (in process, SQLite), or auto: real if they are installed")
	f.DurationVar(&fold, "fold-interval", 0, "how often a started server folds reports into the ledger's blocks; 0 for the server's default")
	f.StringVar(&file, "json", "", "file to write the result to")
	f.StringVar(&page, "html", "", "file to write a page with charts over time to")
	f.StringVar(&c.Profile, "profile", "", "directory to write processor profiles of this process to, of the first leases and of what is measured")
	f.BoolVar(&showVersion, "version", false, "print the version and end")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errUsage
	}
	if showVersion {
		fmt.Fprintln(stdout, version.Line("loadtest"))
		return nil
	}
	if f.NArg() > 0 {
		fmt.Fprintf(stderr, "loadtest: unexpected argument %q\n", f.Arg(0))
		return errUsage
	}
	var negative error
	if fold < 0 {
		negative = fmt.Errorf("fold-interval: 0 or more, got %s", fold)
	}
	if err := errors.Join(c.Validate(), negative, stack.Check(engines), together(f, server, apply, c.Saturated), writable("json", file), writable("html", page)); err != nil {
		fmt.Fprintf(stderr, "loadtest: %v\n", err)
		return errUsage
	}
	// Live buckets are many small objects. Collecting them as often as Go does by itself would take more time than
	// deciding.
	debug.SetGCPercent(collectAt)
	go hugepages.Follow(ctx)
	plans, err := load.NewPlans(c)
	if err != nil {
		return err
	}

	c.Target = server
	var parts stack.Parts
	if server == "" {
		program := beside("quota-server")
		if program == "" && engines != stack.Memory {
			fmt.Fprintln(stdout, "quota-server is not beside this program: the server runs in this process")
		}
		s, err := stack.Start(ctx, engines, stack.Server{Policy: plans.Document, Program: program, FoldEvery: fold}, stdout)
		if err != nil {
			return err
		}
		c.Target, engines, c.Shared = s.Addr, s.Engines, s.Shared
		defer func() {
			if err := s.Stop(); err != nil {
				fmt.Fprintf(stderr, "loadtest: %v\n", err)
			}
		}()
		parts = s.Parts()
	} else {
		engines, c.Unknown = given, !apply
		parts = stack.Parts{Servers: list(metrics), Redis: list(redis), Postgres: postgres}
	}
	o, err := stack.Observe(ctx, parts)
	if err != nil {
		return err
	}
	defer func() {
		if err := o.Close(); err != nil {
			fmt.Fprintf(stderr, "loadtest: %v\n", err)
		}
	}()
	c.Observe = observe(o, server != "")
	if _, err := c.Observe(ctx); err != nil { // now, and not after the load
		return err
	}
	first, _, _ := strings.Cut(c.Target, ",")
	conn, err := grpc.NewClient(first, grpc.WithTransportCredentials(insecure.NewCredentials()), stack.Bearer(adminKey))
	if err != nil {
		return err
	}
	defer conn.Close()
	if apply {
		if err := stack.Apply(ctx, conn, plans.Document); err != nil {
			return err
		}
	}
	if apply || server == "" {
		c.SetPlan = func(ctx context.Context, tenant, plan string) error { return stack.SetPlan(ctx, conn, tenant, plan) }
	}
	if journal {
		if c.Journals, err = os.MkdirTemp(journals, "loadtest-journals-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(c.Journals) }() // all of it is settled
	}
	before := loadAverage()
	result, err := held(ctx, c, plans, conn, engines)
	if err != nil {
		return err
	}
	result.LoadAverage = fmt.Sprintf("%s before, %s after", before, loadAverage())
	return report(result, file, page, stdout)
}

// collectAt is how much the heap grows between collections, in percent.
const collectAt = 400

// beside returns the path of a program in this one's directory, empty where there is none.
func beside(name string) string {
	own, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(own), name)
	if s, err := os.Stat(path); err != nil || s.IsDir() {
		return ""
	}
	return path
}

// loadAverage is the machine's load over the last minute; empty if it is not available.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// list is the words between commas.
func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// observe adds up what the parts have done; two callers may ask at a time. A part that does not run below this process
// tells its processor time itself.
func observe(o *stack.Observer, apart bool) func(ctx context.Context) (load.Observation, error) {
	var mu sync.Mutex
	return func(ctx context.Context) (seen load.Observation, err error) {
		mu.Lock()
		defer mu.Unlock()
		var redis *stack.RedisDone
		var servers *stack.ServersDone
		group, asking := errgroup.WithContext(ctx) // all at the same moment, as far as they answer
		group.Go(func() (err error) { seen.CPU, err = stack.CPU(); return err })
		group.Go(func() (err error) { redis, err = o.Redis(asking); return err })
		group.Go(func() (err error) { servers, err = o.Servers(asking); return err })
		group.Go(func() (err error) { seen.Rows, err = o.Rows(asking); return err })
		if err := group.Wait(); err != nil {
			return seen, err
		}
		if redis != nil {
			seen.Redis = &load.RedisDone{Commands: redis.Commands, Scripts: redis.Scripts, ScriptTime: redis.ScriptTime}
			if apart {
				seen.CPU["redis-server"] = redis.CPU
			}
		}
		if servers != nil {
			seen.Renewed = &servers.Renewed
			if apart {
				seen.CPU["quota-server"] = servers.CPU
			}
		}
		return seen, nil
	}
}

// together refuses flags that would have no effect, or a wrong one. They are flags of a given server without one,
// engines where none are started, and limits sized for a server that has others.
func together(f *flag.FlagSet, server string, apply bool, saturated int) error {
	var faults []error
	f.Visit(func(set *flag.Flag) {
		switch set.Name {
		case "apply", "key", "admin-key", "metrics", "redis", "postgres":
			if server == "" {
				faults = append(faults, fmt.Errorf("--%s is for the server of --server, which is not given", set.Name))
			}
		case "engines", "fold-interval":
			if server != "" {
				faults = append(faults, fmt.Errorf("--%s is for a server that is started; --server names one that runs", set.Name))
			}
		case "saturated":
			if server != "" && !apply {
				faults = append(faults, errors.New("--saturated sizes the load's own policy; give --apply to put it in force on --server"))
			}
		case "burst":
			if saturated == 0 {
				faults = append(faults, errors.New("--burst is of limits that are sized to the rate; give --saturated too"))
			}
		}
	})
	return errors.Join(faults...)
}

// writable reports before the load, and not after it, that its result cannot be written.
func writable(name, file string) error {
	if file == "" {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err == nil && !dir.IsDir() {
		err = fmt.Errorf("%s is no directory", filepath.Dir(file))
	}
	if there, gone := os.Stat(file); gone == nil && there.IsDir() {
		err = fmt.Errorf("%s is a directory", file)
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", name, err)
	}
	return nil
}

// held runs the load and holds the ledger to it. Units that a given server's ledger had before are subtracted, so that
// a second run against it can be right too.
func held(ctx context.Context, c load.Config, plans *load.Plans, conn grpc.ClientConnInterface, engines string) (*load.Result, error) {
	before := make(map[string]int64)
	if engines == given {
		names := make([]string, c.Tenants)
		for i := range names {
			names[i] = c.Tenant(i)
		}
		var err error
		if before, err = stack.Usage(ctx, conn, load.Meter, names); err != nil {
			return nil, err
		}
	}
	result, err := load.Run(ctx, c, plans, func(ctx context.Context, names []string) (map[string]int64, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		units, err := stack.Usage(ctx, conn, load.Meter, names)
		if err != nil {
			return nil, err
		}
		for t := range units {
			units[t] -= before[t]
		}
		if engines == given {
			delete(units, stack.Others) // who may have traffic of their own
		}
		return units, nil
	})
	if err != nil {
		return nil, err
	}
	result.Engines = engines
	return result, nil
}

// report prints a result, and fails if the ledger is not what was admitted.
func report(result *load.Result, file, page string, stdout io.Writer) error {
	fmt.Fprintln(stdout)
	if err := result.WriteTable(stdout); err != nil {
		return err
	}
	if file != "" {
		if err := result.WriteJSON(file); err != nil {
			return err
		}
	}
	if page != "" {
		if err := result.WriteHTML(page); err != nil {
			return err
		}
	}
	if !result.LedgerEqual {
		return errLedger
	}
	return nil
}

// memory returns a directory that is in memory; the one for temporary files where the machine has none.
func memory() string {
	const shared = "/dev/shm"
	if info, err := os.Stat(shared); err == nil && info.IsDir() {
		return shared
	}
	return os.TempDir()
}
