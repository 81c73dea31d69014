package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// Servers of several builds share a Redis while they are being replaced. What a later build wrote is not
// touched; what one wrote before formats were named is read as it was meant.
func TestFormatsOfOtherBuilds(t *testing.T) {
	cluster := testenv.Redis(t)
	store := redisstore.New(cluster.Client(), cluster.Prefix)
	renew := func(key, holder string, number, told int64) lease.Answer {
		spec := leasetest.Bucket(1000, 2000)
		r := lease.Renewal{Key: key, Spec: spec, Holder: holder, Number: number, Began: 1, Waiting: 10, Largest: 1, Now: 1_760_000_000_000_000 + number*100_000}
		if told > 0 {
			r.Admitted, r.Told, r.Generation = told, told, 1
		}
		return store.Renew(t.Context(), []lease.Renewal{r})[0]
	}
	key := func(name string) string {
		t.Helper()
		var found string
		err := cluster.Client().ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			keys, err := c.Keys(ctx, cluster.Prefix+"*").Result()
			for _, k := range keys {
				if strings.HasSuffix(k, name) {
					found = k
				}
			}
			return err
		})
		if err != nil || found == "" {
			t.Fatalf("no key of %q: %v", name, err)
		}
		return found
	}
	rewrite := func(name, field, how string) {
		t.Helper()
		script := "local s = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1])) " + how +
			" redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(s)) return 1"
		if err := cluster.Client().Eval(t.Context(), script, []string{key(name)}, field).Err(); err != nil {
			t.Fatal(err)
		}
	}
	dump := func(name string) string {
		t.Helper()
		text, err := cluster.Client().Dump(t.Context(), key(name)).Result()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}

	for field, how := range map[string]string{"b": "s[1] = s[1] + 1", "r:a": "s[37] = s[37] + 1"} {
		name := "later-" + strings.TrimPrefix(field, "r:")
		if a := renew(name, "a", 1, 0); a.Err != nil {
			t.Fatal(a.Err)
		}
		rewrite(name, field, how)
		before := dump(name)
		if a := renew(name, "a", 2, 10); !errors.Is(a.Err, lease.ErrFormat) {
			t.Errorf("%s of a later build: got %+v, want %v", field, a, lease.ErrFormat)
		}
		if dump(name) != before {
			t.Errorf("%s of a later build was written over", field)
		}
	}

	var want, got []lease.Answer
	for _, name := range []string{"same", "earlier"} {
		for number := range int64(6) {
			a := renew(name, "ab"[number%2:][:1], number/2+1, number/2*10)
			if name == "same" {
				want = append(want, a)
				continue
			}
			got = append(got, a)
			rewrite(name, "b", "table.remove(s, 1) table.remove(s, 26) table.remove(s, 26)")
			rewrite(name, "r:"+"ab"[number%2:][:1], "table.remove(s, 37)")
		}
	}
	for i := range want {
		if got[i] != want[i] || want[i].Err != nil {
			t.Errorf("renewal %d of a bucket of an earlier build: got %+v, want %+v", i+1, got[i], want[i])
		}
	}
}
