// Command books measures the ledger through a quota server on a durable Postgres: how
// many report rows a second it takes from gRPC to the roll-ups, and how large it
// gets. Reports are made before the clock starts; server, Postgres and those who send
// share this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	only := flag.String("only", "", "figures to make, comma-separated: "+strings.Join(names(), ", ")+"; all without")
	flag.IntVar(&o.rounds, "rounds", 10, "reports of each agent in the figures of intake")
	flag.Parse()
	for _, f := range figures {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), f.name) {
			continue
		}
		fmt.Printf("\n== %s\n", f.name)
		if err := f.make(ctx, o); err != nil {
			fmt.Printf("bench-ledger: FAILED: %s: %v\n", f.name, err)
			os.Exit(1)
		}
	}
	fmt.Println("\nbench-ledger: ok")
}

type options struct {
	rounds int
}

var figures = []struct {
	name string
	make func(context.Context, options) error
}{{"intake", intake}, {"size", size}}

func names() (all []string) {
	for _, f := range figures {
		all = append(all, f.name)
	}
	return all
}
