// Command quota-server leases quota to agents and settles their usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/flagenv"
	"github.com/f4ee788f/quota/internal/hangup"
	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/internal/version"
	"github.com/f4ee788f/quota/migrations"
)

const usage = `quota-server leases quota to agents and settles what they admit.

  quota-server [flags]           serve
  quota-server migrate [flags]   bring a Postgres ledger's schema up to date, and end
  quota-server retain [flags]    put a ledger's oldest months into files, and end
  quota-server --version         print the version, and end
  quota-server COMMAND --help    the flags of migrate or retain

Without flags it is embedded: leases in memory, a SQLite ledger in ./quota-data,
gRPC on 127.0.0.1:7600, HTTP on 127.0.0.1:7601, open to this machine.

Each flag can also be given as the variable that is named beside it, or as a line
"grpc-addr 127.0.0.1:7600" of the file that --config names; the command line wins over
the environment, and that over the file.

`

// help prints the flags of the command at hand.
var help = func() {}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, stop, os.Args[1:])
	stop()
	var faults fault.Faults
	var wrong misuse
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		help()
	case errors.As(err, &faults):
		fmt.Fprintf(os.Stderr, "%v\nquota-server: the policy file has faults\n", faults)
		os.Exit(1)
	case errors.As(err, &wrong):
		fmt.Fprintf(os.Stderr, "quota-server: %v\nquota-server --help lists the flags.\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "quota-server: %v\n", err)
		os.Exit(1)
	}
}

// misuse is a fault of the command line, the environment or the file of flags.
type misuse struct{ error }

// Unwrap returns the fault.
func (m misuse) Unwrap() error { return m.error }

// commands are the commands besides serving.
var commands = map[string]func(context.Context, []string) error{"migrate": migrate, "retain": retain}

func run(ctx context.Context, second func(), args []string) error {
	if len(args) > 0 {
		if command := commands[args[0]]; command != nil {
			return command(ctx, args[1:])
		}
		if args[0] == "--version" || args[0] == "-version" { // no flag like the others: QUOTA_VERSION means something else to many
			fmt.Println(version.Line("quota-server"))
			return nil
		}
	}
	var c boot.Config
	fs := flags("quota-server", usage)
	c.Flags(fs)
	if err := c.Parse(fs, args); err != nil {
		return parsed(err)
	}
	redis.SetLogger(quiet{}) // what matters of it, the server says in its readiness
	s, err := boot.New(ctx, c)
	if err != nil {
		return err
	}
	defer hangup.Outlive(s.Log())()
	go collect(ctx)
	context.AfterFunc(ctx, second) // a second signal ends the process at once
	return s.Run(ctx)
}

// parsed marks errors of the flags as misuse, and leaves a request for help as it is.
func parsed(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return misuse{err}
}

// quiet drops what go-redis logs by itself: a line for each failed dial.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// migrate is for deployments whose servers must not have the owner's password.
func migrate(ctx context.Context, args []string) error {
	fs := flags("quota-server migrate", "quota-server migrate brings a Postgres ledger's schema up to date, under a lock, and ends.\n\n")
	url := fs.String("ledger-owner-url", "", "the Postgres ledger, as its owner: a `URL` postgres://user:password@host:port/database; better given as the variable, out of the process list; needed")
	password := fs.String("app-password", "", "let the role "+migrations.AppRole+" log in with this `PASSWORD`; better given as the variable; its password stays if not given")
	timeout := fs.Duration("timeout", 10*time.Minute, "how long to wait for the database and for others that migrate, a `DURATION`")
	if err := flagenv.Parse(fs, args, "QUOTA"); err != nil {
		return parsed(err)
	}
	switch {
	case fs.NArg() > 0:
		return misuse{fmt.Errorf("migrate: unexpected argument %q", fs.Arg(0))}
	case *url == "":
		return misuse{errors.New("migrate: --ledger-owner-url is needed")}
	case !strings.HasPrefix(*url, "postgres://") && !strings.HasPrefix(*url, "postgresql://"): // it is not repeated: it may hold a password
		return misuse{errors.New("migrate: --ledger-owner-url: write postgres://user:password@host:port/database")}
	case *timeout <= 0:
		return misuse{fmt.Errorf("migrate: --timeout is %s; it must be above 0", *timeout)}
	}
	var options []migrations.Option
	if *password != "" {
		options = append(options, migrations.AppPassword(*password))
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if err := migrations.Postgres(ctx, *url, options...); err != nil {
		return err
	}
	fmt.Println("the ledger's schema is up to date")
	return nil
}

// flags makes a flag set that prints nothing by itself. main prints faults, and help goes to standard output.
func flags(name, intro string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	help = func() {
		fmt.Print(intro)
		flagenv.Help(os.Stdout, fs, "QUOTA")
	}
	return fs
}
