package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// boardKey is beside the buckets' keys: no bucket's key lacks a separator.
const boardKey = "switches"

// maxPosted bounds the text of the copy, in bytes: 1,024 tenants of 128 bytes, as JSON in base64, are 200,000.
const maxPosted = 256 << 10

var (
	//go:embed post.lua
	postSource string
	//go:embed posted.lua
	postedSource string
	postScript   = redis.NewScript(postSource)
	postedScript = redis.NewScript(postedSource)
)

// Posted returns the copy of the operators' switches that servers keep here, if its
// revision is above after. It is one small read as long as nothing changes. What cannot be a copy is as if it were not there, and
// the next Post replaces it.
func (s *Store) Posted(ctx context.Context, after int64) (revision int64, text string, err error) {
	v, err := postedScript.Run(ctx, s.client, []string{s.prefix + boardKey}, after, limit.MaxSwitchRevision, maxPosted).Slice()
	if err == nil && len(v) != 2 {
		err = errors.New("an answer of another form")
	}
	if err != nil {
		return 0, "", fmt.Errorf("redis: %s%s: %w", s.prefix, boardKey, err)
	}
	revision, _ = v[0].(int64)
	text, _ = v[1].(string)
	return revision, text, nil
}

// Post replaces the copy unless it has that revision or a higher one. Redis may lose it
// in a failover: its callers post it again.
func (s *Store) Post(ctx context.Context, revision int64, text string) error {
	if revision < 1 || revision > limit.MaxSwitchRevision || len(text) == 0 || len(text) > maxPosted {
		return fmt.Errorf("redis: switches of revision %d and %d bytes: want 1 to %d, and 1 to %d bytes", revision, len(text), limit.MaxSwitchRevision, maxPosted)
	}
	return s.post(ctx, revision, text)
}

// Retract takes down the copy of that revision.
func (s *Store) Retract(ctx context.Context, revision int64) error { return s.post(ctx, revision, "") }

func (s *Store) post(ctx context.Context, revision int64, text string) error {
	if err := postScript.Run(ctx, s.client, []string{s.prefix + boardKey}, revision, text, limit.MaxSwitchRevision, maxPosted).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}
