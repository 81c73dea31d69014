package agent

// Plan is what the owner of a bucket has to know to say when to look at it next, found with the book in hand once.
type Plan struct {
	Line    Line
	due     int64
	turn    int64
	Pressed bool // as Bucket.Pressed
}

// Plan returns it.
func (e *Entry) Plan(now int64) Plan {
	b := e.open(new(hand))
	defer b.close()
	return b.planLocked(now)
}

// Visit is Tick, and Plan after it.
func (e *Entry) Visit(now int64, lost bool) (served []*Waiter, late int64, p Plan) {
	b := e.open(new(hand))
	defer b.close()
	served, late = b.tickLocked(now, lost)
	return served, late, b.planLocked(now)
}

func (b *book) planLocked(now int64) Plan {
	return Plan{Line: b.line, due: b.dueLocked(now), turn: b.turnTimeLocked(now), Pressed: b.impatientLocked()}
}

// Renew returns when the bucket is to be renewed, Never when it needs no attention.
func (p *Plan) Renew() int64 {
	due := p.due
	if p.Line.Force > 0 {
		due = min(due, p.Line.Force)
	}
	if due != Never && p.Line.Retry > 0 {
		due = max(due, p.Line.Retry)
	}
	return due
}

// Idle reports whether nothing is leased and nobody waits, whatever else is to be told.
func (p *Plan) Idle() bool { return p.due == Never }

// Look returns when the bucket is to be looked at. Its trickle goes on serving those who wait their turn while a call is
// under way.
func (p *Plan) Look(flying bool) int64 {
	if flying {
		return p.turn
	}
	return min(p.turn, p.Renew())
}
