package bucket

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// Reservations of any history cost the bucket what was committed and no more, the store
// never hands out what is reserved, and no count falls or is negative. The bucket hardly refills, so
// that every unit can be accounted for.
func TestReservationsCostWhatTheyCommit(t *testing.T) {
	unraced.Only(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := bucketOf(1000, 1)
		l.Rate.Per = 366 * 86400e9 / 2
		b := Of(l)
		store := memstore.New()
		now := int64(1_000_000)
		spec := lease.Spec{Algorithm: limit.TokenBucket, Units: 1, Period: l.Rate.Per.Microseconds(), Burst: 1000}
		var told int64
		renew := func(final, lost bool) lease.Grant {
			t.Helper()
			q := b.Renew(now, final)
			q.Key, q.Holder, q.Spec, q.Now = "k", "gw-1", spec, 1e15+now
			if q.Admitted < told || q.Held < 0 {
				t.Fatalf("seed %d: told of %d admitted after %d, and %d held", seed, q.Admitted, told, q.Held)
			}
			told = q.Admitted
			a := store.Renew(t.Context(), []lease.Renewal{q})[0]
			if a.Err != nil {
				t.Fatalf("seed %d: %v", seed, a.Err)
			}
			if !lost {
				for _, w := range b.Apply(now, a.Grant) {
					w.Done(w.Verdict())
				}
			}
			return a.Grant
		}
		type reservation struct{ n, window int64 }
		var live []reservation
		var committed, inHand, collected int64
		for range 300 {
			now += r.Int64N(4_000) // so that no lease ends: what it held then would be void
			switch r.IntN(6) {
			case 0:
				n := 1 + r.Int64N(20)
				b.Hold(n)
				got := b.Take(n)
				if !got {
					switch b.Ask(now, n, false, false).Outcome {
					case Admitted:
						got = true
					case Wait:
						w := &Waiter{Units: n, Done: func(v Verdict) { got = v.Outcome == Admitted }}
						b.Enqueue(w)
						renew(false, false)
						if !got {
							b.Abandon(w, true)
						}
					}
				}
				if !got {
					b.Release(n)
					break
				}
				live = append(live, reservation{n, b.Window()})
				b.Reserve(n, b.Window())
				inHand += n
			case 1, 2, 3:
				if len(live) == 0 {
					break
				}
				i := r.IntN(len(live))
				v := live[i]
				live = append(live[:i], live[i+1:]...)
				m := []int64{0, v.n, r.Int64N(v.n + 1)}[r.IntN(3)]
				b.Settle(v.n, m, v.window, nil)
				committed += m
				inHand -= v.n
			case 4:
				if b.State(now).Live {
					renew(false, r.IntN(5) == 0)
				}
			case 5:
				a, _ := collect(b)
				collected += a
			}
			if a, _ := collect(b); a < 0 {
				t.Fatalf("seed %d: collected %d", seed, a)
			} else {
				collected += a
			}
			if collected != committed || b.Reserved() != inHand {
				t.Fatalf("seed %d: %d units admitted and %d reserved, want %d and %d", seed, collected, b.Reserved(), committed, inHand)
			}
			if out := committed + inHand + b.State(now).Tokens; out > 1000 {
				t.Fatalf("seed %d: %d units out of a bucket of 1000", seed, out)
			}
		}
		for _, v := range live {
			b.Settle(v.n, 0, v.window, nil)
		}
		renew(false, false) // what was lost with an answer is told
		renew(true, false)
		other := lease.Renewal{Key: "k", Holder: "gw-2", Spec: spec, Now: 1e15 + now, Number: 1, Began: 1}
		g := store.Renew(t.Context(), []lease.Renewal{other})[0].Grant
		if got, want := g.Remaining, 1000-committed; got != want {
			t.Errorf("seed %d: the bucket has %d left, want %d: 1000 less what was committed", seed, got, want)
		}
	}
}

// A reservation that outlives its window is of that window: what is committed of it is
// billed, the window now does not pay for it, and nothing of it comes back.
func TestReservationsOutliveWindows(t *testing.T) {
	const now, length = 5_000_000, 1_000_000
	b := Of(&limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: length * 1000}})
	grant := func(at, from, tokens int64) lease.Renewal {
		r := b.Renew(at, false)
		b.Apply(at, lease.Grant{Number: r.Number, Tokens: tokens, TTL: 100_000, ValidFrom: from, ValidUntil: from + length, Remaining: tokens, Reset: from + length - at})
		return r
	}
	grant(now, now, 50)
	b.Hold(30)
	b.Take(30)
	window := b.Window()
	b.Reserve(30, window)
	if r := grant(now+50_000, now, 50); r.Held != 50 || r.Waiting != 30 || r.Largest != 1 || r.Admitted != 0 {
		t.Errorf("told %+v, want 50 held, of which 30 are waited for", r)
	}
	if got := b.State(now + 50_000).Tokens; got != 20 {
		t.Errorf("%d tokens beside the reserved ones, want 20", got)
	}
	at := int64(now + length)
	grant(at, now+length, 40)
	b.Settle(30, 10, window, nil)
	if a, _ := collect(b); a != 10 {
		t.Errorf("collected %d, want the 10 that were committed", a)
	}
	if r := grant(at+50_000, now+length, 40); r.Held != 40 || r.Waiting != 0 || r.Admitted != 0 {
		t.Errorf("told %+v, want 40 held and nothing admitted in this window", r)
	}
}

// A reservation that is committed while the answer that begins another window is on its way was made, and ended, in the
// window before: the new one is not to pay for it.
func TestCommitsUnderWayAreOfTheirOwnWindow(t *testing.T) {
	const now, length = 5_000_000, 1_000_000
	b := Of(&limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: length * 1000}})
	answer := func(r lease.Renewal, at, from int64) {
		b.Apply(at, lease.Grant{Number: r.Number, Tokens: 50, TTL: length, ValidFrom: from, ValidUntil: from + length, Remaining: 50, Reset: from + length - at})
	}
	answer(b.Renew(now, false), now, now)
	b.Hold(30)
	b.Take(30)
	window := b.Window()
	b.Reserve(30, window)
	at := int64(now + length)
	r := b.Renew(at, false)
	b.Settle(30, 10, window, nil)
	answer(r, at+10_000, at)
	b.Take(5)
	if next := b.Renew(at+50_000, false); next.Admitted-r.Admitted != 5 || next.Held != 45 {
		t.Errorf("told %+v, want 5 admitted since and 45 held", next)
	}
	if a, _ := collect(b); a != 15 {
		t.Errorf("collected %d, want all 15", a)
	}
}

// What is put back counts in the window that it was taken of. Told of as spent there, it does not hide what is spent of the next
// one, whether it came back before that began or after; then it is nobody's.
func TestUnitsComeBackToTheirOwnWindow(t *testing.T) {
	const length = 10_000_000
	for _, c := range []struct {
		name      string
		back      func(b *Bucket, window int64) // before the window turns
		backAfter func(b *Bucket, window int64)
	}{
		{name: "before", back: func(b *Bucket, window int64) { b.PutBackOf(3, window) }},
		{name: "after", backAfter: func(b *Bucket, window int64) { b.PutBackOf(3, window) }},
		{name: "reserved after", backAfter: func(b *Bucket, window int64) { b.Hold(3); b.Reserve(3, window); b.Settle(3, 0, window, nil) }},
		{name: "admitted by a switch", backAfter: func(b *Bucket, window int64) { b.Hold(3); b.SettleAdmitted(3, 0, window, nil) }},
		{name: "gathered", back: func(b *Bucket, window int64) {
			b.PutBackOf(3, window)
			b.Take(5) // all there is, but those
			b.Join(&Waiter{Units: 90})
		}},
	} {
		b := Of(&limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: length * 1000}})
		now := int64(50_000_000)
		renew := func(tokens, next int64) lease.Renewal {
			r := b.Renew(now, false)
			from := now - now%length
			b.Apply(now, lease.Grant{Number: r.Number, Tokens: tokens, TTL: length, ValidFrom: from, ValidUntil: from + length, Remaining: 50, Next: next, Reset: from + length - now})
			return r
		}
		renew(8, 0)
		window := b.Window()
		b.Take(3)
		told := renew(5, 10).Admitted
		if c.back != nil {
			c.back(b, window)
		}
		now += length + drift(length)
		b.Tick(now, false) // goes over to the 10 of the next window
		if c.backAfter != nil {
			c.backAfter(b, window)
		}
		if c.name == "gathered" {
			told += 5 - 3 // the store was told of three that were not spent then
			b.Dismiss()
		}
		collect(b) // and what came back is there again
		if got := b.State(now).Tokens; got != 10 {
			t.Errorf("%s: %d can be spent of the next window, want its 10", c.name, got)
		}
		b.Take(4)
		now += 100_000
		if got := renew(0, 0).Admitted - told; got != 4 {
			t.Errorf("%s: the store is told of %d spent of the next window, want 4", c.name, got)
		}
	}
}

// In the last milliseconds of a window a lease is over as soon as it is granted. It is not renewed for what is held or reserved:
// nothing of it is left at the edge, and each answer would be one more reason to ask.
func TestNothingIsAskedAtAnEdge(t *testing.T) {
	for _, reserved := range []int64{0, 30} {
		const length, left = 10_000_000, 1_500 // microseconds
		b := Of(&limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: length * 1000}})
		const edge = 50_000_000
		now := int64(edge - left)
		grant := func(tokens int64) {
			r := b.Renew(now, false)
			b.Apply(now, lease.Grant{Number: r.Number, Tokens: tokens, TTL: left, ValidFrom: edge - length, ValidUntil: edge, Remaining: tokens, Reset: left})
		}
		grant(50)
		b.Hold(reserved)
		b.Take(reserved)
		b.Reserve(reserved, b.Window())
		b.Tick(now, false)
		if due := b.Due(now); due < edge-drift(left) {
			t.Errorf("%d of 50 reserved: renewed %d us before the edge, want at the edge", reserved, edge-due)
		}
		b.Tick(edge, false)
		if due := b.Due(edge); due != Never || b.State(edge).Tokens != 0 {
			t.Errorf("%d of 50 reserved: at the edge due at %d with %d tokens, want nothing", reserved, due, b.State(edge).Tokens)
		}
	}
}

// Reservations that cost more than was reserved are paid by what comes back: of what is spent in all
// no more than the bucket has, beyond what single commits found nothing to pay with; and in the end nothing is paid
// twice. Two agents, every algorithm that reserves.
func TestOverCommitsArePaid(t *testing.T) {
	unraced.Only(t)
	for name, a := range map[string]limit.Algorithm{
		"token_bucket": limit.TokenBucket, "fixed_window": limit.FixedWindow, "sliding_window_log": limit.SlidingWindowLog, "sliding_window": limit.SlidingWindow,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(150) {
				overCommits(t, a, seed)
			}
		})
	}
}

func overCommits(t *testing.T, a limit.Algorithm, seed uint64) {
	const capacity = 1000
	r := rand.New(rand.NewPCG(seed, 8))
	l := limit.Limit{Name: "l", Algorithm: a, Rate: limit.Rate{Units: capacity, Per: 24 * time.Hour}, EpsilonPPM: 50_000}
	if a == limit.TokenBucket {
		l.Rate.Per, l.Burst = 366*24*time.Hour, capacity
	}
	w := newWorld(l, 2)
	type reservation struct{ n, window int64 }
	live := make([][]reservation, len(w.nodes))
	var spent, unpaid int64
	for range 200 {
		w.runTo(w.now + r.Int64N(30_000))
		i := r.IntN(len(w.nodes))
		n := w.nodes[i]
		switch units := 1 + r.Int64N(30); r.IntN(3) {
		case 0:
			n.bucket.Hold(units)
			n.askFor(units, func(ok bool) {
				if !ok {
					n.bucket.Release(units)
					return
				}
				live[i] = append(live[i], reservation{units, n.bucket.Window()})
				n.bucket.Reserve(units, n.bucket.Window())
			})
		case 1:
			if len(live[i]) == 0 {
				break
			}
			v := live[i][0]
			live[i] = live[i][1:]
			m := r.Int64N(2*v.n + 1)
			beyond := max(m-v.n-max(n.bucket.State(w.now).Tokens, 0), 0)
			n.bucket.Settle(v.n, m, v.window, nil)
			spent, unpaid = spent+m, unpaid+beyond
			n.look()
		case 2:
			n.askFor(units, func(ok bool) {
				if ok {
					spent += units
				}
			})
		}
		if spent > capacity+unpaid {
			t.Fatalf("seed %d: %d spent of %d, of which %d found nothing to pay with", seed, spent, capacity, unpaid)
		}
	}
	w.runTo(w.now + 1_000_000) // who waits is answered
	for i, n := range w.nodes {
		for _, v := range live[i] {
			n.bucket.Settle(v.n, 0, v.window, nil)
		}
		n.look()
	}
	w.runTo(w.now + 60_000_000) // all that is unused went back
	for left := true; left; {   // the rest is spent, singly
		left = false
		for _, n := range w.nodes {
			n.askFor(1, func(ok bool) {
				if ok {
					spent++
					left = true
				}
			})
			w.runTo(w.now + 300_000)
		}
	}
	if spent < capacity || spent > capacity+unpaid {
		t.Errorf("seed %d: %d spent of %d, of which %d found nothing to pay with", seed, spent, capacity, unpaid)
	}
}

// A request that comes just after an edge begins the window itself. What it reserves is of that one, and what it does
// not spend can be spent.
func TestARequestThatBeginsAWindowReservesOfIt(t *testing.T) {
	const second = 1_000_000
	b := Of(&limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 20, Per: 10 * time.Second}})
	b.Apply(second, lease.Grant{
		Number: b.Renew(second, false).Number, Tokens: 5, Next: 5, TTL: 2 * second, Reset: second, ValidFrom: 100 * second, ValidUntil: 110 * second,
	})
	now, before := b.beginAt+1, b.Window()
	b.Hold(5)
	v := b.Ask(now, 5, false, false)
	if v.Outcome != Admitted || v.Window != before+10*second {
		t.Fatalf("got %+v, want units of the window that begins", v)
	}
	b.Reserve(5, v.Window)
	b.Settle(5, 1, v.Window, nil)
	left := 0
	for b.Ask(now, 1, false, false).Outcome == Admitted {
		left++
	}
	if r := b.Renew(now, false); left != 4 || r.Admitted != 5 {
		t.Errorf("of 5 reserved one was spent: %d are left of the window, and %d told, want 4 and all 5", left, r.Admitted)
	}
}
