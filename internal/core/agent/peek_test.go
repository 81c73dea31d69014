//go:build !interleave

package agent

// peek returns what a bucket's book says.
func peek(of *Bucket) book {
	b := of.open(new(hand))
	defer b.close()
	return *b
}
