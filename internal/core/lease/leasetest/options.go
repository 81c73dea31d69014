package leasetest

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// options holds a store to what each option promises.
func options(t *testing.T, open func(t *testing.T) lease.Store) {
	run := func(name string, f func(o renewer)) {
		t.Run(name, func(t *testing.T) { f(renewer{t, open(t)}) })
	}
	const minute = 60_000_000

	run("what is borrowed of a bucket is repaid by the refill", func(o renewer) {
		spec := Bucket(1, 10)
		spec.Borrow = 5
		if g := o.one(ask("a", spec, start, 1, 20)); g.Tokens != 15 || g.DenyFor != 1_000_000 {
			o.t.Errorf("got %+v, want the burst of 10, 5 borrowed, and a denial for 1 s", g)
		}
		o.one(ended(ask("a", spec, start, 1, 0), 15))
		if g := o.one(ask("b", spec, start+3_000_000, 1, 20)); g.Tokens != 3 {
			o.t.Errorf("3 s later: got %+v, want 3 tokens", g)
		}
	})

	run("a denial says when the next unit is there, whatever may come back before", func(o renewer) {
		const day = 24 * 60 * minute
		for _, c := range []struct {
			name string
			spec lease.Spec
			unit int64
		}{
			{"bucket", lease.Spec{Algorithm: limit.TokenBucket, Units: 1, Period: day, Burst: 2}, day},
			{"window", Window(2, day, start), day - start%day},
			{"metered window", func() lease.Spec { s := Window(2, day, start); s.Ledgered = true; return s }(), day - start%day},
			{"log", Log(2, day), day + soon},
		} {
			r := ask("a", c.spec, start, 1, 2)
			r.Key, r.Reserved = c.name, 2 // it may come back
			if g := o.one(r); g.Tokens != 2 {
				o.t.Fatalf("%s: got %+v, want both", c.name, g)
			}
			r = ask("b", c.spec, start, 1, 1)
			r.Key = c.name
			if g := o.one(r); g.Tokens != 0 || g.DenyFor > lease.ShortTerm || g.UnitIn != c.unit {
				o.t.Errorf("%s: got %+v, want to be asked again soon, and the next unit in %d", c.name, g, c.unit)
			} else if again := o.one(r); again != g {
				o.t.Errorf("%s: asked again: got %+v, want the same answer %+v", c.name, again, g)
			}
		}
	})

	run("after a change the next unit is that of the window as it is now", func(o renewer) {
		const hour, day = 60 * minute, 24 * 60 * minute
		at := start + minute
		spec := Window(10, hour, at)
		spec.Ledgered = true
		if g := o.one(ask("a", spec, at, 1, 10)); g.Tokens != 10 {
			o.t.Fatalf("got %+v, want all", g)
		}
		spec.Units = 5
		in(&spec, day, at)
		for i, later := range []int64{at + 1_000_000, at + 5*minute, at + 20*minute} {
			left := spec.WindowEnd - later
			g := o.one(ask(fmt.Sprint("b", i), spec, later, 1, 1))
			if g.Tokens != 0 || max(g.UnitIn, g.DenyFor) != left {
				o.t.Errorf("%d us after the change: got %+v, want the next unit in %d", later-at, g, left)
			}
		}
	})

	run("what is borrowed of a window is taken out of the next", func(o renewer) {
		spec := Window(10, minute, start)
		spec.Borrow = 4
		if g := o.one(ask("a", spec, start, 1, 20)); g.Tokens != 14 {
			o.t.Errorf("got %+v, want 10 and 4 borrowed", g)
		}
		if g := o.one(ask("b", spec, start+minute, 1, 20)); g.Tokens != 10 {
			o.t.Errorf("in the next window: got %+v, want 6 and 4 borrowed", g)
		}
	})

	run("a bucket that was exceeded denies everything for the lockout", func(o renewer) {
		ledgered := Window(5, 15*minute, start)
		ledgered.Ledgered = true
		for _, spec := range []lease.Spec{Bucket(5, 5), Log(5, 1_000_000), Window(5, minute, start), Sliding(5, minute, start), ledgered} {
			spec.Lockout = 900_000_000
			key := fmt.Sprint(spec.Algorithm, spec.Ledgered)
			askOf := func(holder string, now, number, waiting int64) lease.Renewal {
				if spec.WindowEnd > 0 {
					in(&spec, spec.Period, now)
				}
				r := ask(holder, spec, now, number, waiting)
				r.Key = key
				return r
			}
			if g := o.one(askOf("a", start, 1, 5)); g.Tokens != 5 || g.DenyFor != 0 || g.Trickle != 0 {
				o.t.Errorf("%s: all of it: got %+v, want 5 and no denial: nobody exceeded it", key, g)
			}
			if g := o.one(askOf("b", start+1000, 1, 1)); g.Tokens != 0 || g.DenyFor != 900_000_000 {
				o.t.Errorf("%s: one more: got %+v, want a denial for 900 s", key, g)
			}
			later := start + 300_000_000 // full again
			if g := o.one(askOf("c", later, 1, 1)); g.Tokens != 0 || g.DenyFor != 600_001_000 {
				o.t.Errorf("%s: 300 s later, elsewhere: got %+v, want a denial for 600 s", key, g)
			}
			if g := o.one(askOf("d", start+900_001_000, 1, 5)); g.Tokens != 5 {
				o.t.Errorf("%s: after the lockout: got %+v, want 5", key, g)
			}
		}
	})

	run("a lockout that is shortened, or taken away, is over so much sooner", func(o renewer) {
		for _, c := range []struct{ lockout, denied int64 }{{10_000_000, 10_000_000}, {0, 0}} {
			spec := Bucket(5, 5)
			spec.Lockout = 900_000_000
			askOf := func(holder string, now, waiting int64) lease.Renewal {
				r := ask(holder, spec, now, 1, waiting)
				r.Key = fmt.Sprint("lockout ", c.lockout)
				return r
			}
			o.one(askOf("a", start, 6))
			spec.Lockout = c.lockout
			if g := o.one(askOf("b", start+60_000_000, 1)); c.denied > 0 && g.DenyFor != c.denied || (g.Tokens > 0) != (c.denied == 0) {
				o.t.Errorf("lockout of %d us: got %+v, want a denial for as long", c.lockout, g)
			}
			if g := o.one(askOf("c", start+71_000_000, 1)); g.Tokens < 1 {
				o.t.Errorf("lockout of %d us, 11 s later: got %+v, want a token", c.lockout, g)
			}
		}
	})

	run("a window that becomes shorter ends when the limit says", func(o renewer) {
		spec := Window(10, 60*minute, start)
		if g := o.one(ask("a", spec, start+minute, 1, 20)); g.DenyFor < 58*minute {
			o.t.Fatalf("got %+v, want a denial for the hour", g)
		}
		spec = Window(10, 10*minute, start)
		if g := o.one(ask("b", spec, start+2*minute, 1, 1)); g.Tokens != 0 || g.ValidUntil != start+10*minute || g.Reset != 8*minute {
			o.t.Errorf("of ten minutes: got %+v, want nothing until its end", g)
		}
		if g := o.one(ask("b", spec, start+10*minute, 2, 20)); g.Tokens != 10 {
			o.t.Errorf("in the next ten: got %+v, want 10", g)
		}
	})

	run("a window that changes is prorated if the limit says so", func(o renewer) {
		used := ask("a", Window(100, minute, start), start, 1, 40)
		o.one(used)
		used = ended(used, 40)
		used.Window = start
		o.one(used)
		spec := Window(1000, minute, start)
		spec.Prorate = true
		// 100 for three quarters of the window, 1000 for the last.
		if g := o.one(ask("b", spec, start+45_000_000, 1, 2000)); g.Tokens != 325-40 {
			o.t.Errorf("got %+v, want 325 less the 40 that were used", g)
		}
		if g := o.one(ask("b", spec, start+minute, 2, 2000)); g.Tokens != 1000 {
			o.t.Errorf("in the next window: got %+v, want all 1000", g)
		}
	})

	run("what was used is not forgotten by a limit that shrinks for a while", func(o renewer) {
		for _, of := range []func(units int64) lease.Spec{
			func(units int64) lease.Spec { return Window(units, minute, start) },
			func(units int64) lease.Spec { return Sliding(units, minute, start) },
			func(units int64) lease.Spec { return Log(units, minute) },
		} {
			algorithm := of(1000).Algorithm.String()
			askOf := func(holder string, units, waiting int64) lease.Renewal {
				r := ask(holder, of(units), start+1, 1, waiting)
				r.Key = algorithm
				return r
			}
			o.one(askOf("a", 1000, 900))
			if g := o.one(askOf("b", 100, 1)); g.Tokens != 0 {
				o.t.Errorf("%s: of 100 with 900 used: got %+v, want nothing", algorithm, g)
			}
			if g := o.one(askOf("c", 1000, 1000)); g.Tokens > 100 {
				o.t.Errorf("%s: of 1000 again: got %+v, want the 100 that are left", algorithm, g)
			}
		}
	})

	run("what was used of a bucket is not forgotten by a limit that shrinks for a while", func(o renewer) {
		for _, algorithm := range []limit.Algorithm{limit.TokenBucket, limit.LeakyBucket} {
			spec := func(burst int64) lease.Spec {
				s := Bucket(1, burst)
				s.Algorithm = algorithm
				return s
			}
			n, now := int64(0), start
			// have is what a newcomer gets that asks for all there is, and leaves with none of it unspent.
			have := func(burst int64) int64 {
				n++
				r := ask(fmt.Sprint("agent-", n), spec(burst), now, 1, 5000)
				r.Key = algorithm.String()
				got := o.one(r).Tokens
				o.one(ended(r, got))
				return got
			}
			if got := have(1000); got != 1000 {
				o.t.Fatalf("%s: got %d, want the burst of 1000", algorithm, got)
			}
			for range 5 {
				if got := have(100); got != 0 {
					o.t.Errorf("%s: of 100 with 1000 used: got %d, want nothing", algorithm, got)
				}
				if got := have(1000); got != 0 {
					o.t.Errorf("%s: of 1000 again, all used: got %d, want nothing", algorithm, got)
				}
			}
			have(100)
			now += 10_000_000
			if got := have(100); got != 10 {
				o.t.Errorf("%s: of 100, 10 s later: got %d, want 10: it owes nothing", algorithm, got)
			}
			now += 1_000_000
			if got := have(500); got != 1 { // 1009 were used in 11 s, and 900 of them do not fit
				o.t.Errorf("%s: of 500: got %d, want the one that came since", algorithm, got)
			}
			if got := have(1500); got != 500 {
				o.t.Errorf("%s: of 1500: got %d, want the 500 by which it is larger than ever", algorithm, got)
			}
			have(500)
			now += 700_000_000 // 500 fill the bucket, and 200 more are of what it would lack were it larger
			r := ask("idle", spec(500), now, 1, 0)
			r.Key, r.Final = algorithm.String(), true
			o.one(r)
			if got := have(1500); got != 700 {
				o.t.Errorf("%s: of 1500, 700 s after it was of 500 and empty: got %d, want 700", algorithm, got)
			}
		}
	})

	run("what is lent when a bucket shrinks for a while is had by nobody else", func(o renewer) {
		for name, meanwhile := range map[string]func(r *lease.Renewal){
			"it refills":          func(r *lease.Renewal) { r.Now += 60_000 },
			"one spent on credit": func(r *lease.Renewal) { r.Admitted = 1 },
		} {
			for _, spent := range []int64{900, 0} {
				askOf := func(holder string, now, number, waiting, burst int64) lease.Renewal {
					r := ask(holder, Bucket(100, burst), start+now, number, waiting)
					r.Key = fmt.Sprint(name, spent)
					return r
				}
				first := askOf("a", 0, 1, 900, 1000)
				first.Largest, first.Reserved = 900, 900
				g := o.one(first)
				r := askOf("b", 1, 1, 0, 100)
				meanwhile(&r)
				o.one(r)
				last := askOf("a", 70_000, 2, 0, 100)
				last.Admitted, last.Held, last.Final = spent, g.Tokens-spent, true
				o.one(last)
				want := 1000 - spent + 10 // which came in 0.1 s
				if spent == 0 {
					want = 1000
				}
				if got := o.one(askOf("c", 100_000, 1, 5000, 1000)).Tokens; g.Tokens != 900 || got > want || got < want-20 {
					o.t.Errorf("%s: %d of 1000 were lent, and %d spent: another got %d, want %d", name, g.Tokens, spent, got, want)
				}
			}
		}
	})

	run("a window that becomes shorter and longer again is prorated alike", func(o renewer) {
		long, short := Window(100, 60*minute, start), Window(1000, minute, start)
		long.Prorate, short.Prorate = true, true
		o.one(ask("a", long, start, 1, 100))
		admitted := int64(0)
		for i := range int64(10) {
			now := start + 30_000_000 + i*1_000
			g := o.one(ask(fmt.Sprint("short ", i), short, now, 1, 1000))
			admitted += g.Tokens
			g = o.one(ask(fmt.Sprint("long ", i), long, now+500, 1, 1000))
			admitted += g.Tokens
		}
		if admitted > 450+1 {
			o.t.Errorf("admitted %d more than 100 of a window of 100 and 1000, want half of 1000, less half of 100", admitted)
		}
	})

	run("what a window that shrank is overdrawn by was not borrowed", func(o renewer) {
		for _, c := range []struct {
			name              string
			first, used, want int64   // of the first, and of the window after the next edge
			then              []int64 // what it becomes
		}{
			{"nothing borrowed", 1000, 900, 100 + 50, []int64{100}},
			{"some borrowed", 1000, 1020, 100 - 20 + 50, []int64{100}},
			{"to and fro", 1000, 900, 100 + 50, []int64{100, 1000, 500, 100}},
			{"to and fro, some borrowed", 1000, 1020, 100 - 20 + 50, []int64{100, 500, 100}},
			{"borrowed, and grown beyond", 1000, 1020, 2000 + 50, []int64{100, 2000}},
		} {
			n := 0
			askOf := func(units, now, waiting int64) lease.Grant {
				n++
				spec := Window(units, minute, start)
				spec.Borrow = 50
				r := ask(fmt.Sprint("agent-", n), spec, now, 1, waiting)
				r.Key = c.name
				return o.one(r)
			}
			if g := askOf(c.first, start, c.used); g.Tokens != c.used {
				o.t.Fatalf("%s: got %+v, want %d", c.name, g, c.used)
			}
			units := c.first
			for _, units = range c.then {
				askOf(units, start+1, 0)
			}
			if g := askOf(units, start+minute, 5000); g.Tokens != c.want {
				o.t.Errorf("%s: in the next window: got %d, want %d", c.name, g.Tokens, c.want)
			}
		}
	})

	run("the next window is leased ahead of the edge, once", func(o renewer) {
		spec := Window(1000, minute, start)
		r := ask("a", spec, start+58_000_000, 1, 50)
		first := o.one(r).Tokens
		r = ask("a", spec, start+59_000_000, 2, 50)
		r.Admitted, r.Window = first, start
		g := o.one(r)
		if g.Next < 8 || g.ValidUntil != start+minute || g.TTL <= 1_000_000 {
			o.t.Fatalf("a second before the edge: got %+v, want tokens of the next window, and a term beyond it", g)
		}
		if got := o.one(ask("b", spec, start+minute+1000, 1, 2000)); got.Tokens != 1000-g.Next {
			o.t.Errorf("b got %+v, want the 1000 less %d that a has", got, g.Next)
		}
		r = ask("a", Window(1000, minute, start+minute), start+minute+2000, 3, 0)
		r.Admitted, r.Window, r.Held, r.Final = first+g.Tokens+5, start+minute, g.Next-5, true
		o.one(r)
		if got := o.one(ask("c", spec, start+minute+3000, 1, 2000)); got.Tokens > g.Next-5 || got.Tokens < 1 {
			o.t.Errorf("a gave back %d: c got %+v", g.Next-5, got)
		}
	})

	run("what a smaller limit cuts of a lease of the next window is not taken for spent", func(o renewer) {
		spec := Window(10_000, minute, start)
		first := o.one(ask("a", spec, start+58_000_000, 1, 50)).Tokens
		r := ask("a", spec, start+59_000_000, 2, 50)
		r.Admitted, r.Window = first, start
		g := o.one(r)
		if g.Next < 300 {
			o.t.Fatalf("a second before the edge: got %+v, want many tokens of the next window", g)
		}
		// It spends 20 of the window. At the edge the limit falls to a hundredth, and so does the lease that
		// the holder goes over to. It spends 2 of that.
		smaller := Window(100, minute, start+minute)
		r = ask("a", smaller, start+minute+500_000, 3, 0)
		r.Admitted, r.Window, r.Held, r.Final = first+20+2, start+minute, g.Next/100-2, true
		o.one(r)
		if got := o.one(ask("b", smaller, start+minute+501_000, 1, 2000)); got.Tokens < 100-2-20 || got.Tokens > 100-2 {
			o.t.Errorf("b got %+v, want 98 of 100, but for the 20 spent of the window before", got)
		}
	})

	run("a dead holder's part of a window that nobody saw comes back after a term", func(o renewer) {
		spec := Window(1000, minute, start)
		r := ask("a", spec, start+58_000_000, 1, 50)
		g := o.one(r)
		r = ask("a", spec, start+59_000_000, 2, 50)
		r.Admitted, r.Window = g.Tokens, start
		o.one(r)
		later := start + 2*minute + 1000
		got := o.one(ask("b", Window(1000, minute, start+2*minute), later, 1, 2000))
		if got.Tokens > 500 || got.DenyFor > lease.ShortTerm {
			o.t.Errorf("two windows later: b got %+v, want not the part of a, and to ask again soon", got)
		}
		r = ask("b", Window(1000, minute, start+2*minute), later+lease.LongTerm, 2, 2000)
		r.Admitted, r.Window = got.Tokens, start+2*minute
		if g := o.one(r); g.Tokens+got.Tokens != 1000 {
			o.t.Errorf("a term after that: b got %+v, want the rest of all 1000", g)
		}
	})

	run("tokens too few for any request that waits are not handed out", func(o renewer) {
		for _, c := range []struct{ waiting, largest, want int64 }{
			{500, 500, 0},   // one of 500
			{1000, 500, 0},  // two of 500
			{520, 500, 20},  // and some small ones
			{200, 100, 200}, // all served; a quarter to spare would be less
			{700, 100, 300}, // three of seven
			{650, 250, 300}, // all that is there
		} {
			spec := Bucket(1, 1000)
			spend := ask("x", spec, start, 1, 700)
			spend.Key = fmt.Sprint(c)
			o.one(spend)
			o.one(ended(spend, 700))
			r := ask("a", spec, start, 1, c.waiting)
			r.Key, r.Largest = spend.Key, c.largest
			g := o.one(r)
			if g.Tokens != c.want {
				o.t.Errorf("300 there, %d wait, the largest %d: got %+v, want %d", c.waiting, c.largest, g, c.want)
			}
			if g.Tokens < c.waiting && g.DenyFor == 0 {
				o.t.Errorf("%d wait, the largest %d: got %+v, want a denial for those not served", c.waiting, c.largest, g)
			}
		}
	})

	run("a store that forgot rebuilds its sums, and grants little until it has", func(o renewer) {
		spec := Bucket(1000, 2000)
		// A newcomer asks first: nothing tells that something was forgotten.
		o.one(ask("new", spec, start, 1, 10))
		declared := func(holder string, now, trickle, held int64) lease.Renewal {
			r := ask(holder, spec, now, 7, 0)
			r.Began, r.Admitted, r.Told, r.Held = 1, 500, 400, held
			r.Trickle, r.ExpiresIn, r.Generation = trickle, 400_000, 3
			return r
		}
		a := o.one(declared("a", start+1000, 300*limit.Micro, 20))
		if a.Trickle > 300*limit.Micro || a.Tokens > 20 || a.Generation < 4 {
			o.t.Errorf("a declared 300/s and 20 tokens: got %+v, want no more than that, of a later generation", a)
		}
		b := o.one(declared("b", start+2000, 500*limit.Micro, 10))
		if b.Trickle > 500*limit.Micro || b.Tokens > 30 {
			o.t.Errorf("b declared 500/s and 10 tokens: got %+v, want no more than that", b)
		}
		var sum int64
		for i := range int64(50) { // five seconds of others
			r := ask("other", spec, start+100_000*(i+1), i+1, 200)
			r.Admitted = sum
			g := o.one(r)
			sum += g.Tokens
			if g.Trickle != 0 {
				o.t.Fatalf("another got a trickle of %d while the bucket is suspect", g.Trickle)
			}
		}
		if most := int64(5*50 + 50); sum > most { // epsilon of the rate for five seconds
			o.t.Errorf("others got %d tokens in 5 s, want at most %d", sum, most)
		}
		if g := o.one(ask("late", spec, start+30_000_000, 1, 1000)); g.Tokens < 1000 {
			o.t.Errorf("30 s later: got %+v, want 1000 tokens", g)
		}
	})

	run("a holder that was told more than the store remembers proves a loss", func(o renewer) {
		spec := Bucket(10, 2000)
		o.one(ask("a", spec, start, 1, 10))
		r := ask("a", spec, start+1000, 9, 0)
		r.Admitted, r.Told = 400, 390 // renewals 2 to 8 were answered by a master that is gone
		g := o.one(r)
		if g.Generation != 2 {
			o.t.Errorf("got %+v, want the next generation", g)
		}
		if g := o.one(ask("b", spec, start+2000, 1, 1000)); g.Tokens > 100 {
			o.t.Errorf("b got %+v while the bucket is suspect", g)
		}
	})

	run("a generation from elsewhere leaves one that holders may name", func(o renewer) {
		const last = 1 << 53 // the last one that a renewal may name
		r := ask("a", Bucket(1000, 1000), start, 5, 1)
		r.ExpiresIn, r.Trickle, r.Generation = 100_000, limit.Micro, last
		g := o.one(r)
		if g.Generation < 2 || g.Generation > last {
			o.t.Fatalf("got generation %d, want 2 to %d", g.Generation, int64(last))
		}
		r.Now, r.Number, r.ExpiresIn, r.Generation = start+20_000_000, 6, 0, g.Generation
		r.Spec = Window(1000, 60_000_000, r.Now) // another algorithm is another generation
		if g = o.one(r); g.Generation > last {
			o.t.Errorf("of another algorithm: got generation %d, want %d at most", g.Generation, int64(last))
		}
	})

	run("slots that the store forgot are declared again", func(o renewer) {
		spec := Slots(100)
		o.one(ask("new", spec, start, 1, 1))
		for i, holder := range []string{"a", "b", "c"} {
			r := ask(holder, spec, start+1000*int64(i+1), 5, 0)
			r.InUse, r.Held, r.ExpiresIn, r.Generation, r.Admitted, r.Told = 25, 5, 300_000, 1, 100, 100
			o.one(r)
		}
		g := o.one(ask("other", spec, start+5000, 1, 50))
		if g.Tokens > 5 {
			o.t.Errorf("another got %+v of a suspect bucket, want at most epsilon of its slots", g)
		}
	})
}
