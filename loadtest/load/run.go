package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/f4ee788f/quota/pkg/client"
)

// Config says what to drive.
type Config struct {
	Target   string // of the server, as client.Dial takes it
	Key      string // agent key; empty for none
	Gateways int
	Tenants  int
	Duration time.Duration
	Rate     int64  // decisions a second of all gateways; 0 for as many as possible
	Shape    string // Uniform or Zipf
	Seed     uint64
	Workers  int       // goroutines that ask; 0 for 32 for each processor
	Agent    string    // the gateways are named Agent-0, Agent-1, …
	Progress io.Writer // a line a second; nil for none
}

const (
	// turn is how many decisions a worker makes before it lets others run: the
	// gateways' own loops are on the same processors.
	turn = 256
	// warmers touch a gateway's buckets for the first time, side by side, so that the
	// run does not begin with one round trip after another.
	warmers = 64
	// closeWait bounds the settlement at the end.
	closeWait = time.Minute
)

// Tenant is the id of a load's i-th tenant.
func Tenant(i int) string { return fmt.Sprintf("tenant-%05d", i) }

// Validate reports every fault.
func (c *Config) Validate() error {
	var faults []error
	if c.Gateways < 1 || c.Gateways > 10_000 {
		faults = append(faults, fmt.Errorf("gateways: 1 to 10,000, got %d", c.Gateways))
	}
	if c.Tenants < 1 || c.Tenants > 1_000_000 {
		faults = append(faults, fmt.Errorf("tenants: 1 to 1,000,000, got %d", c.Tenants))
	}
	if c.Duration <= 0 {
		faults = append(faults, fmt.Errorf("duration: must be above 0, got %v", c.Duration))
	}
	if c.Rate < 0 {
		faults = append(faults, fmt.Errorf("rate: at least 0, got %d", c.Rate))
	}
	if c.Shape != Uniform && c.Shape != Zipf {
		faults = append(faults, fmt.Errorf("%w: %q; write %s or %s", ErrShape, c.Shape, Uniform, Zipf))
	}
	if c.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers: at least 0, got %d", c.Workers))
	}
	return errors.Join(faults...)
}

// worker counts what it was answered. Only the two atomics are read while it runs.
type worker struct {
	admitted []int64 // by tenant
	denied   []int64

	allowed, refused atomic.Int64 // so far, told each turn
	_                [48]byte     // workers are neighbours in a slice: theirs are lines of their own
}

// Run drives the load, closes the gateways, so that all is settled, and then holds
// what ledger returns, units by tenant, to what was admitted. It returns the result
// also when the two differ; an error means that there is no result.
func Run(ctx context.Context, c Config, ledger func(context.Context) (map[string]int64, error)) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Workers == 0 {
		c.Workers = 32 * runtime.GOMAXPROCS(0)
	}
	if c.Agent == "" {
		c.Agent = fmt.Sprintf("load-%06x", rand.Uint32()&0xffffff)
	}
	requests, err := draw(c.Shape, c.Gateways, c.Tenants, c.Seed)
	if err != nil {
		return nil, err
	}
	names := make([]string, c.Tenants)
	attributes := make([][]client.Attribute, c.Tenants)
	for i := range names {
		names[i] = Tenant(i)
		attributes[i] = []client.Attribute{{Name: client.AttrTenant, Value: names[i]}}
	}
	gateways, err := dial(ctx, c)
	if err != nil {
		return nil, err
	}
	workers := make([]worker, c.Workers+1) // the last one warms up
	for i := range workers {
		workers[i].admitted, workers[i].denied = make([]int64, c.Tenants), make([]int64, c.Tenants)
	}
	closing := sync.OnceValue(func() error { return closeAll(ctx, gateways) })
	defer func() { _ = closing() }() // on the way out with another error; else its own is asked for below

	begin := time.Now()
	if err := warm(ctx, gateways, attributes, &workers[c.Workers]); err != nil {
		return nil, err
	}
	say(c.Progress, "warm: %d gateways × %d tenants touched in %.1f s\n", c.Gateways, c.Tenants, time.Since(begin).Seconds())

	running, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	var group sync.WaitGroup
	start := time.Now()
	for i := range c.Workers {
		group.Go(func() {
			w := &workers[i]
			pace := newPace(c.Rate, i, c.Workers, start)
			drive(running, w, gateways, attributes, requests, round{at: uint32(i * (track / c.Workers)), step: uint32(2*i + 1)}, pace)
		})
	}
	group.Go(func() { tell(running, c.Progress, start, workers, gateways) })
	group.Wait()
	seconds := time.Since(start).Seconds()
	if ctx.Err() != nil {
		say(c.Progress, "interrupted: settling\n")
	}
	closeErr := closing()

	result := &Result{Gateways: c.Gateways, Tenants: c.Tenants, Seconds: seconds, Shape: c.Shape}
	admitted := make(map[string]int64, c.Tenants)
	for i, name := range names {
		denied := int64(0)
		for j := range workers {
			admitted[name] += workers[j].admitted[i]
			denied += workers[j].denied[i]
		}
		result.Decisions += admitted[name] + denied
		result.Denied += denied
		if denied > 0 {
			result.Saturated++
		}
	}
	for _, g := range gateways {
		s := g.Stats()
		result.RPCs += s.RenewCalls + s.SettleCalls
		result.RenewedBuckets += s.Renewals
	}
	if closeErr != nil {
		return nil, closeErr
	}
	settled, err := ledger(context.WithoutCancel(ctx))
	if err != nil {
		return nil, fmt.Errorf("load: read the ledger: %w", err)
	}
	result.compare(admitted, settled)
	return result, nil
}

func say(w io.Writer, format string, args ...any) {
	if w != nil {
		fmt.Fprintf(w, format, args...)
	}
}

// dial returns the gateways, each of which knows a policy.
func dial(ctx context.Context, c Config) ([]*client.Client, error) {
	gateways := make([]*client.Client, c.Gateways)
	group, dialing := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range gateways {
		group.Go(func() error {
			opts := []client.Option{client.WithAgent(fmt.Sprintf("%s-%d", c.Agent, i)), client.WithFirstWait(10 * time.Second), client.WithMaxWait(5 * time.Second)}
			if c.Key != "" {
				opts = append(opts, client.WithKey(c.Key))
			}
			g, err := client.Dial(dialing, c.Target, opts...)
			if err != nil {
				return fmt.Errorf("load: gateway %d: %w", i, err)
			}
			gateways[i] = g
			if g.Stats().PolicyVersion == 0 {
				return fmt.Errorf("load: gateway %d: no policy from %s", i, c.Target)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, closeAll(ctx, gateways))
	}
	return gateways, nil
}

func closeAll(ctx context.Context, gateways []*client.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	errs := make([]error, len(gateways))
	var group sync.WaitGroup
	for i, g := range gateways {
		if g == nil {
			continue
		}
		group.Go(func() {
			if err := g.Close(ctx); err != nil {
				errs[i] = fmt.Errorf("load: gateway %d: %w", i, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// warm asks each gateway once for each tenant.
func warm(ctx context.Context, gateways []*client.Client, attributes [][]client.Attribute, w *worker) error {
	var next atomic.Int64
	var mu sync.Mutex
	var group sync.WaitGroup
	total := len(gateways) * len(attributes)
	for range min(warmers*len(gateways), total) {
		group.Go(func() {
			admitted, denied := make([]int64, len(attributes)), make([]int64, len(attributes))
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= total {
					break
				}
				g, t := i%len(gateways), i/len(gateways)
				if gateways[g].Allow(ctx, attributes[t]...).Allowed {
					admitted[t]++
				} else {
					denied[t]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for t := range admitted {
				w.admitted[t] += admitted[t]
				w.denied[t] += denied[t]
			}
		})
	}
	group.Wait()
	return ctx.Err()
}

// round is a worker's way round the track: all of it, each in an order of its own. In one
// order the workers would catch up with each other where one waits, and go on
// as a convoy that hits each bucket all at once and then leaves it alone.
type round struct{ at, step uint32 }

// next is a full cycle of a linear congruential generator: track is a power of two, the
// multiplier one more than a multiple of four, and step odd.
func (r *round) next() uint32 {
	r.at = (r.at*40_501 + r.step) % track
	return r.at
}

// drive asks until ctx ends, going round the track. A request that waits for a
// renewal is not cut short by the end of the run.
func drive(ctx context.Context, w *worker, gateways []*client.Client, attributes [][]client.Attribute, requests []request, way round, p *pace) {
	asking := context.WithoutCancel(ctx)
	var allowed, refused int64
	for ctx.Err() == nil {
		n := turn
		if p != nil {
			if n = min(n, p.wait(ctx)); n == 0 {
				continue
			}
		}
		for range n {
			r := requests[way.next()]
			if gateways[r.gateway].Allow(asking, attributes[r.tenant]...).Allowed {
				w.admitted[r.tenant]++
				allowed++
			} else {
				w.denied[r.tenant]++
				refused++
			}
		}
		w.allowed.Store(allowed)
		w.refused.Store(refused)
		runtime.Gosched()
	}
}

// tell prints a line a second until ctx ends.
func tell(ctx context.Context, to io.Writer, start time.Time, workers []worker, gateways []*client.Client) {
	if to == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, lastAt := int64(0), start
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			var allowed, refused, calls, lost int64
			for i := range workers {
				allowed += workers[i].allowed.Load()
				refused += workers[i].refused.Load()
			}
			for _, g := range gateways {
				s := g.Stats()
				calls += s.RenewCalls + s.SettleCalls
				if s.Lost {
					lost++
				}
			}
			rate := float64(allowed+refused-last) / now.Sub(lastAt).Seconds()
			last, lastAt = allowed+refused, now
			say(to, "%4.0f s  %11.0f decisions/s  admitted %d  denied %d  calls %d  out of contact %d\n",
				now.Sub(start).Seconds(), rate, allowed, refused, calls, lost)
		}
	}
}
