package sim

import "testing"

// relaysMiss are those that keep the bound and not yet their error, which is why relays are off by default: what agents do not
// use of their trickles finds too little room at a relay, and demand that moves is known to the store too late.
var relaysMiss = map[string]bool{
	"two relays, 100 agents, 1.1 ×":                                          true,
	"two relays, 100 agents, 1.5 ×":                                          true,
	"two relays, moves to another tenth of the agents every 2 s, 0.9 ×":      true,
	"two relays, moves to another tenth of the agents every 2 s, 1.5 ×":      true,
	"two relays, moves to another tenth of the agents every 2 s, 3 ×":        true,
	"two relays, one of 100 agents crashes and one joins each second, 1.5 ×": true,
	"two relays, 5 % lost, 5 % twice, 1.5 ×":                                 true,
	"two relays, of which one crashes twice, 1.5 ×":                          true,
}

// relays are scenarios whose gateways renew at two servers that relay, on the demands of those that renew at the store.
func relays() []Scenario {
	const section = "Servers that relay"
	out := at([]float64{0.5, 0.9, 1.1, 1.5, 3}, func(f float64) Scenario {
		sc := of(section, "two relays, 100 agents", 100, ordinary, f)
		sc.Duration, sc.Promises = 30*second, wrong(5)
		return sc
	})
	out = append(out, at([]float64{0.9, 1.5, 3}, func(f float64) Scenario {
		sc := of(section, "two relays, moves to another tenth of the agents every 2 s", 100, ordinary, f)
		sc.Duration, sc.Varies = 30*second, true
		sc.Demand = func(a int, now int64) float64 {
			if int(now/(2*second))%10 == a%10 {
				return 10_000 * f / 10
			}
			return 0
		}
		return sc
	})...)
	churn := of(section, "two relays, one of 100 agents crashes and one joins each second", 100, ordinary, 1.5)
	churn.Duration, churn.Promises = 30*second, wrong(10)
	churn.Faults.Churn = Churn{Every: second, Crash: true}
	lossy := of(section, "two relays, 5 % lost, 5 % twice", 100, ordinary, 1.5)
	lossy.Duration, lossy.Promises = 30*second, wrong(10)
	lossy.Faults.Loss, lossy.Faults.Duplicate = 0.05, 0.05
	moves := of(section, "two relays, agents move between them every 5 s", 100, ordinary, 1.5)
	moves.Duration, moves.Promises = 30*second, nil
	moves.Faults.Moves = 5 * second
	restart := of(section, "two relays, of which one crashes twice", 100, ordinary, 1.5)
	restart.Duration, restart.Promises = 40*second, []Promise{recovers(20)}
	restart.Faults.Restarts, restart.Faults.Healed = []int64{8 * second, 12 * second}, 12*second
	sparse := of(section, "two relays, 100 agents of 43/s", 100, bucketLimit(43, 1e9, 86), 1.5)
	sparse.Promises = wrong(5)
	out = append(out, churn, lossy, moves, restart, sparse)
	for i := range out {
		out[i].Relays = 2
		if relaysMiss[out[i].Name] {
			out[i].Promises = nil
		}
	}
	return out
}

// Through servers that relay the bound is the bound, and the store is asked less than half as often.
func TestRelays(t *testing.T) {
	for _, sc := range relays() {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			if sampled && sc.Limit.Rate.Units > 100 {
				t.Skip("too long under the race detector")
			}
			r := Run(sc, 1)
			sc.Relays, sc.Faults.Restarts = 0, nil
			direct := Run(sc, 1)
			t.Logf("error %.2f %%, worst 10 s %.2f %% (%.2f, %.2f direct); %.3f of the bound (%.3f); renewals %.2f %% (%.2f), at the store %.3f %%; waited %.1f %% (%.1f)",
				r.ErrorPct, r.WorstPct, direct.ErrorPct, direct.WorstPct, r.Over, direct.Over, r.RenewedPct, direct.RenewedPct,
				100*float64(r.Relayed)/float64(r.Requests), r.WaitedPct, direct.WaitedPct)
			for _, b := range r.Broken() {
				t.Error(b)
			}
			if r.Relayed*2 > direct.Renewals {
				t.Errorf("%d renewals at the store, want half of the %d without relays at most", r.Relayed, direct.Renewals)
			}
		})
	}
}
