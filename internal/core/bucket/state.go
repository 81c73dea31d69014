package bucket

// State is a snapshot for answers' headers and for operators.
type State struct {
	Tokens    int64 // spendable here now
	Remaining int64 // in the whole bucket, as the server last told, less what was spent here since
	ResetIn   int64 // microseconds until it is full or its window turns
	Live      bool
	Trickle   int64
	Waiting   int64 // units that requests wait for
	InUse     int64 // slots that requests have
}

// State returns a snapshot at now.
func (b *Bucket) State(now int64) State {
	b.mu.Lock()
	defer b.leave()
	s := State{
		Tokens: b.stock.units() + b.aside(), Remaining: b.leftLocked(now),
		Live: b.live, Trickle: b.trickle, Waiting: b.waitingLocked(),
	}
	s.ResetIn = b.resetInLocked(now, s.Remaining)
	if b.slots {
		s.Tokens += b.stock.due()
		s.InUse = b.stock.inUse()
	}
	return s
}
