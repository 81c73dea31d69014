package redisstore

import (
	"context"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/testenv"
)

// BenchmarkBesideBare alternates batches of 1,000 renewals through the Store with batches of the commands that
// it sends for them, bare. Both use one cluster and one client. The bare batch is an HMGET of each of 1,000
// buckets in one pipeline, then an EVALSHA of the script that writes it in another. Its values are as long, its
// arguments are made beforehand, and its answers are checked only for errors.
//
// In the bare batch go-redis finds each bucket's node, as for any caller. The Store finds it itself, decodes,
// steps, encodes, and runs the nodes' pipelines side by side. What that costs is the difference. %-of-bare is
// the Store's rate in percent of the bare one's, by the medians of the batches. Garbage is collected as
// quota-server does for so small a heap, for both; GOGC in the environment overrides that.
func BenchmarkBesideBare(b *testing.B) {
	const buckets = 1000
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(1000))
	}
	cluster := testenv.Redis(b)
	client := Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	s := New(client, cluster.Prefix)
	ctx := context.Background()
	sets := [2][]lease.Renewal{make([]lease.Renewal, buckets), make([]lease.Renewal, buckets)}
	for k, set := range sets {
		for i := range set {
			set[i] = lease.Renewal{
				Key: "per-user/" + strconv.Itoa(k) + "/tenant/user-" + strconv.Itoa(i), Holder: "gateway-1#1", Began: 1,
				Spec: lease.Spec{Algorithm: limit.TokenBucket, Units: 1000, Period: 1_000_000, Burst: 1000, EpsilonPPM: limit.DefaultEpsilonPPM},
			}
		}
	}
	next := func(set []lease.Renewal) {
		for i := range set {
			set[i].Number++
			set[i].Admitted += 5
		}
	}
	through := func(set []lease.Renewal) time.Duration {
		start := time.Now()
		answers := s.Renew(ctx, set)
		took := time.Since(start)
		for _, a := range answers {
			if a.Err != nil {
				b.Fatal(a.Err)
			}
		}
		return took
	}
	// What is written is what was there: each write finds its bucket unchanged.
	args := make([][2][]any, buckets)
	state, record := strings.Repeat("b", 90), strings.Repeat("r", 90) // about as long as a bucket's with one lease
	for i := range args {
		key := s.key(&sets[1][i])
		if err := client.HSet(ctx, key, "b", state).Err(); err != nil {
			b.Fatal(err)
		}
		args[i] = [2][]any{
			{"hmget", key, "b", "r:gateway-1#1"},
			{nil, nil, nil, key, state[:headLen], 0, 0, "b", state, "r:gateway-1#1", record},
		}
	}
	bare := func([]lease.Renewal) time.Duration {
		start := time.Now()
		for k := range 2 {
			cmds := make([]*command, buckets)
			for i := range cmds {
				var c command
				if k == 0 {
					c = plain(ctx, args[i][k]...)
				} else {
					c = scripted(ctx, writeScript, args[i][k])
				}
				cmds[i] = &c
			}
			pipe(ctx, client, cmds)
			for _, c := range cmds {
				if c.Err() != nil || k == 1 && c.Val() != int64(1) {
					b.Fatal(c)
				}
			}
		}
		return time.Since(start)
	}
	next(sets[0])
	through(sets[0]) // tells the nodes the script
	var took [2][]time.Duration
	for b.Loop() {
		for k, f := range []func([]lease.Renewal) time.Duration{through, bare} {
			next(sets[k])
			took[k] = append(took[k], f(sets[k]))
		}
	}
	median := func(k int) float64 {
		slices.Sort(took[k])
		return float64(took[k][len(took[k])/2])
	}
	b.ReportMetric(median(0)/buckets, "ns/bucket")
	b.ReportMetric(median(1)/buckets, "bare-ns/bucket")
	b.ReportMetric(100*median(1)/median(0), "%-of-bare")
}
