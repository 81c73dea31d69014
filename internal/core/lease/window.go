package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// nextLead is how long before its edge a fixed window grants of the next one, at most a
// quarter of the window; a lease that ends with the window is renewed about then.
const nextLead = 2_000_000

// turn begins a new window when the store's clock has come to it.
func (x *step) turn() {
	p := &x.r.Spec
	if !p.Windowed() && !p.Sliding() {
		return
	}
	start, end := x.present()
	switch {
	case p.Sliding():
		x.turnSliding(start, end)
		return
	case start <= x.Window:
		if end > x.Window { // else a clock is behind that says so
			x.WindowEnd = end // windows became longer or shorter, or begin at other times: this one goes on until the next begins
		}
		return
	}
	// What was borrowed of the old window is taken out of the new one, and so is
	// what was granted of the new one already.
	borrowed := min(x.Level+x.Forgiven, 0)
	if p.Borrow == 0 {
		borrowed = 0
	}
	if x.WindowEnd != start {
		x.dropNext() // of a window that nobody saw
	}
	x.Level = x.burst + max(borrowed, -p.Borrow*limit.Micro) - x.Out.Next - x.Out.Pile
	x.Window, x.WindowEnd = start, end
	x.Withheld, x.Forgiven = 0, 0
	x.Unsure, x.Moved, x.Lapsed, x.Spent, x.Returned = 0, x.now, false, 0, 0
	x.Out = x.Out.turned()
	for i := range x.Ring {
		x.Ring[i].Sums = x.Ring[i].turned()
	}
}

// present is the window that the store's clock is in, by the limit.
func (x *step) present() (start, end int64) {
	p := &x.r.Spec
	if x.now >= p.WindowEnd {
		return p.WindowEnd, p.NextWindowEnd
	}
	return p.WindowStart, p.WindowEnd
}

// dropNext forgets what was granted of a window that is over by now.
func (x *step) dropNext() {
	x.Out.Next = 0
	for i := range x.Ring {
		x.Ring[i].Next = 0
	}
}

// lead reports whether the window's edge is so near that a lease may reach across it.
func (x *step) lead() bool {
	left := x.WindowEnd - x.now
	return x.Algorithm == limit.FixedWindow && left > 0 && left <= min(nextLead, (x.WindowEnd-x.Window)/4) &&
		x.r.Spec.Lockout == 0
}

// grantNext gives the holder its part of the window to come: half its share, for what
// it may use in the first seconds, so that no request waits when the window turns.
func (x *step) grantNext(mine, all int64) int64 {
	next := mulDiv(max(x.burst-x.Out.Next, 0), mine, all) / 2
	next = whole(min(next, mine*10_000))
	if next < fewest*limit.Micro {
		return 0
	}
	x.next.NextWindow = x.WindowEnd
	x.next.Lease.Next = next
	return next / limit.Micro
}
