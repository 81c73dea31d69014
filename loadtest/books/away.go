package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// The outage: so many gateways go on admitting, on so many keys each, while the ledger's database is away.
const (
	awayAgents = 20
	awayKeys   = 5_000 // of each agent, its own
	awayEvery  = 10 * time.Second
)

var errLedger = errors.New("the ledger differs from what was admitted")

// away measures how much usage an outage of the database leaves with the agents. It also measures how long it takes
// until all of it is settled, and folded.
func away(ctx context.Context, o options) (err error) {
	s, err := open(ctx, time.Second)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	begun := time.Now()
	agents := make([]*client.Client, awayAgents)
	for i := range agents {
		if agents[i], err = client.Dial(ctx, s.addr, client.WithAgent(fmt.Sprintf("agent-%02d", i)), client.WithFirstWait(time.Minute), client.WithCloseWait(time.Minute)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, agents[i].Close(context.WithoutCancel(ctx))) }()
	}
	admitting, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, awayAgents)
	for i, c := range agents {
		go func() { ended <- admit(admitting, c, i) }()
	}
	tell := func(what string) {
		var reports, units int64
		for _, c := range agents {
			st := c.Stats()
			reports, units = reports+st.ReportsPending, units+st.UnitsPending
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Printf("  %6.0f s  %-22s heap of agents and server %6.1f MB, %5d reports of %8d units wait (load average %s)\n",
			time.Since(begun).Seconds(), what, mb(int64(m.HeapAlloc)), reports, units, load())
	}
	fmt.Printf("%d agents of %d keys each, a request for each key every %v; Postgres away for %v\n", awayAgents, awayKeys, awayEvery, o.away)
	if err := sleep(ctx, 3*awayEvery); err != nil {
		return err
	}
	tell("before")
	s.reader.Close(ctx)
	if err := s.postgres.Stop(ctx); err != nil {
		return err
	}
	for range 5 {
		if err := sleep(ctx, o.away/5); err != nil {
			return err
		}
		tell("away")
	}
	if err := s.postgres.Start(ctx); err != nil {
		return err
	}
	if err := s.read(ctx); err != nil {
		return err
	}
	back := time.Now()
	// Usage admitted until here has to be settled. It is frozen in the order of time.
	for _, c := range agents {
		for c.Stats().Through.Before(back) || c.Stats().ReportsPending > 1 {
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	settled := time.Since(back)
	tell("backlog settled")
	stop()
	for range agents {
		if err := <-ended; err != nil {
			return err
		}
	}
	var billed int64
	for _, c := range agents {
		if err := c.Close(ctx); err != nil {
			return err
		}
		billed += c.Counters().Billed
	}
	if err := s.folded(ctx); err != nil {
		return err
	}
	folded := time.Since(back)
	tell("closed and folded")
	has, err := s.ask(ctx, "SELECT sum(admitted)::bigint FROM rollups")
	if err != nil {
		return err
	}
	fmt.Printf("  the backlog was settled %.1f s after Postgres was back, everything folded after %.1f s; admitted %d, ledger %d\n",
		settled.Seconds(), folded.Seconds(), billed, has)
	if has != billed {
		return errLedger
	}
	return nil
}

// admit asks for each of an agent's keys once in every round, evenly. On a busy machine a tenant may not be looked up
// yet; it is asked for again in the next round.
func admit(ctx context.Context, c *client.Client, agent int) error {
	const step = 50
	tick := time.NewTicker(awayEvery * step / awayKeys)
	defer tick.Stop()
	for key := 0; ; key = (key + step) % awayKeys {
		for k := key; k < key+step; k++ {
			d := c.Allow(ctx, client.Attribute{Name: "tenant", Value: fmt.Sprintf("tenant-%02d-%03d", agent, k/10)},
				client.Attribute{Name: "user", Value: fmt.Sprintf("user-%d", k%10)})
			if !d.Allowed && d.Reason != client.ReasonUnknown && ctx.Err() == nil {
				return fmt.Errorf("agent %d was denied: %v", agent, d.Reason)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
