package agent

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What is denied without the mutex is what would be denied under it, and for as long.
func TestShutSaysWhatSlowSays(t *testing.T) {
	saysWhatSlowSays(t, 0, func(_ int, l *limit.Limit) (*Bucket, func(now int64) (Verdict, bool)) {
		b := NewBucket(l)
		return b, b.Shut
	})
}

// So it is where the tokens say that there are none, but for two milliseconds.
func TestTokensSayWhatSlowSays(t *testing.T) {
	r, set, _ := many(t, 1)
	saysWhatSlowSays(t, 1<<shutGrain, func(run int, l *limit.Limit) (*Bucket, func(now int64) (Verdict, bool)) {
		e := &Entry{Bucket: *NewBucket(l)}
		e.scope().kind = &kind{registry: r}
		a := attributesOf("tenant", "a", "user", strconv.Itoa(run))
		r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
		return &e.Bucket, func(now int64) (Verdict, bool) {
			known, plain, _ := recall(r, a)
			return known.Shut(0, plain, now)
		}
	})
}

// saysWhatSlowSays holds a bucket's denials for certain to those under the mutex, which may say so much less.
func saysWhatSlowSays(t *testing.T, less int64, make func(run int, l *limit.Limit) (*Bucket, func(now int64) (Verdict, bool))) {
	const seed = 9
	r := rand.New(rand.NewPCG(seed, 2))
	shut := 0
	for run := range 300 {
		l := &limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100}
		b, deny := make(run, l)
		now := int64(1_000_000)
		for step := range 200 {
			switch r.IntN(12) {
			case 0, 1:
				g := lease.Grant{Number: b.Renew(now, false).Number, TTL: 1 + r.Int64N(5_000_000)}
				if r.IntN(3) > 0 {
					g.DenyFor = r.Int64N(3_000_000)
				}
				if r.IntN(2) > 0 {
					g.Trickle, g.Pile = r.Int64N(20*limit.Micro), 1+r.Int64N(3)
				}
				if r.IntN(4) == 0 {
					g.Tokens = r.Int64N(3)
				}
				if r.IntN(3) == 0 {
					g.ValidFrom, g.Reset = 1+now-now%2_000_000, 2_000_000-now%2_000_000
					g.ValidUntil = g.ValidFrom + 2_000_000
				}
				b.Apply(now, g)
			case 2:
				b.Expire(now, false)
			case 3:
				was := *l
				l.Burst = 50 + r.Int64N(100)
				b.scope().goBy(termsAlone(l))
				b.follow(termsAlone(&was))
			case 4:
				if b.Take(1) {
					b.PutBack(1)
				}
			default:
				now += r.Int64N(400_000)
			}
			if b.Take(1) {
				continue
			}
			refused := deniedOf(b)
			said, ok := deny(now)
			if !ok {
				b.Slow(now, 1, false)
				continue
			}
			shut++
			if deniedOf(b) != refused+1 {
				t.Fatalf("seed %d run %d step %d: a denial is not counted once", seed, run, step)
			}
			if want := b.Slow(now, 1, false); want.Outcome != Denied || want.RetryAfter < said.RetryAfter-less || said.RetryAfter < 1 {
				t.Fatalf("seed %d run %d step %d: denied for %d, where the bucket says %+v", seed, run, step, said.RetryAfter, want)
			}
		}
	}
	if shut < 1000 {
		t.Errorf("only %d denials without the mutex: this proves little", shut)
	}
}

// A bucket whose trickle brought one token is shut until it brings the next, from the request on that took it.
func TestShutOnceTheTokenIsTaken(t *testing.T) {
	l := &limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100}
	b := NewBucket(l)
	now := int64(1_000_000)
	b.Apply(now, lease.Grant{Number: b.Renew(now, false).Number, TTL: 60_000_000, DenyFor: 60_000_000, Trickle: limit.Micro, Pile: 2})
	now += 1_200_000
	if b.Take(1) || b.Slow(now, 1, false).Outcome != Admitted {
		t.Fatal("the trickle brought nothing")
	}
	if v, ok := b.Shut(now + 700_000); !ok || v.Outcome != Denied {
		t.Errorf("0.7 s later, of a token a second: got %+v, %t, want a denial", v, ok)
	}
	if _, ok := b.Shut(now + 900_000); ok {
		t.Error("denied 0.9 s later, when the next token is there")
	}
}

// deniedOf is what a bucket has denied, but for what is counted by processor.
func deniedOf(of *Bucket) int64 {
	b := of.open(new(hand))
	defer b.close()
	return b.cell.denied()
}

// Tokens say to stay away for longer than they deny by themselves, and keep to it where something is admitted all the same.
func TestTokensSayForHowLong(t *testing.T) {
	r, set, _ := many(t, 1)
	e := &Entry{Bucket: *NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100})}
	e.scope().kind = &kind{registry: r}
	a := attributesOf("tenant", "a", "user", "u")
	r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
	known, plain, _ := recall(r, a)
	now, hour := int64(1_000_000), int64(3600_000_000)
	e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: hour, DenyFor: hour})
	if e.Slow(now, 1, false).Outcome != Denied {
		t.Fatal("it does not deny")
	}
	if e.seldom() != nil {
		t.Error("a bucket whose tokens say that it denies takes more memory than others")
	}
	for i := range int64(3) {
		if i == 1 {
			e.Admit(1)
		}
		if v, ok := known.Shut(0, plain, now+i); !ok || v.RetryAfter != hour-i || v.Count != 1+i {
			t.Errorf("denial %d: %+v, %t", i, v, ok)
		}
	}
	if _, ok := known.Shut(0, plain, now+askAgain); ok {
		t.Error("it is not asked for again")
	}
	if n := deniedOf(&e.Bucket); n != 4 {
		t.Errorf("%d denials are counted, want 4", n)
	}
	// Of more than there is room for the book takes over those before.
	for i := range 3 * shutMost {
		if v, ok := known.Shut(0, plain, now+3); !ok || v.RetryAfter != hour-3 {
			t.Fatalf("denial %d: %+v, %t", i, v, ok)
		}
	}
	if n := deniedOf(&e.Bucket); n != 4+3*shutMost {
		t.Errorf("%d denials are counted, want %d", n, 4+3*shutMost)
	}
	if e.seldom() != nil {
		t.Error("a bucket that denied often takes more memory than others")
	}
}

// What tokens say goes with them into the next table; to a request that is remembered anew they say nothing that only the one before knew.
func TestWhatTokensSayGoesWithThem(t *testing.T) {
	r, set, _ := many(t, 1)
	e := &Entry{Bucket: *NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100})}
	e.scope().kind = &kind{registry: r}
	a := attributesOf("tenant", "a", "user", "u")
	remember := func() { r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0) }
	remember()
	now, hour := int64(1_000_000), int64(3600_000_000)
	e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: hour, DenyFor: hour})
	e.Slow(now, 1, false)
	denied := func(when string, want bool) {
		t.Helper()
		known, plain, _ := recall(r, a)
		if v, ok := known.Shut(0, plain, now); ok != want || ok && v.RetryAfter != hour {
			t.Errorf("%s: %+v, %t", when, v, ok)
		}
	}
	denied("at first", true)
	m := &r.memo
	m.mu.Lock()
	m.resizeLocked(m.table.Load(), 2*memoGroups)
	m.mu.Unlock()
	denied("in the next table", true)
	for range memoStay {
		m.sweep()
	}
	remember()
	denied("remembered anew", false)
	m.mu.Lock()
	m.resizeLocked(m.table.Load(), memoGroups) // which has ways as new
	m.mu.Unlock()
	denied("moved in anew", false)
	e.Slow(now, 1, false)
	denied("asked again", true)
	if n := deniedOf(&e.Bucket); n != 5 {
		t.Errorf("%d denials are counted, want 5", n)
	}
}

// shutInAWay returns a request whose one bucket is dry, of which a unit is in a request's hand, and whose tokens say so.
func shutInAWay(t *testing.T) (r *Registry, set *Set, e *Entry, a []limit.Attribute, now int64) {
	t.Helper()
	r, set, _ = many(t, 1)
	e = &Entry{Bucket: *NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100})}
	e.scope().kind = &kind{registry: r}
	a = attributesOf("tenant", "a", "user", "u")
	r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
	now = 1_000_000
	e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: 3600_000_000, Tokens: 1, DenyFor: 30_000_000})
	if !e.Take(1) || e.Slow(now, 1, false).Outcome != Denied {
		t.Fatal("a bucket of one unit has none, or two")
	}
	if _, plain, _ := recall(r, a); !plain.Shut() {
		t.Fatal("the tokens do not say that there are none")
	}
	return r, set, e, a, now
}

// forgetAll forgets all requests, as sweeps do.
func forgetAll(r *Registry) {
	m := &r.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	t.each(func(group uint32, way int, _ *Resolution) { t.drop(group, way) })
}

// A unit that comes back is had at once, whoever has it come back and wherever the tokens are meanwhile.
func TestWhatComesBackIsHadWhereTokensSaidThatThereAreNone(t *testing.T) {
	for name, back := range map[string]func(r *Registry, set *Set, e *Entry, a []limit.Attribute){
		"put back":  func(_ *Registry, _ *Set, e *Entry, _ []limit.Attribute) { e.PutBack(1) },
		"cancelled": func(_ *Registry, _ *Set, e *Entry, _ []limit.Attribute) { e.Cancel(1) },
		"settled":   func(_ *Registry, _ *Set, e *Entry, _ []limit.Attribute) { e.Hold(1); e.Settle(1, 0, 0) },
		"put back while several limits' request is remembered": func(r *Registry, set *Set, e *Entry, a []limit.Attribute) {
			forgetAll(r)
			other := &Entry{Bucket: *NewBucket(&limit.Limit{Name: "o", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100})}
			other.scope().kind = &kind{registry: r}
			r.Remember(attributesOf("tenant", "a", "user", "u", "endpoint", "e"), set, []*Item{&set.Items[0], &set.Items[0]}, []*Entry{e, other}, 0)
			e.PutBack(1)
			forgetAll(r)
			r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, set, e, a, now := shutInAWay(t)
			back(r, set, e, a)
			known, plain, _ := recall(r, a)
			if v, ok := known.Shut(0, plain, now+1); ok {
				t.Errorf("denied for certain: %+v", v)
			}
			if v := e.Slow(now+1, 1, false); v.Outcome != Admitted {
				t.Errorf("it is not had: %+v", v)
			}
		})
	}
}

// Requests that do not go by what the tokens say are denied without the mutex as well, from the second one on.
func TestOthersAreDeniedForCertain(t *testing.T) {
	r, _, e, a, now := shutInAWay(t)
	for i := range int64(3) {
		v, ok := e.Shut(now + i)
		if ok != (i > 0) || ok && v.RetryAfter != 30_000_000-i {
			t.Errorf("denial %d: %+v, %t", i, v, ok)
		}
		if !ok && e.Slow(now+i, 1, false).Outcome != Denied {
			t.Error("not denied")
		}
		known, plain, _ := recall(r, a)
		if _, ok := known.Shut(0, plain, now+i); !ok {
			t.Errorf("after denial %d of others the tokens do not say that there are none", i)
		}
	}
	if _, n := e.Collect(); n != 1+3+3 {
		t.Errorf("%d denials are collected, want 7", n)
	}
}

// One that comes late to count apart says nothing of its own time.
func TestCountedApartLate(t *testing.T) {
	r, _, e, a, now := shutInAWay(t)
	e.countApart()
	if v, ok := e.Shut(now + 1); ok {
		t.Errorf("denied for certain: %+v", v)
	}
	if e.Slow(now+1, 1, false).Outcome != Denied {
		t.Fatal("not denied")
	}
	known, plain, _ := recall(r, a)
	if v, ok := known.Shut(0, plain, now+2); !ok || v.RetryAfter < 30_000_000-2 || v.RetryAfter > 30_000_000+1<<shutGrain {
		t.Errorf("%+v, %t", v, ok)
	}
	if n := e.seldom().denials.Load().sum(); n != 1 {
		t.Errorf("%d are counted apart, want 1", n)
	}
}

// Tokens of a soft limit never say so: what it denies may be admitted above it.
func TestTokensOfASoftLimitSayNothing(t *testing.T) {
	r := NewRegistry(100)
	rules, err := limit.CompilePolicy(&limit.Policy{Version: 1, Plans: []limit.Plan{{Name: "p"}}, Limits: []limit.Limit{{
		Name: "all", Algorithm: limit.TokenBucket, By: []string{"user"}, Rate: limit.Rate{Units: 1, Per: time.Hour}, Burst: 1,
		Enforcement: limit.Soft, OveragePPM: 1_000_000,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.Adopt(rules)
	if _, _, err := r.Learn("a"); err != nil {
		t.Fatal(err)
	}
	r.Inform([]limit.Tenant{{ID: "a", Exists: true, Plan: "p"}})
	set := r.Find("a")
	a := attributesOf("tenant", "a", "user", "u")
	e, err := r.Touch(set, &set.List, 0, a, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Remember(a, set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
	now := int64(1_000_000)
	e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: 3600_000_000, DenyFor: 30_000_000})
	if e.Slow(now, 1, false).Outcome != Denied {
		t.Fatal("not denied")
	}
	if _, plain, _ := recall(r, a); plain.None() || plain.Shut() {
		t.Error("a soft limit's tokens say that there are none")
	}
}

// Of a request of several limits the first whose tokens say that there are none denies it, for as long as they say, and takes nothing of the others.
func TestTokensOfSeveralLimitsSayForHowLong(t *testing.T) {
	r, set, _ := many(t, 1)
	var entries [3]*Entry
	for i := range entries {
		entries[i] = &Entry{Bucket: *NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100})}
		entries[i].scope().kind = &kind{registry: r}
	}
	a := attributesOf("tenant", "a", "user", "u")
	it := &set.Items[0]
	r.Remember(a, set, []*Item{it, it, it}, entries[:], 0)
	known, _, _ := recall(r, a)
	now, hour := int64(1_000_000), int64(3600_000_000)
	answer := func(i int, tokens, denyFor int64) {
		e := entries[i]
		e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, TTL: hour, Tokens: tokens, DenyFor: denyFor})
		if tokens == 0 && e.Slow(now, 1, false).Outcome != Denied {
			t.Fatal("it does not deny")
		}
	}
	denied := func(want int, retry int64) {
		t.Helper()
		i := known.Closed()
		if i != want {
			t.Fatalf("limit %d is closed, want %d", i, want)
		}
		if i < 0 {
			return
		}
		if v, ok := known.Shut(i, known.Cell(i), now); ok != (retry > 0) || ok && (v.RetryAfter < retry || v.RetryAfter > retry+1<<shutGrain) {
			t.Errorf("%+v, %t, want %d", v, ok, retry)
		}
	}
	answer(0, 10, 0)
	answer(1, 10, 0)
	answer(2, 10, 0)
	if known.Closed() >= 0 || known.Take(1) != 3 {
		t.Error("what is there is not taken")
	}
	answer(2, 0, 30_000_000)
	denied(2, 30_000_000)
	answer(1, 0, hour)
	denied(1, hour)
	answer(0, 0, 2*hour)
	denied(0, 2*hour)
	// The longer time is noted of one at a time: of another it is found out again.
	answer(0, 10, 0)
	denied(1, hour)
	// One that is dry and does not say so comes before those that do.
	for entries[0].Take(1) {
	}
	denied(-1, 0)
	answer(0, 10, 0)
	answer(1, 10, 0)
	denied(2, 30_000_000)
	for i, want := range []int64{2, 3, 3} {
		if n := deniedOf(&entries[i].Bucket); n != want {
			t.Errorf("limit %d counts %d denials, want %d", i, n, want)
		}
	}
	if n := entries[0].at.back.Load() + entries[1].at.back.Load(); n != 0 {
		t.Errorf("%d units were put back by requests that took none", n)
	}
}
