package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

func leasedOf(t *testing.T, now int64, g lease.Grant) *Bucket {
	t.Helper()
	b := Of(&limit.Limit{Name: "l", Rate: limit.Rate{Units: 1}})
	r := b.Renew(now, false)
	g.Number = r.Number
	if g.TTL == 0 {
		g.TTL = 10_000_000
	}
	b.Apply(now, g)
	return b
}

func ask(b *Bucket, now, n int64, lost bool) Outcome {
	if b.Take(n) {
		return Admitted
	}
	return b.Ask(now, n, lost, false).Outcome
}

// A bucket without a lease waits, a lease's stock is spent to the last unit, and
// then the store's word decides: wait for more, or deny.
func TestStockThenWaitOrDeny(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Rate: limit.Rate{Units: 1}})
	if got := ask(b, now, 1, false); got != Wait {
		t.Errorf("without a lease: got %v, want Wait", got)
	}
	b = leasedOf(t, now, lease.Grant{Tokens: 2})
	for i := range 2 {
		if got := ask(b, now, 1, false); got != Admitted {
			t.Errorf("unit %d: got %v, want Admitted", i, got)
		}
	}
	if got := ask(b, now, 1, false); got != Wait {
		t.Errorf("when empty: got %v, want Wait", got)
	}
	b = leasedOf(t, now, lease.Grant{DenyFor: 500_000})
	if v := b.Ask(now+100_000, 1, false, false); v.Outcome != Denied || v.RetryAfter != 400_000 {
		t.Errorf("told to deny: got %+v, want Denied for 400000", v)
	}
	if got := ask(b, now+500_000, 1, false); got != Wait {
		t.Errorf("after the time to deny: got %v, want Wait", got)
	}
}

// The trickle refills a cell up to its pile, keeps fractions, and refills nothing
// for a clock that steps back.
func TestTrickle(t *testing.T) {
	const now = 1_000_000
	b := leasedOf(t, now, lease.Grant{Trickle: 10 * limit.Micro, Pile: 5, DenyFor: 10_000_000})
	for _, step := range []struct {
		at   int64
		want Outcome
	}{
		{now + 99_000, Denied},
		{now + 100_000, Admitted},
		{now + 150_000, Denied},
		{now + 120_000, Denied}, // back
		{now + 199_999, Denied},
		{now + 200_000, Admitted},
	} {
		if got := ask(b, step.at, 1, false); got != step.want {
			t.Errorf("at +%d us: got %v, want %v", step.at-now, got, step.want)
		}
	}
	n := 0
	for ask(b, now+9_000_000, 1, false) == Admitted {
		n++
	}
	if n != 5 {
		t.Errorf("after a long silence %d units, want the pile of 5", n)
	}
}

// What was spent while a renewal was under way comes out of its grant.
func TestSpentDuringARenewal(t *testing.T) {
	const now = 1_000_000
	b := leasedOf(t, now, lease.Grant{Tokens: 10})
	r := b.Renew(now, false) // gives back 10
	for range 7 {
		if !b.Take(1) {
			t.Fatal("denied while a renewal was under way")
		}
	}
	b.Apply(now+1000, lease.Grant{Number: r.Number, Tokens: 4, Trickle: limit.Micro, Pile: 3, TTL: 10_000_000, DenyFor: 9_000_000})
	// 7 were spent and 4 granted: 3 are owed, and the trickle pays them first.
	if got := ask(b, now+3_001_000, 1, false); got != Denied {
		t.Errorf("3 s later: got %v, want Denied, for the trickle paid the debt", got)
	}
	if got := ask(b, now+4_001_000, 1, false); got != Admitted {
		t.Errorf("4 s later: got %v, want Admitted", got)
	}
	if a, _ := collect(b); a != 8 {
		t.Errorf("collected %d units, want 8", a)
	}
}

// A lease's end empties the cell; out of contact the lease goes on.
func TestExpiryAndOutage(t *testing.T) {
	const now = 1_000_000
	g := lease.Grant{Tokens: 10, Trickle: 10 * limit.Micro, Pile: 2, TTL: 1_000_000}
	b := leasedOf(t, now, g)
	b.Expire(now+2_000_000, false)
	if b.Take(1) {
		t.Error("took a unit of a lease that ended")
	}
	b = leasedOf(t, now, g)
	b.Expire(now+2_000_000, true)
	n := 0
	for ask(b, now+2_000_000, 1, true) == Admitted {
		n++
	}
	if n != 12 {
		t.Errorf("out of contact %d units, want the stock of 10 and the pile of 2", n)
	}
	if got := ask(b, now+3_000_000, 1, true); got != Admitted {
		t.Errorf("out of contact, a second later: got %v, want Admitted from the trickle", got)
	}

	// Everything admitted since the last answer may have been too much once the lease ended.
	b.Renew(now+3_000_000, false)
	if got := b.Beyond(); got != int64(n)+1 {
		t.Errorf("back in contact: %d units beyond the lease, want the %d admitted", got, n+1)
	}
	b = leasedOf(t, now, g)
	ask(b, now, 3, false)
	b.Renew(now+500_000, false)
	if got := b.Beyond(); got != 0 {
		t.Errorf("within the lease: %d units beyond it, want 0", got)
	}

	for _, c := range []struct {
		on   limit.Outage
		want Outcome
	}{{limit.OutageFallback, Denied}, {limit.OutageClosed, Denied}, {limit.OutageOpen, Admitted}} {
		b := Of(&limit.Limit{Rate: limit.Rate{Units: 1}, OnOutage: c.on})
		if got := ask(b, now, 3, true); got != c.want {
			t.Errorf("outage %d without a lease: got %v, want %v", c.on, got, c.want)
		}
		a, d := collect(b)
		if a+d != 3 || (a == 3) != (c.want == Admitted) {
			t.Errorf("outage %d: collected %d admitted and %d denied of 3", c.on, a, d)
		}
	}
}

// Waiting requests are served in order, all or nothing, and every one is told.
func TestWaitersAreServedInOrder(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Rate: limit.Rate{Units: 1}})
	var waiters []*Waiter
	for _, n := range []int64{2, 5, 1} {
		if got := ask(b, now, n, false); got != Wait {
			t.Fatalf("got %v, want Wait", got)
		}
		w := &Waiter{Units: n}
		waiters = append(waiters, w)
		b.Enqueue(w)
	}
	r := b.Renew(now, false)
	if r.Waiting != 8 {
		t.Errorf("the renewal asks for %d waiting units, want 8", r.Waiting)
	}
	b.Apply(now, lease.Grant{Number: r.Number, Tokens: 3, TTL: 1_000_000, DenyFor: 100_000})
	for i, want := range []Outcome{Admitted, Denied, Admitted} {
		if got := waiters[i].Verdict().Outcome; got != want {
			t.Errorf("waiter %d: got %v, want %v", i, got, want)
		}
	}
	if a, d := collect(b); a != 3 || d != 5 {
		t.Errorf("collected %d admitted and %d denied, want 3 and 5", a, d)
	}
}

// A renewal that was not answered is followed by another: totals make up for it.
func TestRenewalsCarryTotals(t *testing.T) {
	const now = 1_000_000
	b := leasedOf(t, now, lease.Grant{Tokens: 10})
	b.Take(1)
	first := b.Renew(now+1, false)
	b.Take(1)
	second := b.Renew(now+2, false)
	if second.Number != first.Number+1 || first.Admitted != 1 || second.Admitted != 2 || second.Told != 0 || second.Held != 8 {
		t.Errorf("got %+v\nafter %+v", second, first)
	}
	if b.Apply(now+3, lease.Grant{Number: first.Number, Tokens: 100, TTL: 1}) != nil || b.State(now).Tokens != 8 {
		t.Error("the late answer to the first renewal was put to use")
	}
}

// A bucket that only counts never denies, never asks, and counts every unit.
func TestCountingOnly(t *testing.T) {
	b := Of(&limit.Limit{Meter: "m"})
	for range 1000 {
		if !b.Take(3) {
			t.Fatal("denied")
		}
	}
	if a, d := collect(b); a != 3000 || d != 0 {
		t.Errorf("collected %d admitted and %d denied, want 3000 and 0", a, d)
	}
	if b.Due(1) != Never {
		t.Error("a bucket that only counts wants a renewal")
	}
}

// Out of contact an agent has what it was granted of the window, and its part of each window that follows. In contact,
// what is left of a window ends with it.
func TestWindowOutOfContact(t *testing.T) {
	const now, length = 1_000_000, 10_000_000
	g := lease.Grant{
		Tokens: 5, TTL: length, ValidFrom: 7 * length, ValidUntil: 8 * length, Reset: length,
		Remaining: 60, Next: 20,
	}
	open := func() *Bucket {
		b := Of(&limit.Limit{Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100}})
		g.Number = b.Renew(now, false).Number
		b.Apply(now, g)
		return b
	}
	spend := func(b *Bucket, at int64, lost bool) (n int) {
		for ask(b, at, 1, lost) == Admitted {
			n++
		}
		return n
	}
	b := open()
	if n := spend(b, now+1, true); n != 5 {
		t.Errorf("in the window that contact was lost in: %d units, want the 5 granted", n)
	}
	for i := range int64(3) {
		at := now + (i+1)*length
		if n := spend(b, at, true); n != 0 {
			t.Errorf("%d windows later: %d units as soon as it may have begun, want none", i+1, n)
		}
		if n := spend(b, at+drift((i+1)*length), true); n != 20 {
			t.Errorf("%d windows later: %d units, want the part of 20", i+1, n)
		}
	}
	if r := b.Renew(now+3*length, false); r.Window != 10*length {
		t.Errorf("the renewal tells of the window at %d, want %d", r.Window, 10*length)
	}
	b = open()
	b.Expire(now+length, false)
	if n := spend(b, now+length, false); n != 0 {
		t.Errorf("in contact, %d units of a window that is over were admitted", n)
	}
}

func abandoned(b *Bucket, w *Waiter, denied bool) bool {
	_, was := b.Abandon(w, denied)
	return was
}

// A request that gives up waiting counts as denied in one bucket only: in the one that
// denied it, or, when its time ran out, in one that it waited for.
func TestAbandonCountsADenialOnce(t *testing.T) {
	for _, denied := range []bool{false, true} {
		b := Of(&limit.Limit{Rate: limit.Rate{Units: 1}})
		ask(b, 1, 2, false)
		w := &Waiter{Units: 2}
		b.Enqueue(w)
		if !abandoned(b, w, denied) {
			t.Fatal("the request was not waiting")
		}
		if _, d := collect(b); (d == 2) != denied {
			t.Errorf("denied here %v: collected %d denied units of 2", denied, d)
		}
	}
}

// What is exhausted for a month is asked about once a minute all the same, and a denial says when the
// month is over: units may come back before.
func TestLongDenialsAreAskedAbout(t *testing.T) {
	const month = 30 * 86_400_000_000
	at := int64(1_000_000)
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 100, Per: month * 1000}})
	grant := func(tokens int64) {
		r := b.Renew(at, false)
		b.Apply(at, lease.Grant{Number: r.Number, Tokens: tokens, TTL: 10_000_000, ValidFrom: 1, ValidUntil: month, Reset: month - at, DenyFor: month - at})
	}
	grant(0)
	asked := 0
	for ; at <= 601_000_000; at += 1_000_000 {
		if b.Take(1) {
			t.Fatal("admitted")
		}
		v, shut := b.Shut(at)
		if !shut {
			v = b.Ask(at, 1, false, false)
		}
		switch v.Outcome {
		case Wait:
			asked++
			grant(0)
		case Denied:
			if v.RetryAfter != month-at {
				t.Fatalf("at %d s: stay away for %d s, want to the month's end", at/1e6, v.RetryAfter/1e6)
			}
		}
	}
	if asked != 10 {
		t.Errorf("asked %d times in 10 minutes, want 10", asked)
	}
}

// Who draws a trickle is not to ask before its time what the store said that it need not: what others do not use it gets with its next lease.
func TestATrickleIsLivedOnUntilTheStoreSaid(t *testing.T) {
	const term, deny = 240_000_000, 180_000_000
	at := int64(1_000_000)
	b := Of(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1, Per: time.Second}, Burst: 120})
	r := b.Renew(at, false)
	b.Apply(at, lease.Grant{Number: r.Number, Trickle: 50_000, Pile: 2, TTL: term, DenyFor: deny})
	admitted := 0
	for end := at + deny; at < end; at += 500_000 {
		switch v, shut := b.Shut(at); {
		case shut:
		case b.Take(1):
			admitted++
		default:
			if v = b.Ask(at, 1, false, false); v.Outcome == Wait || v.Attend {
				t.Fatalf("%d s after the grant it asks", (at-end+deny)/1_000_000)
			}
			if v.Outcome == Admitted {
				admitted++
			}
		}
	}
	if admitted != 8 && admitted != 9 {
		t.Errorf("%d admitted of a trickle of a token in 20 s, in 180 s", admitted)
	}
	b.Ask(at, 1, false, false) // the last token that the trickle brought
	if v := b.Ask(at, 1, false, false); v.Outcome != Wait {
		t.Errorf("then: %v, want it to ask", v.Outcome)
	}
}

// An owner that comes late to a lease's end loses nothing of it while the store keeps it, and nothing was spent late: what
// is spent of a lease that then lapses, empty, was spent in time. Of one that comes later still, what was spent may have been.
func TestLateToALeasesEnd(t *testing.T) {
	for _, c := range []struct {
		name       string
		spent      int64
		at         int64 // after the lease's end
		live       bool
		lateSpends int64
	}{
		{"in time", 40, 1_000, true, 0},
		{"late", 40, 400_000, true, 0},
		{"empty", 100, 1_000, false, 0},
		{"too late", 40, 600_000, false, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			const now = 1_000_000
			b := leasedOf(t, now, lease.Grant{Tokens: 100, TTL: 1_000_000 + margin})
			for range c.spent {
				b.Take(1)
			}
			at := now + 1_000_000 + c.at
			_, late := b.Tick(at, false)
			if s := b.State(at); s.Live != c.live || late != c.lateSpends {
				t.Errorf("live %v and %d spent late, want %v and %d", s.Live, late, c.live, c.lateSpends)
			}
			if c.live && b.Due(at) > at {
				t.Error("no renewal is due")
			}
			if r := b.Renew(at, false); c.live && r.Held != 100-c.spent {
				t.Errorf("the renewal says %d held, want %d", r.Held, 100-c.spent)
			}
		})
	}
}

// Out of contact a lease whose term is over, and that brings nothing, is no lease to go on with: on_outage decides. One that
// trickles, or whose term still runs, is.
func TestALeaseThatBringsNothingIsOver(t *testing.T) {
	const now = 1_000_000
	window := lease.Grant{Tokens: 10, TTL: 60_000_000, ValidFrom: 60_000_000, ValidUntil: 120_000_000, Reset: 30_000_000}
	share := window
	share.Next = 60
	for _, c := range []struct {
		name     string
		grant    lease.Grant
		at       int64
		admitted int64
	}{
		{"its term runs", lease.Grant{Tokens: 10, TTL: 10_000_000}, 5_000_000, 10},
		{"its term is over", lease.Grant{Tokens: 10, TTL: 10_000_000}, 15_000_000, 100},
		{"it trickles", lease.Grant{Tokens: 10, TTL: 10_000_000, Trickle: limit.Micro, Pile: 5}, 15_000_000, 15},
		{"a window without a part of the next", window, 80_000_000, 100},
		{"a window with a part of the next", share, 35_000_000, 70}, // and 10 of the one before: its owner did not come
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &limit.Limit{Name: "l", Rate: limit.Rate{Units: 100, Per: time.Minute}, OnOutage: limit.OutageOpen, Algorithm: limit.TokenBucket, Burst: 100}
			if c.grant.ValidUntil > 0 {
				l.Algorithm, l.Burst = limit.FixedWindow, 0
			}
			b := Of(l)
			if !b.Enqueue(&Waiter{Units: 1, Done: func(Verdict) {}}) {
				t.Fatal("nobody may wait")
			}
			c.grant.Number = b.Renew(now, false).Number
			c.grant.Tokens++
			b.Apply(now, c.grant)
			admitted := int64(0)
			for range 100 {
				if b.Take(1) || b.Ask(now+c.at, 1, true, false).Outcome == Admitted {
					admitted++
				}
			}
			if admitted != c.admitted {
				t.Errorf("admitted %d of 100, want %d", admitted, c.admitted)
			}
		})
	}
}

// What on_outage or a switch admitted although it was not there, and goes back since a later limit denied, is nothing that
// anybody may spend: it was taken from nobody.
func TestWhatWasTakenFromNobodyGoesBackToNobody(t *testing.T) {
	const now = 1_000_000
	open := func() *Bucket {
		return Of(&limit.Limit{Name: "l", Rate: limit.Rate{Units: 100, Per: time.Minute}, OnOutage: limit.OutageOpen, Algorithm: limit.TokenBucket, Burst: 100})
	}
	spent := func() *Bucket {
		b := open()
		b.Apply(now, lease.Grant{Number: b.Renew(now, false).Number, Tokens: 2, TTL: 1_000_000})
		ask(b, now, 2, false)
		return b
	}
	const later = now + 1_200_000
	for name, bucket := range map[string]func() *Bucket{"never leased": open, "of a lease that brings nothing": spent} {
		for name2, admit := range map[string]func(b *Bucket){
			"on_outage": func(b *Bucket) { ask(b, later, 5, true) },
			"who waited": func(b *Bucket) {
				b.Enqueue(&Waiter{Units: 5})
				b.Fail(later)
			},
			"a switch": func(b *Bucket) { b.Admit(5) },
		} {
			for name3, back := range map[string]func(b *Bucket){
				"PutBack": func(b *Bucket) { b.PutBack(5) }, "Cancel": func(b *Bucket) { b.Cancel(5) }, "PutBackOf": func(b *Bucket) { b.PutBackOf(5, 0) },
			} {
				t.Run(name+", "+name2+", "+name3, func(t *testing.T) {
					b := bucket()
					before, _ := collect(b)
					admit(b)
					back(b)
					if got := ask(b, later, 1, false); got != Wait {
						t.Errorf("the next request: got %v, want Wait for a lease", got)
					}
					if a, _ := collect(b); a != 0 {
						t.Errorf("%d are counted as admitted, want none", a)
					}
					if r := b.Renew(later, false); r.Held != 0 || r.Admitted != before {
						t.Errorf("the store is told of %d held and %d admitted, want none and %d", r.Held, r.Admitted, before)
					}
				})
			}
		}
	}
}

// Once the store was told of what was taken from nobody, units of a lease that go back can be spent again; those that were
// admitted while the answer was on its way are nobody's still.
func TestWhatTheStoreWasToldOfGoesBackToTheLease(t *testing.T) {
	const now = 1_000_000
	b := Of(&limit.Limit{Name: "l", Rate: limit.Rate{Units: 100, Per: time.Minute}, OnOutage: limit.OutageOpen, Algorithm: limit.TokenBucket, Burst: 100})
	ask(b, now, 50, true)
	r := b.Renew(now, false)
	ask(b, now, 3, true)
	b.Apply(now, lease.Grant{Number: r.Number, Tokens: 10, TTL: 10_000_000})
	if got := ask(b, now, 4, false); got != Admitted || r.Admitted != 50 {
		t.Fatalf("got %v after %d were told of, want Admitted after 50", got, r.Admitted)
	}
	b.PutBack(3 + 4)
	if got := b.stock.units() + b.aside(); got != 6 {
		t.Errorf("%d are there before it is looked at, want 6", got)
	}
	if a, _ := collect(b); a != 50 {
		t.Errorf("%d are counted as admitted, want 50", a)
	}
	if got := b.State(now).Tokens; got != 10 {
		t.Errorf("%d are there, want the 10 of the lease", got)
	}
}

// What trickled while the room was full is void, though it is credited later: an agent never has more at a time than the store
// counts for it, stock and pile.
func TestATrickleFillsNoMoreThanTheRoom(t *testing.T) {
	for _, g := range []lease.Grant{
		{Tokens: 15, Trickle: 10 * limit.Micro, Pile: 1, TTL: 60_000_000, DenyFor: 60_000_000},
		{Tokens: 0, Trickle: 10 * limit.Micro, Pile: 4, TTL: 60_000_000, DenyFor: 60_000_000},
		{Tokens: 200, Trickle: 3 * limit.Micro, Pile: 9, TTL: 60_000_000, DenyFor: 60_000_000},
	} {
		now := int64(1_000_000)
		b := leasedOf(t, now, g)
		burst := func(now int64) (n int64) {
			for b.Take(1) || ask(b, now, 1, false) == Admitted {
				n++
			}
			return n
		}
		now += 30_000_000 // idle
		if got, most := burst(now), g.Tokens+g.Pile; got > most || got < g.Tokens {
			t.Errorf("%d tokens, a pile of %d: %d at a time, want %d at most", g.Tokens, g.Pile, got, most)
		}
		// Once it is spent, what trickles is had.
		got := int64(0)
		for range 40 {
			now += 250_000
			got += burst(now)
		}
		if want := 10 * g.Trickle / limit.Micro; got < want-g.Pile-1 || got > want+1 {
			t.Errorf("%d tokens, a pile of %d: %d in the ten seconds that follow, want %d", g.Tokens, g.Pile, got, want)
		}
	}
}

// A clock that steps back takes away nothing that is there, and no second is refilled twice.
func TestAClockThatStepsBack(t *testing.T) {
	const now, second = 1_000_000, 1_000_000
	b := leasedOf(t, now, lease.Grant{Tokens: 5, Trickle: 10 * limit.Micro, Pile: 15, DenyFor: 10 * second})
	for range 6 { // which finds five, and then ten that have trickled
		if got := ask(b, now+second, 1, false); got != Admitted {
			t.Fatalf("a second later: got %v, want Admitted", got)
		}
	}
	for _, at := range []int64{now, now + second} {
		if r := b.Renew(at, false); r.Held != 9 {
			t.Errorf("%d us after the grant %d are held, want 9 as before", at-now, r.Held)
		}
	}
}
