package lease_test

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// While there is plenty of a large burst, holders have so much at once that few requests refill from a trickle.
// Strained holders have more. At most a quarter of the level lies with all of them.
func TestStockWhereThereIsPlenty(t *testing.T) {
	const second, holders = 1_000_000, 20
	for _, c := range []struct {
		burst, strain, first, then int64
	}{
		{120_000, 1, 235, 149}, // an eighth of a 64th of the burst; half a minute's use
		{12_000, 1, 24, 32},    // of twelve seconds of the rate less
		{120_000, lease.MaxStrain, 128, 256},
		{12_000, lease.MaxStrain, 46, 108}, // a 256th of what is there; a quarter of its share of what the others left
	} {
		s := memstore.New()
		r := lease.Renewal{
			Key: "k", Spec: lease.Spec{Algorithm: limit.TokenBucket, Units: 1000, Period: second, Burst: c.burst, EpsilonPPM: 50_000},
			Number: 1, Began: 1, Waiting: 1, Largest: 1, Strain: c.strain, Now: 1_760_000_000_000_000,
		}
		for round := range 3 {
			out := int64(0)
			for i := range holders {
				r.Holder = fmt.Sprint("h", i)
				g := s.Renew(t.Context(), []lease.Renewal{r})[0].Grant
				want := c.first
				switch round {
				case 1:
					continue // of those that come after it nothing is known yet
				case 2:
					want = c.then
				}
				if i == 0 && g.Tokens != want {
					t.Errorf("burst %d, strain %d, round %d: %d tokens, want %d", c.burst, c.strain, round, g.Tokens, want)
				}
				out += g.Tokens
			}
			if 4*out > c.burst+4*holders {
				t.Errorf("burst %d, strain %d, round %d: %d tokens are out", c.burst, c.strain, round, out)
			}
			// All used what they had, five a second.
			r.Now += 20 * second
			r.Number, r.Admitted, r.Waiting, r.Largest = r.Number+1, r.Admitted+100, 0, 0
		}
	}
}

// In an overloaded bucket, an eighth full, a heavily strained holder lives on its share for three quarters of
// its term. Less strained ones ask. So do holders of large requests, which have no share to live on.
func TestStrainedHoldersLiveOnTheirShare(t *testing.T) {
	const second, holders, rounds = 1_000_000, 100, 4
	for _, c := range []struct {
		name            string
		strain, largest int64
		lives           bool
	}{
		{"heavily strained", lease.MaxStrain, 1, true},
		{"strained", 4, 1, false},
		{"not strained", 1, 1, false},
		{"large requests", lease.MaxStrain, 30, false},
	} {
		s := memstore.New()
		r := lease.Renewal{
			Key: "k", Spec: lease.Spec{Algorithm: limit.TokenBucket, Units: 100, Period: second, Burst: 12_000, EpsilonPPM: 50_000},
			Number: 1, Began: 1, Waiting: c.largest, Largest: c.largest, Strain: c.strain, Now: 1_760_000_000_000_000,
		}
		renew := func(r lease.Renewal) lease.Grant {
			a := s.Renew(t.Context(), []lease.Renewal{r})[0]
			if a.Err != nil {
				t.Fatalf("%s: %v", c.name, a.Err)
			}
			return a.Grant
		}
		before := r
		before.Holder, before.Admitted, before.Waiting, before.Largest, before.Final = "before", 10_500, 0, 0, true
		renew(before)
		lives := 0
		for round := range rounds {
			for i := range holders {
				r.Holder = fmt.Sprint("h", i)
				g := renew(r)
				if round == rounds-1 && g.Tokens > 0 && g.DenyFor >= g.TTL/4*3 {
					lives++
				}
				if c.largest > 1 && g.DenyFor > lease.TooLarge {
					t.Errorf("%s: denied for %d us, of a bucket that has some", c.name, g.DenyFor)
				}
			}
			r.Now += 5 * second
			r.Number, r.Denied, r.Waiting, r.Largest = r.Number+1, r.Denied+10*c.largest, 0, 0 // two requests a second each
		}
		if lives > holders/2 != c.lives || !c.lives && lives > 0 {
			t.Errorf("%s: %d of %d have a stock and deny beyond it for three quarters of their term", c.name, lives, holders)
		}
	}
}

// In a nearly dry, overloaded bucket, a heavily strained holder with a worthwhile trickle lives on it for half
// its term. A less strained one asks for what the trickles leave, and denies for two seconds at most.
func TestStrainedHoldersLiveOnTheirTrickle(t *testing.T) {
	const second, holders, rounds = 1_000_000, 20, 10
	for _, strain := range []int64{lease.MaxStrain, 4} {
		s := memstore.New()
		r := lease.Renewal{
			Key: "k", Spec: lease.Spec{Algorithm: limit.TokenBucket, Units: 1000, Period: second, Burst: 1000, EpsilonPPM: 50_000},
			Number: 1, Began: 1, Waiting: 10, Largest: 1, Strain: strain, Now: 1_760_000_000_000_000,
		}
		lives := 0
		for round := range rounds {
			for i := range holders {
				r.Holder = fmt.Sprint("h", i)
				a := s.Renew(t.Context(), []lease.Renewal{r})[0]
				if a.Err != nil {
					t.Fatal(a.Err)
				}
				if g := a.Grant; round == rounds-1 && g.Trickle >= 4_000_000 && g.TTL > 4*second && g.DenyFor >= g.TTL/2 {
					lives++
				}
			}
			// Three times the rate is asked for, and a little less than the rate admitted.
			r.Now += 5 * second
			r.Number, r.Admitted, r.Denied, r.Waiting, r.Largest = r.Number+1, r.Admitted+245, r.Denied+500, 0, 0
		}
		if heavily := strain == lease.MaxStrain; heavily && lives < holders/2 || !heavily && lives > 0 {
			t.Errorf("strain %d: %d of %d live on their trickle for half of their term", strain, lives, holders)
		}
	}
}
