package limit

// Overage is the limit on what a soft limit admits above itself. It has the same requests and buckets, and
// OveragePPM of the rate and burst. Both are rounded down to whole units, and are at least one. Without a cap
// it only counts.
func (l *Limit) Overage() Limit {
	out := *l
	out.Enforcement, out.OveragePPM, out.Borrow, out.Lockout, out.FirstTouch = Hard, 0, 0, 0, TouchAsk
	out.Allow, out.Deny, out.Reserve, out.Variants = nil, nil, Reserve{}, nil
	if l.OveragePPM == 0 {
		out.Rate, out.Burst, out.Slots = Rate{}, 0, 0
		return out
	}
	part := func(n int64) int64 {
		if n == 0 {
			return 0
		}
		// n is at most MaxUnits and the part at most a thousandfold: below 2^63.
		whole, rest := n/Micro, n%Micro
		return min(max(whole*l.OveragePPM+rest*l.OveragePPM/Micro, 1), MaxUnits)
	}
	out.Rate.Units, out.Burst = part(l.Rate.Units), part(l.Burst)
	return out
}

// soft reports whether the limit has buckets for its overage.
func (l *Limit) soft() bool { return l.Enforcement == Soft && l.Rate.Units > 0 }
