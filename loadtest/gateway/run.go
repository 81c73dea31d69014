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
	Record  string // the file that the record is written to
	Report  time.Duration
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
func Run(ctx context.Context, c Config, out io.Writer) error {
	opts := []client.Option{client.WithAgent(c.Agent), client.WithFirstWait(10 * time.Second)}
	if c.Key != "" {
		opts = append(opts, client.WithKey(c.Key))
	}
	if c.Report > 0 {
		opts = append(opts, client.WithReportInterval(c.Report))
	}
	quota, err := client.Dial(ctx, c.Target, opts...)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	fmt.Fprintf(out, "up %s\n", quota.Agent())
	records := make([]*Record, len(c.Demands))
	var group sync.WaitGroup
	for i, d := range c.Demands {
		records[i] = NewRecord()
		group.Go(func() { ask(ctx, quota, d, records[i]) })
	}
	group.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	closeErr := quota.Close(closing)
	sum := NewRecord()
	for _, r := range records {
		sum.Add(r)
	}
	s := quota.Stats()
	fmt.Fprintf(out, "closed %s settled %d pending %d aside %d renew %d/%d failed settle %d/%d failed\n", quota.Agent(),
		s.UnitsSettled, s.UnitsPending, s.UnitsAside, s.RenewFailed, s.RenewCalls, s.SettleFailed, s.SettleCalls)
	return errors.Join(closeErr, sum.WriteFile(c.Record))
}

// ask sends one tenant's requests with random gaps, as independent callers would. A
// request that waits for the server holds the next ones up, and they follow at once.
func ask(ctx context.Context, quota *client.Client, d Demand, r *Record) {
	asking := context.WithoutCancel(ctx) // the end cuts no request short
	attributes := []client.Attribute{{Name: client.AttrTenant, Value: d.Tenant}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		for !due.After(now) && ctx.Err() == nil {
			due = due.Add(time.Duration(rand.ExpFloat64() / d.Rate * float64(time.Second)))
			if quota.Allow(asking, attributes...).Allowed {
				r.Admitted[Bin{At(time.Now()), d.Tenant}]++
			} else {
				r.Denied[d.Tenant]++
			}
		}
		// After a stall of more than a second the callers have given up.
		if behind := time.Since(due); behind > time.Second {
			due = due.Add(behind)
		}
		timer.Reset(max(time.Until(due), time.Millisecond))
	}
}
