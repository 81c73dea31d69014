package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/server"
	"github.com/f4ee788f/quota/internal/testenv"
)

// BenchmarkRedis measures what a renewal costs Redis, by the processor time that the masters say they used, and this process: of buckets with
// one holder, in batches of 1,000; of one with a hundred, that come in one call, and in a call each at once.
func BenchmarkRedis(b *testing.B) {
	for _, c := range []struct {
		name                    string
		buckets, holders, calls int
	}{{"lone", 10_000, 1, 10}, {"together", 10, 100, 10}, {"apart", 10, 100, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			cluster := testenv.Redis(b)
			client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
			defer func() { _ = client.Close() }()
			store := server.NewJoiner(redisstore.New(client, cluster.Prefix))
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
