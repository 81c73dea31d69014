package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/server/leasing"
	"github.com/f4ee788f/quota/internal/testenv"
)

// BenchmarkRedis measures the cost of a renewal for Redis, by the masters' own processor time, and for this
// process. Buckets with one holder come in batches of 1,000. One bucket has a hundred holders, which come in
// one call, and in a call each at once.
func BenchmarkRedis(b *testing.B) {
	for _, c := range []struct {
		name                    string
		buckets, holders, calls int
	}{{"lone", 10_000, 1, 10}, {"together", 10, 100, 10}, {"apart", 10, 100, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			cluster := testenv.Redis(b)
			client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
			defer func() { _ = client.Close() }()
			store := leasing.NewJoiner(redisstore.New(client, cluster.Prefix))
			defer func() { _ = store.Close() }()
			all := make([]lease.Renewal, 0, c.buckets*c.holders)
			for bucket := range c.buckets {
				for holder := range c.holders {
					all = append(all, lease.Renewal{
						Key: fmt.Sprint("per-user/", c.name, "/user-", bucket), Holder: fmt.Sprint("gateway-", holder, "#1"), Began: 1,
						Spec: lease.Spec{Algorithm: limit.TokenBucket, Units: 1000, Period: 1_000_000, Burst: 1000, EpsilonPPM: limit.DefaultEpsilonPPM},
					})
				}
			}
			each := len(all) / c.calls
			round := func() {
				for i := range all {
					all[i].Number++
					all[i].Admitted += 5
				}
				var calls sync.WaitGroup
				for from := 0; from < len(all); from += each {
					calls.Go(func() {
						for _, a := range store.Renew(b.Context(), all[from:from+each]) {
							if a.Err != nil {
								b.Error(a.Err)
							}
						}
					})
				}
				calls.Wait()
			}
			for range 3 {
				round()
			}
			before, own := processor(b, cluster.Client()), ours(b)
			b.ResetTimer()
			for range b.N {
				round()
			}
			b.StopTimer()
			renewals := float64(b.N * len(all))
			b.ReportMetric((ours(b)-own)*1e6/renewals, "own-us/renewal")
			b.ReportMetric((processor(b, cluster.Client())-before)*1e6/renewals, "redis-us/renewal")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/renewals, "us/renewal")
		})
	}
}

// BenchmarkCrowd measures the same for a crowd: 10,000 buckets, or with -short 1,000, of a hundred holders
// each. Their leases last for minutes, as those of many gateways under strain. The holders come in turn, each
// to all buckets. 12 of them come in a call and 16 calls at once, so that nothing is in a cache.
func BenchmarkCrowd(b *testing.B) {
	const holders, each, atOnce, apart = 100, 12, 16, 4_700_000
	buckets := 10_000
	if testing.Short() {
		buckets = 1000
	}
	cluster := testenv.Redis(b)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	store := leasing.NewJoiner(redisstore.New(client, cluster.Prefix))
	defer func() { _ = store.Close() }()
	renewals, now := make([]lease.Renewal, buckets), time.Now().UnixMicro()
	for i := range renewals {
		renewals[i] = lease.Renewal{
			Key: fmt.Sprint("requests\x00crowd-", i), Began: 1, Strain: lease.MaxStrain,
			Spec: lease.Spec{Algorithm: limit.TokenBucket, Units: 60, Period: 1_000_000, Burst: 7200, EpsilonPPM: limit.DefaultEpsilonPPM},
		}
	}
	turns := 0
	turn := func(each int) {
		r := rand.New(rand.NewPCG(1, uint64(turns)))
		for i := range renewals {
			next := &renewals[i]
			next.Holder, next.Number, next.Now = fmt.Sprint("gateway-", turns%holders, "/1795399529325161"), int64(turns/holders)+1, now
			next.Told = 40 * int64(max(turns/holders-1, 0))
			next.Admitted = 40 * int64(turns/holders)
			next.Waiting, next.Largest = next.Number%2, next.Number%2
			next.Elapsed = holders * apart
			next.Now += r.Int64N(apart)
		}
		turns, now = turns+1, now+apart
		r.Shuffle(buckets, func(i, j int) { renewals[i], renewals[j] = renewals[j], renewals[i] })
		calls := make(chan []lease.Renewal, buckets/each+1)
		for call := range slices.Chunk(renewals, each) {
			calls <- call
		}
		close(calls)
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				for call := range calls {
					for _, a := range store.Renew(b.Context(), call) {
						if a.Err != nil {
							b.Error(a.Err)
						}
					}
				}
			})
		}
		all.Wait()
	}
	for range holders + holders/4 {
		turn(60)
	}
	size := cluster.Client().HStrLen(b.Context(), cluster.Prefix+renewals[0].Key, "b").Val()
	before, own := processor(b, cluster.Client()), ours(b)
	for b.Loop() {
		turn(each)
	}
	n := float64(b.N * buckets)
	b.ReportMetric((ours(b)-own)*1e6/n, "own-us/renewal")
	b.ReportMetric((processor(b, cluster.Client())-before)*1e6/n, "redis-us/renewal")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/n, "us/renewal")
	b.ReportMetric(float64(size), "state-bytes")
}

// ours is the processor time that this process used, in seconds.
func ours(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// processor is the processor time that the masters used, in seconds.
func processor(b *testing.B, c *redis.ClusterClient) (seconds float64) {
	b.Helper()
	var mu sync.Mutex
	used := regexp.MustCompile(`used_cpu_(?:user|sys):([\d.]+)`)
	err := c.ForEachMaster(b.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "cpu").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, m := range used.FindAllStringSubmatch(info, -1) {
			s, _ := strconv.ParseFloat(m[1], 64)
			seconds += s
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return seconds
}
