package redisstore_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Wrap(m), testenv.Redialing()) }

func TestSuite(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) lease.Store {
		cluster := testenv.Redis(t)
		client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
		t.Cleanup(func() { _ = client.Close() })
		return redisstore.New(client, cluster.Prefix)
	})
}

// A bucket that is written and read between any two steps answers like one that stays in memory. The histories
// are random, with overdrafts, lost answers, leaps of the clock and late repetitions among them.
func TestAnswersAreThoseOfMemory(t *testing.T) {
	cluster := testenv.Redis(t)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	n := 0
	leasetest.Differential(t, 120, 150, func(*testing.T) (want, got lease.Store) {
		n++
		return memstore.New(), redisstore.New(client, cluster.Prefix+strconv.Itoa(n)+":")
	})
}

// A limit that changes its algorithm again and again admits no more than one that does not.
func TestChanges(t *testing.T) {
	cluster := testenv.Redis(t)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	n := 0
	leasetest.Changes(t, 10, func(*testing.T) lease.Store {
		n++
		return redisstore.New(client, cluster.Prefix+strconv.Itoa(n)+":")
	})
}

// A node of a cluster that is taken for a single Redis would answer for a third of the
// buckets: readiness says so.
func TestPingTellsANodeOfACluster(t *testing.T) {
	cluster := testenv.Redis(t)
	for _, c := range []struct {
		addrs   []string
		cluster bool
		want    error
	}{
		{cluster.Addrs(), true, nil},
		{cluster.Addrs()[:1], true, nil},
		{cluster.Addrs()[:1], false, redisstore.ErrClustered},
	} {
		client := redisstore.Dial(redis.UniversalOptions{Addrs: c.addrs}, c.cluster)
		if err := redisstore.New(client, cluster.Prefix).Ping(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%d addresses, cluster %v: got %v, want %v", len(c.addrs), c.cluster, err, c.want)
		}
		_ = client.Close()
	}
}
