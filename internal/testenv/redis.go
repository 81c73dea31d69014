package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/f4ee788f/quota/internal/engines"
)

// RedisCluster is a cluster as one test sees it.
type RedisCluster struct {
	// Prefix is this test's own: no other test uses keys that begin with it.
	Prefix string

	t       testing.TB
	addrs   []string
	cluster *engines.RedisCluster // nil for a given one
	private bool
}

type redisEngine struct {
	addrs   []string
	cluster *engines.RedisCluster
}

var sharedRedis shared[redisEngine]

// Redis is the cluster that all tests of this binary share. Nothing may be flushed
// or killed in it. The test ends here when there is none.
func Redis(t testing.TB) *RedisCluster {
	t.Helper()
	e, err := sharedRedis.get(func(ctx context.Context) (redisEngine, func() error, error) {
		if given := os.Getenv("QUOTA_TEST_REDIS"); given != "" {
			say("redis: given: %s", given)
			return redisEngine{addrs: strings.Split(given, ",")}, nil, nil
		}
		e, end, err := startRedis(ctx)
		if err == nil {
			if err = e.steady(ctx); err != nil {
				err = errors.Join(err, end())
			}
		}
		return e, end, err
	})
	give(t, "redis", err)
	return &RedisCluster{Prefix: prefix(), t: t, addrs: e.addrs, cluster: e.cluster}
}

// steady sets a node timeout of a minute, so that no replica takes over on a busy machine. A takeover may lose the last
// acknowledged writes. Nodes begin with a timeout of a second, with which a cluster forms sooner.
func (e redisEngine) steady(ctx context.Context) error {
	for _, addr := range e.addrs {
		c := redis.NewClient(&redis.Options{Addr: addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		if err := errors.Join(c.ConfigSet(ctx, "cluster-node-timeout", "60000").Err(), c.Close()); err != nil {
			return fmt.Errorf("a steady cluster: %w", err)
		}
	}
	return nil
}

// PrivateRedis is a new cluster for this test alone, which may do anything to it. It ends with the test.
// QUOTA_TEST_REDIS does not provide one.
func PrivateRedis(t testing.TB) *RedisCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	e, end, err := startRedis(ctx)
	give(t, "redis", err)
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("stop redis: %v", err)
		}
	})
	return &RedisCluster{Prefix: prefix(), t: t, addrs: e.addrs, cluster: e.cluster, private: true}
}

// SteadyRedis is a PrivateRedis in which no replica takes over: for tests that break it in another way.
func SteadyRedis(t testing.TB) *RedisCluster {
	t.Helper()
	r := PrivateRedis(t)
	r.must(redisEngine{r.addrs, r.cluster}.steady(t.Context()))
	return r
}

func prefix() string { return "t" + strings.ToLower(rand.Text()[:12]) + ":" }

func startRedis(ctx context.Context) (e redisEngine, end func() error, err error) {
	from, err := choose(ctx,
		func(ctx context.Context) error { return redisImage.have(ctx) },
		func() error { _, err := engines.FindRedis(); return err })
	if err != nil {
		return e, nil, err
	}
	dir, err := engines.TempDir("redis")
	if err != nil {
		return e, nil, err
	}
	var o engines.RedisOptions
	clean := func() error { return os.RemoveAll(dir) }
	if from == fromDocker {
		made := redisImage.boxes()
		o.Server, o.Launch = "redis-server", made.launch
		clean = func() error { return errors.Join(made.remove(), os.RemoveAll(dir)) }
		say("redis: docker, 6 containers of %s", redisImage.name)
	} else {
		if o.Server, err = engines.FindRedis(); err != nil {
			return e, nil, err
		}
		say("redis: local processes, 6 of %s", o.Server)
	}
	c, err := engines.StartRedisCluster(ctx, dir, o)
	if err != nil {
		return e, nil, errors.Join(err, clean())
	}
	return redisEngine{c.Addrs(), c}, func() error { return errors.Join(c.Stop(), clean()) }, nil
}

// Addrs are the addresses of the nodes, or the addresses in QUOTA_TEST_REDIS.
func (r *RedisCluster) Addrs() []string { return slices.Clone(r.addrs) }

// Client is a client of the cluster, set up to follow a failover at once and to
// keep deadlines. It is closed at the end of the test.
func (r *RedisCluster) Client() *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: r.addrs, ContextTimeoutEnabled: true, DialerRetries: 1,
		ClusterStateReloadInterval: 100 * time.Millisecond,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			r.t.Errorf("close the redis client: %v", err)
		}
	})
	return c
}

// mine is the cluster to break. Only a private cluster has one.
func (r *RedisCluster) mine() *engines.RedisCluster {
	r.t.Helper()
	if !r.private {
		r.t.Fatal("a shared redis cluster must not be broken: use testenv.PrivateRedis")
	}
	return r.cluster
}

func (r *RedisCluster) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// Masters are the addresses of the masters that run and own slots. This and all methods below need a private cluster.
func (r *RedisCluster) Masters() []string {
	r.t.Helper()
	addrs, err := r.mine().Masters(r.t.Context())
	r.must(err)
	return addrs
}

// MasterOf is the address of the running master that owns key.
func (r *RedisCluster) MasterOf(key string) string {
	r.t.Helper()
	addr, err := r.mine().MasterOf(r.t.Context(), key)
	r.must(err)
	return addr
}

// Kill ends a node as a crash would.
func (r *RedisCluster) Kill(addr string) { r.t.Helper(); r.must(r.mine().Kill(addr)) }

// Restart starts a node again: empty, on the same port, with its old place in the cluster.
func (r *RedisCluster) Restart(addr string) {
	r.t.Helper()
	r.must(r.mine().Restart(r.t.Context(), addr))
}

// Pause has a node hang (SIGSTOP): its connections stay open, nothing is answered.
func (r *RedisCluster) Pause(addr string) { r.t.Helper(); r.must(r.mine().Pause(addr)) }

// Resume takes Pause back.
func (r *RedisCluster) Resume(addr string) { r.t.Helper(); r.must(r.mine().Resume(addr)) }

// WaitHealthy returns when every running node sees a running master for every slot, and every running replica is in
// step. It returns an error at the end of ctx.
func (r *RedisCluster) WaitHealthy(ctx context.Context) error {
	r.t.Helper()
	return r.mine().WaitHealthy(ctx)
}
