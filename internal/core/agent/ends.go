package agent

// What the owner of a bucket does at its beginning and its end, and around the
// ordinary course of a lease.

// Admit counts n units as admitted without asking whether they are there, for an
// operator's switch that says so.
func (of *Bucket) Admit(n int64) {
	b := of.open(new(hand))
	defer b.close()
	b.admitFreeLocked(n)
}

// Drain takes out all units that are left, so that every later Take fails, and
// returns how many there were.
func (of *Bucket) Drain() int64 {
	b := of.open(new(hand))
	defer b.close()
	const all = 1 << 62
	b.bringLocked()
	b.live, b.trickle, b.room = false, 0, 0
	b.foldLocked()
	return all - b.cell.credit(-all)
}

// punctual is how late an owner that runs may come to the end of a window, or of a lease, in microseconds.
const punctual = 20_000

// Tick does what it is time for without a call: it ends a lease that is over, goes over to the
// next window, and serves those whose turn came, whose Done the caller runs. late is
// the most units that may have been spent of a lease that was nobody's any more, because nobody emptied
// the cell in time: for as long as the store keeps a lease that is not renewed, or a little after a window's end, it is in time.
func (of *Bucket) Tick(now int64, lost bool) (served []*Waiter, late int64) {
	b := of.open(new(hand))
	defer b.close()
	return b.tickLocked(now, lost)
}

func (b *book) tickLocked(now int64, lost bool) (served []*Waiter, late int64) {
	if b.counting {
		return nil, 0
	}
	if b.live && now >= min(b.expires, b.edgeTimeLocked()) {
		b.foldLocked()
		over := now >= b.keptLocked()+punctual || b.length > 0 && now >= b.turnAt+punctual
		spent := b.admittedLocked() - b.toldAdmitted
		b.expireLocked(now, lost)
		if over && !b.live {
			late = spent
		}
	}
	if b.patients() > 0 {
		b.refillLocked(now)
		served = b.serveLocked(Never)
	}
	return served, max(late, 0)
}

// Beyond returns how many units were admitted since the last answer, if the
// lease of that answer had ended when the renewal under way was sent: what the agent went on with out
// of contact, which is the most that it exceeded the limit by. Of slots, which come back, it is those given out without a lease. It is
// asked before Apply.
func (of *Bucket) Beyond() int64 {
	b := of.open(new(hand))
	defer b.close()
	return b.beyondLocked()
}

func (b *book) beyondLocked() int64 {
	switch {
	case b.counting || b.ask == nil:
		return 0
	case b.slots:
		return b.unleased
	case b.live && b.ask.sentAt < b.expires:
		return 0
	}
	return max(b.ask.told-b.answered, 0)
}

// Skip gives up the renewal under way, which the store says is older than one it
// executed already, and goes on with numbers that are not.
func (of *Bucket) Skip(now int64) {
	b := of.open(new(hand))
	defer b.close()
	b.endAskLocked()
	b.offered = 0
	b.began = max(b.number+1<<20, now)
	b.number = b.began - 1
}

// Forget ends the lease without giving anything back, because the server knows
// no such bucket under its policy. Requests that wait go on waiting.
func (of *Bucket) Forget() {
	b := of.open(new(hand))
	defer b.close()
	if b.counting {
		return
	}
	b.endAskLocked()
	b.generation, b.denyUntil, b.unitAt, b.free = 0, 0, 0, false
	b.offered = 0
	b.reopenLocked()
	b.met = true // who was admitted on credit stays so; nobody else is
	b.voidLocked()
}

// empty reports whether the bucket holds nothing that could be lost: no lease, no
// tokens, no renewal under way, no waiting request, no units in limbo. Demand that the
// server was not told goes with it: a lease that holds nothing lapses without a call.
func (of *Bucket) empty() bool {
	b := of.open(new(hand))
	defer b.close()
	if b.queue != nil || b.cell.pending.Load() != 0 || b.slots && b.cell.inUse() > 0 || b.touched > 0 && !b.met {
		return false
	}
	if b.counting {
		return true
	}
	return !b.free && b.foldLocked() == 0 && b.ask == nil && !b.live
}

// settledLocked reports whether all that was admitted was collected, and no request is
// between taking and deciding.
func (b *book) settledLocked() bool {
	b.foldLocked()
	return b.cell.pending.Load() == 0 && b.cell.admitted() == b.collectedAdmitted && b.cell.denied() == b.collectedDenied
}

// Pressing reports whether the bucket wants its owner's attention before its time.
func (of *Bucket) Pressing() bool {
	b := of.open(new(hand))
	defer b.close()
	return b.early || b.queue != nil
}

// Untold reports whether requests were admitted or denied that no renewal has told the store of. A lease of which nothing is left
// lapses so: the next one's renewal tells it.
func (of *Bucket) Untold() bool {
	b := of.open(new(hand))
	defer b.close()
	return b.owedLocked() > 0 || b.met && !b.counting && b.admittedLocked()+b.deniedLocked() > b.toldAdmitted+b.toldDenied
}
