package redisstore_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// What no server writes at a bucket's key ends with the next renewal. The bucket is not taken to be full: for a term it
// grants what epsilon allows, as one that the store forgot.
func TestABucketOfOthersBeginsAnew(t *testing.T) {
	cluster := testenv.Redis(t)
	client := cluster.Client()
	s := redisstore.New(client, cluster.Prefix)
	spec := leasetest.Bucket(1000, 1000)
	for name, write := range map[string]func(key string) error{
		"a string":     func(key string) error { return client.Set(t.Context(), key, "1000000", 0).Err() },
		"a state":      func(key string) error { return client.HSet(t.Context(), key, "b", "\x92\x66\xdbforged").Err() },
		"an empty one": func(key string) error { return client.HSet(t.Context(), key, "b", "").Err() },
		"a record": func(key string) error {
			s.Renew(t.Context(), []lease.Renewal{{Key: strings.TrimPrefix(key, cluster.Prefix), Spec: spec, Holder: "b", Number: 1, Began: 1, Waiting: 1}})
			return client.HSet(t.Context(), key, "r:a", "\x66forged").Err()
		},
		// Well formed, and of times and numbers that nobody would live to see.
		"a record of the future": func(key string) error {
			s.Renew(t.Context(), []lease.Renewal{{Key: strings.TrimPrefix(key, cluster.Prefix), Spec: spec, Holder: "a", Number: 1, Began: 1, Waiting: 1}})
			return redisstore.Forge(t.Context(), client, key, "a", func(_ *lease.State, r *lease.Record) {
				r.Grant.Number, r.Expires, r.Slot = 1<<50, 1<<52, 1<<52/lease.SlotLen
			})
		},
		"a record that began in the future": func(key string) error {
			s.Renew(t.Context(), []lease.Renewal{{Key: strings.TrimPrefix(key, cluster.Prefix), Spec: spec, Holder: "a", Number: 1, Began: 1, Waiting: 1}})
			return redisstore.Forge(t.Context(), client, key, "a", func(_ *lease.State, r *lease.Record) {
				r.Grant.Number, r.Start, r.Expires, r.Slot = 1<<50, 1<<52, 1<<52, 1<<52/lease.SlotLen
			})
		},
		"a number of the future": func(key string) error {
			s.Renew(t.Context(), []lease.Renewal{{Key: strings.TrimPrefix(key, cluster.Prefix), Spec: spec, Holder: "a", Number: 1, Began: 1, Waiting: 1}})
			return redisstore.Forge(t.Context(), client, key, "a", func(_ *lease.State, r *lease.Record) { r.Grant.Number = 1 << 60 })
		},
		"a doubt for ever": func(key string) error {
			s.Renew(t.Context(), []lease.Renewal{{Key: strings.TrimPrefix(key, cluster.Prefix), Spec: spec, Holder: "b", Number: 1, Began: 1, Waiting: 1}})
			return redisstore.Forge(t.Context(), client, key, "b", func(s *lease.State, _ *lease.Record) { s.Suspect = 1 << 52 })
		},
	} {
		key := "forged-" + strings.ReplaceAll(name, " ", "-")
		if err := write(cluster.Prefix + key); err != nil {
			t.Fatal(err)
		}
		r := lease.Renewal{Key: key, Spec: spec, Holder: "a", Number: 1, Began: 1, Waiting: 10}
		a := s.Renew(t.Context(), []lease.Renewal{r})[0]
		if a.Err != nil {
			t.Errorf("%s: %v", name, a.Err)
			continue
		}
		if most := int64(50); !strings.Contains(name, "record") && name != "a number of the future" && name != "an empty one" && a.Grant.Tokens > most {
			t.Errorf("%s: %d units of 1000 are granted, want at most %d", name, a.Grant.Tokens, most)
		}
		r.Number++
		if a = s.Renew(t.Context(), []lease.Renewal{r})[0]; a.Err != nil {
			t.Errorf("%s, once more: %v", name, a.Err)
		}
		look := func(s *lease.State, _ *lease.Record) {
			if s.Suspect > s.Last+lease.LongTerm {
				t.Errorf("%s: it is in doubt for %s", name, time.Duration(s.Suspect-s.Last)*time.Microsecond)
			}
		}
		if err := redisstore.Forge(t.Context(), client, cluster.Prefix+key, "a", look); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A mark of the far future is nobody's: it neither says that leases of then are forgotten, nor keeps later losses from being told.
func TestAMarkOfTheFutureIsNobodys(t *testing.T) {
	cluster := testenv.SteadyRedis(t)
	w := watch(t, cluster)
	before := w.forgotBefore()
	err := cluster.Client().ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, cluster.Prefix+"memory*").Result()
		for _, k := range keys {
			if err == nil {
				err = c.HSet(ctx, k, "forgot", int64(1)<<52, "since", int64(1)<<52).Err()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.wait("the loss is told", func() bool { return w.forgotBefore() > before })
	if at, most := w.forgotBefore(), time.Now().Add(time.Hour).UnixMicro(); at > most {
		t.Errorf("leases granted before %v are said to be forgotten", time.UnixMicro(at))
	}
	if len(w.seen()) == 0 {
		t.Error("no loss is told")
	}
}

// A user with the rights that docs/operations.md names can do all that a server does, and no more.
func TestDocumentedRights(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?m)^ACL SETUSER quota (.*)$`).FindStringSubmatch(string(page))
	if rule == nil {
		t.Fatal("docs/operations.md has no line: ACL SETUSER quota …")
	}
	cluster := testenv.Redis(t)
	user := "quota-" + strings.Trim(cluster.Prefix, ":")
	rights := []any{"ACL", "SETUSER", user}
	for _, word := range strings.Fields(rule[1]) {
		if word = strings.Replace(word, "PASSWORD", "secret", 1); word == "~quota:*" {
			word = "~" + cluster.Prefix + "*"
		}
		rights = append(rights, word)
	}
	err = cluster.Client().ForEachShard(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, rights...).Err() })
	if err != nil {
		t.Fatal(err)
	}
	client := redisstore.Dial(redis.UniversalOptions{Addrs: cluster.Addrs(), Username: user, Password: "secret"}, true)
	defer func() { _ = client.Close() }()
	w := &watched{Store: redisstore.New(client, cluster.Prefix), t: t}
	if err := w.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	for i := range int64(40) { // sweeps among them
		r := lease.Renewal{Key: "rights", Spec: leasetest.Bucket(1000, 1000), Holder: "a", Number: i + 1, Began: 1, Waiting: 1}
		if a := w.Renew(t.Context(), []lease.Renewal{r})[0]; a.Err != nil {
			t.Fatalf("renewal %d: %v", i+1, a.Err)
		}
	}
	if err := w.Post(t.Context(), 1, "text"); err != nil {
		t.Errorf("post: %v", err)
	}
	if _, text, err := w.Posted(t.Context(), 0); err != nil || text != "text" {
		t.Errorf("posted: %q, %v", text, err)
	}
	if err := w.Retract(t.Context(), 1); err != nil {
		t.Errorf("retract: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := make(chan int64, 1)
	go func() {
		_ = w.Run(ctx, func(lease.Loss) {}, func(at int64) {
			select {
			case told <- at:
			default:
			}
		})
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Error("the marks cannot be looked at")
	}
	stop()
	for range told {
	}
	for _, command := range [][]any{{"GET", "another"}, {"SET", cluster.Prefix + "x", "1"}, {"CONFIG", "GET", "*"}, {"FLUSHALL"}, {"KEYS", "*"}} {
		if err := client.Do(t.Context(), command...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%v: %v, want it to be refused", command, err)
		}
	}
}
