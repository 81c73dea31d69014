package bucket

const (
	// mostTouched bounds the units that a bucket admits on credit before its first
	// grant: a tenth of its capacity, at least 1 and at most so many. It
	// is what each agent may add to a limit that says first_touch: admit.
	mostTouched = 8
	// touchWithin is how long the renewal that reports them may wait for company, in microseconds.
	touchWithin = 50_000
)

// touchLocked admits the first units of a bucket on credit, where the limit says
// so; the first renewal reports them, and the store takes them out.
func (b *Bucket) touchLocked(now, n int64) bool {
	if !b.touch || b.met || int64(b.touched)+n > max(min(b.capacity/10, mostTouched), 1) {
		return false
	}
	if b.touched == 0 {
		b.expires = now + touchWithin
	}
	b.own().touched += uint8(n)
	b.admitLocked(n)
	return true
}
