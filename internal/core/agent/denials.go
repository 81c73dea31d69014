package agent

// denials counts units that a bucket denied, apart from its cell: those who deny at once on several
// processors mostly count in different places, where one count would go to and fro between them
// (denied from two threads in loadtest/bench/decision).
type denials [8]struct {
	n counter
	_ [56]byte // to a cache line
}

// denialsFrom is how many denials without the mutex a bucket counts in its cell, or by its tokens while these say so, in any case. Beyond them they are counted apart
// once two at the same time were in each other's way: where none are, the cell is nearer.
const denialsFrom = 1024

// add counts one, and returns how many its place has.
func (d *denials) add() int64 { return d[stripe()%uint32(len(d))].n.Add(1) }

func (d *denials) sum() (n int64) {
	for i := range d {
		n += d[i].n.Load()
	}
	return n
}

// countApart has denials counted apart from now on.
func (of *Bucket) countApart() {
	b := of.open(new(hand))
	defer b.close()
	s := b.rarely()
	if s.denials.Load() == nil {
		s.denials.Store(new(denials))
	}
	if b.has(lodged) {
		b.reopenLocked() // the next denial has the tokens say it anew
	}
}

// denied returns the units denied so far.
func (b *book) denied() int64 {
	n := b.cell.denied()
	if s := b.seldom(); s != nil && s.denials.Load() != nil {
		n += s.denials.Load().sum()
	}
	return n
}
