package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// spread measures the cost of agents that report as agents do: each once a round, and not all at once. A fold writes
// each key that it has a report of, so a row's cost depends on how many folds share a round's reports. The first round
// also notes which agents touched which tenants, and makes keys.
func spread(ctx context.Context, o options) (err error) {
	rounds := o.rounds
	if rounds == 0 {
		rounds = 4
	}
	s, err := open(ctx, 0)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	sh := shape{agents: o.agents, perTenant: 1, of: func(int) (int, int) { return 0, o.keys }}
	senders := sh.senders(rounds)
	conns, hangUp, err := s.connect()
	if err != nil {
		return err
	}
	defer hangUp()
	rows := int64(o.agents) * int64(o.keys)
	fmt.Printf("%d agents share %d keys, a tenant each: %d rows a round, sent over %v of each %v\n", o.agents, o.keys, rows, o.over, o.every)
	fmt.Println("| round | processor: Postgres | a row | senders and server | a row | folds | entries | WAL | roll-ups moved in place | load average |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	before, err := s.spent(ctx)
	if err != nil {
		return err
	}
	for round := range rounds {
		next := time.Now().Add(o.every)
		if err := sendOver(ctx, senders, conns, round, o.over); err != nil {
			return err
		}
		if err := sleep(ctx, time.Until(next)); err != nil {
			return err
		}
		if err := s.folded(ctx); err != nil {
			return err
		}
		after, err := s.spent(ctx)
		if err != nil {
			return err
		}
		d := after.less(before)
		perRow := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(rows) }
		fmt.Printf("| %d | %.2f s | %.2f µs | %.2f s | %.2f µs | %d | %d | %.1f MB | %d of %d | %s |\n", round+1, d.postgres.Seconds(), perRow(d.postgres),
			d.own.Seconds(), perRow(d.own), d.blocks, d.entries, mb(d.wal), d.inPlace, d.moved, load())
		before = after
	}
	want := int64(0)
	for _, a := range senders {
		want += a.total
	}
	has, err := s.ask(ctx, "SELECT sum(admitted)::bigint FROM rollups")
	if err == nil && has != want {
		err = fmt.Errorf("%w: sent %d, ledger %d", errLedger, want, has)
	}
	return err
}

// sendOver sends one report of each, evenly over that time.
func sendOver(ctx context.Context, senders []*sender, conns []*grpc.ClientConn, round int, over time.Duration) error {
	errs := make([]error, len(senders))
	var wg sync.WaitGroup
	for i, a := range senders {
		wg.Go(func() {
			if errs[i] = sleep(ctx, over*time.Duration(i)/time.Duration(len(senders))); errs[i] == nil {
				errs[i] = a.send(ctx, conns[i%len(conns)], a.reports[round:round+1])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// spent is what was spent since the beginning.
type spent struct {
	own, postgres                        time.Duration
	blocks, entries, wal, moved, inPlace int64
}

func (s *site) spent(ctx context.Context) (at spent, err error) {
	if at.own, at.postgres, err = s.cpu(ctx); err != nil {
		return at, err
	}
	err = s.reader.QueryRow(ctx, `SELECT (SELECT count(*) FROM blocks), (SELECT coalesce(sum(entries), 0)::bigint FROM blocks),
		(pg_current_wal_lsn() - '0/0')::bigint, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'rollups'`).
		Scan(&at.blocks, &at.entries, &at.wal, &at.moved, &at.inPlace)
	return at, err
}

func (a spent) less(b spent) spent {
	return spent{
		own: a.own - b.own, postgres: a.postgres - b.postgres, blocks: a.blocks - b.blocks, entries: a.entries - b.entries,
		wal: a.wal - b.wal, moved: a.moved - b.moved, inPlace: a.inPlace - b.inPlace,
	}
}
