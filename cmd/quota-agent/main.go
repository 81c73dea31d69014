// Command quota-agent is the SDK as a sidecar: gateways that cannot link it ask an
// agent beside them, over HTTP or Envoy's rate limit protocol. docs/doors.md says how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/f4ee788f/quota/internal/hangup"
	"github.com/f4ee788f/quota/internal/version"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit code. It is 0, 1 when the agent failed or left usage unsettled, or 2 when the command line was
// wrong.
func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "quota-agent: %v\nquota-agent --help lists the flags.\n", err)
		return 2
	case c.version:
		fmt.Fprintln(stdout, version.Line("quota-agent"))
		return 0
	}
	min, _ := level(c.logLevel) // validated
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: min}))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer hangup.Outlive(log)()
	if c.recovers {
		if err := recoverJournal(ctx, c, log, stdout); err != nil {
			log.Error("quota-agent did not settle all of the journal", "error", err)
			return 1
		}
		return 0
	}
	if err := serve(ctx, c, log); err != nil {
		log.Error("quota-agent ends", "error", err)
		return 1
	}
	return 0
}

func level(word string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(word)); err != nil {
		return l, fmt.Errorf("%q: write debug, info, warn or error", word)
	}
	return l, nil
}
