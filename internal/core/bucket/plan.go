package bucket

import "github.com/f4ee788f/quota/internal/core/lease"

// Line is what the owner's loop keeps of a bucket that wants more than its schedule. No one else touches it.
type Line struct {
	Force  int64 // renew at this time although nothing presses, for its limit changed; 0 for no
	Since  int64 // when a call first did not answer it; 0 where the last did
	Retry  int64 // not to be asked for before this; 0 for no such time
	Fails  int32 // calls in a row that brought it no lease
	Hungry int32 // answers in a row that left requests waiting
}

// Line returns what the owner keeps of the bucket.
func (b *Bucket) Line() Line {
	b.mu.Lock()
	defer b.leave()
	return b.line
}

// SetLine says what the owner keeps of the bucket from now on.
func (b *Bucket) SetLine(l Line) {
	b.mu.Lock()
	defer b.leave()
	b.setLineLocked(l)
}

func (b *Bucket) setLineLocked(l Line) {
	if l != b.line {
		b.own().line = l
	}
}

// Plan is what the owner of a bucket has to know to say when to look at it next, found under the mutex once.
type Plan struct {
	Line   Line
	due    int64
	turn   int64 // when it is to be looked at whether or not it may be renewed
	kept   int64 // when its lease is over if it is not renewed
	renews bool  // what is due then is a renewal at the term's end, and not a look at demand; see Bucket.Soon
}

// Plan returns it.
func (b *Bucket) Plan(now int64) Plan {
	b.mu.Lock()
	defer b.leave()
	return b.planLocked(now)
}

// Visit is Tick, and Plan after it.
func (b *Bucket) Visit(now int64, lost bool) (served []*Waiter, late int64, p Plan) {
	b.mu.Lock()
	defer b.leave()
	served, late = b.tickLocked(now, lost)
	return served, late, b.planLocked(now)
}

func (b *Bucket) planLocked(now int64) Plan {
	p := Plan{Line: b.line, due: b.dueLocked(now), turn: b.turnTimeLocked(now), kept: Never}
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

// Renews reports whether what is due when the bucket is to be looked at is a renewal at the term's end; see Soon.
func (p *Plan) Renews() bool { return p.renews }

// Compose is RenewStrained, for a bucket that is due: final where it is to be given up, and where nobody used it since some time,
// or it makes room for others (yields), and nobody uses it now.
func (b *Bucket) Compose(now, idleSince int64, final, yields bool, strain int64) lease.Renewal {
	b.mu.Lock()
	defer b.leave()
	rests := b.queue == nil && !b.chargedLocked() && b.reservedLocked() == 0 && !(b.slots && b.stock.inUse() > 0)
	return b.renewLocked(now, final || b.unusedLocked() || (yields || b.idleFrom() < idleSince) && rests, strain)
}

// Answered is what an answer to a renewal came to.
type Answered struct {
	Served []*Waiter // see Apply
	Plan   Plan      // after it
	Ended  Account   // of the lease that the answer replaces; where WasEnded
	Beyond int64     // see Bucket.Beyond

	WasEnded bool
}

// Answer is Apply, with what the owner has to know before and after it. Where the answer brought those who wait neither
// tokens nor a denial they are asked for again after a while, hungry of the times in a row that this was so, in microseconds: to
// ask at once would be a busy loop over the network.
func (b *Bucket) Answer(now int64, g lease.Grant, hungry func(times int32) int64) (a Answered) {
	b.mu.Lock()
	defer b.leave()
	if b.line.Fails > 0 || b.free || b.slots && b.unleased > 0 {
		a.Beyond = b.beyondLocked()
	}
	a.Ended, a.WasEnded = b.endedLocked(g.Number)
	times := b.line.Hungry
	line := Line{Force: b.line.Force}
	a.Served = b.applyLocked(now, g)
	if len(a.Served) == 0 && b.impatientLocked() {
		line.Hungry = times + 1
		line.Retry = now + hungry(times+1)
	}
	b.setLineLocked(line)
	a.Plan = b.planLocked(now)
	return a
}
