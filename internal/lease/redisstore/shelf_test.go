package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/memstore"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// servers are several on one cluster, of which the renewals of one bucket come to one for a while and then to another.
type servers struct {
	stores []lease.Store
	rnd    *rand.Rand
	at     int
}

func (s *servers) Renew(ctx context.Context, rs []lease.Renewal) []lease.Answer {
	if s.rnd.IntN(10) == 0 {
		s.at = s.rnd.IntN(len(s.stores))
	}
	return s.stores[s.at].Renew(ctx, rs)
}

// Servers that each go on with what they left answer together what a bucket in memory does, over random histories.
func TestAnswersOfServersInTurnAreThoseOfMemory(t *testing.T) {
	cluster := testenv.Redis(t)
	n := uint64(0)
	leasetest.Differential(t, 120, 150, func(*testing.T) (want, got lease.Store) {
		n++
		all := &servers{rnd: rand.New(rand.NewPCG(n, 1))}
		for range 3 {
			all.stores = append(all.stores, redisstore.New(cluster.Client(), cluster.Prefix+strconv.FormatUint(n, 10)+":"))
		}
		return memstore.New(), all
	})
}

// bucket is one of ten tokens that refills nothing, and its holders.
type bucket struct {
	t    *testing.T
	c    *redis.ClusterClient
	key  string
	last map[string]*lease.Renewal
}

func newBucket(t *testing.T, cluster *testenv.RedisCluster, key string) *bucket {
	return &bucket{t, cluster.Client(), key, make(map[string]*lease.Renewal)}
}

// renew has a holder spend what it has and ask a server for as many tokens.
func (b *bucket) renew(s lease.Store, holder string, waiting int64) lease.Answer {
	r := b.last[holder]
	if r == nil {
		r = &lease.Renewal{Key: b.key, Spec: leasetest.Bucket(1, 10), Holder: holder, Now: time.Now().UnixMicro(), Began: 1}
		r.Spec.Period = 3_600_000_000_000
		b.last[holder] = r
	}
	r.Number++
	r.Waiting, r.Largest = waiting, min(waiting, 1)
	a := s.Renew(b.t.Context(), []lease.Renewal{*r})[0]
	if a.Err == nil {
		r.Told = r.Admitted
		r.Admitted += a.Grant.Tokens
	}
	return a
}

func (b *bucket) want(what string, a lease.Answer, tokens int64) {
	b.t.Helper()
	if a.Err != nil || a.Grant.Tokens != tokens {
		b.t.Errorf("%s: got %d tokens, %v, want %d", what, a.Grant.Tokens, a.Err, tokens)
	}
}

// cost is how many reads and writes, refused ones too, all masters executed while f did.
func (b *bucket) cost(what string, reads, writes int64, f func()) {
	b.t.Helper()
	before := calls(b.t, b.c)
	f()
	after := calls(b.t, b.c)
	if r, w := after["hmget"]-before["hmget"], after["hget"]-before["hget"]; r != reads || w != writes {
		b.t.Errorf("%s: %d reads and %d writes, want %d and %d", what, r, w, reads, writes)
	}
}

// dial returns a server's store with connections of its own.
func dial(t *testing.T, cluster *testenv.RedisCluster) *redisstore.Store {
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.New(client, cluster.Prefix)
}

// tell has the store know all nodes' time for a moment: what it knows else it need not read.
func tell(t *testing.T, s *redisstore.Store) {
	t.Helper()
	rs := make([]lease.Renewal, 64)
	for i := range rs {
		rs[i] = lease.Renewal{Key: fmt.Sprint("any-", i), Spec: leasetest.Bucket(1, 10), Holder: "any", Number: 1, Began: 1}
	}
	for _, a := range s.Renew(t.Context(), rs) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// What a server left is not read again while nobody else comes. When another server came, the write is refused, and the step is executed on what
// is there; until the bucket is found as it was left for some time it is read then.
func TestWhatAServerLeftIsNotRead(t *testing.T) {
	cluster := testenv.Redis(t)
	store, rival := dial(t, cluster), dial(t, cluster)
	b := newBucket(t, cluster, "left")
	step := func(what string, s *redisstore.Store, holder string, reads, writes, waiting, tokens int64) {
		t.Helper()
		s.StopClocks()
		b.cost(what, reads, writes, func() { b.want(what, b.renew(s, holder, waiting), tokens) })
	}
	tell(t, store)
	tell(t, rival)
	step("a new bucket", store, "a", 1, 1, 1, 1)
	step("of the same holder", store, "a", 0, 1, 1, 1)
	step("of another", store, "b", 1, 1, 1, 1)
	step("of that one again", store, "b", 0, 1, 1, 1)
	step("of the first again", store, "a", 0, 1, 1, 1)
	step("another server", rival, "c", 1, 1, 3, 3)
	step("refused", store, "a", 1, 2, 1, 1)
	for i := range redisstore.Doubts {
		step(fmt.Sprint("in doubt ", i), store, "a", 1, 1, 0, 0)
	}
	step("in doubt no more", store, "a", 0, 1, 0, 0)
	step("the other server, what is left", rival, "c", 1, 2, 10, 1)
	if a := b.renew(store, "a", 1); a.Grant.Tokens != 0 {
		t.Errorf("after all ten: got %+v", a)
	}
}

// A repeated number is answered by what Redis has, not by what the server left: nothing is written that would tell whether that is still so.
func TestARepeatedNumberIsRead(t *testing.T) {
	cluster := testenv.Redis(t)
	store := dial(t, cluster)
	b := newBucket(t, cluster, "again")
	tell(t, store)
	store.StopClocks()
	b.want("at first", b.renew(store, "a", 1), 1)
	b.want("then", b.renew(store, "a", 4), 4)
	again := *b.last["a"]
	again.Admitted, again.Told = 1, 0
	b.cost("again", 1, 0, func() { b.want("again", store.Renew(t.Context(), []lease.Renewal{again})[0], 4) })
	if err := cluster.Client().Del(t.Context(), cluster.Prefix+"again").Err(); err != nil {
		t.Fatal(err)
	}
	again.Waiting = 3
	b.cost("forgotten", 1, 1, func() { b.want("forgotten", store.Renew(t.Context(), []lease.Renewal{again})[0], 3) })
}

// Redis forgets a bucket, or is what it was some writes ago: what the server left is refused, and it goes on with what is there.
func TestWhatAServerLeftIsForgotten(t *testing.T) {
	cluster := testenv.Redis(t)
	store := dial(t, cluster)
	b := newBucket(t, cluster, "forgotten")
	key := cluster.Prefix + b.key
	tell(t, store)
	store.StopClocks()
	b.want("at first", b.renew(store, "a", 2), 2)
	dump := cluster.Client().Dump(t.Context(), key).Val()
	b.want("what will be lost", b.renew(store, "b", 1), 1)
	b.want("likewise", b.renew(store, "b", 1), 1)
	if err := cluster.Client().RestoreReplace(t.Context(), key, time.Minute, dump).Err(); err != nil {
		t.Fatal(err)
	}
	b.cost("an older state", 1, 2, func() { b.want("an older state", b.renew(store, "a", 2), 2) })
	b.want("what is left of it", b.renew(store, "c", 10), 6)

	b = newBucket(t, cluster, "flushed")
	b.want("at first", b.renew(store, "a", 6), 6)
	if err := cluster.Client().ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
		t.Fatal(err)
	}
	b.cost("no state", 1, 2, func() { b.want("no state", b.renew(store, "a", 1), 1) })
	b.want("what is left beside the six that were spent", b.renew(store, "b", 10), 3)
}

// The answer of a write is lost, which was executed or was not. What the server left before is not what it goes on with.
func TestAWriteWhoseAnswerIsLostIsRead(t *testing.T) {
	cluster := testenv.Redis(t)
	cut := &cutter{}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: cut.dial, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	store := redisstore.New(client, cluster.Prefix)
	b := newBucket(t, cluster, "lost")
	tell(t, store)
	store.StopClocks()
	b.want("at first", b.renew(store, "a", 1), 1)
	hash := redisstore.WriteHash
	cut.script.Store(&hash)
	cut.armed.Store(true)
	b.cost("lost", 0, 1, func() {
		if a := b.renew(store, "a", 2); !errors.Is(a.Err, lease.ErrUnavailable) {
			t.Errorf("lost: got %+v, want %v", a, lease.ErrUnavailable)
		}
	})
	cut.armed.Store(false)
	b.last["a"].Number-- // it asks again
	b.cost("again", 1, 0, func() { b.want("again", b.renew(store, "a", 2), 2) })
	b.cost("and goes on", 1, 1, func() { b.want("and goes on", b.renew(store, "a", 10), 7) })
}
