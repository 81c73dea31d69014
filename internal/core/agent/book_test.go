package agent

// due returns the units that came back to a bucket and are not folded yet.
func due(of *Bucket) int64 {
	b := of.open(new(hand))
	defer b.close()
	return b.cell.due()
}
