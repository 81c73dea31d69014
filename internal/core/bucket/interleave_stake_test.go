//go:build interleave

package bucket

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A reservation of two units is settled while requests take from its bucket and give back. A crash at any store bills
// what it cost, to the unit, and of requests under way no more than they take. With torn the step of the bucket and the
// stake's note of it are apart, which an order has to show.
func TestInterleavingsOfAStake(t *testing.T) {
	for _, torn := range []bool{false, true} {
		for _, cost := range []int64{0, 1, 2, 4} {
			fault, states := explore(t, func() scene {
				at, stake := new(Cell), new(Stake)
				b := New(TermsAlone(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 9}), at, false, 0)
				b.Apply(sceneTime, lease.Grant{Number: b.Renew(sceneTime, false).Number, Tokens: 4, TTL: 10_000_000})
				b.Hold(2)
				b.Take(2)
				b.Reserve(2, b.Window())
				stake.Use(1, cost)
				stake.Reserve(2)
				var taken, flying int64
				return scene{
					actors: []func(){
						func() {
							if torn {
								stake.settled()
							}
							b.Settle(2, cost, b.Window(), stake)
						},
						func() {
							flying++
							if b.Take(1) {
								taken++
							}
							flying--
						},
						func() {
							flying++
							b.Hold(1)
							if b.Take(1) {
								b.PutBack(1)
							}
							b.Release(1)
							flying--
							collect(b)
						},
					},
					state: func() []int64 {
						c, h := &b.stock, b.stock.shared.Load()
						return append([]int64{
							c.tokens.v, c.back.v, c.pending.v, c.refused.v, c.in, h.folded.v, b.debt, b.all, b.reserved, taken, flying,
							stake.put.v, stake.phase.v, b.collectedAdmitted,
						}, at.state()...)
					},
					always: func() string {
						var k Crash
						k.Add(stake, at, 1, false)
						if got := at.TakenOwn(k); got < taken+cost || got > taken+cost+flying {
							return fmt.Sprintf("a crash bills %d units: %d were taken and %d reserved ones spent, and %d are under way", got, taken, cost, flying)
						}
						if b.collectedAdmitted > taken+cost+flying {
							return fmt.Sprintf("%d units are told to the ledger, of %d taken and %d spent", b.collectedAdmitted, taken, cost)
						}
						return ""
					},
					atEnd: func() string {
						collect(b)
						if admitted := b.collectedAdmitted; admitted != taken+cost {
							return fmt.Sprintf("%d units are counted, of %d taken and %d spent", admitted, taken, cost)
						}
						if have := b.State(sceneTime).Tokens - b.debt; have != 4-taken-cost {
							return fmt.Sprintf("%d units are left, of 4 less %d taken and %d spent", have, taken, cost)
						}
						return ""
					},
				}
			})
			t.Logf("cost %d, torn %v: %d states, %s", cost, torn, states, fault)
			if (fault != "") != (torn && cost != 2) {
				t.Errorf("cost %d, torn %v: fault %q", cost, torn, fault)
			}
		}
	}
}
