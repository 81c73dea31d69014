package bucket

// What the owner of a bucket does at its beginning and its end, and around the
// ordinary course of a lease.

// Admit counts n units as admitted without asking whether they are there, for an
// operator's switch that says so.
func (b *Bucket) Admit(n int64) {
	b.mu.Lock()
	defer b.leave()
	b.admitFreeLocked(n)
}

// Drain takes out all units that are left, so that every later Take fails, and
// returns how many there were.
func (b *Bucket) Drain() int64 {
	b.mu.Lock()
	defer b.leave()
	const all = 1 << 62
	b.bringLocked()
	b.live, b.trickle, b.room = false, 0, 0
	b.foldLocked()
	return all - b.stock.credit(-all)
}

// punctual is how late an owner that runs may come to the end of a window, or of a lease, in microseconds.
const punctual = 20_000

// Tick does what it is time for without a call: it ends a lease that is over, goes over to the
// next window, and serves those whose turn came, whose Done the caller runs. late is
// the most units that may have been spent of a lease that was nobody's any more, because nobody emptied
// the cell in time: for as long as the store keeps a lease that is not renewed, or a little after a window's end, it is in time.
func (b *Bucket) Tick(now int64, lost bool) (served []*Waiter, late int64) {
	b.mu.Lock()
	defer b.leave()
	return b.tickLocked(now, lost)
}

func (b *Bucket) tickLocked(now int64, lost bool) (served []*Waiter, late int64) {
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
func (b *Bucket) Beyond() int64 {
	b.mu.Lock()
	defer b.leave()
	return b.beyondLocked()
}

func (b *Bucket) beyondLocked() int64 {
	switch {
	case b.counting || b.ask == nil:
		return 0
	case b.slots:
		return b.unleased
	case b.live && b.ask.sentAt < b.expires:
		return 0
	}
	return max(b.ask.told-b.answered(), 0)
}

// Skip gives up the renewal under way, which the store says is older than one it
// executed already, and goes on with numbers that are not.
func (b *Bucket) Skip(now int64) {
	b.mu.Lock()
	defer b.leave()
	b.endAskLocked()
	b.unofferedLocked()
	b.number, b.turns = max(b.number+1<<20, now)-1, -1
}

// Forget ends the lease without giving anything back, because the server knows
// no such bucket under its policy. Requests that wait go on waiting.
func (b *Bucket) Forget() {
	b.mu.Lock()
	defer b.leave()
	if b.counting {
		return
	}
	b.endAskLocked()
	b.generation, b.free = 0, false
	b.undenyLocked()
	b.unofferedLocked()
	b.met = true // who was admitted on credit stays so; nobody else is
	b.voidLocked()
}

// Empty reports whether the bucket holds nothing that could be lost: no lease, no
// tokens, no renewal under way, no waiting request, no units in limbo. Demand that the
// server was not told goes with it: a lease that holds nothing lapses without a call.
func (b *Bucket) Empty() bool {
	b.mu.Lock()
	defer b.leave()
	if b.queue != nil || b.stock.pending.Load() != 0 || b.slots && b.stock.inUse() > 0 || b.touched > 0 && !b.met {
		return false
	}
	if b.counting {
		return true
	}
	return !b.free && b.foldLocked() == 0 && b.ask == nil && !b.live
}

// Untold reports whether requests were admitted or denied that no renewal has told the store of. A lease of which nothing is left
// lapses so: the next one's renewal tells it.
func (b *Bucket) Untold() bool {
	b.mu.Lock()
	defer b.leave()
	return b.owedLocked() > 0 || b.met && !b.counting && b.admittedLocked()+b.deniedLocked() > b.toldAdmitted+b.toldDenied
}
