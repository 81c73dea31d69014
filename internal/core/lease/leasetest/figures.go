package leasetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// figures holds a store to what it makes of the ledger's figure (package lease, figure.go).
func figures(t *testing.T, open func(t *testing.T) lease.Store) {
	run := func(name string, f func(o renewer)) {
		t.Run(name, func(t *testing.T) { f(renewer{t, open(t)}) })
	}
	const hour, second = 3_600_000_000, 1_000_000
	spec := Window(1000, hour, start)
	spec.Ledgered = true
	window := spec.WindowStart
	const middle = start + 1_800*second // of the window
	told := func(r lease.Renewal, used, through int64) lease.Renewal {
		r.Figure = lease.Figure{Window: window, Used: used, Through: through, Whole: true}
		return r
	}
	since := func(r lease.Renewal, at int64, lost bool) lease.Renewal {
		r.Memory = lease.Memory{Since: at, Lost: lost}
		return r
	}
	spent := func(r lease.Renewal, now, n int64) lease.Renewal {
		r = ended(r, n)
		r.Now, r.Window = now, window
		return r
	}

	run("a window that the store remembers from its start begins full, unasked", func(o renewer) {
		if g := o.one(since(ask("a", spec, middle, 1, 5000), window, false)); g.Tokens != 1000 || g.Unsure != 0 {
			o.t.Errorf("got %+v, want 1000", g)
		}
	})

	run("a window that began before the store remembers is not begun without the ledger's figure", func(o renewer) {
		r := since(ask("a", spec, middle, 1, 5000), middle-60*second, false)
		if a := o.s.Renew(context.Background(), []lease.Renewal{r})[0]; !errors.Is(a.Err, lease.ErrUnsure) {
			o.t.Fatalf("got %+v, want %v", a, lease.ErrUnsure)
		}
		if g := o.one(told(r, 700, middle-70*second)); g.Tokens != 300 || g.Unsure != 0 {
			o.t.Errorf("700 used: got %+v, want 300", g)
		}
	})

	run("while the ledger is away only epsilon of such a window is there", func(o renewer) {
		r := since(ask("a", spec, middle, 1, 5000), middle-60*second, false)
		r.Figure.Window = window // asked, and not answered
		g := o.one(r)
		if g.Tokens != 50 || g.Unsure == 0 || g.DenyFor > lease.ShortTerm {
			o.t.Errorf("got %+v, want 50, a figure asked for, and no long denial", g)
		}
		late := since(ask("b", spec, middle+3600_000, 1, 5000), middle-60*second, false)
		if g := o.one(told(late, 600, middle-60*second)); g.Tokens != 400 {
			o.t.Errorf("600 used, epsilon granted: got %+v, want 400", g)
		}
	})

	run("a window that was forgotten is held until the ledger is complete through the loss", func(o renewer) {
		lost := middle
		// A holder declares 30 of its own; the ledger's 800 are those of before.
		r := since(ask("a", spec, lost+1000, 9, 0), lost, true)
		r.Began, r.Admitted, r.Told, r.Held, r.ExpiresIn, r.Generation, r.Window = 1, 500, 480, 30, 400_000, 1, window
		g := o.one(told(r, 800, lost-10*second))
		if g.Generation != 2 || g.Unsure == 0 {
			o.t.Fatalf("got %+v, want the next generation, and to be told more", g)
		}
		got, before := g.Tokens, int64(0)
		for i := range int64(40) { // for 20 s the ledger lags
			r := since(told(ask("b", spec, lost+(i+1)*second/2, i+1, 1000), 800, lost-second), lost, true)
			r.Admitted, r.Told = got-g.Tokens, before
			before = r.Admitted
			got += o.one(r).Tokens
		}
		if got > 80 {
			o.t.Errorf("granted %d while the ledger lagged, want at most the 30 declared, and epsilon's 50", got)
		}
		// Complete through the loss, it knows of 870.
		last := since(told(ask("c", spec, lost+21*second, 1, 5000), 870, lost+2*second), lost, true)
		if c := o.one(last); c.Tokens != 120 {
			o.t.Errorf("870 of 1000 used, 80 granted on top of the first 800: got %+v, want the rest", c)
		}
	})

	run("a window that was forgotten is not held for ever where some agent stays silent", func(o renewer) {
		r := since(told(ask("a", spec, middle+1000, 1, 5000), 400, middle-second), middle, true)
		if g := o.one(r); g.Tokens != 50 {
			o.t.Errorf("got %+v, want epsilon's 50", g)
		}
		r = since(told(ask("b", spec, middle+31*second, 1, 5000), 400, middle-second), middle, true)
		r.Figure.Unbroken = 30 * second
		if g := o.one(r); g.Tokens != 550 {
			o.t.Errorf("31 s later: got %+v, want the rest but the 400 used and the 50 granted", g)
		}
	})

	run("nor is it let go in time in which no agent could settle", func(o renewer) {
		lost := middle
		// Before the loss the ledger could be settled with for an hour.
		asked := func(number, at, age, unbroken int64) lease.Renewal {
			r := since(told(ask("a", spec, at, number, 5000), 400, lost-second), lost, true)
			r.Figure.Age, r.Figure.Unbroken = age, unbroken
			return r
		}
		if g := o.one(asked(1, lost+1000, 0, 3600*second)); g.Tokens != 50 {
			o.t.Errorf("got %+v, want epsilon's 50", g)
		}
		back := lost + 46*second // all stood still for 45 s
		for i, r := range []lease.Renewal{
			asked(2, back, 45*second, 3600*second),            // what it said before
			asked(3, back+second, 0, 0),                       // it was asked again
			asked(4, back+29*second, 0, 29*second),            // nobody was silent for as long as is waited
			asked(5, back+90*second, 107*second, 3600*second), // what it said 29 s after the loss, told by another server
		} {
			if g := o.one(r); g.Tokens != 0 || g.Unsure == 0 || g.DenyFor > lease.ShortTerm {
				o.t.Errorf("step %d: got %+v, want none yet, a figure asked for, and no long denial", i, g)
			}
		}
		if g := o.one(asked(6, back+91*second, second, 30*second)); g.Tokens != 550 {
			o.t.Errorf("an agent is silent: got %+v, want the rest but the 400 used and the 50 granted", g)
		}
	})

	run("what a lost holder did not spend comes back once the ledger is complete past its lease", func(o renewer) {
		lost := ask("lost", spec, middle, 1, 0)
		had := o.one(lost)
		rest := ask("a", spec, middle+second, 1, 5000)
		if g := o.one(rest); had.Tokens == 0 || g.Tokens != 1000-had.Tokens {
			o.t.Fatalf("granted %d and %d, want all 1000", had.Tokens, g.Tokens)
		}
		o.one(spent(rest, middle+2*second, 1000-had.Tokens))
		later := middle + 60*second // long after its lease
		g := o.one(ask("b", spec, later, 1, 5))
		if g.Tokens != 0 || g.Unsure < middle+15*second || g.DenyFor > 30*second {
			o.t.Fatalf("got %+v, want none, a figure asked for, and another try within 30 s", g)
		}
		// Of what it had it spent 3, says a ledger that is not complete yet.
		used := 1000 - had.Tokens + 3
		if g := o.one(told(ask("b", spec, later+30*second, 2, 5), used, middle+10*second)); g.Tokens != 0 {
			o.t.Errorf("the ledger lags: got %+v, want none", g)
		}
		want := min(had.Tokens-3, 500)
		if g := o.one(told(ask("b", spec, later+60*second, 3, 500), used, g.Unsure)); g.Tokens != want || g.Unsure != 0 {
			o.t.Errorf("the ledger is complete: got %+v, want %d", g, want)
		}
	})

	run("so it does where a little is left that no request has use for", func(o renewer) {
		had := o.one(ask("lost", spec, middle, 1, 0))
		rest := ask("a", spec, middle+second, 1, 5000)
		o.one(rest)
		used := 1000 - had.Tokens - 2
		o.one(spent(rest, middle+2*second, used))
		large := func(now, number, through int64) lease.Renewal {
			r := told(ask("b", spec, now, number, 10), used+3, through)
			r.Largest = 10
			return r
		}
		g := o.one(large(middle+60*second, 1, middle))
		if g.Tokens != 0 || g.Unsure < middle+15*second {
			o.t.Fatalf("2 are left and 10 asked for: got %+v, want none, and a figure asked for", g)
		}
		// Another holder takes the 2, and has no use for them either: that moves nothing.
		other := ask("c", spec, middle+70*second, 1, 2)
		other.Reserved = 2
		if g := o.one(other); g.Tokens != 2 {
			o.t.Errorf("got %+v, want the 2 that are left", g)
		}
		if g = o.one(large(middle+71*second, 2, g.Unsure)); g.Tokens < 10 || g.Tokens+g.Remaining != 1000-used-3 {
			o.t.Errorf("the ledger is complete: got %+v, want the 10 that wait, and all that was not used", g)
		}
	})

	run("a holder that is back after its tokens were nobody's returns what it did not spend, once", func(o renewer) {
		for _, figure := range []bool{false, true} {
			slow := ask("slow", spec, middle, 1, 20)
			slow.Key = fmt.Sprint(slow.Key, figure)
			had := o.one(slow)
			rest := ask("a", spec, middle+second, 1, 5000)
			rest.Key = slow.Key
			g := o.one(rest)
			if had.Tokens < 20 || had.Tokens+g.Tokens != 1000 {
				o.t.Fatalf("granted %d and %d, want all 1000", had.Tokens, g.Tokens)
			}
			o.one(spent(rest, middle+2*second, g.Tokens))
			others := ask("b", spec, middle+60*second, 1, 5000)
			others.Key = slow.Key
			want := had.Tokens - 3
			if figure { // that it spent 3 the ledger has heard
				others = told(others, g.Tokens+3, middle+hour)
				if g := o.one(others); g.Tokens != want {
					o.t.Errorf("of the figure: got %+v, want %d", g, want)
				}
				want = 0
			} else if g := o.one(others); g.Tokens != 0 {
				o.t.Errorf("before it is back: got %+v, want none", g)
			}
			back := spent(slow, middle+70*second, 3)
			back.Final = false
			o.one(back)
			last := ask("c", spec, middle+80*second, 1, 5000)
			last.Key = slow.Key
			if g := o.one(last); g.Tokens != want {
				o.t.Errorf("after it was back, a figure before %t: got %+v, want %d", figure, g, want)
			}
		}
	})

	run("a holder that begins anew returns nothing: it does not say what it spent", func(o renewer) {
		had := o.one(ask("slow", spec, middle, 1, 20))
		rest := ask("a", spec, middle+second, 1, 5000)
		g := o.one(rest)
		if had.Tokens+g.Tokens != 1000 {
			o.t.Fatalf("granted %d and %d, want all 1000", had.Tokens, g.Tokens)
		}
		o.one(spent(rest, middle+2*second, g.Tokens))
		anew := ask("slow", spec, middle+400*second, 2, 0)
		anew.Began, anew.Admitted, anew.Told, anew.Window = 2, had.Tokens, had.Tokens, window
		o.one(anew)
		if g := o.one(ask("b", spec, middle+401*second, 1, 5000)); g.Tokens != 0 {
			o.t.Errorf("got %+v, want none", g)
		}
	})

	run("the ledger returns nothing that may still be spent, or that others' usage hides", func(o renewer) {
		lost := ask("lost", spec, middle, 1, 0)
		had := o.one(lost)
		rest := ask("a", spec, middle+1000, 1, 5000)
		o.one(rest)
		o.one(spent(rest, middle+2000, 1000-had.Tokens))
		if g := o.one(told(ask("b", spec, middle+3000, 1, 500), 1000-had.Tokens, middle+hour)); g.Tokens != 0 {
			o.t.Errorf("while the lost lease may live: got %+v, want none", g)
		}
		r := told(ask("b", spec, middle+60*second, 2, 500), 1000-had.Tokens, middle+hour)
		r.Figure.Whole = false
		if g := o.one(r); g.Tokens != 0 {
			o.t.Errorf("a part of the figure: got %+v, want none", g)
		}
	})

	run("a figure that is not of all that was used returns no more than what lapsed", func(o renewer) {
		had := o.one(ask("lost", spec, middle, 1, 0))
		rest := ask("a", spec, middle+second, 1, 5000)
		o.one(rest)
		o.one(spent(rest, middle+2*second, 1000-had.Tokens))
		// The limit's meter changed: the new one counted nothing.
		g := o.one(ask("b", spec, middle+60*second, 1, 5))
		if g.Unsure == 0 {
			o.t.Fatalf("got %+v, want a figure asked for", g)
		}
		if g := o.one(told(ask("b", spec, middle+90*second, 2, 5000), 0, g.Unsure)); g.Tokens != had.Tokens {
			o.t.Errorf("got %+v, want the %d that lapsed", g, had.Tokens)
		}
	})

	run("the ledger returns what a lost holder had for requests that waited", func(o renewer) {
		lost := ask("lost", spec, middle, 1, 300)
		lost.Largest = 300
		had := o.one(lost) // its process ended before the answer came
		rest := ask("a", spec, middle+second, 1, 5000)
		g := o.one(rest)
		if had.Tokens < 300 || had.Tokens+g.Tokens != 1000 {
			o.t.Fatalf("granted %d and %d, want 300 at least and all 1000", had.Tokens, g.Tokens)
		}
		o.one(spent(rest, middle+2*second, g.Tokens))
		asked := o.one(ask("b", spec, middle+60*second, 1, 5))
		if asked.Unsure == 0 {
			o.t.Fatalf("got %+v, want a figure asked for", asked)
		}
		if g := o.one(told(ask("b", spec, middle+90*second, 2, 5000), g.Tokens, asked.Unsure)); g.Tokens != had.Tokens {
			o.t.Errorf("got %+v, want the %d that the lost holder did not spend", g, had.Tokens)
		}
	})

	run("nor where what was used before a loss is known by a figure alone", func(o renewer) {
		lost := ask("lost", spec, middle, 1, 0)
		lost = since(told(lost, 700, middle+second), middle, false)
		had := o.one(lost)
		rest := told(ask("a", spec, middle+2*second, 1, 5000), 700, middle+second)
		if g := o.one(rest); had.Tokens == 0 || had.Tokens+g.Tokens != 300 {
			o.t.Fatalf("granted %d and %d, want the 300 that are left", had.Tokens, g.Tokens)
		}
		o.one(spent(rest, middle+3*second, 300-had.Tokens))
		g := o.one(ask("b", spec, middle+60*second, 1, 5))
		if g := o.one(told(ask("b", spec, middle+90*second, 2, 5000), 0, g.Unsure)); g.Tokens != had.Tokens {
			o.t.Errorf("got %+v, want the %d that lapsed", g, had.Tokens)
		}
	})

	run("no figure lets a window exceed its units", func(o renewer) {
		r := ask("a", spec, middle, 1, 900)
		o.one(r)
		o.one(spent(r, middle+second, 900))
		if g := o.one(told(ask("b", spec, middle+2*second, 1, 500), 0, middle+hour)); g.Tokens != 100 {
			o.t.Errorf("900 used, the ledger knows of none: got %+v, want 100", g)
		}
		if g := o.one(told(ask("c", spec, middle+3*second, 1, 500), 5000, middle+hour)); g.Tokens != 0 {
			o.t.Errorf("the ledger knows of 5000: got %+v, want none", g)
		}
	})

	run("buckets that are not there after a loss are suspect until holders have declared their leases", func(o renewer) {
		bucket := Bucket(1000, 2000)
		r := since(ask("new", bucket, start+second/2, 1, 2000), start, true)
		if g := o.one(r); g.Tokens != 0 || g.Trickle != 0 {
			o.t.Errorf("half a second after the loss: got %+v, want nothing yet", g)
		}
		r = since(ask("later", bucket, start+second, 1, 2000), start, true)
		r.Key = "another"
		if g := o.one(r); g.Tokens != 2000 {
			o.t.Errorf("a second after the loss: got %+v, want all 2000", g)
		}
		r = since(ask("lives", bucket, start+2*second, 7, 0), start, true)
		r.Key, r.Trickle, r.ExpiresIn, r.Generation = "another", 100_000_000, 5*second, 5
		o.one(r)
		r = since(ask("next", bucket, start+2*second+1, 1, 2000), start, true)
		r.Key = "another"
		if g := o.one(r); g.Tokens != 0 {
			o.t.Errorf("as a lease of before is declared: got %+v, want nothing", g)
		}
		r = since(ask("next", bucket, start+3*second, 2, 100), start, true)
		r.Key = "another"
		if g := o.one(r); g.Tokens < 100 {
			o.t.Errorf("a second after that: got %+v, want 100 at least", g)
		}
	})
}
