package leasetest

import (
	"context"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// renewer asks a store on behalf of tests that each have one of their own.
type renewer struct {
	t *testing.T
	s lease.Store
}

func (o renewer) one(r lease.Renewal) lease.Grant {
	o.t.Helper()
	a := o.s.Renew(context.Background(), []lease.Renewal{r})[0]
	if a.Err != nil {
		o.t.Fatalf("renewal %d of %s: %v", r.Number, r.Holder, a.Err)
	}
	return a.Grant
}

// ended ends a lease that was spent wholly.
func ended(r lease.Renewal, spent int64) lease.Renewal {
	r.Number++
	r.Admitted, r.Waiting, r.Largest, r.Final = r.Admitted+spent, 0, 0, true
	return r
}

// algorithms holds a store to what each algorithm promises of its own.
func algorithms(t *testing.T, open func(t *testing.T) lease.Store) {
	run := func(name string, f func(o renewer)) {
		t.Run(name, func(t *testing.T) { f(renewer{t, open(t)}) })
	}

	run("a sliding window counts what is left of the one before", func(o renewer) {
		const minute = 60_000_000
		spec := func(now int64) lease.Spec { return Sliding(100, minute, now) }
		for i := range int64(10) {
			now := start + minute - 1_000_000 + i
			r := ask("a", spec(now), now, 2*i+1, 10)
			r.Began = 2*i + 1
			if g := o.one(r); g.Tokens < 10 {
				o.t.Fatalf("request %d: got %+v, want 10 tokens", i, g)
			}
			o.one(ended(r, 10))
		}
		now := start + minute + minute/4 // three quarters of 100 still count
		if g := o.one(ask("b", spec(now), now, 1, 100)); g.Tokens != 25 {
			o.t.Errorf("at a quarter of the next window: got %d tokens, want 25", g.Tokens)
		}
		now = start + 4*minute // two windows later nothing does
		if g := o.one(ask("c", spec(now), now, 1, 100)); g.Tokens != 100 {
			o.t.Errorf("two windows later: got %d tokens, want 100", g.Tokens)
		}
	})

	run("what a newcomer spent on credit is taken out", func(o renewer) {
		for name, spec := range map[string]lease.Spec{
			"a bucket": Bucket(10, 100), "a window": Window(100, 60_000_000, start), "a sliding window": Sliding(100, 60_000_000, start), "a log": Log(100, 60_000_000),
		} {
			first := ask("a", spec, start, 1, 0)
			first.Key, first.Admitted = name, 4
			g := o.one(first)
			first.Number, first.Final, first.Held, first.Window = 2, true, g.Tokens, g.ValidFrom
			o.one(first)
			second, third := ask("b", spec, start, 1, 96), ask("c", spec, start, 1, 1)
			second.Key, third.Key = name, name
			got, more := o.one(second).Tokens, o.one(third).Tokens
			if got != 96 || more != 0 {
				o.t.Errorf("%s of 100: got %d tokens after 4 on credit, and then %d; want 96 and 0", name, got, more)
			}
		}
	})

	run("a holder that begins anew does not say what it spent, and nothing of it comes back", func(o renewer) {
		const minute = 60_000_000
		strict := Bucket(1, 100)
		strict.EpsilonPPM = 0
		for name, spec := range map[string]lease.Spec{
			"a bucket": Bucket(1, 100), "a strict bucket": strict, "a window": Window(100, minute, start), "a sliding window": Sliding(100, minute, start), "a log": Log(100, minute),
		} {
			first, anew, other := ask("a", spec, start, 1, 40), ask("a", spec, start+100_000, 2, 0), ask("b", spec, start+200_000, 1, 100)
			first.Key, anew.Key, other.Key = name, name, name
			g := o.one(first)
			anew.Began, anew.Final, anew.Window = 2, true, g.ValidFrom // of 40 and more that it had it says nothing
			o.one(anew)
			if got := o.one(other).Tokens; got > 60 {
				o.t.Errorf("%s of 100: got %d tokens after %d were granted to who began anew, want 60 at most", name, got, g.Tokens)
			}
		}
	})

	run("a sliding window says when the next token is there", func(o renewer) {
		const minute = 60_000_000
		spec := Sliding(60, minute, start)
		o.one(ask("a", spec, start, 1, 60))
		g := o.one(ask("b", spec, start+1_000_000, 1, 1))
		if g.Tokens != 0 || g.DenyFor != 60_000_000 {
			// 60 of the window before count in full at its edge; a second after it, 59 do.
			o.t.Errorf("got %+v, want a denial for 60 s", g)
		}
		now := start + minute + 1_000_000
		if g := o.one(ask("b", Sliding(60, minute, now), now, 2, 1)); g.Tokens != 1 {
			o.t.Errorf("after the edge: got %+v, want a token", g)
		}
	})

	run("a log is exact", func(o renewer) {
		spec := Log(5, 60_000_000)
		for i, c := range []struct{ at, waiting, want int64 }{
			{0, 3, 3}, {10_000_000, 3, 2}, {60_000_000 + soon - 1, 1, 0}, {60_000_000 + soon, 5, 3}, {70_000_000 + soon - 1, 1, 0},
			{70_000_000 + soon, 9, 2}, {120_000_000 + 2*soon - 1, 1, 0}, {120_000_000 + 2*soon, 1, 1},
		} {
			r := ask("a", spec, start+c.at, 2*int64(i)+1, c.waiting)
			r.Began = r.Number
			g := o.one(r)
			if g.Tokens != c.want {
				o.t.Errorf("at %d us: got %+v, want %d tokens", c.at, g, c.want)
			}
			if g.Tokens == 0 && c.at < 60_000_000+soon && g.DenyFor != max(60_000_000+soon-c.at, 1_000) {
				o.t.Errorf("at %d us: got a denial of %d us, want until 60 s", c.at, g.DenyFor)
			}
			o.one(ended(r, g.Tokens))
		}
	})

	run("what comes back to a log was never there", func(o renewer) {
		spec := Log(5, 60_000_000)
		o.one(ask("a", spec, start, 1, 5))
		back := ask("a", spec, start+1000, 2, 0)
		back.Admitted, back.Held = 2, 3
		o.one(back)
		if g := o.one(ask("b", spec, start+2000, 1, 5)); g.Tokens != 3 {
			o.t.Errorf("3 of 5 came back: got %d tokens, want 3", g.Tokens)
		}
	})

	run("slots are never taken twice", func(o renewer) {
		spec := Slots(10)
		a := o.one(ask("a", spec, start, 1, 6))
		if a.Tokens < 6 {
			o.t.Fatalf("a got %+v, want 6 slots", a)
		}
		b := o.one(ask("b", spec, start+1, 1, 6))
		if a.Tokens+b.Tokens > 10 || b.Tokens == 0 || b.DenyFor == 0 {
			o.t.Fatalf("a got %d, b %+v, want 10 in all and b to ask again soon", a.Tokens, b)
		}
		// Of a's six, two end; b waits for two more.
		r := ask("a", spec, start+1000, 2, 0)
		r.InUse, r.Held, r.Admitted = 4, 0, 6
		o.one(r)
		r = ask("b", spec, start+2000, 2, 6-b.Tokens)
		r.InUse, r.Admitted = b.Tokens, b.Tokens
		if g := o.one(r); g.Tokens != 6-b.Tokens {
			o.t.Errorf("two requests ended: b got %+v, want %d slots", g, 6-b.Tokens)
		}
	})

	run("what a grant takes from a holder's spare slots is free once it has renewed again", func(o renewer) {
		spec := Slots(16)
		a := o.one(ask("a", spec, start, 1, 1))
		r := ask("a", spec, start+1000, 2, 0)
		r.Held, r.Admitted = a.Tokens, 0
		again := o.one(r)
		b := o.one(ask("b", spec, start+1001, 1, 16))
		if kept := max(a.Tokens, again.Tokens); b.Tokens > 16-kept {
			o.t.Errorf("a may be using %d, b got %d: more than 16", kept, b.Tokens)
		}
	})

	run("slots that a holder gave up are free at once", func(o renewer) {
		spec := Slots(16)
		o.one(ask("a", spec, start, 1, 16))
		r := ask("a", spec, start+1000, 2, 0)
		r.InUse, r.Admitted = 6, 16 // ten ended, and none of them is held
		a := o.one(r)
		if b := o.one(ask("b", spec, start+1001, 1, 10)); b.Tokens != 10-a.Tokens || a.Tokens > 5 {
			o.t.Errorf("a has 6 and got %d, b got %d, want all that are left", a.Tokens, b.Tokens)
		}
	})

	run("a holder keeps a large share, and gives up a small one's idle slots", func(o renewer) {
		for _, c := range []struct {
			name  string
			slots int64
			own   bool
		}{{"large", 1000, true}, {"small", 20, false}} {
			spec := Slots(c.slots)
			use := c.slots * 9 / 20 // on each of two holders: nearly all
			var last lease.Grant
			for n := range int64(8) {
				for i, holder := range []string{"a", "b"} {
					r := ask(holder, spec, start+n*300_000+int64(i)*1000, n+1, 0)
					r.Key = c.name
					if r.Admitted = n * use * 3; n > 0 {
						r.InUse, r.Told = use, r.Admitted-use*3
					} else {
						r.Waiting, r.Largest = use, 1
					}
					last = o.one(r)
				}
			}
			if got := last.Pile >= c.slots; got != c.own {
				o.t.Errorf("%s: %d slots may lie idle, want all of them only of a large share: %+v", c.name, last.Pile, last)
			}
			if c.own && (last.TTL <= lease.ShortTerm || last.Tokens+use < c.slots/2-c.slots/10) {
				o.t.Errorf("%s: got %+v besides %d in use, want about half of all for a longer term", c.name, last, use)
			}
		}
	})

	run("requests that wait through many renewals count once", func(o renewer) {
		spec := Slots(2)
		var a, b lease.Grant
		for n := range int64(200) { // a asks every 5 ms, b every 20, each for the ten requests that wait there
			r := ask("a", spec, start+n*5000, n+1, 10)
			r.Largest = 1
			a = o.one(r)
			if n%4 == 0 {
				r = ask("b", spec, start+n*5000+1, n/4+1, 10)
				r.Largest = 1
				b = o.one(r)
			}
		}
		if a.Fallback > 2*b.Fallback || b.Fallback > 2*a.Fallback {
			o.t.Errorf("the shares are %d and %d, want about the same", a.Fallback, b.Fallback)
		}
	})

	run("a holder gives way to another's larger request", func(o renewer) {
		spec := Slots(10)
		o.one(ask("a", spec, start, 1, 10))
		a := func(at, number, inUse, admitted int64) lease.Grant {
			r := ask("a", spec, start+at, number, 10)
			r.InUse, r.Admitted, r.Largest = inUse, admitted, 1
			return o.one(r)
		}
		b := func(at, number int64) lease.Grant {
			r := ask("b", spec, start+at, number, 6)
			r.Largest = 6
			return o.one(r)
		}
		number := int64(1)
		for at := int64(20_000); at <= 1_100_000; at, number = at+20_000, number+1 { // a's are always in use
			if g := a(at, number+1, 10, 10); g.Tokens != 0 {
				o.t.Fatalf("all are in use: a got %+v, want none", g)
			}
			if g := b(at+1_000, number); g.Tokens != 0 {
				o.t.Fatalf("all are in use: b got %+v, want none", g)
			}
		}
		got := a(1_102_000, number+1, 2, 10).Tokens // eight ended
		got += a(1_104_000, number+2, 2+got, 10+got).Tokens
		if g := b(1_106_000, number); g.Tokens != 6 {
			o.t.Errorf("of 8 that came free a got %d, and b, who waits for 6 at once, %+v: want those", got, g)
		}
	})

	run("a dead holder's slots come back, and are taken again if it lives", func(o renewer) {
		spec := Slots(10)
		o.one(ask("a", spec, start, 1, 10))
		r := ask("a", spec, start+1000, 2, 0)
		r.InUse, r.Admitted = 10, 10
		g := o.one(r)
		late := start + 1000 + 2*g.TTL + lease.SlotLen
		if b := o.one(ask("b", spec, start+2000, 1, 4)); b.Tokens != 0 {
			o.t.Errorf("all are in use: b got %+v, want none", b)
		}
		if b := o.one(ask("b", spec, late, 2, 4)); b.Tokens < 4 {
			o.t.Errorf("a is gone: b got %+v, want 4", b)
		}
		r = ask("a", spec, late+1000, 3, 1)
		r.InUse, r.Admitted = 10, 10
		if g := o.one(r); g.Tokens != 0 {
			o.t.Errorf("a came back with 10 in use: got %+v, want no more", g)
		}
		r = ask("a", spec, late+2000, 4, 0)
		r.InUse, r.Admitted, r.Final = 0, 10, true
		o.one(r)
		r = ask("b", spec, late+3000, 3, 6)
		r.InUse, r.Admitted = 4, 4
		if b := o.one(r); b.Tokens != 6 {
			o.t.Errorf("all of a's ended: b got %+v, want 6 besides its 4", b)
		}
	})

	run("a longer hold keeps a silent holder's slots longer", func(o renewer) {
		spec := Slots(10)
		spec.Hold = 30_000_000
		o.one(ask("a", spec, start, 1, 10))
		r := ask("a", spec, start+1000, 2, 0)
		r.InUse, r.Admitted = 10, 10
		g := o.one(r)
		if b := o.one(ask("b", spec, start+29_000_000, 1, 4)); b.Tokens != 0 {
			o.t.Errorf("after 29 s: b got %+v, want none", b)
		}
		if b := o.one(ask("b", spec, start+31_500_000+g.TTL, 2, 4)); b.Tokens < 4 {
			o.t.Errorf("after the hold: b got %+v, want 4", b)
		}
	})

	run("fewer slots wait until enough are free", func(o renewer) {
		o.one(ask("a", Slots(10), start, 1, 10))
		r := ask("a", Slots(5), start+1000, 2, 1)
		r.InUse, r.Admitted = 7, 10
		if g := o.one(r); g.Tokens != 0 || g.DenyFor == 0 {
			o.t.Errorf("7 of 5 in use: got %+v, want none, and to ask again", g)
		}
		r = ask("a", Slots(5), start+2000, 3, 1)
		r.InUse, r.Admitted = 4, 10
		if g := o.one(r); g.Tokens != 1 {
			o.t.Errorf("4 of 5 in use: got %+v, want one", g)
		}
	})

	run("a leaky bucket gives each holder a pile of one", func(o renewer) {
		spec := Bucket(1000, 1)
		spec.Algorithm = limit.LeakyBucket
		var trickles int64
		for n := int64(1); n <= 20; n++ {
			trickles = 0
			for _, holder := range []string{"a", "b", "c", "d", "e"} {
				r := ask(holder, spec, start+n*100_000, n, 0)
				r.Admitted = n * 15
				r.Told = (n - 1) * 15
				r.Denied = n * 15
				g := o.one(r)
				if g.Pile > 1 || g.Tokens > 1 {
					o.t.Fatalf("%s got %+v, want a pile of one and no stock", holder, g)
				}
				trickles += g.Trickle
			}
		}
		if trickles > 1000*limit.Micro || trickles < 800*limit.Micro {
			o.t.Errorf("five holders draw %d micro-tokens a second, want about the rate", trickles)
		}
	})
}
