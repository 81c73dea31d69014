// Command books measures the ledger through a quota server on a durable Postgres. It measures how many report rows a
// second go from gRPC to the roll-ups. It measures the cost of a row from agents that report now and then. It measures
// how large the ledger gets, how it recovers after its database was away, and how long reports of a year take. Server,
// Postgres and senders share this machine; reports of the first three figures are made before the clock starts.
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
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	only := flag.String("only", "", "figures to make, comma-separated: "+strings.Join(names(), ", ")+"; all but reports and export without")
	flag.DurationVar(&o.away, "away", 10*time.Minute, "how long Postgres is away in the figure away")
	flag.IntVar(&o.days, "days", 365, "how many days the ledger of the figure reports has; a year takes 16 GB")
	flag.IntVar(&o.export, "export", 10, "millions of entries that the figure export has")
	flag.StringVar(&o.formats, "formats", "csv,jsonl,parquet", "formats that it writes them in, comma-separated")
	flag.IntVar(&o.rounds, "rounds", 0, "reports of each agent; 0 for ten in the figure intake, four in spread")
	flag.IntVar(&o.agents, "agents", 100, "agents of the figure spread")
	flag.IntVar(&o.keys, "keys", 10_000, "keys that each of them reports")
	flag.DurationVar(&o.every, "every", 30*time.Second, "how often each of them reports")
	flag.DurationVar(&o.over, "over", 15*time.Second, "the time that their reports are spread over")
	flag.Parse()
	for _, f := range figures {
		wanted := f.name != "reports" && f.name != "export" // which take long
		if *only != "" {
			wanted = slices.Contains(strings.Split(*only, ","), f.name)
		}
		if !wanted {
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
	away         time.Duration
	rounds       int
	agents, keys int
	every, over  time.Duration
	days         int
	export       int
	formats      string
}

var figures = []struct {
	name string
	make func(context.Context, options) error
}{{"intake", intake}, {"spread", spread}, {"size", size}, {"away", away}, {"reports", reports}, {"export", export}}

func names() (all []string) {
	for _, f := range figures {
		all = append(all, f.name)
	}
	return all
}
