// Command quotactl administers a quota server.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/f4ee788f/quota/internal/quotactl"
)

func main() {
	// Writing to a pipe that nobody reads fails instead of ending the process: it may still have a key to revoke.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := quotactl.Main(ctx, os.Args[1:], quotactl.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
