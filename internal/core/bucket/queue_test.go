package bucket

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

func verdict(b *Bucket, now, n int64, patient bool) Verdict {
	if b.Take(n) {
		return Verdict{Outcome: Admitted}
	}
	return b.Ask(now, n, false, patient)
}

// Requests that wait their turn are served by the trickle as it comes, without a
// renewal, in the order in which they came; the owner is told when to look.
func TestTheTrickleServesInTurn(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Algorithm: limit.LeakyBucket, Rate: limit.Rate{Units: 10}, Burst: 10, Queue: 5})
	r := b.Renew(now, false)
	b.Apply(now, lease.Grant{Number: r.Number, Trickle: 10 * limit.Micro, Pile: 1, TTL: 10_000_000})
	if v := verdict(b, now, 1, false); v.Outcome != Denied || v.RetryAfter != 100_000 {
		t.Errorf("without waiting: got %+v, want Denied for 100000", v)
	}
	var waiters []*Waiter
	for _, n := range []int64{1, 3, 1} {
		if v := verdict(b, now, n, true); v.Outcome != Wait {
			t.Fatalf("got %+v, want Wait", v)
		}
		w := &Waiter{Units: n}
		b.Join(w)
		waiters = append(waiters, w)
	}
	b.Renew(now, false) // it tells of them; the answer is lost, and the lease goes on
	if v := verdict(b, now+1, 1, false); v.Outcome != Denied || v.RetryAfter < 500_000 {
		t.Errorf("behind five units: got %+v, want Denied for 600 ms about", v)
	}
	at, turn := int64(now), 0
	for turn < len(waiters) && at < now+2_000_000 {
		if at = b.Turn(at); at == Never {
			t.Fatal("nobody is to look at a bucket in which requests wait their turn")
		}
		served, _ := b.Tick(at, false)
		for _, w := range served {
			if w != waiters[turn] || w.Verdict().Outcome != Admitted {
				t.Fatalf("served %+v, want the one whose turn it is", w)
			}
			if want := now + []int64{100_000, 400_000, 500_000}[turn]; at < want || at > want+1_000 {
				t.Errorf("waiter %d was served %d us after the first token, want %d", turn, at-now, want-now)
			}
			turn++
		}
	}
	if turn != 3 {
		t.Fatalf("%d of 3 were served", turn)
	}
	if a, d := collect(b); a != 5 || d != 2 {
		t.Errorf("collected %d admitted and %d denied, want 5 and 2", a, d)
	}
}

// What a request that waits its turn has gathered is the holder's still: it is told of
// as held, and goes to the next in line when the request gives up.
func TestGatheredUnits(t *testing.T) {
	const now = 1_000_000
	b := leasedOf(t, now, lease.Grant{Tokens: 5})
	b.Terms.capacity = 100
	if v := verdict(b, now, 8, true); v.Outcome != Wait {
		t.Fatalf("got %+v, want Wait", v)
	}
	large, small := &Waiter{Units: 8}, &Waiter{Units: 1}
	b.Join(large)
	if b.Take(1) {
		t.Error("a later request took what the first in line waits for")
	}
	if v := verdict(b, now, 1, true); v.Outcome != Wait {
		t.Fatalf("got %+v, want Wait", v)
	}
	b.Join(small)
	r := b.Renew(now, false)
	if r.Held != 5 || r.Waiting != 9 || r.Largest != 8 {
		t.Errorf("got %+v, want 5 held, 9 waiting, 8 of them one request's", r)
	}
	if a, _ := collect(b); a != 0 {
		t.Errorf("%d units count as admitted, want none", a)
	}
	b.Apply(now, lease.Grant{Number: r.Number, Tokens: 7, TTL: 10_000_000}) // two more
	served, _ := b.Abandon(large, true)
	if len(served) != 1 || served[0] != small {
		t.Errorf("the first gave up: %d were served, want the next", len(served))
	}
	if have := b.State(now).Tokens; have+due(b) != 6 {
		t.Errorf("%d units are left, want 6", have+due(b))
	}
	if a, d := collect(b); a != 1 || d != 8 {
		t.Errorf("collected %d admitted and %d denied, want 1 and 8", a, d)
	}
}

// At a window's edge the agent goes over to the next one's tokens by itself; a renewal
// that was under way meanwhile, in either window of the server's, takes nothing twice.
func TestGoesOverAtTheEdge(t *testing.T) {
	const now, length = 1_000_000, 10_000_000
	open := func() *Bucket {
		b := Of(&limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100}})
		b.Apply(now, lease.Grant{
			Number: b.Renew(now, false).Number, Tokens: 5, Next: 7, TTL: length / 2, Remaining: 60,
			ValidFrom: 7 * length, ValidUntil: 8 * length, Reset: length / 2,
		})
		return b
	}
	spend := func(b *Bucket, at int64) (n int) {
		for ask(b, at, 1, false) == Admitted {
			n++
		}
		return n
	}
	const begins = now + length/2 + length/2/1000 // for certain, and it ends as much sooner
	const ends, edge = begins - length/1000, begins
	b := open()
	if due := b.Due(now); due > edge+1 {
		t.Errorf("the owner looks %d us after the edge, want at it", due-edge)
	}
	if n := spend(b, ends-1); n != 5 {
		t.Errorf("before the edge %d units, want 5", n)
	}
	b.Tick(ends, false)
	if b.Take(1) {
		t.Error("between the windows there is a unit")
	}
	b.Tick(edge, false)
	if !b.Take(1) {
		t.Error("at the edge a request has to wait")
	}
	if n := spend(b, edge+1); n != 6 {
		t.Errorf("after the edge %d more units, want 6", n)
	}
	if r := b.Renew(edge+1, false); r.Window != 8*length || r.Held != 0 || r.Admitted != 12 {
		t.Errorf("got %+v, want the new window, none held, 12 admitted", r)
	}

	for _, inNew := range []bool{false, true} {
		b := open()
		r := b.Renew(edge-10, false)
		b.Tick(edge, false)
		for range 3 {
			b.Take(1)
		}
		g := lease.Grant{
			Number: r.Number, Tokens: 4, Next: 9, TTL: length / 2, ValidFrom: 7 * length, ValidUntil: 8 * length, Reset: 5,
		}
		if inNew {
			g.ValidFrom, g.ValidUntil, g.Reset, g.Tokens = 8*length, 9*length, length, 9
		}
		b.Apply(edge+5, g)
		if n := spend(b, edge+6); n != 6 {
			t.Errorf("the server in the new window %v: %d more units, want 6 of the 9 granted", inNew, n)
		}
		if r := b.Renew(edge+7, false); r.Window != 8*length {
			t.Errorf("the server in the new window %v: the renewal tells of window %d, want the new one", inNew, r.Window)
		}
	}
	b = open()
	b.Tick(edge+length, false)
	if b.Take(1) {
		t.Error("took a unit of a window that passed unseen")
	}
}

// The first units of a bucket that says so are admitted at once, few of them, and the first
// renewal, which nobody waits for, tells.
func TestFirstTouch(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Rate: limit.Rate{Units: 1}, Burst: 30, FirstTouch: limit.TouchAdmit})
	for i := range 3 {
		if got := ask(b, now, 1, false); got != Admitted {
			t.Errorf("unit %d: got %v, want Admitted", i, got)
		}
	}
	if got := ask(b, now, 1, false); got != Wait {
		t.Errorf("beyond a tenth of the burst: got %v, want Wait", got)
	}
	if due := b.Due(now); due <= now || due > now+touchWithin {
		t.Errorf("the renewal is due in %d us, want within %d and not at once", due-now, touchWithin)
	}
	r := b.Renew(now+touchWithin, false)
	if r.Admitted != 3 || r.Told != 0 || r.Waiting != 0 {
		t.Errorf("got %+v, want 3 units admitted that the store was not told of", r)
	}
	b.Apply(now+touchWithin, lease.Grant{Number: r.Number, TTL: 1_000_000, DenyFor: 1_000_000})
	if got := ask(b, now+touchWithin+1, 1, false); got != Denied {
		t.Errorf("after the first grant: got %v, want Denied", got)
	}
	if a, _ := collect(b); a != 3 {
		t.Errorf("collected %d units, want 3", a)
	}
}

// Tokens granted for a request that gave up before the answer came go back soon.
func TestGrantedForOneThatLeft(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Rate: limit.Rate{Units: 10}, Burst: 100})
	ask(b, now, 40, false)
	w := &Waiter{Units: 40}
	b.Enqueue(w)
	r := b.Renew(now, false)
	b.Abandon(w, true)
	b.Apply(now+2_000, lease.Grant{Number: r.Number, Tokens: 40, TTL: 10_000_000})
	if due := b.Due(now + 2_000); due > now+earlyEvery {
		t.Errorf("the 40 units go back in %d us, want %d", due-now, earlyEvery)
	}
}

// When the server cannot be reached, those who wait their turn go on waiting for what the trickle brings. Those who wait for
// an answer are denied, and so is everybody where nothing comes.
func TestTurnsComeOutOfContact(t *testing.T) {
	const now = 1_000_000
	for _, trickle := range []int64{0, 10 * limit.Micro} {
		b := Of(&limit.Limit{Algorithm: limit.LeakyBucket, Rate: limit.Rate{Units: 10}, Burst: 10, Queue: 5})
		b.Apply(now, lease.Grant{Number: b.Renew(now, false).Number, Trickle: trickle, Pile: 1, TTL: 10_000_000})
		turns, answer := &Waiter{Units: 1}, &Waiter{Units: 1}
		b.Join(turns)
		b.Enqueue(answer)
		for _, w := range b.Fail(now) {
			if w.Verdict().Outcome != Denied || w == turns && trickle > 0 {
				t.Errorf("trickle %d: decided was %+v", trickle, *w)
			}
		}
		served, _ := b.Tick(now+100_000, true)
		if (len(served) == 1 && served[0] == turns && turns.Verdict().Outcome == Admitted) != (trickle > 0) {
			t.Errorf("trickle %d: %d were served when a token had come", trickle, len(served))
		}
		if answer.Verdict().Outcome != Denied || b.Urgent() {
			t.Errorf("trickle %d: who waited for an answer: %+v; somebody waits still: %v", trickle, answer.Verdict(), b.Urgent())
		}
	}
}

// A store whose clock is behind is still in the window before. Its answer does not take the agent back there, and to a
// second part of the window that it is in.
func TestAStoreThatIsBehindGivesNoSecondPart(t *testing.T) {
	const now, length = 1_000_000, 10_000_000
	b := Of(&limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: length * 1000}})
	grant := lease.Grant{Tokens: 5, Next: 7, TTL: 3_000_000, ValidFrom: 7 * length, ValidUntil: 8 * length, Reset: 2_000_000}
	grant.Number = b.Renew(now, false).Number
	b.Apply(now, grant)
	spend := func(at int64) (n int) {
		b.Tick(at, false)
		for ask(b, at, 1, false) == Admitted {
			n++
		}
		return n
	}
	const over = now + 2_010_000
	if n := spend(over); n != 7 {
		t.Fatalf("of its part: %d units, want 7", n)
	}
	grant.Number, grant.Reset = b.Renew(over, false).Number, 500_000
	b.Apply(over+1_000, grant)
	if n := spend(over + 600_000); n != 0 {
		t.Errorf("after the answer of a store that is behind: %d units more, want none", n)
	}
}

// The owner looked at its clock, was held up across a window's edge, and only then puts the answer to use. Who came in the
// meantime does not get a unit of the window that is over.
func TestAnAnswerServesNobodyWhoCameAfterItsWindow(t *testing.T) {
	const now, length = 1_000_000, 10_000_000
	for _, patient := range []bool{false, true} {
		for since, want := range map[int64]bool{now + 1_900_000: true, now + 2_100_000: false} {
			b := Of(&limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: length * 1000}})
			grant := lease.Grant{TTL: 2_000_000, ValidFrom: 7 * length, ValidUntil: 8 * length, Reset: 2_000_000, DenyFor: 1}
			grant.Number = b.Renew(now, false).Number
			b.Apply(now, grant)
			const looked = now + 1_950_000
			grant.Number, grant.Tokens, grant.Reset = b.Renew(looked-20_000, false).Number, 5, 70_000
			w, got := &Waiter{Units: 1, Since: since}, false
			w.Done = func(v Verdict) { got = v.Outcome == Admitted }
			if patient {
				served, _ := b.Join(w)
				Serve(served)
			} else {
				b.Enqueue(w)
			}
			Serve(b.Apply(looked, grant))
			if got != want {
				t.Errorf("patient %v, came at %d: served %v, want %v", patient, since, got, want)
			}
		}
	}
}
