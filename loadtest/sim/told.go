package sim

// noticed is how long servers take to notice that the store forgot: they look this often.
const noticed = 250 * millisecond

// What internal/core/session has (redeclare.go): renewals that a loss asks for are spread over anewOver, and so much more for each.
const (
	anewOver = 300 * millisecond
	anewEach = 50
	anewMost = 5 * second
)

// tell has servers tell every agent that leases of before the loss are to be renewed; those that cannot be reached, when
// they follow changes again.
func (w *world) tell(lost int64) {
	for _, g := range w.gateways {
		w.after(w.latency(), func() { g.run(func() { g.anew(lost) }) })
	}
}

func (g *gateway) anew(lost int64) {
	if ok, _ := g.w.sc.Faults.reachable(g.place, g.w.now); !ok {
		g.w.after(second, func() { g.run(func() { g.anew(lost) }) })
		return
	}
	if lost <= g.lost {
		return
	}
	g.lost = lost
	var leased []*line
	for _, l := range g.held {
		if l != nil && (l.flying || l.bucket.State(g.clock()).Live) {
			leased = append(leased, l)
		}
	}
	over := min(anewOver+anewEach*int64(len(leased)), anewMost)
	for _, l := range leased {
		at := g.w.now + 1 + g.w.network.Int64N(over)
		if l.forced == 0 || at < l.forced {
			l.forced = at
		}
		l.plan()
	}
}
