//go:build interleave

package agent

// peek returns what a bucket's book says, also while an actor has it in hand.
func peek(of *Bucket) book {
	if b := of.working.book; b != nil {
		return *b
	}
	if s := of.seldom(); s != nil && s.book.Load() != nil {
		return *s.book.Load()
	}
	b := book{Bucket: of, terms: of.goesBy(), cell: of.stock()}
	b.unpack()
	return b
}
