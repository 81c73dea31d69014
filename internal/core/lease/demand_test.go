package lease_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
)

// asks are renewals of one holder, each for one request that waits and is admitted by the answer or denied.
type asks struct {
	t *testing.T
	s lease.State
	r lease.Renewal
	g lease.Grant
}

func (a *asks) at(now int64) {
	a.t.Helper()
	if a.r.Number > 0 {
		if a.g.Tokens > 0 {
			a.r.Admitted++
		} else {
			a.r.Denied++
		}
		a.r.Elapsed = now - a.r.Now
		a.r.Held = max(a.g.Tokens-1, 0)
	}
	a.r.Now, a.r.Number, a.r.Began, a.r.Waiting, a.r.Largest = now, a.r.Number+1, 1, 1, 1
	g, err := a.s.Renew(now, &a.r)
	if err != nil {
		a.t.Fatal(err)
	}
	a.r.Told, a.g = a.r.Admitted, g
}

// A request that waits for a renewal and is decided by its answer is one request, not two.
func TestDemandCountsARequestOnce(t *testing.T) {
	const begin = 1_760_000_000_000_000
	a := asks{t: t, r: lease.Renewal{Key: "b", Holder: "a", Spec: leasetest.Bucket(1, 1)}}
	for n := range int64(100) {
		a.at(begin + n*100_000)
	}
	if got := a.s.Holders["a"].Lease.Demand; got < 9_500 || got > 10_500 {
		t.Errorf("got a demand of %.1f a second, of 10 requests a second that each ask", float64(got)/1000)
	}
}

// A holder that comes back after a silence has terms that grow from the shortest, however long the empty one was.
func TestTermsGrowFromWhatWasInUse(t *testing.T) {
	const begin, second = 1_760_000_000_000_000, 1_000_000
	a := asks{t: t, r: lease.Renewal{Key: "b", Holder: "a", Spec: leasetest.Bucket(5, 10)}}
	now := int64(begin)
	for range 20 {
		a.at(now)
		now += second / 4
	}
	a.at(now + 14*second)
	for n := range int64(5) {
		a.at(now + 14*second + (n+1)*3_000)
		if a.g.TTL > 4*lease.ShortTerm || a.g.DenyFor > lease.ShortTerm {
			t.Errorf("%d ms after it came back: got a lease of %d ms, and to deny for %d ms; want some of the shortest terms at most",
				3*(n+1), a.g.TTL/1000, a.g.DenyFor/1000)
		}
	}
}

// trickles returns what seven holders draw a second from a bucket of 1,000. Each uses the given units a second
// for five minutes.
func trickles(t *testing.T, each, strain int64) int64 {
	t.Helper()
	const begin, every, rounds = 1_760_000_000_000_000, 5, 60
	var s lease.State
	for n := range int64(rounds) {
		for h := range int64(7) {
			now := begin + n*every*1_000_000 + h
			r := lease.Renewal{
				Key: "b", Holder: string(rune('a' + h)), Spec: leasetest.Bucket(1_000, 2_000), Now: now, Number: n + 1, Began: 1,
				Admitted: n * every * each, Told: max(n-1, 0) * every * each, Elapsed: every * 1_000_000, Strain: strain,
			}
			if n == 0 {
				r.Waiting, r.Largest, r.Elapsed = 1, 1, 0
			}
			if _, err := s.Renew(now, &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s.Out.Trickle / 1_000_000
}

// While demand is well within the rate, trickles leave little of it unused: a holder that needs more has it.
// Strained holders draw more than they need, and leave others a fifth of the rate.
func TestTricklesLeaveLittleUnused(t *testing.T) {
	for _, c := range []struct{ each, strain, from, to int64 }{
		{100, 0, 700, 715},
		{100, 4, 790, 801},
		{40, 0, 280, 295},
		{40, 4, 540, 570},
		{40, lease.MaxStrain, 600, 645},
	} {
		if got := trickles(t, c.each, c.strain); got < c.from || got > c.to {
			t.Errorf("strain %d: got trickles of %d a second for a demand of %d, of 1,000; want %d to %d", c.strain, got, 7*c.each, c.from, c.to)
		}
	}
}

// A hundred holders come at once, and their first leases last for half a minute. No guess takes what the others
// live on until then.
func TestNewcomersLeaveEachOtherTheRate(t *testing.T) {
	const begin, rate, holders = 1_760_000_000_000_000, 60, 100
	var s lease.State
	without := 0
	for h := range int64(holders) {
		r := lease.Renewal{Key: "b", Holder: string(rune('A' + h)), Spec: leasetest.Bucket(rate, rate*120), Now: begin + h, Number: 1, Began: 1, Waiting: 1, Largest: 1}
		g, err := s.Renew(r.Now, &r)
		switch {
		case err != nil:
			t.Fatal(err)
		case g.TTL < 20_000_000:
			t.Fatalf("holder %d: got a lease of %d ms, want a long one", h, g.TTL/1000)
		case g.Trickle > rate*1_000_000/64:
			t.Errorf("holder %d: got a trickle of %.2f a second of %d, for one request", h, float64(g.Trickle)/1e6, rate)
		case g.Trickle == 0:
			without++
		}
	}
	if without > 1 { // the first, whose request may be the only one
		t.Errorf("%d of %d got no trickle", without, holders)
	}
}

// A holder that reports strain gets longer leases: at most sixteen times, and never beyond the longest. Where
// there is plenty, its first lease already lasts. Strict limits and windows are as ever.
func TestStrainMakesLeasesLong(t *testing.T) {
	const begin = 1_760_000_000_000_000
	strict := leasetest.Bucket(100, 12_000)
	strict.EpsilonPPM = 0
	for _, c := range []struct {
		name     string
		spec     lease.Spec
		drained  int64 // units that another has used before
		strain   int64
		from, to int64 // of the terms of its first four leases, in milliseconds
	}{
		{"plenty", leasetest.Bucket(100, 12_000), 0, 0, 7_000, 60_000},    // the first lasts a minute
		{"plenty", leasetest.Bucket(100, 12_000), 0, 4, 117_000, 120_000}, // as long as what lasts that it does not have itself
		{"plenty", leasetest.Bucket(100, 12_000), 0, lease.MaxStrain, 469_000, 480_000},
		{"half empty", leasetest.Bucket(100, 12_000), 9_500, 0, 200, 20_000},
		{"half empty", leasetest.Bucket(100, 12_000), 9_500, lease.MaxStrain, 200, 480_000},
		{"strict", strict, 0, 0, 200, 10_000},
		{"strict", strict, 0, lease.MaxStrain, 200, 10_000},
	} {
		var s lease.State
		if c.drained > 0 {
			r := lease.Renewal{Key: "b", Holder: "other", Spec: c.spec, Now: begin, Number: 1, Began: 1, Waiting: c.drained, Largest: 1, Final: true}
			r.Admitted, r.Waiting = c.drained, 0
			if _, err := s.Renew(begin, &r); err != nil {
				t.Fatal(err)
			}
		}
		a := asks{t: t, s: s, r: lease.Renewal{Key: "b", Holder: "a", Spec: c.spec, Strain: c.strain}}
		for n := range int64(4) {
			a.at(begin + (n+1)*500_000)
			if ms := a.g.TTL / 1000; ms < c.from || ms > c.to {
				t.Errorf("%s, strain %d: lease %d lasts %d ms, want %d to %d", c.name, c.strain, n, ms, c.from, c.to)
			}
		}
	}
}

// Leases of a large burst grow if the burst lasts for some time at any demand. They grow even if nearly all of
// the rate is leased and the burst is far from full. If it is nearly gone, or demand exceeds the rate, they
// stay short.
func TestLeasesGrowOfWhatIsAmple(t *testing.T) {
	const begin, rate = 1_760_000_000_000_000, 100
	for _, c := range []struct {
		name     string
		left     int64 // units
		demand   int64 // units a second
		from, to int64 // of the term after some, in milliseconds
	}{
		{"25 s of the rate", 2_500, 93, 8_000, 10_000},
		{"2 s of the rate", 200, 93, 500, 2_000},
		{"25 s of the rate, and more is asked for", 2_500, 120, 500, 2_000},
	} {
		spec := leasetest.Bucket(rate, 12_000)
		var s lease.State
		other := lease.Renewal{Key: "b", Holder: "other", Spec: spec, Now: begin, Number: 1, Began: 1, Admitted: 12_000 - c.left, Largest: 1, Final: true}
		if _, err := s.Renew(begin, &other); err != nil {
			t.Fatal(err)
		}
		r := lease.Renewal{Key: "b", Holder: "a", Spec: spec, Now: begin, Began: 1, Largest: 1}
		var g lease.Grant
		for n := range int64(6) {
			elapsed := max(g.TTL, 500_000)
			if n > 0 {
				r.Now += elapsed
				r.Admitted += c.demand * elapsed / 1_000_000
				r.Elapsed, r.Held = elapsed, g.Tokens/2
			}
			r.Number = n + 1
			var err error
			if g, err = s.Renew(r.Now, &r); err != nil {
				t.Fatal(err)
			}
			r.Told = r.Admitted
		}
		if ms := g.TTL / 1000; ms < c.from || ms > c.to {
			t.Errorf("%s: a lease lasts %d ms in the end, want %d to %d", c.name, ms, c.from, c.to)
		}
	}
}

// Demand of 900 a second stops at one holder, which says so after 25 ms, and goes on at another. Where the burst is a
// tenth of a second of the rate, the other is not told to deny for longer than a part of that.
func TestSharesFollowAMoveWithinTheBurst(t *testing.T) {
	const begin, ms = 1_760_000_000_000_000, 1_000
	var s lease.State
	renew := func(r *lease.Renewal, now int64) lease.Grant {
		t.Helper()
		if r.Number > 0 {
			r.Elapsed = now - r.Now
		}
		r.Key, r.Spec, r.Now, r.Number, r.Began = "b", leasetest.Bucket(1_000, 100), now, r.Number+1, 1
		g, err := s.Renew(now, r)
		if err != nil {
			t.Fatal(err)
		}
		r.Told, r.Waiting, r.Largest = r.Admitted, 0, 0
		return g
	}
	old, other := lease.Renewal{Holder: "old", Waiting: 1, Largest: 1}, lease.Renewal{Holder: "other"}
	now := int64(begin)
	renew(&old, now)
	for range 10 {
		now += 500 * ms
		old.Admitted += 450
		renew(&old, now)
	}
	for other.Number < 100 {
		now += 2 * ms
		other.Waiting, other.Largest = 2, 1
		if g := renew(&other, now); g.Tokens < 2 {
			if g.DenyFor > 25*ms {
				t.Errorf("the bucket is used up by the %d. renewal of a newcomer: got to deny for %d ms, want 25 at most", other.Number, g.DenyFor/ms)
			}
			break
		}
		other.Admitted += 2
	}
	renew(&old, now)
	renew(&old, now+25*ms)
	if got := s.Holders["old"].Lease.Trickle / 1_000_000; got > 10 {
		t.Errorf("25 ms after its last request: got a trickle of %d a second for the holder, want next to none", got)
	}
}

// Ten holders share a strict rate of 1,000 with a burst of 100 evenly. Each may pile up most of its tenth of the burst,
// for a third of the trickle would find no room in two tokens.
func TestPilesHaveTheirShareOfASmallBurst(t *testing.T) {
	const begin, rounds, holders = 1_760_000_000_000_000, 20, 10
	spec := leasetest.Bucket(1_000, 100)
	spec.EpsilonPPM = 0
	var s lease.State
	least := int64(100)
	for n := range int64(rounds) {
		for h := range int64(holders) {
			now := begin + n*500_000 + h*1_000
			r := lease.Renewal{
				Key: "b", Holder: string(rune('a' + h)), Spec: spec, Now: now, Number: n + 1, Began: 1,
				Admitted: n * 50, Told: max(n-1, 0) * 50, Elapsed: 500_000, Waiting: 1, Largest: 1,
			}
			g, err := s.Renew(now, &r)
			if err != nil {
				t.Fatal(err)
			}
			if n == rounds-1 {
				least = min(least, g.Pile)
			}
		}
	}
	if least < 7 {
		t.Errorf("got room for %d tokens at one of ten holders of a burst of 100, want 7 at least", least)
	}
	if most := s.Out.Stock + s.Out.Pile + s.Level; most > 100_000_000 {
		t.Errorf("%d millionths may be spent at once, want at most the burst of 100", most)
	}
}
