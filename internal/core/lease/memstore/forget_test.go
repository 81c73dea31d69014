package memstore_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
)

const (
	second   = int64(1_000_000)
	day      = 24 * 3600 * second
	midnight = int64(20_000) * day
)

// renewed is the one renewal's grant.
func renewed(t *testing.T, s lease.Store, r lease.Renewal) lease.Grant {
	t.Helper()
	a := s.Renew(context.Background(), []lease.Renewal{r})[0]
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.Grant
}

// othersCome makes the store look at each of its buckets, and drop what may be forgotten.
func othersCome(t *testing.T, s lease.Store, now int64) {
	t.Helper()
	for i := range 20_000 {
		renewed(t, s, lease.Renewal{Key: "other" + strconv.Itoa(i), Spec: leasetest.Window(10, day, now), Holder: "other/1", Now: now, Number: 1, Began: 1, Waiting: 1})
	}
}

// What a day borrowed is owed by the next, also where nobody came by for minutes after midnight.
func TestDebtOutlivesItsWindow(t *testing.T) {
	for _, idle := range []bool{false, true} {
		s, now := memstore.New(), midnight+20*3600*second
		spec := func() lease.Spec { w := leasetest.Window(10_000, day, now); w.Borrow = 500; return w }
		g := renewed(t, s, lease.Renewal{Key: "k", Spec: spec(), Holder: "a/1", Now: now, Number: 1, Began: 1, Waiting: 20_000, Largest: 1})
		if g.Tokens != 10_500 {
			t.Fatalf("%d tokens of a day of 10,000 that may borrow 500", g.Tokens)
		}
		now += second
		renewed(t, s, lease.Renewal{Key: "k", Spec: spec(), Holder: "a/1", Now: now, Number: 2, Began: 1, Admitted: g.Tokens, Final: true})
		if now = midnight + day + 300*second; idle {
			othersCome(t, s, now)
		}
		g = renewed(t, s, lease.Renewal{Key: "k", Spec: spec(), Holder: "b/1", Now: now, Number: 1, Began: 1, Waiting: 20_000, Largest: 1})
		if g.Tokens > 10_000 {
			t.Errorf("others came, %v: the day after one that borrowed 500 gives %d; want at most 10,000, 500 of them borrowed again", idle, g.Tokens)
		}
		now = midnight + 2*day + day/2
		othersCome(t, s, now)
		g = renewed(t, s, lease.Renewal{Key: "k", Spec: spec(), Holder: "c/1", Now: now, Number: 1, Began: 1, Waiting: 20_000, Largest: 1})
		if g.Tokens > 10_000 {
			t.Errorf("others came, %v: the third day gives %d after the second borrowed 500", idle, g.Tokens)
		}
	}
}

// What was leased of the coming day counts in it, also where its holder was never heard of again.
func TestLeasedAheadOutlivesItsWindow(t *testing.T) {
	for _, idle := range []bool{false, true} {
		s, now := memstore.New(), midnight+day-10*second
		var g lease.Grant
		for number, admitted := int64(1), int64(0); now < midnight+day-second/2; number, now = number+1, now+second/2 {
			r := lease.Renewal{Key: "k", Spec: leasetest.Window(1000, day, now), Holder: "a/1", Now: now, Number: number, Began: 1, Waiting: 1, Largest: 1, Window: midnight}
			if number > 1 {
				spent := min(g.Tokens, 30)
				r.Told, admitted = admitted, admitted+spent
				r.Admitted, r.Held, r.Generation = admitted, g.Tokens-spent, g.Generation
			}
			g = renewed(t, s, r)
		}
		if g.Next == 0 {
			t.Fatal("nothing was leased of the day to come, which this is about")
		}
		if now = midnight + day + 60*second; idle {
			othersCome(t, s, now)
		}
		b := renewed(t, s, lease.Renewal{Key: "k", Spec: leasetest.Window(1000, day, now), Holder: "b/1", Now: now, Number: 1, Began: 1, Waiting: 5000, Largest: 1})
		if all := g.Next + b.Tokens; all > 1000 {
			t.Errorf("others came, %v: %d of 1,000 in one day", idle, all)
		}
	}
}
