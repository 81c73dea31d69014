package relay_test

import (
	"context"
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
)

// shaky is a store that can be away, or slow.
type shaky struct {
	lease.Store
	away  atomic.Bool
	trip  atomic.Int64
	calls atomic.Int64
}

func (s *shaky) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	s.calls.Add(1)
	if d := time.Duration(s.trip.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	if s.away.Load() || ctx.Err() != nil {
		out := make([]lease.Answer, len(renewals))
		for i := range out {
			out[i].Err = fmt.Errorf("%w: away", lease.ErrUnavailable)
		}
		return out
	}
	return s.Store.Renew(ctx, renewals)
}

// try is a renewal whose caller has the patience of an agent.
func try(s lease.Store, r lease.Renewal) lease.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	return s.Renew(ctx, []lease.Renewal{r})[0]
}

// member is an agent that spends all that it is granted at once.
type member struct {
	name                string
	number, spent, told int64
	g                   lease.Grant
	at                  time.Time
}

func (m *member) renew(s lease.Store, spec lease.Spec, waiting int64) int64 {
	m.number++
	r := ask(m.name, spec, m.number, waiting)
	r.Admitted, r.Told, r.Generation = m.spent, m.told, m.g.Generation
	if m.g.TTL > 0 {
		// it spent all that trickled
		d := min(time.Since(m.at).Microseconds(), m.g.TTL)
		gained := min(int64(float64(d)*float64(m.g.Trickle)/1e12), 1<<40)
		m.spent += gained
		r.Admitted = m.spent
		r.ExpiresIn, r.Trickle = max(m.g.TTL-time.Since(m.at).Microseconds(), 0), m.g.Trickle
	}
	a := try(s, r)
	if a.Err != nil {
		return 0
	}
	m.told, m.g, m.at = r.Admitted, a.Grant, time.Now()
	m.spent += a.Grant.Tokens
	return a.Grant.Tokens
}

// load has agents renew every 50 ms for d, each with so much that waits, and returns what they were granted.
func load(s lease.Store, spec lease.Spec, crowd []*member, d time.Duration, each int64) int64 {
	before := int64(0)
	for _, m := range crowd {
		before += m.spent
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var wg sync.WaitGroup
		for _, m := range crowd {
			wg.Go(func() { m.renew(s, spec, each) })
		}
		wg.Wait()
	}
	after := int64(0)
	for _, m := range crowd {
		after += m.spent
	}
	return after - before
}

// What an agent spent out of contact while the store was away is taken out, as without a relay.
func TestSpentWhileStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := map[bool]int64{}
		for _, relayed := range []bool{false, true} {
			mem := memstore.New()
			up := &shaky{Store: mem}
			var s lease.Store = up
			if relayed {
				s = relay.New(up, "server-1")
			}
			spec := leasetest.Bucket(1000, 10_000)
			m := &member{name: "a"}
			load(s, spec, []*member{m}, 20*time.Second, 200)
			up.away.Store(true)
			time.Sleep(5 * time.Second)
			// It spent 8,000 on its own, as much as the rate brought. It tries twice a second, with the same number.
			m.spent += 8_000
			m.number++
			r := ask("a", spec, m.number, 1)
			r.Admitted, r.Told, r.Generation = m.spent, m.told, m.g.Generation
			for range 6 {
				if a := try(s, r); a.Err == nil {
					t.Fatal("answered")
				}
				time.Sleep(500 * time.Millisecond)
			}
			up.away.Store(false)
			a := lease.Answer{Err: lease.ErrUnavailable}
			for a.Err != nil {
				a = try(s, r)
				time.Sleep(50 * time.Millisecond)
			}
			synctest.Wait()
			left[relayed] = one(t, mem, ask("other", spec, 1, 1)).Remaining
			if c, ok := s.(*relay.Store); ok {
				_ = c.Close()
			}
		}
		t.Logf("left: without %d, with a relay %d", left[false], left[true])
		if left[true] < left[false]-2000 || left[true] > left[false]+2000 {
			t.Errorf("%d are left with a relay, %d without", left[true], left[false])
		}
	})
}

// However often an agent tries, what it spent out of contact is taken out once.
func TestSpentOutOfContactCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := map[int]int64{}
		for _, tries := range []int{1, 6} {
			mem := memstore.New()
			up := &shaky{Store: mem}
			s := relay.New(up, "server-1")
			spec := leasetest.Bucket(1000, 10_000)
			m := &member{name: "a"}
			load(s, spec, []*member{m}, 20*time.Second, 200)
			time.Sleep(8 * time.Second) // the gateway and its server do not reach each other
			m.spent += 1500
			m.number++
			r := ask("a", spec, m.number, 1)
			r.Admitted, r.Told, r.Generation = m.spent, m.told, m.g.Generation
			up.trip.Store(int64(600 * time.Millisecond)) // and the store is slow
			for range tries {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				_ = s.Renew(ctx, []lease.Renewal{r})
				cancel()
			}
			time.Sleep(time.Second)
			up.trip.Store(0)
			r.Number++
			try(s, r) // told
			time.Sleep(2 * time.Second)
			r.Number++
			try(s, r)
			synctest.Wait()
			left[tries] = one(t, mem, ask("other", spec, 1, 1)).Remaining
			_ = s.Close()
		}
		if left[6] < left[1]-1000 {
			t.Errorf("%d are left after one try, %d after six", left[1], left[6])
		} else {
			t.Log(left)
		}
	})
}

// Who comes while the first is on its way gets what it asked for too, of a full bucket.
func TestCrowdAtAColdBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, relayed := range []bool{false, true} {
			up := &shaky{Store: memstore.New()}
			up.trip.Store(int64(5 * time.Millisecond))
			var s lease.Store = up
			if relayed {
				s = relay.New(up, "server-1")
			}
			spec := leasetest.Bucket(1000, 10_000)
			var wg sync.WaitGroup
			var short atomic.Int64
			for i := range 20 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
					r := ask(fmt.Sprint("agent-", i), spec, 1, 50)
					if g := one(t, s, r); g.Tokens < 50 {
						short.Add(1)
					}
				})
			}
			wg.Wait()
			t.Logf("relayed %v: %d of 20 got too little of a full bucket of 10,000 for 1,000", relayed, short.Load())
			if relayed && short.Load() > 0 {
				t.Errorf("%d of 20 got too little", short.Load())
			}
			if c, ok := s.(*relay.Store); ok {
				_ = c.Close()
			}
		}
	})
}

// What those waited for who gave up lies with nobody else.
func TestGivenUpIsInTheSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		up := &shaky{Store: mem}
		up.trip.Store(int64(40 * time.Millisecond))
		s := relay.New(up, "server-1")
		spec := leasetest.Bucket(10_000, 1000)
		var wg sync.WaitGroup
		var lies atomic.Int64
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_ = s.Renew(ctx, []lease.Renewal{ask("gone", spec, 1, 900)})
		})
		time.Sleep(5 * time.Millisecond)
		for i := range 10 {
			wg.Go(func() { lies.Add(one(t, s, ask(fmt.Sprint("stays-", i), spec, 1, 10)).Tokens - 10) })
		}
		wg.Wait()
		synctest.Wait()
		up.trip.Store(0)
		time.Sleep(120 * time.Millisecond) // the store refills meanwhile
		look := one(t, mem, ask("look", spec, 1, 0))
		t.Logf("%d lie with agents, that did not wait for them; the store says that %d are out, and %d left", lies.Load(), look.Out, look.Remaining)
		taken := int64(0)
		for n, i := int64(512), 0; n > 0; i++ {
			d := one(t, mem, ask(fmt.Sprint("direct-", i), spec, 1, n))
			if taken += min(d.Tokens, n); d.Tokens < n {
				n /= 2
			}
		}
		if all := taken + lies.Load(); all > 1000+275+10 {
			t.Errorf("%d are there to be spent at one moment (%d with agents, %d from the store), want 1,275 at most", all, lies.Load(), taken)
		}
		if lies.Load() > look.Out {
			t.Errorf("%d lie with agents, and the store says that %d are out, and %d left", lies.Load(), look.Out, look.Remaining)
		}
		_ = s.Close()
	})
}

// A server that ends, in order or not, costs the bucket no more than its term and one more under pressure, half a second each; with
// shares held for silent agents nothing at all, for agents renew at the store then.
func TestServerEnds(t *testing.T) {
	for _, hold := range []time.Duration{0, 30 * time.Second} {
		for _, orderly := range []bool{false, true} {
			t.Run(fmt.Sprint(hold, orderly), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					up := &shaky{Store: memstore.New()}
					up.trip.Store(int64(time.Millisecond))
					spec := leasetest.Bucket(2000, 1000)
					spec.Hold = hold.Microseconds()
					s := relay.New(up, "server-1")
					var crowd []*member
					for i := range 20 {
						crowd = append(crowd, &member{name: fmt.Sprint("agent-", i)})
					}
					load(s, spec, crowd, 5*time.Second, 10)
					if orderly {
						_ = s.Close()
					}
					next := relay.New(up, "server-2")
					var got []int64
					for range 4 {
						got = append(got, load(next, spec, crowd, time.Second, 10))
					}
					if least := int64(4000); got[1]+got[2]+got[3] < least {
						t.Errorf("each second %v of 2,000, want %d from the second to the fourth", got, least)
					}
					_ = next.Close()
				})
			})
		}
	}
}
