package redisstore_test

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/memstore"
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

// The Lua and the Go give equal answers to random histories, overdrafts, lost
// answers, leaps of the clock and late repetitions among them.
func TestLuaEqualsGo(t *testing.T) {
	cluster := testenv.Redis(t)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	n := 0
	leasetest.Differential(t, 120, 150, func(*testing.T) (want, got lease.Store) {
		n++
		return memstore.New(), redisstore.New(client, cluster.Prefix+strconv.Itoa(n)+":")
	})
}
