package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// Several servers, each with a store of its own, renew one bucket at once. Every step is executed once, on what
// the one before left. Together they grant the burst and no token more. An answer that is asked for again is
// the same.
func TestServersRaceForABucket(t *testing.T) {
	cluster := testenv.Redis(t)
	const servers, holders, burst = 3, 8, 200
	now := time.Now().UnixMicro()
	var mu sync.Mutex
	var all sync.WaitGroup
	granted, executed := int64(0), 0
	for server := range servers {
		client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
		defer func() { _ = client.Close() }()
		store := redisstore.New(client, cluster.Prefix)
		for holder := range holders {
			all.Go(func() {
				r := lease.Renewal{Key: "race", Spec: leasetest.Bucket(1, burst), Holder: fmt.Sprint(server, "-", holder), Now: now, Began: 1}
				r.Spec.Period = 3_600_000_000_000 // refills nothing
				for number := int64(1); number <= 12; number++ {
					r.Number, r.Waiting, r.Largest = number, 1, 1
					var a lease.Answer
					for tries := 0; ; tries++ {
						if a = store.Renew(context.Background(), []lease.Renewal{r})[0]; a.Err == nil {
							break
						}
						if !errors.Is(a.Err, lease.ErrUnavailable) || tries == 100 {
							t.Errorf("%s, %d: %v", r.Holder, number, a.Err)
							return
						}
					}
					if again := store.Renew(context.Background(), []lease.Renewal{r})[0]; again.Err == nil && again != a {
						t.Errorf("%s, %d: answered %+v, and again %+v", r.Holder, number, a.Grant, again.Grant)
					}
					mu.Lock()
					granted += a.Grant.Tokens
					executed++
					mu.Unlock()
					r.Told = r.Admitted
					r.Admitted += a.Grant.Tokens // all of it is spent
				}
			})
		}
	}
	all.Wait()
	if executed != servers*holders*12 {
		t.Errorf("%d steps answered, want %d", executed, servers*holders*12)
	}
	if granted != burst {
		t.Errorf("granted %d tokens of a bucket of %d that refills nothing and was asked for all of it", granted, burst)
	}
}

// between does something before a pipeline that has a write in it is sent.
type between struct {
	do func()
}

// onto has it see what a client that did nothing yet sends.
func (b *between) onto(client redis.UniversalClient) {
	client.(*redis.ClusterClient).OnNewNode(func(node *redis.Client) { node.AddHook(b) })
}

func (*between) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if args := cmds[0].Args(); len(args) > 1 && args[1] == redisstore.WriteHash && b.do != nil {
			do := b.do
			b.do = nil
			do()
		}
		return next(ctx, cmds)
	}
}

// What changes between the read and the write of a step is not written over: the step is executed again, on what
// is there then.
func TestWhatComesBetweenReadAndWrite(t *testing.T) {
	cluster := testenv.Redis(t)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	hook := new(between)
	hook.onto(client)
	store, rival := redisstore.New(client, cluster.Prefix), redisstore.New(cluster.Client(), cluster.Prefix)
	now := time.Now().UnixMicro()
	renew := func(s *redisstore.Store, key, holder string, number, waiting int64) lease.Answer {
		r := lease.Renewal{Key: key, Spec: leasetest.Bucket(1, 10), Holder: holder, Now: now, Number: number, Began: 1, Waiting: waiting, Largest: 1}
		r.Spec.Period = 3_600_000_000_000
		return s.Renew(t.Context(), []lease.Renewal{r})[0]
	}
	want := func(what string, a lease.Answer, tokens int64) {
		t.Helper()
		if a.Err != nil || a.Grant.Tokens != tokens {
			t.Errorf("%s: got %d tokens, %v, want %d", what, a.Grant.Tokens, a.Err, tokens)
		}
	}
	flush := func() {
		if err := cluster.Client().ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
			t.Error(err)
		}
	}

	// A new bucket that another server begins meanwhile.
	hook.do = func() { want("the rival of a new bucket", renew(rival, "new", "b", 1, 7), 7) }
	want("a new bucket", renew(store, "new", "a", 1, 7), 3)

	// One that is there.
	want("at first", renew(store, "old", "a", 1, 2), 2)
	hook.do = func() { want("the rival", renew(rival, "old", "b", 1, 5), 5) }
	want("after the rival", renew(store, "old", "a", 2, 7), 5) // of which two are its own, unspent

	// The same step, as another server sends it for an agent that gave up on this one.
	hook.do = func() { want("the same step", renew(rival, "same", "a", 1, 6), 6) }
	want("the same step again", renew(store, "same", "a", 1, 6), 6)
	want("what is left", renew(store, "same", "b", 1, 10), 4)

	// The node forgets it: what is written is what a new bucket is, and nothing of the one before.
	want("before the flush", renew(store, "gone", "a", 1, 9), 9)
	hook.do = flush
	want("after the flush", renew(store, "gone", "b", 1, 4), 4)
	want("what a bucket that was forgotten has", renew(store, "gone", "c", 1, 10), 6)

	// The node goes back to an earlier state, as a replica does that was behind, and goes on in the same way.
	// That is another history all the same.
	want("before the loss", renew(store, "back", "a", 1, 1), 1)
	key := cluster.Prefix + "back"
	dump := cluster.Client().Dump(t.Context(), key).Val()
	want("what will be lost", renew(store, "back", "a", 2, 2), 2)
	before := calls(t, cluster.Client())["hget"]
	hook.do = func() {
		if err := cluster.Client().RestoreReplace(t.Context(), key, time.Minute, dump).Err(); err != nil {
			t.Error(err)
		}
		want("the rival after the loss", renew(rival, "back", "a", 2, 2), 2)
	}
	want("after the loss", renew(store, "back", "b", 1, 10), 8)
	if n := calls(t, cluster.Client())["hget"] - before; n != 3 {
		t.Errorf("%d writes compared, want 3: the rival's, one that failed and one more", n)
	}
}

// stalled holds up what a node is sent first, until another node was sent a write.
type stalled struct {
	once  sync.Once
	wrote chan struct{}
}

func (*stalled) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*stalled) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *stalled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		first := false
		if s.once.Do(func() { first = true }); first {
			select {
			case <-s.wrote:
			case <-ctx.Done():
			}
		}
		err := next(ctx, cmds)
		if args := cmds[0].Args(); err == nil && len(args) > 1 && args[1] == redisstore.WriteHash {
			select {
			case s.wrote <- struct{}{}:
			default:
			}
		}
		return err
	}
}

// A node that hangs keeps no other's buckets waiting between their read and their write.
func TestANodeThatHangs(t *testing.T) {
	cluster := testenv.Redis(t)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	store := redisstore.New(client, cluster.Prefix)
	rs := make([]lease.Renewal, 20) // on all nodes
	for i := range rs {
		rs[i] = lease.Renewal{Key: "hangs-" + strconv.Itoa(i), Spec: leasetest.Bucket(10, 10), Holder: "a", Number: 1, Began: 1, Waiting: 1}
	}
	hook := &stalled{wrote: make(chan struct{}, 1)}
	for round := range 2 { // the nodes learn the scripts
		if round == 1 {
			err := client.(*redis.ClusterClient).ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error { node.AddHook(hook); return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range rs {
			rs[i].Number++
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		for i, a := range store.Renew(ctx, rs) {
			if a.Err != nil {
				t.Errorf("round %d, bucket %d: %v", round, i, a.Err)
			}
		}
		cancel()
	}
}

// frozen is a node that answers nothing until it thaws.
type frozen struct {
	asked chan struct{}
	thaw  chan struct{}
}

func (*frozen) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*frozen) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *frozen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		select {
		case <-f.thaw:
			return next(ctx, cmds)
		default:
		}
		f.asked <- struct{}{}
		select {
		case <-f.thaw:
			return next(ctx, cmds)
		case <-ctx.Done():
			for _, c := range cmds {
				c.SetErr(ctx.Err())
			}
			return ctx.Err()
		}
	}
}

// A node that hangs keeps one batch waiting at a time: others are answered without it, and once it answers, all are.
func TestANodeThatHangsIsAskedByOneBatch(t *testing.T) {
	cluster := testenv.Redis(t)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	store := redisstore.New(client, cluster.Prefix)
	master := func(key string) *redis.Client {
		node, err := client.(*redis.ClusterClient).MasterForKey(t.Context(), cluster.Prefix+key)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	rs := make([]lease.Renewal, 20) // on all nodes
	for i := range rs {
		rs[i] = lease.Renewal{Key: "frozen-" + strconv.Itoa(i), Spec: leasetest.Bucket(10, 10), Holder: "a", Began: 1, Waiting: 1}
	}
	node := master(rs[0].Key)
	renew := func(what string, within time.Duration, rs []lease.Renewal, served func(key string) bool) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		for i := range rs {
			rs[i].Number++
		}
		for i, a := range store.Renew(ctx, rs) {
			if got := a.Err == nil; got != served(rs[i].Key) || !got && !errors.Is(a.Err, lease.ErrUnavailable) || ctx.Err() != nil && len(rs) > 1 {
				t.Errorf("%s, bucket %d: %v (in time: %v)", what, i, a.Err, ctx.Err())
			}
		}
	}
	all, none := func(string) bool { return true }, func(string) bool { return false }
	renew("before", time.Minute, rs, all)
	ice := &frozen{asked: make(chan struct{}, 100), thaw: make(chan struct{})}
	node.AddHook(ice)
	renew("the first that waits", 50*time.Millisecond, slices.Clone(rs[:1]), none)
	<-ice.asked
	var asking sync.WaitGroup
	asking.Go(func() { renew("the one that asks", time.Minute, slices.Clone(rs[:1]), all) })
	<-ice.asked
	renew("beside it", 20*time.Second, rs[1:], func(key string) bool { return master(key) != node })
	if len(ice.asked) > 0 {
		t.Error("the node was asked by two batches at once")
	}
	close(ice.thaw)
	asking.Wait()
	renew("afterwards", time.Minute, rs[1:], all)
}

// A bucket that others change at each try is unavailable in the end, and soon.
func TestABucketThatAlwaysChanges(t *testing.T) {
	cluster := testenv.Redis(t)
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs()}, true)
	defer func() { _ = client.Close() }()
	store, rival := redisstore.New(client, cluster.Prefix), redisstore.New(cluster.Client(), cluster.Prefix)
	hook, number := new(between), int64(0)
	renew := func(s *redisstore.Store, holder string) lease.Answer {
		number++
		return s.Renew(t.Context(), []lease.Renewal{{Key: "busy", Spec: leasetest.Bucket(1, 10), Holder: holder, Number: number, Began: 1}})[0]
	}
	var change func()
	change = func() {
		if a := renew(rival, "rival"); a.Err != nil {
			t.Error(a.Err)
		}
		hook.do = change
	}
	hook.do = change
	hook.onto(client)
	if a := renew(store, "a"); !errors.Is(a.Err, lease.ErrUnavailable) || number < 5 || number > 50 {
		t.Errorf("after %d changes: got %+v, want %v", number, a, lease.ErrUnavailable)
	}
}

// All renewals of a bucket in a call cost Redis one read and one write; one whose number was executed, a read.
func TestABucketIsReadAndWrittenOnce(t *testing.T) {
	cluster := testenv.Redis(t)
	store := redisstore.New(cluster.Client(), cluster.Prefix)
	rs := make([]lease.Renewal, 100)
	for i := range rs {
		rs[i] = lease.Renewal{Key: "busy", Spec: leasetest.Bucket(1000, 1000), Holder: strconv.Itoa(i), Number: 3, Began: 1, Waiting: 1}
	}
	for _, c := range []struct {
		what                string
		reads, writes, sets int64
	}{{"a hundred holders", 1, 1, 1}, {"the same again", 1, 0, 0}} {
		before := calls(t, cluster.Client())
		for i, a := range store.Renew(t.Context(), rs) {
			if a.Err != nil || a.Grant.Tokens < 1 {
				t.Fatalf("renewal %d: got %+v", i, a)
			}
		}
		after := calls(t, cluster.Client())
		for command, want := range map[string]int64{"hmget": c.reads, "hget": c.writes, "hset": c.sets, "evalsha": c.reads + c.writes} {
			if got := after[command] - before[command]; got != want {
				t.Errorf("%s: %d times %s, want %d", c.what, got, command, want)
			}
		}
	}
}

// calls counts the commands that all masters executed so far.
func calls(t *testing.T, c *redis.ClusterClient) map[string]int64 {
	t.Helper()
	var mu sync.Mutex
	all := make(map[string]int64)
	line := regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`)
	err := c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "commandstats").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, m := range line.FindAllStringSubmatch(info, -1) {
			n, _ := strconv.ParseInt(m[2], 10, 64)
			all[m[1]] += n
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Records of holders that are long gone are dropped, a few at a time, as others come.
func TestTheLongGoneAreSwept(t *testing.T) {
	cluster := testenv.Redis(t)
	store := redisstore.New(cluster.Client(), cluster.Prefix)
	now := time.Now().UnixMicro()
	come := func(from, to int) {
		for i := from; i < to; i += 10 {
			var rs []lease.Renewal
			for k := range 10 {
				rs = append(rs, lease.Renewal{Key: "sweep", Spec: leasetest.Bucket(1000, 1000), Holder: strconv.Itoa(i + k), Number: 1, Began: 1, Final: true, Now: now})
			}
			for _, a := range store.Renew(t.Context(), rs) {
				if a.Err != nil {
					t.Fatal(a.Err)
				}
			}
		}
	}
	come(0, 200)
	now += 3_600_000_000
	come(200, 400)
	n, err := cluster.Client().HLen(t.Context(), cluster.Prefix+"sweep").Result()
	if err != nil || n < 201 || n > 300 {
		t.Errorf("%d fields, %v; want the 200 holders of now, the state, and few of the 200 of an hour ago", n, err)
	}
}

// A bucket is kept for as long as it has to be, and some renewals longer: not each says so.
func TestHowLongABucketIsKept(t *testing.T) {
	cluster := testenv.Redis(t)
	store := redisstore.New(cluster.Client(), cluster.Prefix)
	start := time.Now().UnixMicro()
	r := lease.Renewal{Key: "kept", Spec: leasetest.Bucket(1000, 1000), Holder: "a", Began: 1, Waiting: 1}
	r.Spec.EpsilonPPM = 0 // so that leases stay short
	before := calls(t, cluster.Client())["pexpire"]
	for _, c := range []struct{ at, said int64 }{{0, 1}, {1, 1}, {15, 1}, {25, 2}, {26, 2}, {200, 3}} {
		r.Number++
		r.Now = start + c.at*1_000_000
		if a := store.Renew(t.Context(), []lease.Renewal{r})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		if n := calls(t, cluster.Client())["pexpire"] - before; n != c.said {
			t.Errorf("after %d s: said %d times, want %d", c.at, n, c.said)
		}
		if ttl := cluster.Client().PTTL(t.Context(), cluster.Prefix+"kept").Val(); ttl < lease.MaxStep*time.Microsecond || ttl > 10*time.Minute {
			t.Errorf("after %d s: dropped after %s, want no less than %s", c.at, ttl, lease.MaxStep*time.Microsecond)
		}
	}
}

// A key moves to a node whose clock is behind, and that clock drops it, after its remaining time. The expiry
// set by the clock before is not true there, and is set anew.
func TestABucketThatMovesToAnotherClock(t *testing.T) {
	cluster := testenv.Redis(t)
	store := redisstore.New(cluster.Client(), cluster.Prefix)
	start := time.Now().UnixMicro()
	r := lease.Renewal{Key: "moved", Spec: leasetest.Bucket(1000, 1000), Holder: "a", Began: 1, Waiting: 1}
	renew := func(now int64) {
		t.Helper()
		r.Number++
		r.Now = now
		if a := store.Renew(t.Context(), []lease.Renewal{r})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	key, left := cluster.Prefix+"moved", 10*time.Second
	renew(start)
	if err := cluster.Client().PExpire(t.Context(), key, left).Err(); err != nil { // as MIGRATE does: so much of it was left
		t.Fatal(err)
	}
	renew(start - 600_000_000)
	if ttl := cluster.Client().PTTL(t.Context(), key).Val(); ttl < lease.MaxStep*time.Microsecond {
		t.Errorf("dropped after %s, want no less than %s", ttl, lease.MaxStep*time.Microsecond)
	}
}

// Renewals from before and after a change of a limit go together. Each that was executed is answered again from
// its record, and not executed again.
func TestALimitThatChangesWithinACall(t *testing.T) {
	cluster := testenv.Redis(t)
	store := redisstore.New(cluster.Client(), cluster.Prefix)
	renew := func(rs ...lease.Renewal) []lease.Answer {
		t.Helper()
		answers := store.Renew(t.Context(), rs)
		for _, a := range answers {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		return answers
	}
	a := lease.Renewal{Key: "other", Spec: leasetest.Bucket(1000, 1000), Holder: "a", Number: 1, Began: 1, Waiting: 10, Largest: 1}
	b := a
	b.Holder, b.Spec = "b", leasetest.Log(1000, 60_000_000)
	first := renew(a, b)
	if again := renew(b)[0]; again != first[1] {
		t.Errorf("after the change: answered %+v, and again %+v", first[1].Grant, again.Grant)
	}
}
