package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// A slot moves to a node that has none yet, is not among the masters and does not know the script. Old and new
// buckets are served all the while, and nothing is handed out twice.
func TestASlotOnTheMove(t *testing.T) {
	cluster := testenv.SteadyRedis(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	// Braces in a prefix keep all of its keys in one slot.
	prefix := "{" + cluster.Prefix + "}"
	store := redisstore.New(client, prefix)
	renew := func(key string, number, waiting int64) (lease.Grant, error) {
		spec := leasetest.Bucket(1, 10)
		spec.Period = 3_600_000_000
		r := lease.Renewal{Key: key, Spec: spec, Holder: "a", Number: number, Began: 1, Waiting: waiting}
		if number > 1 {
			r.Admitted, r.Told = 10, 10 // what the first grant brought was spent
		}
		a := store.Renew(ctx, []lease.Renewal{r})[0]
		return a.Grant, a.Err
	}
	if _, err := renew("old", 1, 10); err != nil {
		t.Fatal(err)
	}
	node := func(addr string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	source := cluster.MasterOf(prefix)
	masters := strings.Join(cluster.Masters(), " ")
	var target string
	for _, addr := range cluster.Addrs() {
		if !strings.Contains(masters, addr) {
			target = addr
		}
	}
	from, to := node(source), node(target)
	do := func(c *redis.Client, args ...any) string {
		t.Helper()
		v, err := c.Do(ctx, args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		s, _ := v.(string)
		return s
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !ok() {
			select {
			case <-ctx.Done():
				t.Fatal("never came: " + what)
			case <-tick.C:
			}
		}
	}
	do(to, "cluster", "reset", "soft")
	host, port, _ := strings.Cut(source, ":")
	_, bus, _ := strings.Cut(do(from, "cluster", "nodes"), source+"@")
	bus, _, _ = strings.Cut(bus, " ")
	do(to, "cluster", "meet", host, port, bus)
	fromID, toID := do(from, "cluster", "myid"), do(to, "cluster", "myid")
	until("the empty node is a master that both know", func() bool {
		for _, line := range strings.Split(do(from, "cluster", "nodes"), "\n") {
			if strings.HasPrefix(line, toID) && strings.Contains(line, "master") && !strings.Contains(line, "handshake") {
				return strings.Contains(do(to, "cluster", "nodes"), fromID)
			}
		}
		return false
	})
	until("the empty node is in order", func() bool { return strings.Contains(do(to, "cluster", "info"), "cluster_state:ok") })
	slot := client.(*redis.ClusterClient).ClusterKeySlot(ctx, prefix).Val()
	do(to, "script", "flush")
	do(to, "cluster", "setslot", slot, "importing", fromID)
	do(from, "cluster", "setslot", slot, "migrating", toID)

	if g, err := renew("old", 2, 1); err != nil || g.Tokens != 0 {
		t.Errorf("a bucket still on the source: got %+v, %v; want no token, all were taken", g, err)
	}
	if g, err := renew("new", 1, 10); err != nil || g.Tokens != 10 {
		t.Errorf("a new bucket: got %+v, %v; want its 10 tokens", g, err)
	}
	for _, key := range from.ClusterGetKeysInSlot(ctx, int(slot), 100).Val() {
		do(from, "migrate", host, strings.Split(target, ":")[1], key, 0, 1000)
	}
	if g, err := renew("old", 3, 1); err != nil || g.Tokens != 0 {
		t.Errorf("a bucket that moved: got %+v, %v; want no token, all were taken", g, err)
	}
	do(to, "cluster", "setslot", slot, "node", toID)
	do(from, "cluster", "setslot", slot, "node", toID)
	if g, err := renew("new", 2, 1); err != nil || g.Tokens != 0 {
		t.Errorf("a bucket whose slot moved: got %+v, %v; want no token, all were taken", g, err)
	}
}
