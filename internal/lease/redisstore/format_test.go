package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/redisstore"
	"github.com/f4ee788f/quota/internal/testenv"
)

// Servers of several builds share a Redis while they are being replaced. What a later build wrote is not
// touched, and what this one writes is such to the builds before.
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
	// later makes a field one of a format after all of this build's.
	later := func(name, field string, at int) {
		t.Helper()
		v, err := cluster.Client().HGet(t.Context(), key(name), field).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		v[at] += 3
		if err := cluster.Client().HSet(t.Context(), key(name), field, v).Err(); err != nil {
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

	// What every bucket had in the format before is written in it; Forgiven is of this one.
	shrinking := func(holder string, burst int64) byte {
		t.Helper()
		r := lease.Renewal{
			Key: "shrinking", Spec: leasetest.Bucket(1, burst), Holder: holder, Number: 1, Began: 1, Waiting: burst, Largest: 1,
			Now: 1_760_000_000_000_000,
		}
		if a := store.Renew(t.Context(), []lease.Renewal{r})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		v, err := cluster.Client().HGet(t.Context(), key("shrinking"), "b").Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return v[1]
	}
	for i, c := range []struct {
		burst int64
		want  byte
	}{{1000, 102}, {100, 103}, {1000, 102}} {
		if got := shrinking(fmt.Sprint(i), c.burst); got != c.want {
			t.Errorf("of %d, with 1000 used: written in format %d, want %d", c.burst, got, c.want)
		}
	}

	// Changed is of one more.
	r := lease.Renewal{Key: "shrinking", Spec: leasetest.Slots(1000), Holder: "0", Number: 2, Began: 1, Now: 1_760_000_000_100_000}
	if a := store.Renew(t.Context(), []lease.Renewal{r})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	if v, err := cluster.Client().HGet(t.Context(), key("shrinking"), "b").Bytes(); err != nil || v[1] != 104 {
		t.Errorf("a bucket that changed its algorithm: %v, written in format %d, want 104", err, v[1])
	}

	for field, at := range map[string]int{"b": 1, "r:a": 0} {
		name := "later-" + strings.TrimPrefix(field, "r:")
		if a := renew(name, "a", 1, 0); a.Err != nil {
			t.Fatal(a.Err)
		}
		later(name, field, at)
		before := dump(name)
		if a := renew(name, "a", 2, 10); !errors.Is(a.Err, lease.ErrFormat) {
			t.Errorf("%s of a later build: got %+v, want %v", field, a, lease.ErrFormat)
		}
		if dump(name) != before {
			t.Errorf("%s of a later build was written over", field)
		}
	}

	// The builds before unpacked the whole of a state, and left alone what was of a format above theirs.
	if a := renew("own", "a", 1, 0); a.Err != nil {
		t.Fatal(a.Err)
	}
	n, err := cluster.Client().Eval(t.Context(), "return cmsgpack.unpack(redis.call('HGET', KEYS[1], 'b'))[1]", []string{key("own")}).Int()
	if err != nil || n <= 101 {
		t.Errorf("to a build of format 101 this build's is %d, %v; want one above", n, err)
	}
}
