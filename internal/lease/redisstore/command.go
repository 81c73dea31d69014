package redisstore

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed read.lua
	readSource string
	//go:embed write.lua
	writeSource string

	readScript  = newScript(readSource)
	writeScript = newScript(writeSource)
)

// script is one that a node is told by its hash, and by its source where it does not know it: both as arguments.
type script struct {
	source, hash any
}

func newScript(source string) *script { return &script{source, redis.NewScript(source).Hash()} }

// command is one that no layer of the client repeats. A write may be executed again, and finds the bucket changed; but one
// node that is gone must not keep the renewals of all others waiting while it is tried again.
type command struct {
	*redis.Cmd
	script *script // nil for a plain command
}

// NoRetry implements redis.Cmder.
func (command) NoRetry() bool { return true }

func plain(ctx context.Context, args ...any) command {
	c := command{Cmd: redis.NewCmd(ctx, args...)}
	c.SetFirstKeyPos(1)
	return c
}

// scripted is a script of one key. Three arguments are left free for what calls it, the key is the fourth.
func scripted(ctx context.Context, script *script, args []any) command {
	args[0], args[1], args[2] = "evalsha", script.hash, 1
	c := command{redis.NewCmd(ctx, args...), script}
	c.SetFirstKeyPos(3)
	return c
}

// run executes commands in one pipeline; each has its own error. A node that was started or promoted just now does not
// know the scripts, and executed nothing: it is sent their sources.
func (s *Store) run(ctx context.Context, commands []*command) {
	s.pipe(ctx, commands)
	var again []*command
	for _, c := range commands {
		if c.script == nil || !redis.HasErrorPrefix(c.Err(), "NOSCRIPT") {
			continue
		}
		args := c.Args()
		args[0], args[1] = "eval", c.script.source
		c.Cmd = redis.NewCmd(ctx, args...)
		c.SetFirstKeyPos(3)
		again = append(again, c)
	}
	s.pipe(ctx, again)
}

func (s *Store) pipe(ctx context.Context, commands []*command) {
	if len(commands) == 0 {
		return
	}
	pipe := s.client.Pipeline()
	for _, c := range commands {
		// Queueing fails only where the pipeline is closed; Exec then says so for each.
		_ = pipe.Process(ctx, c)
	}
	// The first of the commands' errors is all that Exec adds.
	_, _ = pipe.Exec(ctx)
}
