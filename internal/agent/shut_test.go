package agent

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
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
			return known.Shut(plain, now)
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
		if v, ok := known.Shut(plain, now+i); !ok || v.RetryAfter != hour-i || v.Count != 1+i {
			t.Errorf("denial %d: %+v, %t", i, v, ok)
		}
	}
	if _, ok := known.Shut(plain, now+askAgain); ok {
		t.Error("it is not asked for again")
	}
	if n := deniedOf(&e.Bucket); n != 4 {
		t.Errorf("%d denials are counted, want 4", n)
	}
	// As many as there is room for are counted there, and the next one by the book.
	for {
		if _, ok := known.Shut(plain, now+3); !ok {
			break
		}
	}
	if n := deniedOf(&e.Bucket); n != 1+shutMost {
		t.Errorf("%d denials are counted, want %d", n, 1+shutMost)
	}
	if e.Slow(now+3, 1, false).Outcome != Denied || deniedOf(&e.Bucket) != 2+shutMost {
		t.Error("the next one is not counted")
	}
	if v, ok := known.Shut(plain, now+4); !ok || v.RetryAfter != hour-4 {
		t.Errorf("denial after as many as there is room for: %+v, %t", v, ok)
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
		if v, ok := known.Shut(plain, now); ok != want || ok && v.RetryAfter != hour {
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
