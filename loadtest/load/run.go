package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
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
	Prefix   string        // of the tenants' ids; empty for Prefix
	Duration time.Duration // of what is measured
	Warm     time.Duration // of the same load before that, while leases are new; at most
	Rate     int64         // decisions a second of all gateways; 0 for as many as possible
	Shape    string        // Uniform or Zipf
	Seed     uint64
	Workers  int       // goroutines that ask, of all gateways; 0 for 64 for each
	Agent    string    // the gateways are named Agent-0, Agent-1, …
	Journals string    // directory in which each gateway has a journal; empty for none
	Progress io.Writer // a line a second; nil for none

	Limits    int           // that each request meets, 1 to 8
	Saturated int           // percent of the tenants that ask for more than their limit, all of which are sized to Rate; 0 for limits of their own
	Burst     time.Duration // of limits sized to Rate: so much of the rate at once
	Cold      int           // requests a second of tenants that were never seen before
	Changes   time.Duration // a tenant's plan changes so often; 0 for never
	Report    time.Duration // the gateways' report interval; 0 for the client's own
	Touch     bool          // each tenant asks once at each gateway before anything is measured

	// Dial is how the gateways connect; nil for the network.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Profile is a directory for processor profiles of this process: begin.pprof and load.pprof; empty for none.
	Profile string

	// SetPlan changes a tenant's plan; needed for Changes.
	SetPlan func(ctx context.Context, tenant, plan string) error
	// Unknown says that the limits in force are not those of the plans, so there is no ideal to compare with.
	Unknown bool
	// Shared says that the server is in this process, so its memory cannot be separated from the gateways'.
	Shared bool
	// Observe tells what the parts of the system have done until now; nil if no part can be seen.
	Observe func(ctx context.Context) (Observation, error)
}

// Observation is what the parts have done until now; nil for a part that cannot be seen.
type Observation struct {
	CPU     map[string]float64 // seconds by program, generator included
	Redis   *RedisDone
	Renewed *int64 // buckets, as the server counts them
	Rows    *int64 // of reports in the ledger
}

// RedisDone is what the masters of a Redis Cluster have done until now.
type RedisDone struct {
	Commands   int64 // those of scripts included
	Scripts    int64
	ScriptTime int64 // that these took, microseconds
}

const (
	// workersEach of a gateway can wait for the server while others go on.
	workersEach = 64
	// touchTime bounds the first touches. Other tenants are touched when they are first asked for.
	touchTime = 4 * time.Minute
	// closeWait bounds the settlement at the end.
	closeWait = 2 * time.Minute
)

// Prefix begins the ids of a load's tenants, unless the load sets another.
const Prefix = "tenant-"

// Tenant is the id of a load's i-th tenant.
func (c *Config) Tenant(i int) string { return fmt.Sprintf("%s%05d", cmp.Or(c.Prefix, Prefix), i) }

var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$`)

// Validate reports every fault.
func (c *Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(c.Gateways >= 1 && c.Gateways <= 10_000, "gateways: 1 to 10,000, got %d", c.Gateways)
	check(c.Tenants >= 1 && c.Tenants <= 1_000_000, "tenants: 1 to 1,000,000, got %d", c.Tenants)
	check(prefixes.MatchString(cmp.Or(c.Prefix, Prefix)), "tenant-prefix: 1 to 40 letters, digits, -, _ and ., got %q", c.Prefix)
	check(c.Duration > 0 && c.Duration <= time.Hour, "duration: above 0 and at most an hour, got %v", c.Duration)
	check(c.Warm >= 0 && c.Warm <= time.Hour, "warm: 0 to an hour, got %v", c.Warm)
	check(c.Rate >= 0 && c.Rate <= 1_000_000_000, "rate: 0 to 1,000,000,000, got %d", c.Rate)
	check(c.Workers >= 0 && c.Workers <= 1_000_000, "workers: 0 to 1,000,000, got %d", c.Workers)
	check(c.Limits >= 1 && c.Limits <= maxLimits, "limits: 1 to %d, got %d", maxLimits, c.Limits)
	check(c.Saturated >= 0 && c.Saturated <= 100, "saturated: 0 to 100 percent, got %d", c.Saturated)
	check(c.Saturated == 0 || c.Rate > 0, "saturated: limits are sized to the rate, which must be given")
	check(c.Saturated == 0 || c.Tenants <= namedTenants, "saturated: limits are sized for at most %d tenants", namedTenants)
	check(c.Saturated == 0 || c.Tenants*c.Saturated >= 100, "saturated: %d %% of %d tenants are none of them", c.Saturated, c.Tenants)
	check(c.Saturated == 0 || c.Burst > 0 && c.Burst <= time.Hour, "burst: above 0 and at most an hour, got %v", c.Burst)
	check(c.Cold >= 0 && c.Cold <= 10_000, "cold: 0 to 10,000 a second, got %d", c.Cold)
	check(c.Changes == 0 || c.Changes >= 100*time.Millisecond, "changes: 0, or at least 100ms apart, got %v", c.Changes)
	check(c.Changes == 0 || c.Saturated > 0, "changes: only of limits that are sized to the rate; give saturated too")
	check(c.Changes == 0 || len(c.changing()) > 0, "changes: only tenants that are not saturated change their plans, and beyond the busiest tenth there are none")
	check(c.Report >= 0, "report interval: at least 0, got %v", c.Report)
	if c.Shape != Uniform && c.Shape != Zipf {
		faults = append(faults, fmt.Errorf("%w: %q; write %s or %s", ErrShape, c.Shape, Uniform, Zipf))
	}
	return errors.Join(faults...)
}

// load is a run under way.
type load struct {
	Config
	began     time.Time
	beginning atomic.Bool  // first touches are under way
	warmed    atomic.Int64 // when what is measured began, microseconds since then; 0 before
	timing    atomic.Bool  // it is measured now
	track     []uint32
	quotas    [][]change // by tenant; the end of each grows while plans change
	gateways  []*gateway
	workers   []worker
	cold      cold
}

// now is microseconds since the load began.
func (l *load) now() int64 { return time.Since(l.began).Microseconds() }

// Run drives the load, and closes the gateways, so that everything is settled. Then it compares the admitted units with
// those that ledger returns, by tenant of those named. It returns the result also when the two differ; an error means
// that there is no result. The server must have the plans already.
func Run(ctx context.Context, c Config, plans *Plans, ledger func(ctx context.Context, tenants []string) (map[string]int64, error)) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Agent == "" {
		c.Agent = fmt.Sprintf("load-%06x", rand.Uint32()&0xffffff)
	}
	if c.Workers == 0 {
		c.Workers = workersEach * c.Gateways
	}
	if c.SetPlan == nil {
		c.Changes = 0
	}
	w, err := weights(c.Shape, c.Tenants)
	if err != nil {
		return nil, err
	}
	l := &load{Config: c, track: draw(w, trackLen, c.Seed), quotas: make([][]change, c.Tenants)}
	for i := range l.quotas {
		l.quotas[i] = []change{{0, plans.Quotas[i]}}
	}
	heap := heapInUse()
	clients, err := dial(ctx, c)
	if err != nil {
		return nil, err
	}
	closing := sync.OnceValue(func() error { return closeAll(ctx, clients) })
	defer func() { _ = closing() }() // on the way out with another error; else its own is asked for below

	result := &Result{
		Gateways: c.Gateways, Journals: c.Journals != "", Tenants: c.Tenants, Shape: c.Shape, LimitsPerRequest: c.Limits, RateAsked: c.Rate,
		Processors: runtime.GOMAXPROCS(0), GeneratorNS: l.ownCost(),
	}
	if err := l.drive(ctx, clients, plans, result, heap); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		say(c.Progress, "interrupted: settling\n")
	}
	begin := time.Now()
	if err := closing(); err != nil {
		return nil, err
	}
	say(c.Progress, "settled after %.1f s\n", time.Since(begin).Seconds())
	admitted := l.count(result)
	names := make([]string, 0, len(admitted))
	for name := range admitted {
		names = append(names, name)
	}
	settled, err := ledger(context.WithoutCancel(ctx), names)
	if err != nil {
		return nil, fmt.Errorf("load: read the ledger: %w", err)
	}
	result.compare(admitted, settled)
	return result, nil
}

// attributesOf is what a gateway knows of a request.
func attributesOf(tenant string, limits int) []client.Attribute {
	a := []client.Attribute{client.Tenant(tenant)}
	for i := 1; i < limits; i++ {
		a = append(a, client.Attribute{Name: extra(i), Value: fmt.Sprintf("%s-%s", extra(i), tenant[max(len(tenant)-4, 0):])})
	}
	return a
}

// drive makes the requests, and fills in the measurements.
func (l *load) drive(ctx context.Context, clients []*client.Client, plans *Plans, result *Result, heap int64) error {
	c := l.Config
	l.gateways = make([]*gateway, c.Gateways)
	for i := range l.gateways {
		from := uint32(uint64(i) * trackLen / uint64(c.Gateways))
		l.gateways[i] = newGateway(clients[i], float64(c.Rate)/float64(c.Gateways), float64(i)/float64(c.Gateways), from)
	}
	l.workers = make([]worker, max(c.Workers, c.Gateways)+1) // the last is of first touches
	l.began = time.Now()
	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watch := watch{load: l}
	watchers.Go(func() { watch.run(watching) })
	defer watchers.Wait()
	defer stop()
	running, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i := range len(l.workers) - 1 {
		group.Go(func() {
			g := l.gateways[i%c.Gateways]
			l.workers[i].drive(running, g, g.client, l)
		})
	}
	if err := l.begin(ctx, &l.workers[len(l.workers)-1], result); err != nil {
		return err
	}
	group.Go(func() { l.cold.drive(running, l, clients) })
	changed := make(chan error, 1)
	group.Go(func() { changed <- l.changePlans(running, plans) })
	result.WarmSeconds = l.warm(ctx, func() (renewals, decisions float64) {
		for _, s := range statsOf(clients) {
			renewals += float64(s.Renewals)
		}
		for i := range l.gateways {
			decisions += float64(l.gateways[i].allowed.Load() + l.gateways[i].refused.Load())
		}
		return renewals, decisions
	}).Seconds()
	end, err := profile(c.Profile, "load")
	if err != nil {
		return err
	}
	before, err := l.snapshot(ctx, clients)
	if err == nil {
		l.warmed.Store(l.now())
		l.timing.Store(true)
		sleep(ctx, c.Duration)
		l.timing.Store(false) // what comes while all is counted is not measured
		var after snapshot
		if after, err = l.snapshot(ctx, clients); err == nil {
			after.since(&before, result)
		}
	}
	end()
	cancel()
	group.Wait()
	stop()
	watchers.Wait()
	result.Samples = watch.samples
	if n := l.buckets(clients); n > 0 && !c.Shared {
		each := float64(heapInUse()-heap-l.recordBytes()) / float64(n)
		result.AgentBytesPerBucket = &each
	}
	return errors.Join(err, <-changed)
}

// begin asks for every tenant once at every gateway, if Touch is set, while the load is under way. Without the load,
// unused leases would be given back, and first touches would have been for nothing.
func (l *load) begin(ctx context.Context, w *worker, result *Result) error {
	if !l.Touch {
		return nil
	}
	end, err := profile(l.Profile, "begin")
	if err != nil {
		return err
	}
	l.beginning.Store(true)
	defer l.beginning.Store(false)
	touching, cancel := context.WithTimeout(ctx, touchTime)
	defer cancel()
	l.touch(touching, w)
	end()
	result.TouchSeconds = time.Since(l.began).Seconds()
	// Garbage of a million first leases would otherwise be collected some seconds into the measurement. Nobody waits for
	// this collection: its sweep yields after each span, which takes a minute while every processor is busy.
	go runtime.GC()
	result.FirstLeases = int64(len(w.records)) * int64(l.Limits)
	return nil
}

const (
	// warmStep is how long renewals are counted before they are compared with the step before.
	warmStep = 5 * time.Second
	// steady is the part by which two steps may differ once leases are not new.
	steady = 0.2
)

// warm lets the load go on unmeasured while leases are new, at most for Warm. It ends when renewals stay within a part
// of the step before, and decisions are as many as asked for. Terms grow with each renewal, so new leases renew several
// times as often as old ones. A saturated server's renewals look steady then; its decisions wait, which is why they are
// counted too.
func (l *load) warm(ctx context.Context, count func() (renewals, decisions float64)) time.Duration {
	begin, last, before := time.Now(), time.Now(), -1.0
	renewals, decisions := count()
	for left := l.Warm; left > 0 && ctx.Err() == nil; left = l.Warm - time.Since(begin) {
		sleep(ctx, min(left, warmStep))
		r, d := count()
		fresh, made := r-renewals, d-decisions
		if before >= 0 && math.Abs(fresh-before) <= steady*before && made >= (1-steady)*float64(l.Rate)*time.Since(last).Seconds() {
			break
		}
		last, before, renewals, decisions = time.Now(), fresh, r, d
	}
	return time.Since(begin)
}

// touchers is how many first touches wait at a gateway side by side. One after another, a load would begin with a round
// trip for each.
const touchers = 128

// touch asks each gateway once for each tenant, each gateway in an order of its own.
func (l *load) touch(ctx context.Context, w *worker) {
	tenants, asking := len(l.quotas), context.WithoutCancel(ctx)
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, g := range l.gateways {
		var next atomic.Int64
		first := i * tenants / len(l.gateways)
		for range min(touchers, tenants) {
			group.Go(func() {
				var records []record
				for ctx.Err() == nil {
					n := int(next.Add(1)) - 1
					if n >= tenants {
						break
					}
					t := (first + n) % tenants
					r := record{from: uint32(trackEnd + t)}
					r.add(g.client.Allow(asking, attributesOf(l.Tenant(t), l.Limits)...).Allowed)
					r.at = l.now()
					if r.allowed() == 1 {
						g.allowed.Add(1)
					} else {
						g.refused.Add(1)
					}
					records = append(records, r)
				}
				mu.Lock()
				defer mu.Unlock()
				w.records = append(w.records, records...)
			})
		}
	}
	group.Wait()
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// changePlans changes a tenant's plan now and then, and notes from when on.
func (l *load) changePlans(ctx context.Context, plans *Plans) error {
	if l.Changes == 0 || len(plans.Changing) == 0 {
		return nil
	}
	tick := time.NewTicker(l.Changes)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		i := plans.Changing[n%len(plans.Changing)]
		plan, quota := lowPlan, plans.Low
		if last := l.quotas[i][len(l.quotas[i])-1].quota; last == plans.Low {
			plan, quota = highPlan, plans.High
		}
		begin := l.now()
		if err := l.SetPlan(context.WithoutCancel(ctx), l.Tenant(i), plan); err != nil {
			return fmt.Errorf("load: change the plan of %s: %w", l.Tenant(i), err)
		}
		l.quotas[i] = append(l.quotas[i], change{int((begin + l.now()) / 2 / binLen), quota})
	}
}

func say(w io.Writer, format string, args ...any) {
	if w != nil {
		fmt.Fprintf(w, format, args...)
	}
}

// dial returns the gateways' clients, each of which knows a policy.
func dial(ctx context.Context, c Config) ([]*client.Client, error) {
	clients := make([]*client.Client, c.Gateways)
	group, dialing := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range clients {
		group.Go(func() error {
			opts := []client.Option{client.WithAgent(fmt.Sprintf("%s-%d", c.Agent, i)), client.WithFirstWait(10 * time.Second), client.WithMaxWait(5 * time.Second), client.WithCloseWait(closeWait),
				client.WithLogger(slog.New(slog.DiscardHandler))} // hundreds would say the same
			if c.Key != "" {
				opts = append(opts, client.WithKey(c.Key))
			}
			if c.Dial != nil {
				opts = append(opts, client.WithDialer(c.Dial))
			}
			if c.Journals != "" {
				opts = append(opts, client.WithJournal(filepath.Join(c.Journals, strconv.Itoa(i))))
			}
			if c.Report > 0 {
				opts = append(opts, client.WithReportInterval(c.Report))
			}
			g, err := client.Dial(dialing, c.Target, opts...)
			if err != nil {
				return fmt.Errorf("load: gateway %d: %w", i, err)
			}
			clients[i] = g
			if g.Stats().PolicyVersion == 0 {
				return fmt.Errorf("load: gateway %d: no policy from %s", i, c.Target)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, closeAll(ctx, clients))
	}
	return clients, nil
}

func closeAll(ctx context.Context, clients []*client.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	errs := make([]error, len(clients))
	var group sync.WaitGroup
	for i, g := range clients {
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
