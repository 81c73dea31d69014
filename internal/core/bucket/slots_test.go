package bucket

import (
	"math/rand/v2"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

func slotsLimit(slots, queue int64) *limit.Limit {
	return &limit.Limit{Name: "l", Algorithm: limit.Concurrency, Slots: slots, Queue: queue, Meter: "m"}
}

func leasedSlots(l *limit.Limit, now, spare int64) *Bucket {
	b := Of(l)
	r := b.Renew(now, false)
	b.Apply(now, lease.Grant{Number: r.Number, Tokens: spare, Pile: l.Slots, TTL: 10_000_000, Remaining: l.Slots - spare})
	return b
}

// A slot is taken once, given back once, and is there again; each start counts as
// admitted, and what is in use goes into the renewal.
func TestSlotsComeBack(t *testing.T) {
	const now = 1_000_000
	b := leasedSlots(slotsLimit(10, 0), now, 3)
	for i := range 3 {
		if got := ask(b, now, 1, false); got != Admitted {
			t.Fatalf("slot %d: got %v, want Admitted", i, got)
		}
	}
	if got := ask(b, now, 1, false); got != Wait {
		t.Errorf("when all are in use: got %v, want Wait for the server's answer", got)
	}
	b.Finish(1)
	if got := ask(b, now, 1, false); got != Admitted {
		t.Errorf("after one came back: got %v, want Admitted", got)
	}
	if a, d := collect(b); a != 4 || d != 0 {
		t.Errorf("collected %d starts and %d denials, want 4 and 0", a, d)
	}
	b.Finish(2)
	r := b.Renew(now+1, false)
	if r.Admitted != 4 || r.InUse+r.Held != 3 || r.InUse < 1 {
		t.Errorf("got %+v, want 4 starts and the 3 slots, one of them in use at least", r)
	}
	if a, _ := collect(b); a != 0 {
		t.Errorf("collected %d more starts, want none", a)
	}
}

// Requests that wait for a slot get it in the order in which they came, the moment that one
// comes back; as many wait as the limit lets.
func TestSlotsQueue(t *testing.T) {
	const now = 1_000_000
	b := leasedSlots(slotsLimit(10, 3), now, 2)
	ask(b, now, 2, false)
	var waiters []*Waiter
	for _, n := range []int64{1, 2, 1} {
		if got := ask(b, now, n, false); got != Wait {
			t.Fatalf("got %v, want Wait", got)
		}
		w := &Waiter{Units: n}
		if served, ok := b.Join(w); !ok || len(served) > 0 {
			t.Fatalf("enqueued %v, served %d at once; want true and none", ok, len(served))
		}
		waiters = append(waiters, w)
	}
	if _, ok := b.Join(&Waiter{Units: 1}); ok {
		t.Error("a fourth request may wait, want 3")
	}
	served := b.Finish(1)
	if len(served) != 1 || served[0] != waiters[0] {
		t.Fatalf("a slot came back: %d were served, want the first", len(served))
	}
	if served := b.Finish(1); len(served) != 0 {
		t.Errorf("%d were served, want none: the first in line needs two", len(served))
	}
	served, was := b.Abandon(waiters[1], true)
	if !was || len(served) != 1 || served[0] != waiters[2] {
		t.Errorf("the one that needs two left: %v, %d were served, want the one after it", was, len(served))
	}
	if a, d := collect(b); a != 4 || d != 3 {
		t.Errorf("collected %d starts and %d denied units, want 4 and 3", a, d)
	}
	if s := b.State(now); s.InUse != 2 || s.Tokens != 0 {
		t.Errorf("%d in use and %d spare, want 2 and 0", s.InUse, s.Tokens)
	}
}

// Slots that lie idle beyond what the store lets the agent keep are given up at once, for good, and
// whoever brings the first of them back is told to say so; no more than those.
func TestIdleSlotsAreGivenUp(t *testing.T) {
	const now = 1_000_000
	b := Of(slotsLimit(10, 0))
	r := b.Renew(now, false)
	b.Apply(now, lease.Grant{Number: r.Number, Tokens: 6, Pile: 2, TTL: 10_000_000, Fallback: 6_000_000})
	if b.Due(now+earlyEvery) > now+earlyEvery {
		t.Error("6 of which 2 may lie idle: nobody gives up the others")
	}
	for range 6 {
		ask(b, now, 1, false)
	}
	if b.Due(now+earlyEvery) <= now+earlyEvery {
		t.Error("all are in use by now, and the store is asked all the same")
	}
	told := 0
	for range 5 {
		b.Finish(1)
		if b.Surplus() {
			told++
		}
	}
	if told != 1 {
		t.Errorf("5 came back: the owner was told %d times, want once", told)
	}
	if due := b.Due(now + earlyEvery); due > now+earlyEvery {
		t.Errorf("with 5 idle slots the renewal is due in %d us, want at once", due-now)
	}
	r = b.Renew(now+earlyEvery, false)
	if r.InUse+r.Held != 3 || r.InUse < 1 {
		t.Errorf("got %d in use and %d held, want 3 in all, one of them in use", r.InUse, r.Held)
	}
	b.Fail(now + earlyEvery)
	for i := range 3 {
		if got := ask(b, now+earlyEvery, 1, true); (got == Admitted) != (i < 2) {
			t.Errorf("out of contact, request %d: got %v; want the 2 that it may keep, and not those given up", i, got)
		}
	}
}

// While no slot is free anywhere, one that comes back beyond the agent's share goes back to the store: who brings it tells
// the owner, also where requests wait here.
func TestOwnerHearsOfSlotsBeyondTheShare(t *testing.T) {
	const now = 1_000_000
	b := Of(slotsLimit(10, 5))
	r := b.Renew(now, false)
	b.Apply(now, lease.Grant{Number: r.Number, Tokens: 4, Fallback: 2 * limit.Micro, Pile: 10, TTL: 10_000_000})
	ask(b, now, 4, false)
	if _, ok := b.Join(&Waiter{Units: 1}); !ok {
		t.Fatal("a request may not wait")
	}
	r = b.Renew(now, false)
	b.Apply(now, lease.Grant{Number: r.Number, Fallback: 2 * limit.Micro, Pile: 10, TTL: 10_000_000})
	if due := b.Due(now); due < now+patientEvery {
		t.Fatalf("before a slot came back the renewal is due in %d us", due-now)
	}
	if served := b.Finish(1); len(served) != 0 {
		t.Errorf("a slot beyond the share came back: %d were served, want none", len(served))
	}
	if !b.Surplus() {
		t.Error("who brought it has nothing to tell the owner")
	}
	if due := b.Due(now); due > now+2_000 {
		t.Errorf("the renewal is due in %d us, want 2000 at most", due-now)
	}
}

// A lease with slots in use is renewed before it ends, whether or not anything asks;
// one with none lapses or goes back.
func TestSlotsInUseAreRenewed(t *testing.T) {
	const now = 1_000_000
	b := leasedSlots(slotsLimit(10, 0), now, 1)
	ask(b, now, 1, false)
	if due := b.Due(now); due > now+8_000_000 {
		t.Errorf("with a slot in use the renewal is due in %d us, want 8000000 at most", due-now)
	}
	if b.Unused() || b.State(now).InUse == 0 {
		t.Error("the lease would be given back with a slot in use")
	}
	b.Expire(now+20_000_000, false)
	if due := b.Due(now + 20_000_000); due == Never {
		t.Error("the lease ended with a slot in use, and nobody tells the server")
	}
	b.Finish(1)
	if got := ask(b, now+20_000_000, 1, false); got != Wait {
		t.Errorf("a slot of a lease that is over: got %v, want Wait", got)
	}
}

// slotServer is the server's side at its simplest: each holder has what it
// said and what it was granted.
type slotServer struct {
	level   int64
	holders map[int]*slotHolder
}

type slotHolder struct {
	number, has int64
	last        lease.Grant
}

func (s *slotServer) renew(holder int, r lease.Renewal, rng *rand.Rand) (lease.Grant, bool) {
	h := s.holders[holder]
	if h == nil {
		h = &slotHolder{}
		s.holders[holder] = h
	}
	switch {
	case r.Number == h.number:
		return h.last, true
	case r.Number < h.number:
		return lease.Grant{}, false
	}
	s.level += h.has - r.InUse
	g := lease.Grant{Number: r.Number, TTL: 10_000_000, Remaining: max(s.level, 0), Pile: rng.Int64N(3)}
	if !r.Final {
		g.Tokens = min(max(s.level, 0), r.Waiting+rng.Int64N(4))
	}
	if g.Tokens == 0 {
		g.DenyFor = 10_000
	}
	s.level -= g.Tokens
	h.number, h.has, h.last = r.Number, r.InUse+g.Tokens, g
	return g, true
}

// Over many agents, with calls and answers that are lost, late or repeated, no
// more requests have slots than there are; all slots are there again at the end.
func TestSlotsAreInOneHand(t *testing.T) {
	unraced.Only(t)
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		const slots, agents = 6, 3
		server := &slotServer{level: slots, holders: make(map[int]*slotHolder)}
		type call struct {
			r lease.Renewal
			g lease.Grant
			// done: the server executed it, and g is its answer
			done bool
		}
		buckets := make([]*Bucket, agents)
		calls := make([][]call, agents)
		inUse := make([]int64, agents)
		served := func(i int, ws []*Waiter) {
			for _, w := range ws {
				if w.Verdict().Outcome == Admitted {
					inUse[i] += w.Units
				}
			}
		}
		for i := range buckets {
			buckets[i] = Of(slotsLimit(slots, 4))
		}
		now := int64(1_000_000)
		step := func(i int) {
			b := buckets[i]
			now += rng.Int64N(2_000)
			switch k := rng.IntN(10); {
			case k < 3:
				n := 1 + rng.Int64N(2)*rng.Int64N(2)
				switch ask(b, now, n, false) {
				case Admitted:
					inUse[i] += n
				case Wait:
					ws, _ := b.Join(&Waiter{Units: n})
					served(i, ws)
				}
			case k < 6:
				if inUse[i] > 0 {
					inUse[i]--
					if rng.IntN(5) == 0 {
						served(i, b.Cancel(1))
					} else {
						served(i, b.Finish(1))
					}
				}
			case k == 6 && rng.IntN(2) == 0:
				calls[i] = append(calls[i], call{r: b.Renew(now, rng.IntN(12) == 0 && b.Unused())})
			case k == 7 && len(calls[i]) > 0: // the server gets one, in any order
				c := &calls[i][rng.IntN(len(calls[i]))]
				if g, ok := server.renew(i, c.r, rng); ok {
					c.g, c.done = g, true
				}
			case k == 8 && len(calls[i]) > 0: // an answer arrives, or is lost with its call
				j := rng.IntN(len(calls[i]))
				if c := calls[i][j]; c.done && rng.IntN(4) > 0 {
					served(i, b.Apply(now, c.g))
				}
				calls[i] = append(calls[i][:j], calls[i][j+1:]...)
			}
		}
		for range 3_000 {
			step(rng.IntN(agents))
			sum := int64(0)
			for i := range inUse {
				if got := buckets[i].State(now).InUse; got < inUse[i] {
					t.Fatalf("seed %d: agent %d says %d slots are in use, %d are", seed, i, got, inUse[i])
				}
				sum += inUse[i]
			}
			if sum > slots {
				t.Fatalf("seed %d: %d slots are in use, of %d", seed, sum, slots)
			}
		}
		for i, b := range buckets {
			b.Dismiss()
			served(i, b.Finish(inUse[i]))
			b.Skip(now)
			g, _ := server.renew(i, b.Renew(now+1<<30, true), rng)
			b.Apply(now, g)
			if s := b.State(now); s.InUse != 0 || s.Tokens != 0 {
				t.Errorf("seed %d: agent %d has %d slots in use and %d spare at the end, want none", seed, i, s.InUse, s.Tokens)
			}
		}
		if server.level != slots {
			t.Errorf("seed %d: %d slots are there at the end, want %d", seed, server.level, slots)
		}
	}
}
