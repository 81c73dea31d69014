package agent

// denials counts units that a bucket denied, apart from its cell: those who deny at once on several
// processors mostly count in different places, where one count would go to and fro between them
// (denied from two threads in loadtest/bench/decision).
type denials [8]struct {
	n counter
	_ [56]byte // to a cache line
}

// denialsFrom is of how many denials without the mutex one looks whether they are to be counted apart: a
// bucket that denies now and then does without.
const denialsFrom = 1024

func (d *denials) add() { d[stripe()%uint32(len(d))].n.Add(1) }

func (d *denials) sum() (n int64) {
	for i := range d {
		n += d[i].n.Load()
	}
	return n
}

// countApart has denials counted apart from now on.
func (b *Bucket) countApart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.rarely(); s.denials.Load() == nil {
		s.denials.Store(new(denials))
	}
}

// denied returns the units denied so far.
func (b *Bucket) denied() int64 {
	n := b.cell.denied()
	if s := b.seldom.Load(); s != nil && s.denials.Load() != nil {
		n += s.denials.Load().sum()
	}
	return n
}
