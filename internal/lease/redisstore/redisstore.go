package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// Store is a lease.Store on Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string

	hanging hanging
	memory  atomic.Pointer[remembered] // nil before the first look
	seen    map[string]seen            // by mark; Run's
	forgot  int64                      // the latest that a mark says leases may be forgotten of before; Run's
}

// reload is how often a cluster's layout is looked up again; it costs a command each time. By default go-redis
// asks a dead master for 60 s. Redis's own failover takes 1.9 to 2.8 s at a node timeout of 1 s. This adds one
// interval at most.
const reload = 100 * time.Millisecond

// Dial returns a client of a cluster, or of a single Redis, that sees a failover and keeps a deadline. By
// default a deadline of 1 s took 5. Addresses, credentials and TLS come from o; the rest is set here. It
// connects to nothing yet.
func Dial(o redis.UniversalOptions, cluster bool) redis.UniversalClient {
	o.ContextTimeoutEnabled = true
	o.Protocol = 2 // nothing is pushed here, and by 3 the client looks for that before each answer
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

// ErrClustered means that the Redis given as a single one is a node of a cluster. It answers only for the
// buckets of its own slots.
var ErrClustered = errors.New("redis: this is a node of a cluster; name several of its nodes, or say cluster=true")

// clustered asks a single Redis whether it is more than that. One that may not be asked
// is believed to be alone.
func (s *Store) clustered(ctx context.Context) bool {
	info, err := s.client.Info(ctx, "cluster").Result()
	return err == nil && strings.Contains(info, "cluster_enabled:1")
}

// batch bounds a pipeline: large enough to fill a round trip, small enough that
// no node is held up for long.
const batch = 1024

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

// braces would let a part of a key choose the node.
var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (s *Store) key(r *lease.Renewal) string { return s.prefix + braces.Replace(r.Key) }

// Close closes the client.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}
