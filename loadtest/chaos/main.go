package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// options are the options of a run.
type options struct {
	seed     uint64
	load     time.Duration // how long faults happen under load
	away     time.Duration // how long Postgres is away when it is away for long
	more     int           // gateways that are added under load
	healed   time.Duration // how long after the last fault the ledger may take to have everything
	monthEnd bool
	control  string // a promise to break on purpose
	also     string // faults that no seed chooses, likewise, beside those
	only     string // faults to do, by name, with commas between; empty for those of the seed
	keep     bool   // leave the files
}

// calm is how long the load runs before the first fault and after the last.
const calm = 4 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Uint64Var(&o.seed, "seed", 1, "of the faults and their times")
	f.DurationVar(&o.load, "load", 40*time.Second, "how long faults happen")
	f.DurationVar(&o.healed, "healed", 45*time.Second, "how long after the last fault the ledger may take to have everything")
	f.DurationVar(&o.away, "postgres-away", 8*time.Second, "how long Postgres is away when it is away for long")
	f.IntVar(&o.more, "more", 4, "gateways that are added under load")
	f.BoolVar(&o.monthEnd, "month-end", false, "set all clocks so that a month ends in the middle of the load")
	f.StringVar(&o.control, "control", "", "break a promise on purpose: twice (settle without the guard), never (acknowledge unstored), lie (a gateway that miscounts), forget (no journals); the run must fail")
	f.StringVar(&o.only, "only", "", "these faults alone, with commas between")
	f.StringVar(&o.also, "also", "", "these faults besides, which no seed chooses, with commas between")
	f.BoolVar(&o.keep, "keep", false, "leave logs and trails where they are, and say where")
	list := f.Bool("list", false, "list the faults and end")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if *list {
		for _, f := range allFaults {
			fmt.Fprintf(stdout, "%-28s %s\n", f.name, f.what)
		}
		return 0
	}
	result, err := run(ctx, o, stdout)
	if err != nil {
		fmt.Fprintf(stdout, "chaos: FAILED seed=%d faults=%d acknowledged=%d lost=%d doubled=%d: %v\n",
			o.seed, result.faults, result.acknowledged, result.lost, result.doubled, first(err))
		return 1
	}
	fmt.Fprintf(stdout, "chaos: ok seed=%d faults=%d acknowledged=%d lost=%d doubled=%d\n",
		o.seed, result.faults, result.acknowledged, result.lost, result.doubled)
	return 0
}

// first is the first line of an error; the others were printed as they were found.
func first(err error) string {
	for i, c := range err.Error() {
		if c == '\n' {
			return err.Error()[:i] + " …"
		}
	}
	return err.Error()
}

// result is the last line of a run.
type result struct {
	faults       int
	acknowledged int64
	lost         int64
	doubled      int64
}

var errControl = errors.New("unknown control: write twice, never, lie or forget")

// run is a run from begin to end.
func run(ctx context.Context, o options, out io.Writer) (r result, err error) {
	switch o.control {
	case "", "twice", "never", "lie", "forget":
	default:
		return r, errControl
	}
	p, err := draw(o)
	if err != nil {
		return r, err
	}
	s, err := begin(ctx, o, out)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	s.say("load: %v before, %v of faults", calm, o.load)
	s.sleep(ctx, calm)

	// Each lane has one fault after the other; lanes overlap.
	faulting, cancel := context.WithTimeout(ctx, o.load)
	var lanes sync.WaitGroup
	for _, lane := range p.lanes {
		lanes.Go(func() { s.carryOut(faulting, lane) })
	}
	lanes.Wait()
	cancel()
	r.faults = s.done()
	s.say("done: %s", s.tally())
	if err := s.wrong(); err != nil {
		return r, err
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}

	s.say("healing")
	deadline, cancel := context.WithTimeout(ctx, o.healed)
	defer cancel()
	if err := s.heal(deadline); err != nil {
		return r, fmt.Errorf("not healed within %v: %w", o.healed, err)
	}
	s.sleep(deadline, calm)
	if err := s.closeGateways(deadline); err != nil {
		return r, err
	}
	s.say("all gateways have ended")
	if err := s.recoverEnded(deadline); err != nil {
		return r, err
	}
	counted, err := s.settled(deadline, &r)
	if err != nil {
		return r, err
	}
	if err := s.bounded(counted); err != nil {
		return r, err
	}
	if err := s.sound(deadline); err != nil {
		return r, err
	}
	return r, s.control(deadline)
}
