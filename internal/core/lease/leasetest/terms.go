package leasetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// second is one, in microseconds.
const second = 1_000_000

// steady is a holder of a demand that stays: it renews when its term ends or, once it may ask, when it was denied.
type steady struct {
	r     lease.Renewal
	g     lease.Grant
	tally int64 // renewals
}

// renew answers the holder's renewal at now, of so many units asked for since the last: it spends what it may.
func (h *steady) renew(t *testing.T, s lease.Store, now, asked int64) {
	t.Helper()
	elapsed := now - h.r.Now
	spent := min(asked, h.g.Tokens+h.g.Trickle*elapsed/1_000_000/1_000_000)
	h.r.Told = h.r.Admitted
	h.r.Admitted, h.r.Denied = h.r.Admitted+spent, h.r.Denied+asked-spent
	h.r.Held = min(max(h.g.Tokens-spent, 0), h.g.Tokens)
	h.r.Trickle, h.r.ExpiresIn, h.r.Generation = h.g.Trickle, max(h.g.TTL-elapsed, 0), h.g.Generation
	h.r.Number, h.r.Now, h.r.Elapsed, h.r.Waiting = h.r.Number+1, now, elapsed, 0
	a := s.Renew(context.Background(), []lease.Renewal{h.r})[0]
	if a.Err != nil {
		t.Fatalf("renewal %d of %s: %v", h.r.Number, h.r.Holder, a.Err)
	}
	h.g = a.Grant
	h.tally++
}

// single answers the holder's renewal for one request that waits, which is admitted or denied by it, once what it held is spent.
func (h *steady) single(t *testing.T, s lease.Store, now int64) {
	t.Helper()
	elapsed := now - h.r.Now
	if h.r.Held = max(h.g.Tokens-h.r.Waiting, 0) + h.g.Trickle*elapsed/1_000_000/1_000_000; h.r.Held > 0 {
		h.r.Admitted++ // the request has one of these
		h.r.Held--
		h.r.Waiting = 0
	} else {
		h.r.Waiting = 1
	}
	h.r.Trickle, h.r.ExpiresIn, h.r.Generation = h.g.Trickle, max(h.g.TTL-elapsed, 0), h.g.Generation
	h.r.Number, h.r.Now, h.r.Elapsed, h.r.Largest = h.r.Number+1, now, elapsed, h.r.Waiting
	a := s.Renew(context.Background(), []lease.Renewal{h.r})[0]
	if a.Err != nil {
		t.Fatalf("renewal %d of %s: %v", h.r.Number, h.r.Holder, a.Err)
	}
	h.g, h.r.Told = a.Grant, h.r.Admitted
	if h.r.Waiting > 0 && h.g.Tokens > 0 {
		h.r.Admitted++
	} else if h.r.Waiting > 0 {
		h.r.Denied++
	}
	h.tally++
}

// begin makes n steady holders of a bucket, each with a first lease for one unit that waits.
func begin(t *testing.T, s lease.Store, spec lease.Spec, n int) []*steady {
	t.Helper()
	holders := make([]*steady, n)
	for i := range holders {
		h := &steady{r: ask(fmt.Sprint("agent-", i), spec, start+int64(i)*1000, 1, 1)}
		a := s.Renew(context.Background(), []lease.Renewal{h.r})[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		h.g = a.Grant
		holders[i] = h
	}
	return holders
}

// overloaded drives twenty holders of three requests a second each. From the given second on it calls each
// after every answer, and counts renewals and admitted units.
func overloaded(t *testing.T, s lease.Store, spec lease.Spec, from, seconds int64, each func(h *steady)) (holders []*steady, renewals, admitted int64) {
	t.Helper()
	const n, every = 20, second / 3
	holders = begin(t, s, spec, n)
	next := make([]int64, n)
	for i, h := range holders {
		next[i] = h.r.Now + every + int64(i)*every/n
		h.r.Number += int64(i) * 37 // numbers of theirs begin anywhere
	}
	for {
		i := 0
		for j := range next {
			if next[j] < next[i] {
				i = j
			}
		}
		at := next[i]
		if next[i] += every; at > start+(from+seconds)*second {
			return holders, renewals, admitted
		}
		h := holders[i]
		if at-h.r.Now < h.g.DenyFor {
			h.r.Denied++
			continue
		}
		before := h.r.Admitted
		if h.single(t, s, at); at > start+from*second {
			renewals++
			admitted += h.r.Admitted - before
			each(h)
		}
	}
}

// until has the holders ask for a unit each so many microseconds, each beginning at another time, and renew as their
// terms end, until end.
func until(t *testing.T, s lease.Store, holders []*steady, every, end int64) {
	t.Helper()
	for {
		next := holders[0]
		for _, h := range holders[1:] {
			if h.r.Now+h.g.TTL < next.r.Now+next.g.TTL {
				next = h
			}
		}
		at := next.r.Now + next.g.TTL - next.g.TTL/20
		if at > end {
			return
		}
		next.renew(t, s, at, at/every-next.r.Now/every)
	}
}

// terms is how long leases last while demand stays, and when it does not.
func terms(t *testing.T, open func(t *testing.T) lease.Store) {

	t.Run("where there is plenty terms grow to minutes, and end when demand is another", func(t *testing.T) {
		s := open(t)
		h := begin(t, s, Bucket(1000, 2000), 1)
		until(t, s, h, second/20, start+300*second)
		if h[0].g.TTL != lease.LongestTerm {
			t.Fatalf("got a term of %d us after 5 minutes of 20 a second; want %d", h[0].g.TTL, lease.LongestTerm)
		}
		h[0].renew(t, s, h[0].r.Now+60*second, 60*200)
		if h[0].g.TTL > lease.LongTerm {
			t.Errorf("got a term of %d us when demand is ten times as much; want at most %d", h[0].g.TTL, lease.LongTerm)
		}
	})

	t.Run("most of it in use is not plenty, and a strict limit's terms do not grow", func(t *testing.T) {
		for name, spec := range map[string]lease.Spec{"most in use": Bucket(23, 2000), "strict": Bucket(1000, 2000)} {
			if name == "strict" {
				spec.EpsilonPPM = 0
			}
			s := open(t)
			h := begin(t, s, spec, 1)
			until(t, s, h, second/20, start+300*second)
			if h[0].g.TTL > lease.LongTerm {
				t.Errorf("%s: got a term of %d us; want at most %d", name, h[0].g.TTL, lease.LongTerm)
			}
		}
	})

	t.Run("what a lost holder had is others' ten seconds and a sixteenth of its term after that, and not before", func(t *testing.T) {
		s := open(t)
		spec := Bucket(1000, 2000)
		h := begin(t, s, spec, 1)
		until(t, s, h, second/20, start+300*second)
		expires := h[0].r.Now + h[0].g.TTL
		for i, c := range []struct {
			at    int64
			drawn bool
		}{{expires + lease.LongTerm - second, true}, {expires + lease.LongTerm + h[0].g.TTL/16 + second, false}} {
			r := ask("other", spec, c.at, int64(i+1), 0)
			r.Final = true
			a := s.Renew(context.Background(), []lease.Renewal{r})[0]
			if a.Err != nil || (a.Grant.Drawn > 0) != c.drawn {
				t.Errorf("%d us after the term: got %+v; want a trickle that is drawn: %v", c.at-expires, a, c.drawn)
			}
		}
	})

	t.Run("an idle bucket of long terms is refilled for all of them", func(t *testing.T) {
		s := open(t)
		spec := Bucket(100, 20_000)
		h := begin(t, s, spec, 1)
		until(t, s, h, second/20, start+300*second)
		at := h[0].r.Now + 100*second
		h[0].renew(t, s, at, 100*20)
		if g := h[0].g; g.Remaining < 20_000-2000 {
			t.Errorf("got %+v after 100 s of a fifth of the rate; want a bucket nearly full", g)
		}
	})

	t.Run("small shares of a dry bucket ask for each request, and not much more often than there are tokens", func(t *testing.T) {
		const seconds = 200
		_, renewals, admitted := overloaded(t, open(t), Bucket(20, 400), 100, seconds, func(h *steady) {
			if h.g.Trickle > 0 || h.g.Tokens > 1 {
				t.Fatalf("%s: got %+v; want the token that was asked for and no more", h.r.Holder, h.g)
			}
		})
		if want := int64(20 * seconds); admitted < want-2 || admitted > want+2 {
			t.Errorf("admitted %d in %d s; want %d, and two more or less", admitted, seconds, want)
		}
		if renewals > 2*20*seconds {
			t.Errorf("got %d renewals for %d tokens and %d requests; want at most two a token", renewals, 20*seconds, 60*seconds)
		}
	})

	t.Run("where its share of the burst is many tokens, small shares of a dry bucket become trickles", func(t *testing.T) {
		const seconds = 400
		trickles := make(map[string]bool)
		h, _, admitted := overloaded(t, open(t), Bucket(20, 2400), 150, seconds, func(h *steady) {
			if h.g.Drawn > 20_000_000 {
				t.Fatalf("%s: got %+v; want trickles of no more than the rate in all", h.r.Holder, h.g)
			}
			if h.g.Trickle > 0 {
				trickles[h.r.Holder] = true
			}
		})
		if len(trickles) < len(h)/2 {
			t.Errorf("%d of %d holders have trickles after %d s; want at least half", len(trickles), len(h), seconds)
		}
		if most := int64(20*seconds + 20); admitted > most || admitted < most*9/10 {
			t.Errorf("admitted %d in %d s; want about %d", admitted, seconds, most)
		}
	})

	t.Run("a holder that comes late after a loss proves no other", func(t *testing.T) {
		spec := Bucket(1000, 2000)
		h := begin(t, open(t), spec, 2)
		s := open(t) // and the first one is lost
		var gens [2]int64
		for i, at := range []int64{start + 20*second, start + 60*second} {
			h[i].g.TTL, h[i].g.Trickle = lease.LongestTerm, 20_000_000
			h[i].renew(t, s, at, 1)
			gens[i] = h[i].g.Generation
		}
		if gens[0] < 2 || gens[1] != gens[0] {
			t.Errorf("got generations %v; want the first to prove a loss, and the second none", gens)
		}
	})
}
