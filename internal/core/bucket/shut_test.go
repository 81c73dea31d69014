package bucket

import (
	"math/rand/v2"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// What is denied without the mutex is what would be denied under it, and for as long.
func TestShutSaysWhatAskSays(t *testing.T) {
	const seed = 9
	r := rand.New(rand.NewPCG(seed, 2))
	shut := 0
	for run := range 300 {
		l := &limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100}
		b := Of(l)
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
				l.Burst = 50 + r.Int64N(100)
				b.Follow(TermsAlone(l))
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
			said, ok := b.Shut(now)
			if !ok {
				b.Ask(now, 1, false, false)
				continue
			}
			shut++
			if deniedOf(b) != refused+1 {
				t.Fatalf("seed %d run %d step %d: a denial is not counted once", seed, run, step)
			}
			if want := b.Ask(now, 1, false, false); want.Outcome != Denied || want.RetryAfter < said.RetryAfter || said.RetryAfter < 1 {
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
	b := Of(l)
	now := int64(1_000_000)
	b.Apply(now, lease.Grant{Number: b.Renew(now, false).Number, TTL: 60_000_000, DenyFor: 60_000_000, Trickle: limit.Micro, Pile: 2})
	now += 1_200_000
	if b.Take(1) || b.Ask(now, 1, false, false).Outcome != Admitted {
		t.Fatal("the trickle brought nothing")
	}
	if v, ok := b.Shut(now + 700_000); !ok || v.Outcome != Denied {
		t.Errorf("0.7 s later, of a token a second: got %+v, %t, want a denial", v, ok)
	}
	if _, ok := b.Shut(now + 900_000); ok {
		t.Error("denied 0.9 s later, when the next token is there")
	}
}

// deniedOf is what a bucket has denied.
func deniedOf(b *Bucket) int64 { return b.refused.Load() }

// A unit that comes back is had at once, whoever has it come back; and all denials are counted, certain or not.
func TestWhatComesBackIsHadWhereDenialsWereCertain(t *testing.T) {
	for name, back := range map[string]func(b *Bucket){
		"put back":  func(b *Bucket) { b.PutBack(1) },
		"cancelled": func(b *Bucket) { b.Cancel(1) },
		"settled":   func(b *Bucket) { b.Hold(1); b.Settle(1, 0, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 100}, Burst: 100})
			now := int64(1_000_000)
			b.Apply(now, lease.Grant{Number: b.Renew(now, false).Number, TTL: 3600_000_000, Tokens: 1, DenyFor: 30_000_000})
			if !b.Take(1) || b.Ask(now, 1, false, false).Outcome != Denied {
				t.Fatal("a bucket of one unit has none, or two")
			}
			for i := range int64(3) {
				if v, ok := b.Shut(now + i); !ok || v.RetryAfter != 30_000_000-i {
					t.Errorf("denial %d: %+v, %t", i, v, ok)
				}
			}
			if _, ok := b.Shut(now + askAgain); ok {
				t.Error("it is not asked for again")
			}
			back(b)
			if v, ok := b.Shut(now + 1); ok {
				t.Errorf("denied for certain: %+v", v)
			}
			if v := b.Ask(now+1, 1, false, false); v.Outcome != Admitted {
				t.Errorf("it is not had: %+v", v)
			}
			if _, n := collect(b); n != 1+3 {
				t.Errorf("%d denials are collected, want 4", n)
			}
		})
	}
}
