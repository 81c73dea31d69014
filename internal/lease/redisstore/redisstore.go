package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// Every step is one script: what all begin and end with, and what its algorithm does between.
var (
	//go:embed step.lua
	stepSource string
	//go:embed bucket.lua
	bucketSource string
	//go:embed log.lua
	logSource string
	//go:embed slots.lua
	slotsSource string
	//go:embed finish.lua
	finishSource string
)

// script is a step's source, with what it is called by.
type script struct {
	source, hash string
}

func newScript(own string) script {
	source := stepSource + own + finishSource
	return script{source, redis.NewScript(source).Hash()}
}

var (
	bucketScript = newScript(bucketSource)
	logScript    = newScript(logSource)
	slotsScript  = newScript(slotsSource)
)

func scriptOf(a limit.Algorithm) *script {
	switch a {
	case limit.SlidingWindowLog:
		return &logScript
	case limit.Concurrency:
		return &slotsScript
	}
	return &bucketScript
}

// batch bounds a pipeline: large enough to fill a round trip, small enough that
// no node is held up for long.
const batch = 512

// Store is a lease.Store on Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string

	memory atomic.Pointer[remembered] // nil before the first look
	seen   map[string]seen            // by mark; Run's
}

// reload is how often a cluster's layout is looked up again. By default go-redis asks
// a dead master for 60 s; what this adds to Redis's own failover, 1.9 to 2.8 s at a
// node timeout of 1 s, is at most the interval. It costs a command each time.
const reload = 100 * time.Millisecond

// Dial returns a client set up so that a failover is seen and a deadline kept (by
// default a deadline of 1 s took 5): of a cluster, or of a single Redis. Addresses,
// credentials and TLS come from o; the rest is set here. It connects to nothing yet.
func Dial(o redis.UniversalOptions, cluster bool) redis.UniversalClient {
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	o.DialTimeout = time.Second
	o.ReadTimeout = time.Second
	o.WriteTimeout = time.Second
	o.PoolTimeout = time.Second
	if !cluster {
		o.MaxRetries = -1 // for a cluster this would rule out redirects as well
		return redis.NewClient(o.Simple())
	}
	c := o.Cluster()
	c.ClusterStateReloadInterval = reload
	return redis.NewClusterClient(c)
}

// New returns a store on client. Its keys begin with prefix, so that several may share a Redis.
func New(client redis.UniversalClient, prefix string) *Store {
	return &Store{client: client, prefix: prefix, seen: make(map[string]seen)}
}

// Ping reports why no step could be executed now, or nil: every master must answer.
func (s *Store) Ping(ctx context.Context) error {
	var err error
	if c, ok := s.client.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.Ping(ctx).Err() })
	} else {
		err = s.client.Ping(ctx).Err()
		if err == nil && s.clustered(ctx) {
			return ErrClustered
		}
	}
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// ErrClustered means that what was given as a single Redis is one node of a cluster,
// which answers for the buckets of its own slots alone.
var ErrClustered = errors.New("redis: this is a node of a cluster; name several of its nodes, or say cluster=true")

// clustered asks a single Redis whether it is more than that. One that may not be asked
// is believed to be alone.
func (s *Store) clustered(ctx context.Context) bool {
	info, err := s.client.Info(ctx, "cluster").Result()
	return err == nil && strings.Contains(info, "cluster_enabled:1")
}

// step is one execution of the script that no layer of the client repeats:
// go-redis would execute a step again whose connection broke before the answer.
type step struct {
	*redis.Cmd
}

// NoRetry implements redis.Cmder.
func (step) NoRetry() bool { return true }

// Renew implements lease.Store.
func (s *Store) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	answers := make([]lease.Answer, len(renewals))
	s.recall(renewals)
	for start := 0; start < len(renewals); start += batch {
		end := min(start+batch, len(renewals))
		s.renew(ctx, renewals[start:end], answers[start:end])
	}
	return answers
}

func (s *Store) renew(ctx context.Context, renewals []lease.Renewal, answers []lease.Answer) {
	steps := make([]step, len(renewals))
	send := make([]int, 0, len(renewals))
	for i := range renewals {
		if answers[i].Err = renewals[i].Check(); answers[i].Err == nil {
			send = append(send, i)
		}
	}
	unknown := s.run(ctx, send, renewals, steps, answers)
	if len(unknown) == 0 {
		return
	}
	// A node that was started or promoted just now does not know the script, and
	// executed nothing: tell it, and send once more.
	// One that cannot be told is not the one that answered: the others are not held up for it.
	_ = s.load(ctx, unknown, renewals)
	unknown = s.run(ctx, unknown, renewals, steps, answers)
	// A node that a slot is moving to may own none yet, and is then not among the
	// masters: it is told by the step itself.
	for _, i := range unknown {
		c := step{redis.NewCmd(ctx, s.command("eval", scriptOf(renewals[i].Spec.Algorithm).source, &renewals[i])...)}
		c.SetFirstKeyPos(3)
		_ = s.client.Process(ctx, c) // the command has the error
		answers[i] = answer(c.Cmd)
	}
}

// run executes the renewals in one pipeline and returns those whose node did not
// know the script.
func (s *Store) run(ctx context.Context, send []int, renewals []lease.Renewal, steps []step, answers []lease.Answer) (unknown []int) {
	if len(send) == 0 {
		return nil
	}
	pipe := s.client.Pipeline()
	for _, i := range send {
		steps[i] = step{redis.NewCmd(ctx, s.command("evalsha", scriptOf(renewals[i].Spec.Algorithm).hash, &renewals[i])...)}
		steps[i].SetFirstKeyPos(3)
		// Queueing fails only where the pipeline is closed; Exec then says so for each.
		_ = pipe.Process(ctx, steps[i])
	}
	// Each command has its own error; the first of them is all that Exec adds.
	_, _ = pipe.Exec(ctx)
	for _, i := range send {
		answers[i] = answer(steps[i].Cmd)
		if redis.HasErrorPrefix(steps[i].Err(), "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	return unknown
}

// load makes the scripts of these renewals known to every master.
func (s *Store) load(ctx context.Context, unknown []int, renewals []lease.Renewal) error {
	var err error
	loaded := make(map[*script]bool, 3)
	for _, i := range unknown {
		c := scriptOf(renewals[i].Spec.Algorithm)
		if loaded[c] {
			continue
		}
		loaded[c] = true
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			err = errors.Join(err, cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
				return node.ScriptLoad(ctx, c.source).Err()
			}))
		} else {
			err = errors.Join(err, s.client.ScriptLoad(ctx, c.source).Err())
		}
	}
	return err
}

// braces would let a part of a key choose the node.
var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (s *Store) key(r *lease.Renewal) string { return s.prefix + braces.Replace(r.Key) }

func (s *Store) command(eval, script string, r *lease.Renewal) []any {
	p := &r.Spec
	_, burst := p.Flow()
	var now any = r.Now
	if r.Now == 0 {
		now = ""
	}
	args := []any{
		eval, script, 1, s.key(r),
		now, r.Holder, r.Number, r.Began, r.Admitted, r.Denied, r.Told, r.Held, r.Waiting, r.Largest, r.InUse, flag(r.Final),
		r.Window, r.Trickle, r.ExpiresIn, r.Generation, int(p.Algorithm), p.Refill(), burst, p.EpsilonPPM,
		p.WindowStart, p.WindowEnd, p.NextWindowEnd, p.Borrow * limit.Micro, p.Lockout, min(p.Hold, lease.MaxHold),
		flag(p.Prorate), p.Period, p.Units, r.Elapsed, r.Reserved, flag(r.Alone),
	}
	if k := &r.Kept; k.Demand > 0 || p.Ledgered || r.Memory != (lease.Memory{}) {
		f := &r.Figure
		args = append(args, r.Memory.Since, flag(r.Memory.Lost), flag(p.Ledgered), f.Window, f.Used, f.Through, flag(f.Whole))
		if k.Demand > 0 {
			args = append(args, k.Stock, k.Pile, k.Trickle, k.Demand)
		}
	}
	return args
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// answer reads a script's reply.
func answer(c *redis.Cmd) lease.Answer {
	v, err := c.Int64Slice()
	switch {
	case err != nil:
		return lease.Answer{Err: fmt.Errorf("%w: %w", lease.ErrUnavailable, err)}
	case len(v) == 1 && v[0] == -2:
		return lease.Answer{Err: lease.ErrUnsure}
	case len(v) == 1 && v[0] == -3:
		return lease.Answer{Err: lease.ErrFormat}
	case len(v) == 1:
		return lease.Answer{Err: lease.ErrStale}
	case len(v) != 16 && len(v) != 17:
		return lease.Answer{Err: fmt.Errorf("%w: a reply of %d numbers", lease.ErrUnavailable, len(v))}
	}
	a := lease.Answer{Grant: lease.Grant{
		Number: v[0], Tokens: v[1], Trickle: v[2], Pile: v[3], TTL: v[4], DenyFor: v[5], Fallback: v[6],
		ValidFrom: v[7], ValidUntil: v[8], Next: v[9], Generation: v[10], ExpirySlot: v[11], Remaining: v[12], Reset: v[13],
		Out: v[14], Drawn: v[15],
	}}
	if len(v) == 17 {
		a.Grant.Unsure = v[16]
	}
	return a
}

// Close closes the client.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}
