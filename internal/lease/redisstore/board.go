package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// boardKey is beside the buckets' keys: no bucket's key lacks a separator.
const boardKey = "switches"

// postScript replaces the copy unless it has that revision or a higher one.
// KEYS: the copy. ARGV: the revision, the text.
var postScript = redis.NewScript(`
if tonumber(redis.call('HGET', KEYS[1], 'revision') or 0) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'revision', ARGV[1], 'text', ARGV[2])
end
return 1`)

// Posted returns the copy of the operators' switches that servers keep here, if its
// revision is above after. It is one small read as long as nothing changes.
func (s *Store) Posted(ctx context.Context, after int64) (revision int64, text string, err error) {
	v, err := s.client.HGet(ctx, s.prefix+boardKey, "revision").Result()
	switch {
	case errors.Is(err, redis.Nil):
		return 0, "", nil
	case err != nil:
		return 0, "", fmt.Errorf("redis: %w", err)
	}
	if revision, err = strconv.ParseInt(v, 10, 64); err != nil {
		return 0, "", fmt.Errorf("redis: %s%s: %w", s.prefix, boardKey, err)
	}
	if revision <= after {
		return revision, "", nil
	}
	if text, err = s.client.HGet(ctx, s.prefix+boardKey, "text").Result(); err != nil {
		return 0, "", fmt.Errorf("redis: %w", err)
	}
	return revision, text, nil
}

// Post replaces the copy unless it has that revision or a higher one. Redis may lose it
// in a failover: its callers post it again.
func (s *Store) Post(ctx context.Context, revision int64, text string) error {
	if err := postScript.Run(ctx, s.client, []string{s.prefix + boardKey}, revision, text).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}
