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
	defer b.enter().leave()
	return b.line
}

// SetLine says what the owner keeps of the bucket from now on.
func (b *Bucket) SetLine(l Line) {
	defer b.enter().leave()
	b.line = l
}

// Plan tells the owner when to look at a bucket next, as of one moment.
type Plan struct {
	Line      Line
	Idle      bool  // nothing is leased and nobody waits, whatever else is to be told
	Renews    bool  // a renewal at the term's end is due, not a look at demand; see Bucket.Soon
	Meanwhile int64 // when to look at the bucket while its renewal is due and cannot be sent
	due       int64 // when it is to be renewed, but for the line
	turn      int64 // when to look at it whether or not it may be renewed
}

// Plan returns the plan as of now.
func (b *Bucket) Plan(now int64) Plan {
	defer b.enter().leave()
	return b.planLocked(now)
}

// Visit does what is due without a call (see tickLocked), and plans after it. The caller serves the requests.
func (b *Bucket) Visit(now int64, lost bool) (served []*Waiter, late int64, p Plan) {
	defer b.enter().leave()
	served, late = b.tickLocked(now, lost)
	return served, late, b.planLocked(now)
}

func (b *Bucket) planLocked(now int64) Plan {
	p := Plan{Line: b.line, due: b.dueLocked(now), turn: b.turnTimeLocked(now)}
	switch {
	case !b.live || b.length <= 0:
	case b.turnAt > now:
		p.turn = min(p.turn, b.turnAt)
	case b.beginAt > now:
		p.turn = min(p.turn, b.beginAt)
	}
	p.Idle, p.Renews, p.Meanwhile = p.due == Never, b.soonLocked(p.due), p.turn
	if kept := b.keptLocked(); b.live && !b.counting && kept > now {
		p.Meanwhile = min(p.turn, kept) // its lease is over then
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

// Look returns when the bucket is to be looked at. While a call is under way its trickle goes on serving those who wait
// their turn, and its window ends.
func (p *Plan) Look(flying bool) int64 {
	if flying {
		return p.turn
	}
	return min(p.turn, p.Renew())
}

// Compose is Renew for a bucket that is due, under so much strain. The renewal is final if the caller says so, or if
// the bucket is unused (unusedLocked). If no request has units of it, it is final too where it makes room for others
// (yields). So it is where it was idle since idleSince and its last renewal.
func (b *Bucket) Compose(now, idleSince int64, final, yields bool, strain int64) lease.Renewal {
	defer b.enter().leave()
	unused := b.unusedLocked(now) || (yields || b.idleFrom() < min(idleSince, b.lastAsk)) && !b.inHandLocked()
	return b.renewLocked(now, final || unused, strain)
}

// Answered is the outcome of an answer to a renewal.
type Answered struct {
	Served []*Waiter     // see Apply
	Plan   Plan          // after it
	Ended  lease.Account // of the lease that the answer replaces; where WasEnded
	Beyond int64         // by how much the agent may have exceeded the limit out of contact

	WasEnded bool
}

// Answer is Apply, with the figures that the owner needs from before and after it. If waiting requests got neither
// tokens nor a denial, the bucket asks for them again after hungry microseconds. hungry is told how many times in a row
// that was so. To ask at once would be a busy loop over the network.
func (b *Bucket) Answer(now int64, g lease.Grant, hungry func(times int32) int64) (a Answered) {
	defer b.enter().leave()
	if b.line.Fails > 0 || b.free || b.slots && b.unleased > 0 {
		a.Beyond = b.beyondLocked()
	}
	if p := b.ask; p != nil && p.Number == g.Number {
		a.Ended, a.WasEnded = b.endedLocked(p), true
		a.Served = b.applyLocked(now, g)
	}
	times := b.line.Hungry + 1
	b.line = Line{Force: b.line.Force}
	if len(a.Served) == 0 && b.waitingLocked().impatient {
		b.line.Hungry = times
		b.line.Retry = now + hungry(times)
	}
	a.Plan = b.planLocked(now)
	return a
}
