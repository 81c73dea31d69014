package leasetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// start is where tests' clocks begin: an edge of every window used here.
const start = int64(1_760_000_400_000_000)

// Bucket returns the spec of a token bucket: units each second, and a burst.
func Bucket(units, burst int64) lease.Spec {
	return lease.Spec{Algorithm: limit.TokenBucket, Units: units, Period: 1_000_000, Burst: burst, EpsilonPPM: 50_000}
}

// Window returns the spec of a fixed window of units each period, at now.
func Window(units, period, now int64) lease.Spec {
	s := lease.Spec{Algorithm: limit.FixedWindow, Units: units, EpsilonPPM: 50_000}
	in(&s, period, now)
	return s
}

// Sliding returns the spec of a sliding window of units each period, at now.
func Sliding(units, period, now int64) lease.Spec {
	s := lease.Spec{Algorithm: limit.SlidingWindow, Units: units, EpsilonPPM: 50_000}
	in(&s, period, now)
	return s
}

// Log returns the spec of a sliding window log of units each period.
func Log(units, period int64) lease.Spec {
	return lease.Spec{Algorithm: limit.SlidingWindowLog, Units: units, Period: period}
}

// Slots returns the spec of so many slots.
func Slots(n int64) lease.Spec {
	return lease.Spec{Algorithm: limit.Concurrency, Units: n, EpsilonPPM: 50_000}
}

// in puts a windowed spec into its window at now.
func in(s *lease.Spec, period, now int64) {
	start := now - now%period
	s.Period, s.WindowStart, s.WindowEnd, s.NextWindowEnd = period, start, start+period, start+2*period
}

// ask makes a renewal; tests fill in the rest.
// soon is within what time the suite's holders admit what a log grants, in microseconds.
const soon = 1_000

func ask(holder string, spec lease.Spec, now, number, waiting int64) lease.Renewal {
	r := lease.Renewal{Key: "bucket", Spec: spec, Holder: holder, Now: now, Number: number, Began: 1, Waiting: waiting}
	if spec.Algorithm == limit.SlidingWindowLog {
		r.Within = soon
	}
	return r
}

// Run holds the store that open returns, a new one for each test, to the contract.
func Run(t *testing.T, open func(t *testing.T) lease.Store) {
	algorithms(t, open)
	options(t, open)
	figures(t, open)
	back(t, open)
	terms(t, open)
	t.Run("a slow bucket leaves something for newcomers", func(t *testing.T) { newcomers(t, open(t)) })
	scenarios(t, open)
	one := func(t *testing.T, s lease.Store, r lease.Renewal) lease.Grant {
		t.Helper()
		a := s.Renew(context.Background(), []lease.Renewal{r})[0]
		if a.Err != nil {
			t.Fatalf("renewal %d of %s: %v", r.Number, r.Holder, a.Err)
		}
		return a.Grant
	}

	t.Run("what waits is served from a full bucket", func(t *testing.T) {
		g := one(t, open(t), ask("a", Bucket(100, 200), start, 1, 3))
		if g.Tokens < 3 || g.Tokens > 200 || g.DenyFor != 0 || g.TTL <= 0 {
			t.Errorf("got %+v, want 3 to 200 tokens and no denial", g)
		}
	})

	t.Run("a repeated number is answered again and grants nothing more", func(t *testing.T) {
		s := open(t)
		r := ask("a", Bucket(5, 10), start, 1, 4)
		first := one(t, s, r)
		for i := range 3 {
			r.Now = start + int64(i)*1000
			if again := one(t, s, r); again != first {
				t.Errorf("got %+v again, want %+v", again, first)
			}
		}
		left := one(t, s, ask("b", Bucket(5, 10), start, 1, 10))
		if got := first.Tokens + left.Tokens; got != 10 {
			t.Errorf("a and b were granted %d tokens in all, want the burst of 10", got)
		}
	})

	t.Run("an older number is stale", func(t *testing.T) {
		s := open(t)
		one(t, s, ask("a", Bucket(100, 200), start, 2, 1))
		a := s.Renew(context.Background(), []lease.Renewal{ask("a", Bucket(100, 200), start, 1, 1)})[0]
		if !errors.Is(a.Err, lease.ErrStale) {
			t.Errorf("got %v, want %v", a.Err, lease.ErrStale)
		}
	})

	t.Run("no more than the burst is handed out at once", func(t *testing.T) {
		s := open(t)
		var sum int64
		for i := range 50 {
			sum += one(t, s, ask(fmt.Sprint("agent-", i), Bucket(10, 20), start, 1, 5)).Tokens
		}
		if sum != 20 {
			t.Errorf("50 agents were granted %d tokens, want the burst of 20", sum)
		}
	})

	t.Run("an empty bucket says to deny until a token is there", func(t *testing.T) {
		s := open(t)
		one(t, s, ask("a", Bucket(1, 2), start, 1, 2))
		g := one(t, s, ask("b", Bucket(1, 2), start, 1, 1))
		if g.Tokens != 0 || g.DenyFor != 1_000_000 {
			t.Errorf("got %d tokens and %d us of denial, want 0 and 1000000", g.Tokens, g.DenyFor)
		}
		g = one(t, s, ask("b", Bucket(1, 2), start+1_000_000, 2, 1))
		if g.Tokens != 1 {
			t.Errorf("a second later: got %d tokens, want 1", g.Tokens)
		}
	})

	t.Run("a slow limit's denial lasts until the next token", func(t *testing.T) {
		s := open(t)
		slow := Bucket(3, 3)
		slow.Period = 3600_000_000
		one(t, s, ask("a", slow, start, 1, 3))
		if g := one(t, s, ask("b", slow, start, 1, 1)); g.Tokens != 0 || g.DenyFor < 1_199_000_000 || g.DenyFor > 1_201_000_000 {
			t.Errorf("3 an hour, all used: got %+v, want a denial for 1,200 s", g)
		}
	})

	t.Run("what is given back can be had by others, and no more than was lent", func(t *testing.T) {
		s := open(t)
		one(t, s, ask("a", Bucket(1, 10), start, 1, 10))
		back := ask("a", Bucket(1, 10), start+1000, 2, 0)
		back.Held, back.Final, back.Admitted = 1000, true, 4
		one(t, s, back)
		g := one(t, s, ask("b", Bucket(1, 10), start+1000, 1, 10))
		if g.Tokens != 6 {
			// What a claims to hold is more than it was lent, and it spent 4 of the 10.
			t.Errorf("got %d tokens, want 6", g.Tokens)
		}
	})

	t.Run("live trickles never sum to more than the rate", func(t *testing.T) {
		s := open(t)
		trickles := map[string]int64{}
		spec := Bucket(1000, 2000)
		for step := range int64(200) {
			holder := fmt.Sprint("agent-", step%10)
			r := ask(holder, spec, start+step*20_000, step/10+1, 0)
			r.Admitted, r.Denied = (step/10)*60, (step/10)*100
			trickles[holder] = one(t, s, r).Trickle
			var sum int64
			for _, v := range trickles {
				sum += v
			}
			if sum > 1000*limit.Micro {
				t.Fatalf("step %d: trickles sum to %d micro-tokens a second, want at most 1000000000", step, sum)
			}
		}
	})

	t.Run("a clock that steps back refills nothing twice", func(t *testing.T) {
		for _, back := range []int64{500_000, 600_000_000} {
			s := open(t)
			one(t, s, ask("a", Bucket(1, 2), start, 1, 2))
			again := ask("a", Bucket(1, 2), start-back, 2, 0)
			again.Admitted = 2
			one(t, s, again)
			if g := one(t, s, ask("b", Bucket(1, 2), start-back+900_000, 1, 1)); back > 1_000_000 && g.Tokens != 0 {
				t.Errorf("back %d us: got %d tokens after 0.9 s, want 0", back, g.Tokens)
			}
		}
	})

	t.Run("a clock that leaps ahead refills no more than leases last", func(t *testing.T) {
		s := open(t)
		leased := one(t, s, ask("a", Bucket(1, 1000), start, 1, 1)) // some of it stays leased
		one(t, s, ask("c", Bucket(1, 1000), start, 1, 1000))
		g := one(t, s, ask("b", Bucket(1, 1000), start+600_000_000, 1, 1000))
		if most := max(lease.MaxStep, leased.ExpirySlot*lease.SlotLen-start) / 1_000_000; g.Tokens > most {
			t.Errorf("got %d tokens after a leap, want at most %d", g.Tokens, most)
		}
	})

	t.Run("a clock that leaps refills no more than its holders' own clocks say", func(t *testing.T) {
		spec := Bucket(10_000, 20_000) // a slack of 750
		const every, seconds = 500_000, 20
		for _, leaps := range []int64{600_000_000, 30_000_000, 900_000} {
			s := open(t)
			var granted, spent int64
			for i := range int64(seconds * 1_000_000 / every) {
				now := start + i*every
				if i%2 == 1 {
					now += leaps // ahead, and back again, every second
				}
				r := ask("a", spec, now, i+1, 20_000)
				r.Began, r.Admitted, r.Told = 1, spent, spent
				if i > 0 {
					r.Elapsed = every
				}
				g := one(t, s, r)
				granted += g.Tokens + g.Trickle/limit.Micro*every/1_000_000
				spent = granted
			}
			// Of the last half second what trickles is not drawn yet.
			if most := int64(20_000 + 750 + 10_000*(seconds+1)); granted > most {
				t.Errorf("leaps of %d us: got %d units in %d s, want at most %d", leaps, granted, seconds, most)
			}
			if least := int64(10_000 * (seconds - 1)); granted < least {
				t.Errorf("leaps of %d us: got %d units in %d s, want at least %d", leaps, granted, seconds, least)
			}
		}
	})

	t.Run("a large request finds what others have no need to hold", func(t *testing.T) {
		s := open(t)
		large := ask("large", Bucket(1000, 1000), start, 1, 100)
		large.Largest = 100
		one(t, s, large)
		for i := range int64(40) {
			one(t, s, ask(fmt.Sprint("agent-", i), Bucket(1000, 1000), start+1+i, 1, 1))
		}
		large = ask("another", Bucket(1000, 1000), start+100, 1, 750)
		large.Largest = 750
		if g := one(t, s, large); g.Tokens < 750 {
			t.Errorf("got %d tokens where 860 are not used, want 750", g.Tokens)
		}
	})

	t.Run("where one request is a part of ten seconds' worth, no token lies with a holder that has no use for it", func(t *testing.T) {
		s := open(t)
		large := ask("large", Bucket(1000, 1000), start, 1, 900)
		large.Largest = 900
		one(t, s, large)
		for i, at := range []int64{2, 9, 11, 19, 21} { // of 900 it is 450 after ten seconds, and 225 after twenty
			g := one(t, s, ask(fmt.Sprint("agent-", i), Bucket(1000, 1000), start+at*1e6, 1, 1))
			if g.Tokens != 1 || g.Trickle != 0 {
				t.Errorf("after %d s: got %d tokens and a trickle of %d, want the one that is waited for", at, g.Tokens, g.Trickle)
			}
		}
		for i, at := range []int64{31, 42, 53} {
			one(t, s, ask(fmt.Sprint("later-", i), Bucket(1000, 1000), start+at*1e6, 1, 1))
		}
		if g := one(t, s, ask("last", Bucket(1000, 1000), start+54e6, 1, 1)); g.Tokens < 2 {
			t.Errorf("long after: got %d tokens, want some more than are waited for", g.Tokens)
		}
	})

	t.Run("a window lets its units through and turns on time", func(t *testing.T) {
		const period = 60_000_000
		s := open(t)
		var sum int64
		for i := range 30 {
			now := start + int64(i)*1000
			g := one(t, s, ask(fmt.Sprint("agent-", i), Window(50, period, now), now, 1, 4))
			sum += g.Tokens
			if g.ValidFrom != start || g.ValidUntil != start+period {
				t.Fatalf("got the window [%d, %d), want [%d, %d)", g.ValidFrom, g.ValidUntil, start, start+period)
			}
		}
		if sum != 50 {
			t.Errorf("30 agents were granted %d units, want the window's 50", sum)
		}
		g := one(t, s, ask("late", Window(50, period, start), start+period-1, 1, 1))
		if g.Tokens != 0 {
			t.Errorf("got %d units at the window's end, want 0", g.Tokens)
		}
		// The server's idea of the window is old by now: the store's clock decides.
		g = one(t, s, ask("next", Window(50, period, start), start+period, 1, 1))
		if g.Tokens < 1 || g.ValidFrom != start+period {
			t.Errorf("got %+v at the edge, want units of the next window", g)
		}
	})

	t.Run("parts of windows that nobody saw are kept for those who come back", func(t *testing.T) {
		const period = 1_000_000
		s := open(t)
		in := func(at int64) lease.Spec { return Window(1000, period, start+at-at%period) }
		var next [2]int64
		for at := int64(0); at < 900_000; at += 200_000 { // each asks for half, and has a part of the next window
			for i, name := range []string{"a", "b"} {
				r := ask(name, in(0), start+at+int64(i), at/200_000+1, 1)
				r.Admitted = at / 2_000
				if at > 0 {
					r.Window, r.Told, r.Heard = start, r.Admitted-100, at/200_000
				}
				next[i] = one(t, s, r).Next
			}
		}
		if next[0] < 400 || next[1] < 400 {
			t.Fatalf("the two have %d units of the next window, want a share each, about half", next)
		}
		// Two windows went by in which no server answered. Both went on with their parts, and a comes back.
		const back = 3_500_000
		r := ask("a", in(back), start+back, 6, 100)
		r.Admitted, r.Told, r.Window = 400+3*next[0], 400, start+3*period
		got := one(t, s, r).Tokens
		other := one(t, s, ask("new", in(back), start+back+1, 1, 1000)).Tokens
		if got+other > 1000-next[0]-next[1] {
			t.Errorf("a, who used its %d, got %d units and a newcomer %d: b's %d are not kept", next[0], got, other, next[1])
		}
		r = ask("b", in(back), start+back+2, 6, 0)
		r.Admitted, r.Told, r.Window, r.Final, r.Held = 400+2*next[1], 400, start+3*period, true, next[1]
		one(t, s, r)
		if g := one(t, s, ask("another", in(back), start+back+3, 1, 1000)); g.Tokens < next[1] {
			t.Errorf("b came back with all of its %d: another got %+v, want those", next[1], g)
		}
	})

	t.Run("what is reserved may come back", func(t *testing.T) {
		for name, spec := range map[string]lease.Spec{
			"bucket": Bucket(1, 100), "window": Window(100, 3600_000_000, start), "sliding window": Sliding(100, 3600_000_000, start), "log": Log(100, 3600_000_000),
		} {
			s := open(t)
			r := ask("a", spec, start, 1, 100)
			g := one(t, s, r)
			r.Number, r.Now, r.Window = 2, start+1000, g.ValidFrom
			r.Held, r.Waiting, r.Largest, r.Reserved = 100, 100, 1, 100
			if g = one(t, s, r); g.Tokens != 100 {
				t.Errorf("%s: got %+v, want the 100 units that are reserved", name, g)
			}
			if g := one(t, s, ask("b", spec, start+2000, 1, 10)); g.Tokens != 0 || g.DenyFor > lease.ShortTerm {
				t.Errorf("%s: another got %+v, want nothing, and to ask again soon", name, g)
			}
			r.Number, r.Now, r.Waiting, r.Largest, r.Reserved = 3, start+3000, 0, 0, 0
			r.Final = true
			one(t, s, r)
			if g := one(t, s, ask("b", spec, start+4000, 2, 100)); g.Tokens != 100 {
				t.Errorf("%s: another got %+v, want the 100 units that came back", name, g)
			}
		}
	})

	t.Run("a limit that changes keeps what was used", func(t *testing.T) {
		const period = 3_600_000_000
		s := open(t)
		one(t, s, ask("a", Window(100, period, start), start, 1, 100))
		if g := one(t, s, ask("b", Window(1000, period, start), start+1000, 1, 2000)); g.Tokens != 900 {
			t.Errorf("raised from 100 used to 1000: got %d units, want 900", g.Tokens)
		}
		s = open(t)
		one(t, s, ask("a", Bucket(1, 200), start, 1, 200))
		if g := one(t, s, ask("b", Bucket(1, 2000), start, 1, 3000)); g.Tokens != 1800 {
			t.Errorf("burst raised from 200, all used, to 2000: got %d tokens, want 1800", g.Tokens)
		}
		s = open(t)
		one(t, s, ask("a", Bucket(1, 1000), start, 1, 300))
		if g := one(t, s, ask("b", Bucket(1, 200), start, 1, 300)); g.Tokens != 0 || g.DenyFor > 1_000_000 {
			t.Errorf("burst lowered to 200, 300 used: got %+v, want no token, and one in a second", g)
		}
		if g := one(t, s, ask("b", Bucket(1, 200), start+3_000_000, 2, 300)); g.Tokens < 1 || g.Tokens > 3 {
			t.Errorf("3 s later: got %+v, want what came since: it is empty, and owes nothing", g)
		}
	})

	t.Run("a token a month comes after a month", func(t *testing.T) {
		const month = 30 * 86_400_000_000
		s := open(t)
		spec := Bucket(1, 1)
		spec.Period = month
		end := ask("a", spec, start, 2, 0)
		end.Final, end.Admitted = true, 1
		first := one(t, s, ask("a", spec, start, 1, 1))
		one(t, s, end) // a lease that is live would make a month look like a clock that leapt
		for _, at := range []int64{start + month - 1_000_000, start + month + 1_000} {
			g := one(t, s, ask("b", spec, at, at, 1))
			if want := int64(0); at > start+month {
				want = 1
				if g.Tokens != want {
					t.Errorf("after a month: got %d tokens, want %d", g.Tokens, want)
				}
			} else if g.Tokens != want || g.Reset > 4_000_000 {
				t.Errorf("a second before the month is over: got %d tokens, full in %d us; want 0, and at most 4 s", g.Tokens, g.Reset)
			}
		}
		if first.Tokens != 1 {
			t.Errorf("at first: got %d tokens, want 1", first.Tokens)
		}
	})

	t.Run("the largest bucket at the smallest rate is kept", func(t *testing.T) {
		s := open(t)
		spec := Bucket(1, limit.MaxUnits)
		spec.Period = 366 * 86_400_000_000
		g := one(t, s, ask("a", spec, start, 1, limit.MaxUnits))
		if g.Tokens != limit.MaxUnits || g.Reset <= 0 {
			t.Errorf("got %d tokens, full in %d us; want all, and a time above 0", g.Tokens, g.Reset)
		}
		if g := one(t, s, ask("b", spec, start+60_000_000, 1, 1)); g.Tokens != 0 {
			t.Errorf("a minute later: got %d tokens, want 0", g.Tokens)
		}
	})

	t.Run("a small burst at a high rate leaves room for those without a trickle", func(t *testing.T) {
		s := open(t)
		spec := Bucket(100, 1)
		admitted, told := map[string]int64{}, map[string]int64{}
		var sum int64
		now := start
		for n := int64(1); n <= 300; n++ {
			holder := fmt.Sprint("agent-", n%10)
			now += 10_000
			r := ask(holder, spec, now, n, 1)
			r.Admitted, r.Told = admitted[holder], told[holder]
			told[holder] = r.Admitted
			g := one(t, s, r)
			admitted[holder] += min(g.Tokens, 1)
			sum += min(g.Tokens, 1)
		}
		if sum < 150 {
			t.Errorf("in 3 s of requests at the rate, %d were served by the store, want 150 or more of 300", sum)
		}
	})

	t.Run("a store that forgot begins empty for a holder of a live lease", func(t *testing.T) {
		s := open(t)
		r := ask("a", Bucket(10, 20), start, 7, 5)
		r.ExpiresIn, r.Generation, r.Admitted, r.Told = 400_000, 3, 100, 95
		g := one(t, s, r)
		if g.Tokens != 0 || g.Generation != 4 {
			t.Errorf("got %d tokens of generation %d, want 0 of 4", g.Tokens, g.Generation)
		}
	})

	t.Run("what was void goes back as far as the bucket had room since, and what was void of an earlier lease is none of this one's", func(t *testing.T) {
		// A bucket of 1,000 is full until half a second before a renewal; its holder has had a lease for a second.
		after := func(void, ago int64) int64 {
			s := open(t)
			r := ask("a", Bucket(100, 1000), start, 1, 40)
			r.Largest = 1
			g := one(t, s, r)
			r.Number, r.Now, r.Waiting, r.Largest, r.Elapsed, r.Admitted, r.Told, r.Held = 2, start+second/2, 0, 0, second/2, 40, 0, g.Tokens-40
			g = one(t, s, r)
			r.Told = 40
			drain := ask("b", Bucket(100, 1000), start+second, 1, 900)
			drain.Largest = 1
			one(t, s, drain)
			r.Number, r.Now, r.Held, r.Void, r.VoidAgo, r.Elapsed = 3, start+3*second/2, g.Tokens, void, ago, second
			if g.Trickle == 0 || g.Tokens == 0 {
				t.Fatalf("the lease has %d tokens and trickles %d", g.Tokens, g.Trickle)
			}
			return one(t, s, r).Remaining
		}
		untold, all, half, before := after(0, 0), after(1000, 1), after(1000, second/2), after(1000, second)
		if all >= untold || half >= untold || before != untold {
			t.Errorf("%d are left if nothing is told of, %d if nothing of a lease of a second found room, %d if nothing of half of it, %d if that was before it; want fewer but for the last", untold, all, half, before)
		}
	})

	t.Run("nonsense is refused and changes nothing", func(t *testing.T) {
		s := open(t)
		good := ask("a", Bucket(1, 2), start, 1, 1)
		for name, spoil := range map[string]func(*lease.Renewal){
			"number 0":          func(r *lease.Renewal) { r.Number = 0 },
			"negative admitted": func(r *lease.Renewal) { r.Admitted = -1 },
			"rate 0":            func(r *lease.Renewal) { r.Spec.Units = 0 },
			"no key":            func(r *lease.Renewal) { r.Key = "" },
			"told too much":     func(r *lease.Renewal) { r.Told = 5 },
			"void, never":       func(r *lease.Renewal) { r.Void = 1 },
			"void of nothing":   func(r *lease.Renewal) { r.VoidAgo = 1 },
			"void too much":     func(r *lease.Renewal) { r.Void, r.VoidAgo = limit.MaxUnits+1, 1 },
		} {
			r := good
			spoil(&r)
			answers := s.Renew(context.Background(), []lease.Renewal{r, {}})
			if !errors.Is(answers[0].Err, lease.ErrInvalid) {
				t.Errorf("%s: got %v, want %v", name, answers[0].Err, lease.ErrInvalid)
			}
		}
		if g := one(t, s, good); g.Tokens != 1 {
			t.Errorf("got %d tokens, want 1", g.Tokens)
		}
	})

	t.Run("renewals of many buckets keep their order", func(t *testing.T) {
		s := open(t)
		var rs []lease.Renewal
		for i := range 1500 {
			r := ask("a", Bucket(10, int64(i%7+1)), start, 1, 100)
			r.Key = fmt.Sprint("bucket-{", i, "}")
			rs = append(rs, r)
		}
		for i, a := range s.Renew(context.Background(), rs) {
			if a.Err != nil || a.Grant.Tokens != int64(i%7+1) {
				t.Fatalf("bucket %d: got %+v, want %d tokens", i, a, i%7+1)
			}
		}
	})
}
