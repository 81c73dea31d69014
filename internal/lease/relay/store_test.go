package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/leasetest"
	"github.com/f4ee788f/quota/internal/lease/memstore"
	"github.com/f4ee788f/quota/internal/lease/relay"
	"github.com/f4ee788f/quota/internal/limit"
)

// counted is a store that counts what comes to it.
type counted struct {
	lease.Store
	renewals atomic.Int64
	trip     time.Duration
	last     atomic.Pointer[lease.Renewal]
}

func (c *counted) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	c.renewals.Add(int64(len(renewals)))
	r := renewals[len(renewals)-1]
	c.last.Store(&r)
	if c.trip > 0 {
		select {
		case <-time.After(c.trip):
		case <-ctx.Done():
			return []lease.Answer{{Err: fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err())}}
		}
	}
	return c.Store.Renew(ctx, renewals)
}

func ask(agent string, spec lease.Spec, number, waiting int64) lease.Renewal {
	return lease.Renewal{Key: "bucket", Spec: spec, Holder: agent, Number: number, Began: 1, Waiting: waiting, Largest: min(waiting, 1)}
}

func one(t *testing.T, s lease.Store, r lease.Renewal) lease.Grant {
	t.Helper()
	a := s.Renew(context.Background(), []lease.Renewal{r})[0]
	if a.Err != nil {
		t.Fatalf("renewal %d of %s: %v", r.Number, r.Holder, a.Err)
	}
	return a.Grant
}

// A hundred agents of a bucket are one holder to the store, and get no more than it has.
func TestManyAgentsAreOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &counted{Store: memstore.New(), trip: time.Millisecond}
		s := relay.New(up, "server-1")
		spec := leasetest.Bucket(10_000, 1000)
		spent, granted := map[string]int64{}, int64(0)
		last := map[string]lease.Grant{}
		for round := range int64(20) {
			var calls sync.WaitGroup
			var mu sync.Mutex
			for i := range 100 {
				agent := fmt.Sprint("agent-", i)
				r := ask(agent, spec, round+1, 3)
				mu.Lock()
				r.Admitted, r.Told, r.Generation = spent[agent], spent[agent], last[agent].Generation
				mu.Unlock()
				calls.Go(func() {
					g := one(t, s, r)
					mu.Lock()
					defer mu.Unlock()
					last[agent] = g
					spent[agent] += min(g.Tokens, 3)
					granted += min(g.Tokens, 3)
				})
			}
			calls.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		// 20 rounds of 10 ms and some round trips at 10,000 a second, the burst and epsilon's half of both.
		if most := int64(1000 + 275 + 10*20*13); granted > most || granted < 500 {
			t.Errorf("%d were granted and spent, want 500 to %d", granted, most)
		}
		if n := up.renewals.Load(); n > 200 {
			t.Errorf("2,000 renewals came to %d at the store, want a tenth at most", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// What no agent has any more goes back to the store, which another server may grant it from.
func TestIdleGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &counted{Store: memstore.New(), trip: time.Millisecond}
		spec := leasetest.Bucket(1000, 1000)
		first, second := relay.New(up, "server-1"), relay.New(up, "server-2")
		g := one(t, first, ask("a", spec, 1, 100))
		final := ask("a", spec, 2, 0)
		final.Admitted, final.Held, final.Final, final.Generation = 100, g.Tokens-100, true, g.Generation
		one(t, first, final)
		synctest.Wait()
		time.Sleep(5 * time.Millisecond)
		if r := up.last.Load(); !r.Final || r.Holder != "server-1" || r.Held != g.Tokens-100 && r.Held < 1 {
			t.Errorf("the store heard last %+v, want the lease ended", r)
		}
		if g := one(t, second, ask("b", spec, 1, 900)); g.Tokens < 900 {
			t.Errorf("another server's agent got %d tokens, want the 900 that nobody has used", g.Tokens)
		}
	})
}

// An agent whose lease a relay made is a newcomer to the store, and no proof that the store forgot anything.
func TestToAndFromTheStore(t *testing.T) {
	up := memstore.New()
	s := relay.New(up, "server-1")
	spec := leasetest.Bucket(1000, 1000)
	g := one(t, s, ask("a", spec, 1, 10))
	if !relay.Issued(g.Generation) {
		t.Fatalf("got generation %d, want a relay's", g.Generation)
	}
	strict := spec
	strict.EpsilonPPM = 0
	r := ask("a", strict, 2, 5)
	r.Admitted, r.Told, r.Held, r.Generation, r.Trickle, r.ExpiresIn = 10, 0, g.Tokens-10, g.Generation, g.Trickle, 100_000
	direct := one(t, s, r)
	if direct.Generation != 1 || direct.Tokens < 5 {
		t.Errorf("got %+v from the store, want what waits, and no bucket that was forgotten", direct)
	}
	r = ask("a", spec, 3, 5)
	r.Admitted, r.Told, r.Held, r.Generation, r.Trickle, r.ExpiresIn = 15, 10, 1000, direct.Generation, direct.Trickle, 100_000
	if back := one(t, s, r); !relay.Issued(back.Generation) || back.Tokens > 1000 {
		t.Errorf("got %+v, want a relay's, and none of what the agent holds of the store's taken for the relay's", back)
	}
	_ = s.Close()
}

// While the store is away, who has a lease goes on, and nobody waits longer than the call lasts.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &counted{Store: memstore.New(), trip: time.Hour}
		s := relay.New(up, "server-1")
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		before := time.Now()
		a := s.Renew(ctx, []lease.Renewal{ask("a", leasetest.Bucket(1000, 1000), 1, 1)})[0]
		if !errors.Is(a.Err, lease.ErrUnavailable) || time.Since(before) > 301*time.Millisecond {
			t.Errorf("got %v after %v, want %v when the call ends", a.Err, time.Since(before), lease.ErrUnavailable)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Everything else is the store's, to the letter.
func TestHandsOnTheRest(t *testing.T) {
	leasetest.Differential(t, 80, 100, func(*testing.T) (want, got lease.Store) {
		return rest{memstore.New()}, rest{relay.New(memstore.New(), "server-1")}
	})
}

// rest makes of each limit that a relay would hold a strict one.
type rest struct{ lease.Store }

func (s rest) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	for i := range renewals {
		if relay.Eligible(&renewals[i].Spec) {
			renewals[i].Spec.EpsilonPPM = 0
		}
	}
	return s.Store.Renew(ctx, renewals)
}

// Many calls at once, of the same buckets, whose callers give up now and then.
func TestStress(t *testing.T) {
	up := &counted{Store: memstore.New(), trip: 100 * time.Microsecond}
	s := relay.New(up, "server-1")
	var calls sync.WaitGroup
	for i := range 16 {
		calls.Go(func() {
			agent := fmt.Sprint("agent-", i)
			told, generation := map[string]int64{}, map[string]int64{}
			for n := range int64(200) {
				ctx, cancel := context.WithCancel(context.Background())
				if n%7 == 0 {
					cancel()
				}
				var rs []lease.Renewal
				for k := range 20 {
					r := ask(agent, leasetest.Bucket(1000+n/100, 100), n+1, 2)
					r.Key = fmt.Sprint("bucket-", k)
					r.Told, r.Admitted, r.Generation, r.Final = told[r.Key], told[r.Key], generation[r.Key], n%11 == 0
					rs = append(rs, r)
				}
				for j, a := range s.Renew(ctx, rs) {
					if a.Err != nil && !errors.Is(a.Err, lease.ErrUnavailable) {
						t.Error(a.Err)
					} else if a.Err == nil {
						told[rs[j].Key] += min(a.Grant.Tokens, 2)
						generation[rs[j].Key] = a.Grant.Generation
					}
				}
				cancel()
			}
		})
	}
	calls.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkRenew(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(lease.Store) lease.Store
	}{{"store", func(s lease.Store) lease.Store { return s }}, {"relay", func(s lease.Store) lease.Store { return relay.New(s, "server-1") }}} {
		b.Run(c.name, func(b *testing.B) {
			up := &counted{Store: memstore.New()}
			s := c.open(up)
			rs := make([]lease.Renewal, 1000)
			for i := range rs {
				rs[i] = ask(fmt.Sprint("agent-", i%100), lease.Spec{Algorithm: limit.TokenBucket, Units: 10_000, Period: 1_000_000, Burst: 20_000, EpsilonPPM: 50_000}, 0, 0)
				rs[i].Key = fmt.Sprint("bucket-", i/100)
			}
			n := 0
			for b.Loop() {
				for i := range rs {
					rs[i].Number++
					rs[i].Admitted += 5
				}
				for i, a := range s.Renew(context.Background(), rs) {
					if a.Err != nil {
						b.Fatal(a.Err)
					}
					rs[i].Told, rs[i].Generation = rs[i].Admitted, a.Grant.Generation
				}
				n += len(rs)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/renewal")
			b.ReportMetric(float64(up.renewals.Load())/float64(n), "upstream/renewal")
		})
	}
}
