package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
)

// size holds the ledger of the same traffic, an hour of 10,000 keys, through 1, 10 and
// 100 agents: each key's units are spread over all of them.
func size(ctx context.Context, _ options) error {
	var first int64
	for _, agents := range []int{1, 10, 100} {
		n, err := sized(ctx, agents)
		if err != nil {
			return err
		}
		if first == 0 {
			first = n
		}
		fmt.Printf("  beside one agent's: %+.1f %%\n", 100*float64(n-first)/float64(first))
	}
	return nil
}

// sized returns how many bytes the ledger has.
func sized(ctx context.Context, agents int) (all int64, err error) {
	s, err := open(ctx, time.Hour)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return 0, err
	}
	store, err := pgledger.Open(ctx, s.app, ledger.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	const keys, slots = 10_000, 12
	senders := make([]*sender, agents)
	slot := time.Now().Truncate(time.Hour).Add(-time.Hour)
	var rows int64
	for i := range senders {
		senders[i] = &sender{id: fmt.Sprintf("agent-%03d", i)}
	}
	for n := range slots {
		for _, a := range senders {
			a.reports = nil
			a.make(slot.Add(time.Duration(n)*ledger.DefaultSlot), 0, keys, 10)
			rows += keys
		}
		if err := s.settle(ctx, senders); err != nil {
			return 0, err
		}
		// As often for one agent as for a hundred: how often is what entries grow with, beside keys.
		for left := true; left; {
			if _, left, err = store.Fold(ctx, time.Now()); err != nil {
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
	count, err := s.ask(ctx, "SELECT count(*) FROM entries")
	if err != nil {
		return 0, err
	}
	entries, keyed, rollups, blocks, reports := bytes("entries"), bytes("keys"), bytes("rollups"), bytes("blocks"), bytes("reports")
	all = entries + keyed + rollups + blocks
	fmt.Printf("%3d agents: ledger %.1f MB (entries %.1f, keys %.1f, roll-ups %.1f, blocks %.2f), %d entries of %.0f bytes; reports %.1f MB, %.1f bytes a row\n",
		agents, mb(all), mb(entries), mb(keyed), mb(rollups), mb(blocks), count, float64(entries)/float64(count), mb(reports), float64(reports)/float64(rows))
	return all, err
}

func mb(n int64) float64 { return float64(n) / 1e6 }
