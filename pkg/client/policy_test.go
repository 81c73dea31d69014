package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A policy changes under traffic: what was used stays used, rows carry the version
// under which their units were admitted, the bucket of a limit that is gone is dropped.
func TestPolicyChange(t *testing.T) {
	gone := limit.Limit{Name: "gone", Rate: perSecond(1000), Burst: 1000}
	bubble(t, plans(1, requests(1, 10), gone), func(t *testing.T, s *fake) {
		c := dial(t, s)
		if got := drive(c, 1, 8, tenant("a")); got != 8 {
			t.Fatalf("admitted %d of 8", got)
		}
		bigger := requests(1, 30)
		bigger.Meter = "calls"
		s.apply(plans(2, bigger))
		time.Sleep(time.Second)
		if v := c.Stats().PolicyVersion; v != 2 {
			t.Fatalf("version %d in force a second later, want 2", v)
		}
		s.mu.Lock()
		s.buckets["requests|a|"].avail = 20 // the bucket's burst went from 10 to 30
		s.mu.Unlock()
		time.Sleep(2 * time.Second)
		got := drive(c, 1, 40, tenant("a"))
		if got < 20 || got > 28 {
			t.Errorf("admitted %d under the new policy, want some 20 to 25: what was used stays used", got)
		}
		if b := c.Stats().Buckets; b != 1 {
			t.Errorf("%d buckets held, want 1: the other limit is gone", b)
		}
		shut(t, c)
		byVersion := make(map[string]int64)
		for _, r := range s.allRows() {
			byVersion[fmt.Sprint(r.Version, " ", r.Meter)] += r.Admitted
		}
		if byVersion["1 requests"] != 8 || byVersion["2 calls"] != got {
			t.Errorf("rows %v, want 8 of version 1 for requests and %d of 2 for calls", byVersion, got)
		}
	})
}

// The server hears of a limit that changed within 0.3 s, however long its leases last: what the limit has more is there before a request
// asks, and what it has less is nobody's. Others keep their leases.
func TestChangedLimitsAreRenewedAtOnce(t *testing.T) {
	same := limit.Limit{Name: "same", Rate: perSecond(1000), Burst: 1000}
	bubble(t, plans(1, requests(100, 1000), same), func(t *testing.T, s *fake) {
		s.set(func(s *fake) { s.ttl, s.chunk = 2*time.Minute, 100 })
		c := dial(t, s)
		drive(c, 1, 1, tenant("a"))
		time.Sleep(time.Second)
		for i, burst := range []int64{2000, 500} {
			s.apply(plans(int64(i+2), requests(100, burst), same))
			before := c.Stats().Renewals
			time.Sleep(350 * time.Millisecond)
			if n := c.Stats().Renewals - before; n != 1 {
				t.Errorf("version %d: %d renewals within 0.35 s, want that of the limit that changed", i+2, n)
			}
		}
		shut(t, c)
	})
}

func TestTenantChange(t *testing.T) {
	p := plans(1, requests(1, 10))
	p.Plans = append(p.Plans, limit.Plan{Name: "big", Limits: []limit.Limit{requests(1, 100)}})
	p.Plans[1].Limits[0].Algorithm = limit.TokenBucket
	bubble(t, p, func(t *testing.T, s *fake) {
		c := dial(t, s)
		l, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil {
			t.Fatal(err)
		}
		ask := func(n int) (got int64) {
			for range n {
				if l.Allow(t.Context()).Allowed {
					got++
				}
			}
			return got
		}
		total := ask(20)
		if total != 10 {
			t.Fatalf("admitted %d on the small plan, want 10", total)
		}
		s.mu.Lock()
		s.buckets["requests|a|"].avail = 90
		s.mu.Unlock()
		s.tenant(limit.Tenant{ID: "a", Plan: "big"})
		time.Sleep(time.Second)
		got := ask(200)
		if got < 90 || got > 92 {
			t.Errorf("admitted %d after the change of plan, want 90 to 92", got)
		}
		total += got
		if d := l.Allow(t.Context()); d.Allowed || d.Details().Quota != 1 || d.Limit() != "requests" {
			t.Errorf("%+v of %s, want denied by requests", d, d.Limit())
		}
		s.tenant(limit.Tenant{ID: "a", Plan: "big", Suspended: true})
		time.Sleep(time.Second)
		if d := l.Allow(t.Context()); d.Allowed || d.Reason != ReasonSuspended || l.Allow(t.Context()).Allowed {
			t.Errorf("%+v while suspended, want denied for that", d)
		}
		s.tenant(limit.Tenant{ID: "a", Plan: "big", Capped: true})
		time.Sleep(time.Second)
		if d := l.Allow(t.Context()); d.Allowed || d.Reason != ReasonCapped || d.Reason.String() != "spending-cap" {
			t.Errorf("%+v while capped, want denied for that", d)
		}
		s.tenant(limit.Tenant{ID: "a", Plan: "none"})
		time.Sleep(time.Second)
		if d := l.Allow(t.Context()); d.Allowed || d.Reason != ReasonNoPlan {
			t.Errorf("%+v without a plan, want denied for that", d)
		}
		s.tenant(limit.Tenant{ID: "a", Plan: "p"})
		time.Sleep(3 * time.Second)
		got = ask(200)
		if got == 0 || got > 12 {
			t.Errorf("admitted %d back on the small plan, want some of its 10", got)
		}
		total += got
		shut(t, c)
		if got := s.billed(nil); got != total {
			t.Errorf("the ledger has %d units, %d were admitted", got, total)
		}
	})
}

func TestUnknownTenants(t *testing.T) {
	top := limit.Limit{Name: "login", Algorithm: limit.TokenBucket, Rate: perSecond(1), Burst: 5, By: []string{"ip"}, Match: []limit.Match{{Attribute: "endpoint", Patterns: []string{"POST /login"}}}}
	p := plans(1, requests(1, 10))
	p.Limits = []limit.Limit{top}
	bubble(t, p, func(t *testing.T, s *fake) {
		c := dial(t, s)
		for _, w := range []struct {
			attrs  []Attribute
			allow  bool
			reason Reason
			limit  string
		}{
			{[]Attribute{tenant("stranger")}, false, ReasonNoPlan, ""},
			{[]Attribute{tenant("no good")}, false, ReasonInvalid, ""},
			{nil, false, ReasonNoTenant, ""},
			{[]Attribute{Endpoint("POST /login"), IP("10.0.0.1")}, true, ReasonLimit, "login"},
			{[]Attribute{tenant("a")}, true, ReasonLimit, "requests"},
			{[]Attribute{tenant("a"), Endpoint("POST /login")}, true, ReasonLimit, "requests"},
		} {
			d := c.Allow(t.Context(), w.attrs...)
			if d.Allowed != w.allow || d.Reason != w.reason || d.Limit() != w.limit && w.limit != "requests" {
				t.Errorf("%v: %+v by %q, want %v, %v by %q", w.attrs, d, d.Limit(), w.allow, w.reason, w.limit)
			}
		}
		q := plans(2, requests(1, 10))
		q.DefaultPlan = "p"
		s.apply(q)
		time.Sleep(time.Second)
		if d := c.Allow(t.Context(), tenant("stranger")); !d.Allowed {
			t.Errorf("%+v under a default plan, want allowed", d)
		}
		if d := c.AllowN(t.Context(), -1, tenant("a")); d.Allowed || d.Reason != ReasonInvalid {
			t.Errorf("a cost of -1: %+v, want invalid", d)
		}
		if d := c.AllowN(t.Context(), limit.MaxUnits+1, tenant("a")); d.Allowed || d.Reason != ReasonInvalid {
			t.Errorf("a cost above the bound: %+v, want invalid", d)
		}
		shut(t, c)
	})
}

// The store of tenants is away: requests of a new tenant are told so, the log is told
// once, and the tenant is known when the store is back.
func TestTenantsThatCannotBeResolved(t *testing.T) {
	bubble(t, plans(1, requests(1, 10)), func(t *testing.T, s *fake) {
		var log bytes.Buffer
		c := dial(t, s, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		set := func(blank bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.blank = blank
		}
		set(true)
		for range 3 {
			if d := c.Allow(t.Context(), tenant("a")); d.Allowed || d.Reason != ReasonUnknown {
				t.Errorf("while the store is away: %+v, want unknown", d)
			}
		}
		time.Sleep(10 * time.Second)
		if n := c.Stats().Tenants; n < 8 || n > 30 {
			t.Errorf("asked %d times in 10 s, want about once a second", n)
		}
		set(false)
		time.Sleep(time.Second)
		if d := c.Allow(t.Context(), tenant("a")); !d.Allowed {
			t.Errorf("with the store back: %+v, want allowed", d)
		}
		shut(t, c)
		if n := strings.Count(log.String(), "cannot look up tenants"); n != 1 || strings.Contains(log.String(), "not valid") {
			t.Errorf("the log was told %d times, want once and nothing of invalid answers:\n%s", n, log.String())
		}
	})
}

// A renewal that the server refuses as not valid is logged with what is wrong with it, once in ten seconds however often it is
// refused, and the bucket goes on when it is refused no more.
func TestARefusedRenewalIsLogged(t *testing.T) {
	bubble(t, plans(1, requests(1, 10)), func(t *testing.T, s *fake) {
		var log bytes.Buffer
		c := dial(t, s, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		s.set(func(f *fake) { f.wrong = errors.New("admitted is -1; it must be 0 to 9") })
		for begun := time.Now(); time.Since(begun) < 15*time.Second; time.Sleep(100 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if d := c.Allow(ctx, tenant("a")); d.Allowed {
				t.Errorf("%+v of a bucket whose renewals are refused, want denied", d)
			}
			cancel()
		}
		s.set(func(f *fake) { f.wrong = nil })
		time.Sleep(2 * time.Second)
		if d := c.Allow(t.Context(), tenant("a")); !d.Allowed {
			t.Errorf("when its renewals are valid again: %+v, want allowed", d)
		}
		shut(t, c)
		if n := strings.Count(log.String(), "refuses a renewal"); n != 2 || strings.Count(log.String(), "admitted is -1; it must be 0 to 9") != n || !strings.Contains(log.String(), "limit=requests tenant=a") {
			t.Errorf("the log was told %d times, want twice in 15 s, of limit, tenant and reason:\n%s", n, log.String())
		}
	})
}

// A tenant that the server cannot make out is asked for again and again, and no other waits for that: each is
// answered after one round trip.
func TestTenantThatCannotBeMadeOut(t *testing.T) {
	p := plans(1, requests(1, 10))
	p.DefaultPlan = "p"
	bubble(t, p, func(t *testing.T, s *fake) {
		c := dial(t, s)
		first := time.Now()
		for i := range 200 {
			if d := c.Allow(t.Context(), tenant("faulty")); d.Allowed || d.Reason != ReasonUnknown {
				t.Fatalf("the faulty tenant: %+v, want unknown", d)
			}
			begun := time.Now()
			if d := c.Allow(t.Context(), tenant(fmt.Sprint("t", i))); !d.Allowed || time.Since(begun) > 10*time.Millisecond {
				t.Fatalf("tenant %d: %+v after %v, want it allowed at once", i, d, time.Since(begun))
			}
			time.Sleep(50 * time.Millisecond)
		}
		s.mu.Lock()
		n := s.asked["faulty"]
		s.mu.Unlock()
		if took := time.Since(first).Seconds(); float64(n) < took/2 || float64(n) > 2*took+10 {
			t.Errorf("asked %d times for the faulty one in %.0f s, want about once a second", n, took)
		}
		shut(t, c)
	})
}

// Several units are there together or not taken at all, so a refused large
// request denies no small one.
func TestAllowN(t *testing.T) {
	bubble(t, plans(1, requests(1, 10)), func(t *testing.T, s *fake) {
		s.chunk = 0
		c := dial(t, s)
		if d := c.AllowN(t.Context(), 7, tenant("a")); !d.Allowed {
			t.Fatalf("7 of 10: %+v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if d := c.AllowN(ctx, 4, tenant("a")); d.Allowed {
			t.Errorf("4 of the remaining 3: %+v", d)
		}
		if d := c.AllowN(t.Context(), 0, tenant("a")); !d.Allowed {
			t.Errorf("asking about nothing: %+v, want allowed", d)
		}
		if d := c.AllowN(t.Context(), 3, tenant("a")); !d.Allowed {
			t.Errorf("3 of the remaining 3: %+v", d)
		}
		shut(t, c)
		if got := s.billed(nil); got != 10 {
			t.Errorf("the ledger has %d units, want 10", got)
		}
	})
}

// Levels of tenants share their ancestors' buckets; each unit is billed once, to
// the tenant of its request, although the ancestor's limit is metered as well.
func TestAncestorsHoldAndDoNotPay(t *testing.T) {
	bubble(t, plans(1, requests(1, 60)), func(t *testing.T, s *fake) {
		s.tenants["a/team"] = limit.Tenant{ID: "a/team", Exists: true, Plan: "p", Parent: "a", Revision: 1}
		s.tenants["a/team/key"] = limit.Tenant{ID: "a/team/key", Exists: true, Plan: "p", Parent: "a/team", Revision: 1}
		c := dial(t, s)
		got := map[string]int64{
			"a/team/key": drive(c, 1, 25, tenant("a/team/key")),
			"a":          drive(c, 1, 15, tenant("a")),
			"a/team":     drive(c, 1, 40, tenant("a/team")), // only 20 are left at the top
		}
		want := map[string]int64{"a/team/key": 25, "a": 15, "a/team": 20}
		for id := range want {
			if got[id] != want[id] {
				t.Errorf("%s: admitted %d, want %d", id, got[id], want[id])
			}
		}
		shut(t, c)
		for id := range want {
			if b := s.billed(func(r ledger.Row) bool { return r.Tenant == id }); b != got[id] {
				t.Errorf("%s: billed %d units, %d were admitted: %+v", id, b, got[id], s.allRows())
			}
		}
	})
}

// Many goroutines on several limits of which any may deny: the ledger has
// exactly what was admitted, whenever it was collected.
func TestHammer(t *testing.T) {
	limits := []limit.Limit{
		requests(2000, 3000),
		{Name: "per-user", Rate: perSecond(300), Burst: 150, By: []string{"user"}},
		{Name: "writes", Rate: perSecond(500), Burst: 400, Meter: "writes", Match: []limit.Match{{Attribute: "method", Patterns: []string{"POST", "PUT"}}}},
		{Name: "by-endpoint", By: []string{"endpoint"}, Meter: "endpoints"},
	}
	for _, restart := range []bool{false, true} {
		bubble(t, plans(1, limits...), func(t *testing.T, s *fake) {
			s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
			c := dial(t, s, WithReportInterval(50*time.Millisecond))
			var mu sync.Mutex
			want := make(map[string]int64)
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(7, uint64(g)))
					mine := make(map[string]int64)
					for range 1500 {
						id := []string{"a", "a/b"}[r.IntN(2)]
						method := []string{"GET", "POST", "PUT"}[r.IntN(3)]
						endpoint := fmt.Sprint("/", r.IntN(20))
						n := int64(1 + r.IntN(3))
						d := c.AllowN(context.Background(), n, tenant(id), User(fmt.Sprint(r.IntN(40))), Method(method), Endpoint(endpoint))
						if d.Allowed {
							mine[id+" requests "] += n
							mine[id+" by-endpoint endpoint="+endpoint] += n
							if method != "GET" {
								mine[id+" writes "] += n
							}
						}
						if r.IntN(10) == 0 {
							time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					for k, n := range mine {
						want[k] += n
					}
				})
			}
			if restart {
				time.Sleep(200 * time.Millisecond)
				s.restart()
			}
			wg.Wait()
			shut(t, c)
			got := make(map[string]int64)
			var admitted int64
			for _, r := range s.allRows() {
				if r.Admitted > 0 {
					got[r.Tenant+" "+r.Limit+" "+r.Attributes] += r.Admitted
					admitted += r.Admitted
				}
			}
			for k, n := range want {
				if got[k] != n {
					t.Errorf("%s: the ledger has %d units, %d were admitted", k, got[k], n)
				}
			}
			if len(got) != len(want) || admitted < 1000 {
				t.Errorf("%d keys and %d units in the ledger, want %d keys and some thousand units", len(got), admitted, len(want))
			}
		})
	}
}

func TestSwitches(t *testing.T) {
	bubble(t, plans(1, requests(1, 10)), func(t *testing.T, s *fake) {
		s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
		c := dial(t, s)
		l, _ := c.Limiter(t.Context(), tenant("a"))
		var admitted int64
		count := func(n int) (got int64) {
			for i := range n {
				if i%2 == 0 && l.Allow(t.Context()).Allowed || i%2 == 1 && c.Allow(t.Context(), tenant("a")).Allowed {
					got++
				}
			}
			admitted += got
			return got
		}
		if got := count(20); got != 10 {
			t.Errorf("normal: %d of 20 admitted, want 10", got)
		}
		for _, m := range []limit.Mode{limit.ModeAllowAll, limit.ModeShadowAll} {
			s.flip(limit.Switches{Mode: m})
			time.Sleep(10 * time.Millisecond)
			if got := count(50); got != 50 {
				t.Errorf("%v: %d of 50 admitted, want all", m, got)
			}
		}
		s.flip(limit.Switches{Denied: []string{"a"}})
		time.Sleep(10 * time.Millisecond)
		if d := c.Allow(t.Context(), tenant("a/b")); d.Allowed || d.Reason != ReasonSwitch || l.Allow(t.Context()).Allowed {
			t.Errorf("switched off, a descendant: %+v, want denied by the switch", d)
		}
		s.flip(limit.Switches{})
		time.Sleep(30 * time.Second)
		if got := count(40); got == 0 || got > 12 {
			t.Errorf("normal again: %d of 40 admitted, want some 10", got)
		}
		shut(t, c)
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted", got, admitted)
		}
	})
}

// Buckets are bounded: idle ones make room without losing usage, and while none
// is idle a new one is refused.
func TestBucketsAreBounded(t *testing.T) {
	l := limit.Limit{Name: "per-user", Rate: perSecond(10), Burst: 10, By: []string{"user"}, Meter: "calls"}
	n := limit.Limit{Name: "seen", By: []string{"user"}, Meter: "seen"}
	bubble(t, plans(1, l, n), func(t *testing.T, s *fake) {
		c := dial(t, s, WithMaxBuckets(20), WithTenantShare(100))
		var admitted int64
		for round := range 5 {
			users := 0
			for ; ; users++ {
				d := c.Allow(t.Context(), tenant("a"), User(fmt.Sprint(round, "-", users)))
				if !d.Allowed {
					if d.Reason != ReasonOverloaded || users < 8 || users > 10 {
						t.Errorf("round %d: user %d was denied: %+v; want some 10 users, then overloaded", round, users, d)
					}
					break
				}
			}
			admitted += int64(users)
			time.Sleep(20 * time.Second)
			if c.Allow(t.Context(), tenant("a"), User(fmt.Sprint(round, "-again"))).Allowed {
				admitted++
			}
			time.Sleep(20 * time.Second)
		}
		if b := c.Stats().Buckets; b > 20 {
			t.Errorf("%d buckets, want 20 at most", b)
		}
		time.Sleep(10 * time.Minute)
		if st := c.Stats(); st.Buckets != 0 || st.LiveTenants != 0 {
			t.Errorf("%d buckets and %d tenants after 10 idle minutes, want none", st.Buckets, st.LiveTenants)
		}
		shut(t, c)
		for _, name := range []string{"per-user", "seen"} {
			if got := s.billed(func(r ledger.Row) bool { return r.Limit == name }); got != admitted {
				t.Errorf("%s: the ledger has %d units, %d were admitted", name, got, admitted)
			}
		}
	})
}

// First touches of a bucket are one renewal; cold buckets of a request are one call.
func TestFirstTouchesAreOne(t *testing.T) {
	user := limit.Limit{Name: "per-user", Rate: perSecond(1000), Burst: 1000, By: []string{"user"}}
	bubble(t, plans(1, requests(1000, 1000), user), func(t *testing.T, s *fake) {
		s.chunk, s.delay = 100, 5*time.Millisecond
		c := dial(t, s)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if c.Allow(context.Background(), tenant("a"), User("u")).Allowed {
					allowed.Add(1)
				}
			})
		}
		wg.Wait()
		st := c.Stats()
		if allowed.Load() != 50 || st.RenewCalls > 3 || st.Renewals > 4 || s.asked["a"] != 1 {
			t.Errorf("%d of 50 allowed with %d calls for %d renewals, the tenant asked for %d times; want 50, 3 at most (tenant, buckets), once", allowed.Load(), st.RenewCalls, st.Renewals, s.asked["a"])
		}
		shut(t, c)
	})
}

// While nothing is leased a request does not wait where the limit has credit for as many agents as servers count. They
// may come to be more: the most of a minute counts. What was on credit is billed, and told in calls of many.
func TestCreditOfAFleet(t *testing.T) {
	bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
		s.agents, s.delay = 10, 5*time.Millisecond
		const tenants = 200
		for i := range tenants {
			id := fmt.Sprint("t", i)
			s.tenants[id] = limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1}
		}
		c := dial(t, s)
		touch := func(from, to int) (allowed, waited int64) {
			var all sync.WaitGroup
			var allows, waits atomic.Int64
			for i := from; i < to; i++ {
				id := tenant(fmt.Sprint("t", i))
				c.AllowN(t.Context(), 0, id) // its plan is known from here on
				began := time.Now()
				all.Go(func() {
					if c.Allow(t.Context(), id).Allowed {
						allows.Add(1)
					}
					if time.Since(began) > 0 {
						waits.Add(1)
					}
				})
				synctest.Wait()
			}
			all.Wait()
			return allows.Load(), waits.Load()
		}
		before := c.Stats()
		if allowed, waited := touch(0, tenants/2); allowed != tenants/2 || waited > 0 {
			t.Errorf("%d of %d first requests are allowed, and %d waited; want all and none", allowed, tenants/2, waited)
		}
		time.Sleep(time.Second)
		st := c.Stats()
		if calls := st.RenewCalls - before.RenewCalls - tenants/2; calls > 10 {
			t.Errorf("%d calls for %d renewals, want 10 at most", calls, st.Renewals-before.Renewals)
		}
		s.set(func(f *fake) { f.agents = 11 })
		c.AllowN(t.Context(), 0, tenant("news"))
		s.set(func(f *fake) { f.agents = 3 }) // another server, which does not hear of all
		if allowed, waited := touch(tenants/2, tenants); allowed != tenants/2 || waited != tenants/2 {
			t.Errorf("%d of %d first requests are allowed, and %d waited; want all and all", allowed, tenants/2, waited)
		}
		shut(t, c)
		if got := s.billed(func(ledger.Row) bool { return true }); got != tenants {
			t.Errorf("the ledger has %d units, admitted were %d", got, tenants)
		}
	})
}

// Leases whose terms end near each other are renewed together, although they began apart.
func TestRenewalsGoTogether(t *testing.T) {
	user := limit.Limit{Name: "per-user", Rate: perSecond(1000), Burst: 2000, By: []string{"user"}}
	bubble(t, plans(1, user), func(t *testing.T, s *fake) {
		s.leases = memstore.New()
		s.delay = time.Millisecond
		c := dial(t, s)
		var users []Attribute
		for i := range 40 {
			users = append(users, User(fmt.Sprintf("u%d", i)))
		}
		var before Stats
		for step := range 16000 { // every user each 0.2 s, 5 ms apart, for 400 s: terms are two minutes after some
			if step == 2400 {
				before = c.Stats()
			}
			for i := range 5 {
				if !c.Allow(t.Context(), tenant("a"), users[(5*step+i)%len(users)]).Allowed {
					t.Fatal("denied")
				}
			}
			time.Sleep(25 * time.Millisecond)
		}
		st := c.Stats()
		calls, renewals := st.RenewCalls-before.RenewCalls, st.Renewals-before.Renewals
		if renewals < 40 || calls > renewals/4 {
			t.Errorf("%d calls for %d renewals; want at least four in each", calls, renewals)
		}
		shut(t, c)
	})
}

// Handles that nobody holds any more let their buckets go.
func TestHandlesAreCollected(t *testing.T) {
	bubble(t, plans(1, requests(1000, 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		l, err := c.Limiter(t.Context(), tenant("a"))
		if err != nil || !l.Allow(t.Context()).Allowed {
			t.Fatal("not allowed", err)
		}
		time.Sleep(10 * time.Minute)
		if b := c.Stats().Buckets; b != 1 {
			t.Errorf("%d buckets while a handle legs one, want 1", b)
		}
		if !l.Allow(t.Context()).Allowed {
			t.Errorf("denied after an idle while: %+v, %+v", l.Allow(t.Context()), c.Stats())
		}
		runtime.KeepAlive(l)
		l = nil
		runtime.GC()
		runtime.GC()
		time.Sleep(10 * time.Minute)
		if b := c.Stats().Buckets; b != 0 {
			t.Errorf("%d buckets after the handle went, want none", b)
		}
		shut(t, c)
		if got := s.billed(nil); got != 2 {
			t.Errorf("the ledger has %d units, want 2", got)
		}
	})
}

// Units are in hand while a request waits for another limit, reports are made
// meanwhile, and then the other limit denies: nothing of it is billed, whichever
// is asked first.
func TestUnitsInLimboAreNotBilled(t *testing.T) {
	dry := limit.Limit{Name: "dry", Rate: limit.Rate{Units: 1, Per: time.Hour, Calendar: limit.Hour}, Burst: 1, Match: []limit.Match{{Attribute: "method", Patterns: []string{"POST"}}}}
	metered := dry
	metered.Meter = "writes"
	metered.Rate = perSecond(1000) // asked after requests
	for _, other := range []limit.Limit{dry, metered} {
		bubble(t, plans(1, requests(100, 1000), other), func(t *testing.T, s *fake) {
			c := dial(t, s, WithReportInterval(50*time.Millisecond))
			if !c.Allow(t.Context(), tenant("a")).Allowed {
				t.Fatal("denied with nothing used")
			}
			s.set(func(f *fake) {
				f.delay = time.Second / 2
				f.buckets["dry|a|"] = &central{last: time.Now().Add(time.Hour), number: make(map[string]int64), granted: make(map[string]int64), spent: make(map[string]int64)}
			})
			for range 3 {
				if d := c.Allow(t.Context(), tenant("a"), Method("POST")); d.Allowed || d.Limit() != "dry" {
					t.Fatalf("%+v by %q, want denied by the other limit", d, d.Limit())
				}
			}
			if w := c.Stats().Waited; w < 2 {
				t.Fatalf("%d requests waited, want 2 at least: the limbo is what is tested", w)
			}
			shut(t, c)
			if got := s.billed(nil); got != 1 {
				t.Errorf("after %v: the ledger has %d units, want 1: %+v", other.Meter, got, s.allRows())
			}
		})
	}
}
