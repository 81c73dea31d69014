package server_test

import (
	"sync/atomic"
	"testing"
	"time"
)

// A shard of the lease store is away for 15 s and comes back empty, when a quarter of an hour's quota is left. What
// gateways admitted meanwhile the ledger knows, and they report it to the store as well: taken off twice, it is granted
// again once the ledger is complete.
func TestWhatIsUsedWhileAShardIsAwayCountsOnce(t *testing.T) {
	shardBack(t, 15*time.Second, false, func(t *testing.T, perSecond []int64, total int64) {
		if total < 1990 || total > 2000*105/100 {
			t.Errorf("admitted %d of 2000; by the second %v", total, perSecond)
		}
	})
}

// Where a gateway is silent from the loss on, the ledger cannot say for the others what it used: it is waited for half
// a minute, in which there is what ε allows and what others declare.
func TestASilentGatewayIsWaitedForHalfAMinuteAfterALoss(t *testing.T) {
	shardBack(t, 0, true, func(t *testing.T, perSecond []int64, total int64) {
		denied := 0
		for _, n := range perSecond[:60] {
			if n == 0 {
				denied++
			}
		}
		if denied > 31 {
			t.Errorf("denied for %d s with a quarter of the quota left; by the second %v", denied, perSecond)
		}
		if total > 2000*105/100 {
			t.Errorf("admitted %d of 2000", total)
		}
	})
}

// shardBack has three gateways ask for 12 requests a second, of 2,000 an hour, until a quarter of them is left; then
// the lease store forgets everything, and is away for so long. A fourth gateway is cut off from then on where it is
// silent.
func shardBack(t *testing.T, away time.Duration, silent bool, check func(*testing.T, []int64, int64)) {
	inWorld(t, noon, `
plans: {p: {limits: [{name: calls, algorithm: fixed_window, rate: 2000/hour, meter: calls}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		still := new(standing)
		s := newForgetful()
		w.stop()
		w.leases = &standingLeases{forgetful: s, standing: still}
		w.start()
		var cut atomic.Bool
		a, b, c, d := w.gateway("a"), w.gateway("b"), w.gateway("c"), w.gateway("d", w.cut(&cut))
		total := allow(40, acme(), d)
		drive := func(d time.Duration) (perSecond []int64) {
			for range d / time.Second {
				n := int64(0)
				for range 4 {
					n += allow(1, acme(), a, b, c)
					time.Sleep(250 * time.Millisecond)
				}
				total += n
				perSecond = append(perSecond, n)
			}
			return perSecond
		}
		drive(122 * time.Second)
		cut.Store(silent)
		still.on.Store(away > 0)
		s.forget()
		drive(away)
		still.on.Store(false)
		perSecond := drive(2 * time.Minute)
		check(t, perSecond, total)
		cut.Store(false)
		w.shut(a, b, c, d)
	})
}
