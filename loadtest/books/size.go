package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
)

// foldsSlot is how often a server folds in a slot, and an agent reports.
const foldsSlot = int(ledger.DefaultSlot / ledger.DefaultFoldEvery)

// traffic is of 10,000 keys. Its ledger's size is compared with those for other numbers of agents. Each key's units are
// spread over all agents, and each agent reports all keys between two folds.
type traffic struct {
	agents, slots int
	folds         int // in a slot; what was reported since the last one is in each
}

// size measures the size of the ledger: two hours of one agent, and some slots of ten and of a hundred. Reports and
// folds come as often as they do by default; a last run has one of each in a slot. A fold writes an entry for each key
// that it has a report of, and moves its roll-up.
func size(ctx context.Context, _ options) error {
	var first float64
	for _, t := range []traffic{{1, 24, foldsSlot}, {10, 2, foldsSlot}, {100, 1, foldsSlot}, {1, 24, 1}} {
		n, err := t.measure(ctx)
		if err != nil {
			return err
		}
		if first == 0 {
			first = n
		}
		fmt.Printf("  an entry beside the first ones: %+.1f %%\n", 100*(n-first)/first)
	}
	return nil
}

// measure returns how many bytes an entry has, with its indexes.
func (t traffic) measure(ctx context.Context) (each float64, err error) {
	s, err := open(ctx, time.Hour) // it folds when it begins, and not again
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return 0, err
	}
	store, err := pgledger.Open(ctx, s.app, ledger.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	const keys = 10_000
	senders := make([]*sender, t.agents)
	for i := range senders {
		senders[i] = &sender{id: fmt.Sprintf("agent-%03d", i)}
	}
	slot := time.Now().Truncate(time.Hour).Add(-24 * time.Hour)
	var rows int64
	type spent struct{ own, postgres time.Duration }
	var settling, folding spent
	var longest time.Duration
	spend := func(of *spent, do func() error) error {
		own, postgres, err := s.cpu(ctx)
		if err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		ownAfter, postgresAfter, err := s.cpu(ctx)
		of.own, of.postgres = of.own+ownAfter-own, of.postgres+postgresAfter-postgres
		return err
	}
	for n := range t.slots * t.folds {
		for _, a := range senders {
			a.reports = nil
			a.make(slot.Add(time.Duration(n/t.folds)*ledger.DefaultSlot), 0, keys, 10)
			rows += keys
		}
		if err := spend(&settling, func() error { return s.settle(ctx, senders) }); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := spend(&folding, func() error {
			for left := true; left; {
				var err error
				if _, left, err = store.Fold(ctx, time.Now()); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return 0, err
		}
		longest = max(longest, time.Since(began))
		// A vacuum makes room for the next roll-ups where old ones moved away. Postgres does so by itself each minute,
		// five times in a slot; here a slot takes only seconds.
		if (n+1)%t.folds == 0 {
			if _, err := s.reader.Exec(ctx, "VACUUM rollups"); err != nil {
				return 0, err
			}
		}
	}
	bytes := func(table string) int64 {
		if err != nil {
			return 0
		}
		var n int64
		n, err = s.ask(ctx, `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
			WHERE c.relkind = 'r' AND c.relname ~ '^`+table+`(_[0-9]{6})?$'`)
		return n
	}
	count := func(table string) float64 {
		if err != nil {
			return 1
		}
		var n int64
		n, err = s.ask(ctx, "SELECT count(*) FROM "+table)
		return float64(max(n, 1))
	}
	entries, keyed, rollups, blocks := bytes("entries"), bytes("keys"), bytes("rollups"), bytes("blocks")
	reports, touched := bytes("reports"), bytes("touched")
	entered, rolled, folds, touches := count("entries"), count("rollups"), count("blocks"), count("touched")
	fmt.Printf("%3d agents, %d slots of %d folds: ledger %.1f MB (entries %.1f, keys %.1f, roll-ups %.1f, blocks %.2f)\n",
		t.agents, t.slots, t.folds, mb(entries+keyed+rollups+blocks), mb(entries), mb(keyed), mb(rollups), mb(blocks))
	fmt.Printf("  %.0f entries, %.2f a key and slot, of %.0f bytes; a key %.0f, a roll-up of an hour %.0f, a block %.0f; reports %.1f MB, %.1f bytes a row; %.0f notes of agents and tenants, of %.0f bytes\n",
		entered, entered/keys/float64(t.slots), float64(entries)/entered, float64(keyed)/keys, float64(rollups)/rolled, float64(blocks)/folds, mb(reports), float64(reports)/float64(rows), touches, float64(touched)/touches)
	fmt.Printf("  processor: a row %.2f µs of Postgres to settle and %.2f of senders and server; an entry %.1f µs of Postgres to fold and %.1f of the server; %.2f s the longest fold (load average %s)\n",
		micros(settling.postgres)/float64(rows), micros(settling.own)/float64(rows), micros(folding.postgres)/entered, micros(folding.own)/entered, longest.Seconds(), load())
	return float64(entries) / entered, err
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func mb(n int64) float64 { return float64(n) / 1e6 }
