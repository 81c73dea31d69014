//go:build !interleave

package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// A bucket whose book is packed whenever it can be does what one does whose book stays open, whatever requests, the owner, the
// store and changes of policy do to both.
func TestPackedAndOpenBooksDoTheSame(t *testing.T) {
	unraced.Only(t)
	packed := 0
	for seed := range uint64(300) {
		packed += walk(t, seed)
	}
	if packed < 20_000 {
		t.Errorf("a book was packed after %d of 60,000 steps: this proves little", packed)
	}
}

var walked = []limit.Algorithm{limit.TokenBucket, limit.LeakyBucket, limit.FixedWindow, limit.SlidingWindow, limit.Concurrency}

// limitOf is some limit of that algorithm.
func limitOf(a limit.Algorithm, r *rand.Rand) *limit.Limit {
	l := &limit.Limit{Name: "l", Algorithm: a, Queue: 4 * r.Int64N(2), Rate: limit.Rate{Units: 1 + r.Int64N(1000), Per: time.Duration(1+r.IntN(120)) * time.Second}}
	switch {
	case a == limit.Concurrency:
		l.Slots, l.Rate = 1+r.Int64N(20), limit.Rate{}
	case !a.Windowed():
		l.Burst = 1 + r.Int64N(1000)
	}
	if r.IntN(3) == 0 {
		l.FirstTouch, l.OnOutage = limit.TouchAdmit, limit.OutageOpen
	}
	return l
}

// walker is a bucket in a walk, and what it said in the step under way.
type walker struct {
	*Bucket
	l       *limit.Limit
	waiters []*Waiter
	number  int64 // of the last renewal
	said    string
}

func (w *walker) is(v ...any) { w.said += fmt.Sprint(v...) + " " }

func (w *walker) decided(served []*Waiter) {
	for _, s := range served {
		if at := slices.Index(w.waiters, s); at >= 0 {
			w.waiters = slices.Delete(w.waiters, at, at+1)
			w.is("decided", at, s.Verdict())
		}
	}
}

// step does one of many things, all of it by r.
func (w *walker) step(now int64, r *rand.Rand) {
	n, lost, patient := 1+r.Int64N(1<<r.IntN(6)), r.IntN(8) == 0, r.IntN(4) == 0
	switch r.IntN(20) {
	case 0, 1:
		w.is(w.Take(n))
	case 2, 3, 4:
		v := w.Ask(now, n, lost, patient)
		if w.is(v); v.Outcome != Wait {
			return
		}
		waiter := &Waiter{Units: n}
		if patient || w.goesBy().queues {
			served, ok := w.Join(waiter)
			if w.is(ok); ok {
				w.waiters = append(w.waiters, waiter)
				w.decided(served)
			}
		} else if w.Enqueue(waiter) {
			w.waiters = append(w.waiters, waiter)
		}
	case 5:
		w.is(w.Shut(now))
	case 6, 7, 8:
		renewal := w.Renew(now, r.IntN(8) == 0 || w.Unused())
		w.number = renewal.Number
		if w.is(renewal); r.IntN(4) > 0 {
			w.decided(w.Apply(now+r.Int64N(20_000), w.grant(now, r)))
		}
	case 9:
		w.is(w.Beyond(), w.Standing())
		w.decided(w.Apply(now, w.grant(now, r)))
	case 10:
		w.decided(w.Fail(now))
	case 11, 12:
		served, late := w.Tick(now, lost)
		w.is(late)
		w.decided(served)
	case 13:
		w.is(w.Collect())
	case 14:
		if w.Take(n) {
			w.decided(w.Cancel(n))
		}
	case 15:
		if len(w.waiters) > 0 {
			waiter := w.waiters[r.IntN(len(w.waiters))]
			served, was := w.Abandon(waiter, patient)
			w.is(was)
			w.decided(append(served, waiter))
		}
	case 16:
		if w.State(now).InUse > 0 {
			w.decided(w.Finish(1))
			w.is(w.Surplus())
		} else if w.Hold(n); w.Take(n) {
			window := w.Window() * r.Int64N(2)
			switch r.IntN(4) {
			case 0:
				w.decided(w.PutBackOf(n, window))
				w.Release(n)
			case 1:
				w.SettleAdmitted(n, r.Int64N(40), window)
			default:
				w.Reserve(n, window)
				w.is(window, w.Reserved(), w.Settle(n, r.Int64N(40), window))
			}
		} else {
			w.Release(n)
		}
	case 17:
		w.is(w.Due(now), w.Soon(now), w.Turn(now), w.Pressing(), w.Busy(), w.State(now), w.Left(now))
	case 18:
		[]func(){w.Forget, func() { w.Skip(now) }, func() { w.Admit(n) }, func() { w.Refuse(n) }}[r.IntN(4)]()
	case 19:
		a := w.l.Algorithm
		if r.IntN(4) == 0 {
			a = walked[r.IntN(len(walked))]
		}
		old := w.l
		w.l = limitOf(a, r)
		w.scope().goBy(termsAlone(w.l))
		w.follow(termsAlone(old))
	}
}

// grant is some answer to the last renewal.
func (w *walker) grant(now int64, r *rand.Rand) lease.Grant {
	g := lease.Grant{
		Number: w.number, Tokens: r.Int64N(100), TTL: 500_000 << r.IntN(8), Trickle: r.Int64N(1 << (1 + r.IntN(34))), Pile: r.Int64N(100),
		Remaining: r.Int64N(1000), Reset: r.Int64N(1 << 26), Generation: r.Int64N(3), Fallback: r.Int64N(1 << 30),
	}
	if r.IntN(3) == 0 {
		g.Tokens, g.DenyFor = 0, r.Int64N(1<<22)
	}
	if w.l.Algorithm.Windowed() {
		per := w.l.Rate.Per.Microseconds()
		g.ValidFrom = now / per * per
		g.ValidUntil, g.Reset, g.Trickle, g.Next = g.ValidFrom+per, g.ValidFrom+per-now, 0, r.Int64N(50)*r.Int64N(2)
	}
	return g
}

func walk(t *testing.T, seed uint64) (packed int) {
	r := rand.New(rand.NewPCG(seed, 2))
	l := limitOf(walked[r.IntN(len(walked))], r)
	both := [2]walker{{Bucket: NewBucket(l), l: l}, {Bucket: NewBucket(l), l: l}}
	now := int64(1_000_000)
	for i := range 200 {
		now += r.Int64N(1 << r.IntN(27))
		var books [2]book
		for k, chance := 0, r.Uint64(); k < 2; k++ {
			w := &both[k]
			w.said = ""
			w.step(now, rand.New(rand.NewPCG(seed, chance)))
			b := w.open(new(hand))
			b.uses = uint8(k * (mostUses + 1))
			b.close()
			books[k] = peek(w.Bucket)
			books[k].uses = 0
		}
		if s := both[0].seldom(); s == nil || s.book.Load() == nil {
			packed++
		}
		if both[0].said != both[1].said {
			t.Fatalf("seed %d step %d: packed it says %s; open %s", seed, i, both[0].said, both[1].said)
		}
		for _, n := range numbers {
			if packed, open := n.of(&books[0]).Interface(), n.of(&books[1]).Interface(); packed != open {
				t.Fatalf("seed %d step %d: %s is %v packed and %v open", seed, i, n.name, packed, open)
			}
		}
	}
	return packed
}
