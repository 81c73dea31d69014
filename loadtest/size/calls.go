package size

// planned is what one gateway renews although nobody waits for it.
type planned struct {
	leases   float64
	renewals float64 // a second
}

func (p *planned) add(leases, renewals float64) {
	p.leases, p.renewals = p.leases+leases, p.renewals+renewals
}

// callsOf is how many calls a gateway makes a second for its leases.
//
// What requests wait for, pressing renewals a second, is sent at once, or with what came while the call before was under way. What is due goes with
// all leases that will be within half of a twentieth of their term (internal/core/session/due.go, internal/core/bucket/renew.go), a
// fortieth of those that are alike. Nothing is sent before a round trip is over, or the tenth of a second that a call waits at most.
func callsOf(plans []planned, pressing, roundTrip float64) float64 {
	trip := min(max(roundTrip, leastTrip), mostTrip)
	calls := pressing
	for _, p := range plans {
		calls += p.renewals / (1 + p.leases/lead)
	}
	return calls / (1 + calls*trip)
}
