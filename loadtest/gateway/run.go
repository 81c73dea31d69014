package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// Config says what one gateway does.
type Config struct {
	Target  string // of the servers, as client.Dial takes it
	Key     string
	Agent   string
	Demands []Demand
	Record  string // the file that the record is written to at the end; empty for none
	Trail   string // the file that every request is written to at once; empty for none
	Check   string // where a quota-agent's checks are: asked in place of the servers
	Report  time.Duration
	Journal string // directory; empty for none
}

// Demand is one tenant's requests at this gateway.
type Demand struct {
	Tenant string
	Rate   float64 // requests a second
}

// ParseDemands reads `TENANT=RATE[,TENANT=RATE…]`.
func ParseDemands(s string) ([]Demand, error) {
	var demands []Demand
	for _, word := range strings.Split(s, ",") {
		tenant, rate, ok := strings.Cut(word, "=")
		var d Demand
		if _, err := fmt.Sscanf(rate, "%g", &d.Rate); !ok || err != nil || tenant == "" || d.Rate <= 0 || d.Rate > 1e6 {
			return nil, fmt.Errorf("gateway: %q: write TENANT=RATE, with a rate of at most 1,000,000 a second", word)
		}
		d.Tenant = tenant
		demands = append(demands, d)
	}
	return demands, nil
}

// closeWait bounds the settlement at the end.
const closeWait = 30 * time.Second

// Run asks for the demands until ctx ends, then closes the client and writes the
// record. It says "up" on out when the gateway decides, and "closed" at the end.
func Run(ctx context.Context, c Config, out io.Writer) (err error) {
	var trail *Trail
	if c.Trail != "" {
		if trail, err = OpenTrail(c.Trail); err != nil {
			return err
		}
		defer trail.Close()
		watching, stop := context.WithCancel(ctx)
		watched := make(chan error, 1)
		go func() { watched <- trail.Watch(watching) }()
		defer func() {
			stop()
			err = errors.Join(err, <-watched)
		}()
	}
	if c.Check != "" {
		door := newDoor(c.Check)
		fmt.Fprintf(out, "up %s\n", c.Agent)
		sum, err := askAll(ctx, c.Demands, trail, door.decide)
		fmt.Fprintf(out, "closed %s\n", c.Agent)
		return errors.Join(err, sum.writeTo(c.Record))
	}
	opts := []client.Option{client.WithAgent(c.Agent), client.WithFirstWait(10 * time.Second), client.WithCloseWait(closeWait)}
	if c.Key != "" {
		opts = append(opts, client.WithKey(c.Key))
	}
	if c.Report > 0 {
		opts = append(opts, client.WithReportInterval(c.Report))
	}
	if c.Journal != "" {
		opts = append(opts, client.WithJournal(c.Journal))
	}
	quota, err := client.Dial(ctx, c.Target, opts...)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	fmt.Fprintf(out, "up %s\n", quota.Agent())
	sum, askErr := askAll(ctx, c.Demands, trail, func(ctx context.Context, tenant string) outcome {
		if quota.Allow(ctx, client.Tenant(tenant)).Allowed {
			return admitted
		}
		return denied
	})
	closeErr := quota.Close(context.WithoutCancel(ctx))
	s := quota.Stats()
	fmt.Fprintf(out, "closed %s settled %d pending %d aside %d renew %d/%d failed settle %d/%d failed\n", quota.Agent(),
		s.UnitsSettled, s.UnitsPending, s.UnitsAside, s.RenewFailed, s.RenewCalls, s.SettleFailed, s.SettleCalls)
	return errors.Join(askErr, closeErr, sum.writeTo(c.Record))
}

// outcome is what became of one request.
type outcome uint8

const (
	denied outcome = iota
	admitted
	unanswered // nobody knows
)

// askAll runs an asker for each demand until ctx ends, and returns what they counted.
func askAll(ctx context.Context, demands []Demand, trail *Trail, decide func(context.Context, string) outcome) (*Record, error) {
	records, errs := make([]*Record, len(demands)), make([]error, len(demands))
	var group sync.WaitGroup
	for i, d := range demands {
		records[i] = NewRecord()
		group.Go(func() { errs[i] = ask(ctx, d, records[i], trail, decide) })
	}
	group.Wait()
	sum := NewRecord()
	for _, r := range records {
		sum.Add(r)
	}
	return sum, errors.Join(errs...)
}

// ask sends one tenant's requests with random gaps, as independent callers would. A
// request that waits for the server holds the next ones up, and they follow at once.
func ask(ctx context.Context, d Demand, r *Record, trail *Trail, decide func(context.Context, string) outcome) error {
	asking := context.WithoutCancel(ctx) // the end cuts no request short
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := time.Now()
		for !due.After(now) && ctx.Err() == nil {
			due = due.Add(time.Duration(rand.ExpFloat64() / d.Rate * float64(time.Second)))
			if err := one(asking, d.Tenant, r, trail, decide); err != nil {
				return err
			}
		}
		// After a stall of more than a second the callers have given up.
		if behind := time.Since(due); behind > time.Second {
			due = due.Add(behind)
		}
		timer.Reset(max(time.Until(due), time.Millisecond))
	}
}

// one asks one request. A gateway that cannot write its trail must not go on.
func one(ctx context.Context, tenant string, r *Record, trail *Trail, decide func(context.Context, string) outcome) error {
	var asked int64
	if trail != nil {
		var err error
		if asked, err = trail.Asked(tenant); err != nil {
			return err
		}
	}
	switch decide(ctx, tenant) {
	case admitted:
		r.Admitted[Bin{At(time.Now()), tenant}]++
		if trail != nil {
			return trail.Admitted(tenant, asked)
		}
	case denied:
		r.Denied[tenant]++
		if trail != nil {
			return trail.Denied(tenant)
		}
	}
	return nil
}
