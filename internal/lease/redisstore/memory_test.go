package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// watched is a server's store on a cluster, and the losses that it tells of.
type watched struct {
	*redisstore.Store
	t *testing.T

	mu     sync.Mutex
	losses []lease.Loss
	forgot int64 // leases granted before may be forgotten, as last said
}

func watch(t *testing.T, cluster *testenv.RedisCluster, hooks ...redis.Hook) *watched {
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	for _, h := range hooks {
		client.AddHook(h)
	}
	w := &watched{Store: redisstore.New(client, cluster.Prefix), t: t}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx, func(l lease.Loss) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.losses = append(w.losses, l)
		}, func(at int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if at <= w.forgot {
				t.Errorf("leases granted before %d are forgotten, after %d was said", at, w.forgot)
			}
			w.forgot = at
		})
	}()
	t.Cleanup(func() { stop(); <-done; _ = client.Close() })
	return w
}

func (w *watched) seen() []lease.Loss {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.losses)
}

// forgotBefore is what was said last, once anything was.
func (w *watched) forgotBefore() (at int64) {
	w.t.Helper()
	w.wait("it is said since when leases are known", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		at = w.forgot
		return at != 0
	})
	return at
}

// lease asks for a new bucket of the key by a newcomer.
func (w *watched) lease(key, holder string, spec lease.Spec) lease.Answer {
	r := lease.Renewal{Key: key, Spec: spec, Holder: holder, Number: 1, Began: 1, Waiting: 10}
	return w.Renew(context.Background(), []lease.Renewal{r})[0]
}

// wait waits for what must come, on a machine that may be busy with anything else.
func (w *watched) wait(what string, ok func() bool) {
	w.t.Helper()
	const most = time.Minute
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(most); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %v; losses %v", what, most, w.seen())
		}
	}
}

// looked waits until the store has seen that the cluster remembers this hour from its start: it was
// marked as if a day ago.
func (w *watched) looked(cluster *testenv.RedisCluster) {
	w.t.Helper()
	w.wait("the marks are set", func() bool {
		marks := 0
		err := cluster.Client().ForEachMaster(w.t.Context(), func(ctx context.Context, c *redis.Client) error {
			keys, err := c.Keys(ctx, cluster.Prefix+"memory*").Result()
			for _, k := range keys {
				since := time.Now().Add(-24 * time.Hour).UnixMicro()
				if err == nil {
					err = c.HSet(ctx, k, "since", since, "lost", 0).Err()
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			marks += len(keys)
			return err
		})
		return err == nil && marks == 3
	})
	w.wait("the marks are seen", func() bool {
		a := w.lease("hour-"+time.Now().String(), "a", hourly())
		return a.Err == nil
	})
}

// look waits for so many looks.
func (w *watched) look(n int) {
	w.t.Helper()
	for range n {
		was := w.Looked()
		w.wait("a look", func() bool { return w.Looked() != was })
	}
}

// cutOff keeps the master's replica from following it any more.
func cutOff(t *testing.T, cluster *testenv.RedisCluster, master *redis.Client) {
	t.Helper()
	if err := master.Do(t.Context(), "ACL", "SETUSER", "default", "-psync", "-sync", "-replconf").Err(); err != nil {
		t.Fatal(err)
	}
	err := cluster.Client().ForEachShard(t.Context(), func(ctx context.Context, c *redis.Client) error {
		return c.Do(ctx, "CLIENT", "KILL", "TYPE", "master").Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := master.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
		t.Fatal(err)
	}
}

// hourly is a window that the ledger knows the use of.
func hourly() lease.Spec {
	s := leasetest.Window(1000, 3_600_000_000, time.Now().UnixMicro())
	s.Ledgered = true
	return s
}

// keyOn is a bucket's key whose master is, or is not, the one at addr.
func keyOn(cluster *testenv.RedisCluster, addr string, on bool, name string) string {
	for i := 0; ; i++ {
		key := name + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if (cluster.MasterOf(cluster.Prefix+key) == addr) == on {
			return key
		}
	}
}

// A master is flushed. Within a second every server knows, also one that looked after the other had set the
// mark anew. Buckets begun there are suspect for a term. Windows that were under way are not begun without the
// ledger's figure. The other shards are as before.
func TestAFlushedMasterIsNoticed(t *testing.T) {
	cluster := testenv.SteadyRedis(t)
	a, b := watch(t, cluster), watch(t, cluster)
	a.looked(cluster)
	b.looked(cluster)
	before := a.forgotBefore()
	b.wait("both say the same", func() bool { return b.forgotBefore() == before })
	addr := cluster.Masters()[0]
	node := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = node.Close() }()
	if err := node.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for i, w := range []*watched{a, b} {
		w.wait("the loss is noticed", func() bool { return len(w.seen()) > 0 })
		if got := w.seen(); len(got) != 1 || got[0].Why != lease.Emptied || !strings.HasSuffix(got[0].Part, " of 16384 slots") {
			t.Errorf("server %d: got %v, want one shard emptied, once", i, got)
		}
		name := string(rune('A' + i))
		if g := w.lease(keyOn(cluster, addr, true, name), "n", leasetest.Bucket(100, 200)); g.Err != nil || g.Grant.Tokens != 0 {
			t.Errorf("server %d: a bucket of the shard: got %+v, want nothing yet", i, g)
		}
		if g := w.lease(keyOn(cluster, addr, false, name), "n", leasetest.Bucket(100, 200)); g.Err != nil || g.Grant.Tokens < 10 {
			t.Errorf("server %d: a bucket of another shard: got %+v, want tokens", i, g)
		}
		if g := w.lease(keyOn(cluster, addr, true, name+"hour"), "n", hourly()); !isUnsure(g) {
			t.Errorf("server %d: a window of the shard: got %+v, want %v", i, g, lease.ErrUnsure)
		}
		if g := w.lease(keyOn(cluster, addr, false, name+"hour"), "n", hourly()); g.Err != nil || g.Grant.Tokens < 10 {
			t.Errorf("server %d: a window of another shard: got %+v, want tokens", i, g)
		}
	}
	a.wait("leases of before are not known any more", func() bool { return a.forgotBefore() > before })
	b.wait("both say the same", func() bool { return b.forgotBefore() == a.forgotBefore() })
	if later := watch(t, cluster); later.forgotBefore() != a.forgotBefore() {
		t.Errorf("a server that began later says %d, and the others %d", later.forgotBefore(), a.forgotBefore())
	}
	a.wait("after a term all is as before", func() bool {
		g := a.lease(keyOn(cluster, addr, true, time.Now().Format("05.000")), "n", leasetest.Bucket(100, 200))
		return g.Err == nil && g.Grant.Tokens >= 10
	})
	if got := a.seen(); len(got) != 1 {
		t.Errorf("got %v, want one loss", got)
	}
}

func isUnsure(a lease.Answer) bool { return errors.Is(a.Err, lease.ErrUnsure) }

// A master dies and its replica, which has all, takes over: that is no loss. One that missed
// writes is noticed by where it goes on from.
func TestAPromotedReplicaThatIsBehindIsNoticed(t *testing.T) {
	for _, behind := range []bool{false, true} {
		cluster := testenv.PrivateRedis(t)
		w := watch(t, cluster)
		w.looked(cluster)
		addr, before := cluster.Masters()[0], w.forgotBefore()
		old := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = old.Close() }()
		if behind {
			// Its replica is cut off: the master goes on without it.
			cutOff(t, cluster, old)
			for i := range 50 {
				if a := w.lease(keyOn(cluster, addr, true, "more"+string(rune('a'+i))), "n", leasetest.Bucket(100, 200)); a.Err != nil {
					t.Fatal(a.Err)
				}
			}
			w.look(2)
		}
		cluster.Kill(addr)
		w.wait("the replica takes over", func() bool {
			m := cluster.Masters()
			return len(m) == 3 && !slices.Contains(m, addr)
		})
		if behind {
			w.wait("the loss is noticed", func() bool { return len(w.seen()) > 0 })
			if got := w.seen(); got[0].Why != lease.Behind {
				t.Errorf("got %v, want %s", got, lease.Behind)
			}
			w.wait("leases of before are not known any more", func() bool { return w.forgotBefore() > before })
			continue
		}
		w.look(4)
		if got := w.seen(); len(got) != 0 {
			t.Errorf("a replica that has all took over: got %v, want no loss", got)
		}
		if got := w.forgotBefore(); got != before {
			t.Errorf("a replica that has all took over: leases before %d are forgotten, want %d still", got, before)
		}
	}
}

// A master without persistence restarts sooner than its replica takes over, with nothing.
func TestARestartWithoutDataIsNoticed(t *testing.T) {
	cluster := testenv.SteadyRedis(t)
	w := watch(t, cluster)
	w.looked(cluster)
	addr := cluster.Masters()[0]
	cluster.Kill(addr)
	cluster.Restart(addr)
	w.wait("the loss is noticed", func() bool { return len(w.seen()) > 0 })
	t.Log(w.seen())
}

// A slot that has a shard's mark goes to another master: the shard has another mark then, and no lease was forgotten. Also
// not where it goes after the look asked for the layout.
func TestAnotherMarkIsNoLoss(t *testing.T) {
	for _, within := range []bool{false, true} {
		cluster := testenv.PrivateRedis(t)
		var hook afterLayout
		w := watch(t, cluster, &hook)
		w.looked(cluster)
		before := w.forgotBefore()
		from := cluster.Masters()[0]
		node := redis.NewClient(&redis.Options{Addr: from})
		defer func() { _ = node.Close() }()
		keys, err := node.Keys(t.Context(), cluster.Prefix+"memory*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("marks of a shard: %v, %v", keys, err)
		}
		if within {
			moved := make(chan struct{})
			hook.Store(new(sync.OnceFunc(func() { defer close(moved); moveSlot(t, cluster, keys[0]) })))
			<-moved
		} else {
			moveSlot(t, cluster, keys[0])
		}
		w.wait("the shard has another mark", func() bool {
			now, err := node.Keys(t.Context(), cluster.Prefix+"memory*").Result()
			return err == nil && len(now) == 1 && now[0] != keys[0]
		})
		w.look(2)
		if got := w.forgotBefore(); got != before || len(w.seen()) != 0 {
			t.Errorf("within a look %v: leases before %d are forgotten, losses %v; want %d still, and none", within, got, w.seen(), before)
		}
	}
}

// afterLayout does what it holds each time that the cluster has said its layout.
type afterLayout struct{ atomic.Pointer[func()] }

func (h *afterLayout) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *afterLayout) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *afterLayout) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if do := h.Load(); do != nil && cmd.FullName() == "cluster shards" {
			(*do)()
		}
		return err
	}
}

// moveSlot gives the slot of a key, the only one in it, from the first master to the second.
func moveSlot(t *testing.T, cluster *testenv.RedisCluster, key string) {
	masters, ids := cluster.Masters(), make(map[string]string)
	nodes := make(map[string]*redis.Client)
	for _, addr := range masters {
		nodes[addr] = redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = nodes[addr].Close() }()
		ids[addr] = nodes[addr].Do(t.Context(), "cluster", "myid").Val().(string)
	}
	from, to := masters[0], masters[1]
	slot := nodes[from].ClusterKeySlot(t.Context(), key).Val()
	do := func(addr string, args ...any) {
		if err := nodes[addr].Do(t.Context(), args...).Err(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	do(to, "cluster", "setslot", slot, "importing", ids[from])
	do(from, "cluster", "setslot", slot, "migrating", ids[to])
	host, port, _ := strings.Cut(to, ":")
	do(from, "migrate", host, port, key, 0, 1000)
	for _, addr := range []string{to, from, masters[2]} {
		do(addr, "cluster", "setslot", slot, "node", ids[to])
	}
}

// Several servers find dropped buckets, and the last to see the mark may have told of them already. The mark
// says that nothing else is lost.
func TestWhatAnothersMarkTells(t *testing.T) {
	for _, c := range []struct {
		then, now    int64
		lost, forgot bool
		want         lease.Why
	}{
		{5, 5, false, false, ""},
		{5, 7, false, false, lease.Evicted},
		{5, 5, true, true, lease.Emptied},
		{5, 7, true, true, lease.Emptied},
	} {
		got, err := redisstore.New(nil, "").JudgeOther(t.Context(), c.then, c.now, c.lost, c.forgot)
		if err != nil || got != c.want {
			t.Errorf("%d dropped, then %d, lost %v, forgot %v: got %q, %v; want %q", c.then, c.now, c.lost, c.forgot, got, err, c.want)
		}
	}
}

// Buckets are dropped for want of memory, time and again. The loss is told, but not to agents: to renew all
// leases each time would drop more.
func TestDroppedBucketsAreRenewedInTheirTime(t *testing.T) {
	cluster := testenv.SteadyRedis(t)
	w, other := watch(t, cluster), watch(t, cluster)
	w.looked(cluster)
	other.looked(cluster)
	before := w.forgotBefore()
	addr := cluster.Masters()[0]
	node := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = node.Close() }()
	used, err := node.Do(t.Context(), "memory", "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	total, _ := used.(map[any]any)["total.allocated"].(int64)
	for name, value := range map[string]any{"maxmemory-policy": "volatile-random", "maxmemory": total + 200_000} {
		if err := node.Do(t.Context(), "config", "set", name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	w.wait("buckets are dropped", func() bool {
		for range 200 {
			n++
			w.lease(keyOn(cluster, addr, true, fmt.Sprintf("more%d-", n)), "n", leasetest.Bucket(100, 200))
		}
		return len(w.seen()) > 0 && len(other.seen()) > 0
	})
	w.look(2)
	other.look(2)
	for _, l := range append(w.seen(), other.seen()...) {
		if l.Why != lease.Evicted {
			t.Errorf("got %v, want %s", l, lease.Evicted)
		}
	}
	if got := w.forgotBefore(); got != before {
		t.Errorf("leases before %d are to be renewed, want %d still", got, before)
	}
}
