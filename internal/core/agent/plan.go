package agent

import "github.com/f4ee788f/quota/internal/core/lease"

// Plan is what the owner of a bucket has to know to say when to look at it next, found with the book in hand once.
type Plan struct {
	Line    Line
	due     int64
	turn    int64 // when it is to be looked at whether or not it may be renewed
	kept    int64 // when its lease is over if it is not renewed
	Pressed bool  // as Bucket.Pressed
	renews  bool  // what is due then is a renewal at the term's end, and not a look at demand; see Bucket.Soon
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
	p := Plan{Line: b.line, due: b.dueLocked(now), turn: b.turnTimeLocked(now), kept: Never, Pressed: b.impatientLocked()}
	if !b.live || b.counting {
		return p
	}
	p.renews = b.soonLocked(p.due)
	if b.length > 0 && b.turnAt > now {
		p.turn = min(p.turn, b.turnAt)
	}
	if kept := b.keptLocked(); kept > now {
		p.kept = kept
	}
	return p
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
// under way, and its window ends.
func (p *Plan) Look(flying bool) int64 {
	if flying {
		return p.turn
	}
	return min(p.turn, p.Renew())
}

// Meanwhile returns when the bucket is to be looked at while it is to be renewed, and cannot be.
func (p *Plan) Meanwhile() int64 { return min(p.turn, p.kept) }

// Compose is RenewStrained, for a bucket that is due: final where it is to be given up, and where nobody used it since some time, or it
// makes room for others, and nobody uses it now.
func (e *Entry) Compose(now, idleSince int64, final bool, strain int64) lease.Renewal {
	b := e.open(new(hand))
	defer b.close()
	return b.renewLocked(now, final || e.scope().orphan || b.unusedLocked() ||
		(b.active*grain < idleSince || e.has(leaving)) && b.queue == nil && !b.chargedLocked() && b.reservedLocked() == 0 && !(b.slots && b.cell.inUse() > 0), strain)
}

// Answered is what an answer to a renewal came to.
type Answered struct {
	Served []*Waiter // see Apply
	Plan   Plan      // after it
	Ended  Account   // see Bucket.Ended; where WasEnded
	Beyond int64     // see Bucket.Beyond

	WasEnded bool
}

// Answer is Apply, with what the owner has to know before and after it. Where the answer brought those who wait neither
// tokens nor a denial they are asked for again after a while, hungry of the times in a row that this was so, in microseconds: to
// ask at once would be a busy loop over the network.
func (e *Entry) Answer(now int64, g lease.Grant, hungry func(times int32) int64) (a Answered) {
	b := e.open(new(hand))
	defer b.close()
	if b.line.Fails > 0 || b.free || b.slots && b.unleased > 0 {
		a.Beyond = b.beyondLocked()
	}
	a.Ended, a.WasEnded = b.endedLocked(g.Number)
	times := b.line.Hungry
	b.line.Since, b.line.Fails, b.line.Retry, b.line.Hungry = 0, 0, 0, 0
	a.Served = b.applyLocked(now, g)
	if len(a.Served) == 0 && b.impatientLocked() {
		b.line.Hungry = times + 1
		b.line.Retry = now + hungry(times+1)
	}
	a.Plan = b.planLocked(now)
	return a
}
