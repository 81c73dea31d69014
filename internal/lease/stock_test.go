package lease_test

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/memstore"
	"github.com/f4ee788f/quota/internal/limit"
)

// Holders have so much at once, where there is plenty of a large burst, that few of their requests refill from a trickle, strained ones more; and
// no more than a quarter of what is there lies with all of them.
func TestStockWhereThereIsPlenty(t *testing.T) {
	const second, holders = 1_000_000, 20
	for _, c := range []struct {
		burst, strain, first, then int64
	}{
		{120_000, 1, 3, 149}, // half a minute's use
		{12_000, 1, 3, 32},   // of twelve seconds of the rate less
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
