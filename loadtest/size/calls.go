package size

// planned is the renewals of one gateway that nobody waits for.
type planned struct {
	leases   float64
	renewals float64 // a second
}

func (p *planned) add(leases, renewals float64) {
	p.leases, p.renewals = p.leases+leases, p.renewals+renewals
}

// callsOf is how many calls a gateway makes a second for its leases.
//
// A renewal that requests wait for is sent at once, or with those that came while the call before was under way.
// pressing counts these a second. A renewal that is due takes along all leases that will be due within half of a
// twentieth of their term. That is a fortieth of similar leases (internal/core/renewal/due.go,
// internal/core/bucket/renew.go). Nothing is sent before a round trip is over, or before a tenth of a second, which is
// the longest that a call waits.
func callsOf(plans []planned, pressing, roundTrip float64) float64 {
	trip := min(max(roundTrip, leastTrip), mostTrip)
	calls := pressing
	for _, p := range plans {
		calls += p.renewals / (1 + p.leases/lead)
	}
	return calls / (1 + calls*trip)
}
