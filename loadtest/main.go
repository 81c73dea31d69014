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
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/version"
	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/load"
	"github.com/f4ee788f/quota/loadtest/stack"
)

// errLedger means that the ledger is not what was admitted.
var errLedger = errors.New("the ledger differs from what was admitted")

// given is the word for the engines of a server that ran already.
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
	return runLoad(ctx, args, stdout, stderr)
}

func runLoad(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := load.Config{Progress: stdout}
	var server, adminKey, engines, file string
	var apply, showVersion bool
	f := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "loadtest drives gateways, each a full client, against a quota server, and holds the ledger\n"+
			"to what they admitted: it ends with 0 only if the two are equal. docs/loadtest.md has more.\n\nFlags:\n")
		f.PrintDefaults()
	}
	f.IntVar(&c.Gateways, "gateways", 4, "gateways, each a client of its own")
	f.IntVar(&c.Tenants, "tenants", 100, "tenants that ask")
	f.DurationVar(&c.Duration, "duration", 10*time.Second, "how long to load")
	f.Int64Var(&c.Rate, "rate", 0, "decisions a second of all gateways; 0 for as many as possible")
	f.StringVar(&c.Shape, "distribution", load.Uniform, "how requests spread over tenants: uniform or zipf")
	f.Uint64Var(&c.Seed, "seed", 1, "of the requests' order")
	f.IntVar(&c.Workers, "workers", 0, "goroutines that ask; 0 for 32 for each processor")
	f.StringVar(&server, "server", "", "a quota server, HOST:PORT, several with commas between; empty starts one")
	f.StringVar(&c.Key, "key", "", "agent key for --server, bound to no agent id")
	f.StringVar(&adminKey, "admin-key", "", "key for --server that may read usage, and with --apply change the policy")
	f.BoolVar(&apply, "apply", false, "apply the load's own policy to --server, in place of the one in force")
	f.StringVar(&engines, "engines", stack.Auto, "of a server that is started: real (Redis Cluster, Postgres), memory (in process, SQLite), or auto: real where they are installed")
	f.StringVar(&file, "json", "", "file to write the result to")
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
	if err := errors.Join(c.Validate(), stack.Check(engines), together(f, server), writable(file)); err != nil {
		fmt.Fprintf(stderr, "loadtest: %v\n", err)
		return errUsage
	}

	c.Target = server
	if server == "" {
		s, err := stack.Start(ctx, engines, load.Policy(c.Tenants), stdout)
		if err != nil {
			return err
		}
		c.Target, engines = s.Addr, s.Engines
		defer func() {
			if err := s.Stop(); err != nil {
				fmt.Fprintf(stderr, "loadtest: %v\n", err)
			}
		}()
	} else {
		engines = given
	}
	first, _, _ := strings.Cut(c.Target, ",")
	conn, err := grpc.NewClient(first, grpc.WithTransportCredentials(insecure.NewCredentials()), stack.Bearer(adminKey))
	if err != nil {
		return err
	}
	defer conn.Close()
	if apply {
		if err := stack.Apply(ctx, conn, load.Policy(c.Tenants)); err != nil {
			return err
		}
	}
	return report(ctx, c, conn, engines, file, stdout)
}

// together refuses flags that would say nothing: those of a given server without one,
// and engines where none are started.
func together(f *flag.FlagSet, server string) error {
	var faults []error
	f.Visit(func(set *flag.Flag) {
		switch set.Name {
		case "apply", "key", "admin-key":
			if server == "" {
				faults = append(faults, fmt.Errorf("--%s is for the server of --server, which is not given", set.Name))
			}
		case "engines":
			if server != "" {
				faults = append(faults, errors.New("--engines is for a server that is started; --server names one that runs"))
			}
		}
	})
	return errors.Join(faults...)
}

// writable tells before the load, and not after it, that its result has no place.
func writable(file string) error {
	if file == "" {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err == nil && !dir.IsDir() {
		err = fmt.Errorf("%s is no directory", filepath.Dir(file))
	}
	if err != nil {
		return fmt.Errorf("--json: %w", err)
	}
	return nil
}

// report runs the load and tells of it. What a given server's ledger had before is
// taken off, so that a second run against it can be right too.
func report(ctx context.Context, c load.Config, conn grpc.ClientConnInterface, engines, file string, stdout io.Writer) error {
	names := make([]string, c.Tenants)
	for i := range names {
		names[i] = load.Tenant(i)
	}
	before := make(map[string]int64)
	if engines == given {
		var err error
		if before, err = stack.Usage(ctx, conn, load.Meter, names); err != nil {
			return err
		}
	}
	result, err := load.Run(ctx, c, func(ctx context.Context) (map[string]int64, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
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
		return err
	}
	result.Engines = engines
	fmt.Fprintln(stdout)
	if err := result.WriteTable(stdout); err != nil {
		return err
	}
	if file != "" {
		if err := result.WriteJSON(file); err != nil {
			return err
		}
	}
	if !result.LedgerEqual {
		return errLedger
	}
	return nil
}
