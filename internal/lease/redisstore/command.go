package redisstore

import (
	"context"
	_ "embed"
	"slices"

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

// command is one that no layer of the client repeats. A write may be executed again, and then finds the bucket
// changed. But retries at one dead node must not keep the renewals of all others waiting.
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

// pipeliner is a node, or a client that finds the node of each command.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// run executes commands of one node in one pipeline; each has its own error. The client need not find each
// command's node: a third of its work for them. A node that does not have a bucket any more executed nothing,
// and the client finds the one that has it. A node that was started or promoted just now does not know the
// scripts and executed nothing either: it is sent their sources.
func (s *Store) run(ctx context.Context, node pipeliner, commands []*command) {
	pipe(ctx, node, commands)
	pipe(ctx, s.client, refused(commands, "MOVED", "ASK"))
	unknown := refused(commands, "NOSCRIPT")
	for _, c := range unknown {
		args := c.Args()
		args[0], args[1] = "eval", c.script.source
		c.Cmd = redis.NewCmd(ctx, args...)
		c.SetFirstKeyPos(3)
	}
	pipe(ctx, s.client, unknown)
}

// refused returns the commands whose error begins so.
func refused(commands []*command, prefixes ...string) (refused []*command) {
	for _, c := range commands {
		err := c.Err()
		if err != nil && slices.ContainsFunc(prefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) {
			refused = append(refused, c)
		}
	}
	return refused
}

func pipe(ctx context.Context, node pipeliner, commands []*command) {
	if len(commands) == 0 {
		return
	}
	pipe, all := node.Pipeline(), make([]redis.Cmder, len(commands))
	for i, c := range commands {
		all[i] = c
	}
	// Queueing fails only where the pipeline is closed; Exec then says so for each.
	_ = pipe.BatchProcess(ctx, all...)
	// The first of the commands' errors is all that Exec adds.
	_, _ = pipe.Exec(ctx)
}
