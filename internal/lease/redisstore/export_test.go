package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// Looked is another value after each look.
func (s *Store) Looked() any { return s.memory.Load() }

// JudgeOther is what a server tells that finds another's mark in place of the one it saw. then and now are how
// many buckets were dropped in all. lost is whether the mark says that its shard lost all. forgot is whether
// leases are forgotten from later than the mark before said.
func (s *Store) JudgeOther(ctx context.Context, then, now int64, lost, forgot bool) (why lease.Why, err error) {
	s.seen["mark"] = seen{life: "before", history: "its", offset: 1, evicted: then, forgot: 1}
	l := &look{mark: "mark", life: "other", history: "its", offset: 2, evicted: now, lost: lost, forgot: 1}
	if forgot {
		l.forgot++
	}
	_, err = s.judge(ctx, l, nil, func(l lease.Loss) { why = l.Why })
	return why, err
}

// The scripts' hashes.
var (
	ReadHash  = readScript.hash.(string)
	WriteHash = writeScript.hash.(string)
)

// Forge changes what is at a bucket's key, and a holder's record there, as no server does.
func Forge(ctx context.Context, client redis.UniversalClient, key, holder string, change func(*lease.State, *lease.Record)) error {
	s, r := new(lease.State), new(lease.Record)
	b, err := client.HGet(ctx, key, stateField).Result()
	if err != nil {
		return err
	}
	until, err := decodeState(s, b, "")
	if err != nil {
		return err
	}
	if b, err = client.HGet(ctx, key, recordPrefix+holder).Result(); err != nil {
		return err
	}
	if err := decodeRecord(r, b); err != nil {
		return err
	}
	change(s, r)
	return client.HSet(ctx, key, stateField, encodeState(nil, s, until, 1), recordPrefix+holder, encodeRecord(nil, r)).Err()
}
