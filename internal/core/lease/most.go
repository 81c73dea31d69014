package lease

// What a lease is worth, for those who add leases up: servers and agents come to the
// same figures, for both count what was on the wire, whose terms are whole milliseconds.

// Most returns the most units that the lease lets its holder spend: at once, of the
// next window, and by its trickle over the whole term.
func (g *Grant) Most() int64 { return g.Tokens + g.Next + trickled(g.Trickle, g.TTL) }

// Unrun returns the units that the lease which the renewal ends would still have
// brought by its trickle.
func (r *Renewal) Unrun() int64 { return trickled(r.Trickle, r.ExpiresIn) }

func trickled(trickle, micros int64) int64 {
	return int64(float64(float64(trickle)*float64(micros/1000)) / 1e9)
}
