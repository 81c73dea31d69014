package agent

// What the owner of a bucket does at its beginning and its end, and around the
// ordinary course of a lease.

// Admit counts n units as admitted without asking whether they are there, for an
// operator's switch that says so.
func (b *Bucket) Admit(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cell.credited.Add(n) // spent at once: never in tokens, so that no one else can take it
}

// Drain takes out all units that are left, so that every later Take fails, and
// returns how many there were.
func (b *Bucket) Drain() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	const all = 1 << 62
	b.live, b.trickle, b.pile = false, 0, 0
	return all - b.cell.credit(-all)
}

// Lapse is Expire, and returns the most units that may have been spent of a lease
// after its end, because nobody emptied the cell in time.
func (b *Bucket) Lapse(now int64, lost bool) (late int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counting || !b.live || now < b.expires {
		return 0
	}
	b.cell.fold()
	late = b.cell.admitted() - b.toldAdmitted
	b.expireLocked(now, lost)
	if b.live {
		return 0
	}
	return max(late, 0)
}

// Skip gives up the renewal under way, which the store says is older than one it
// executed already, and goes on with numbers that are not.
func (b *Bucket) Skip(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ask = nil
	b.began = max(b.number+1<<20, now)
	b.number = b.began - 1
}

// Forget ends the lease without giving anything back, because the server knows
// no such bucket under its policy. Requests that wait go on waiting.
func (b *Bucket) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counting {
		return
	}
	b.ask = nil
	b.live, b.trickle, b.pile, b.debt, b.generation, b.denyUntil = false, 0, 0, 0, 0, 0
	b.cell.credit(-b.cell.fold())
}

// Dismiss takes out all requests that wait, undecided, for the caller to tell.
func (b *Bucket) Dismiss() []*Waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.waiters
	b.waiters, b.waiting = nil, 0
	for _, w := range out {
		w.verdict = Verdict{Outcome: Rematch}
	}
	return out
}

// Dismiss decides a request that is not enqueued as the bucket's Dismiss would.
func (w *Waiter) Dismiss() { w.verdict = Verdict{Outcome: Rematch} }

// Rematch is the verdict of a request whose bucket is no more: match again.
const Rematch Outcome = Wait + 1

// empty reports whether the bucket holds nothing that could be lost: no lease, no
// tokens, no renewal under way, no waiting request, no units in limbo. Demand that the
// server was not told goes with it: a lease that holds nothing lapses without a call.
func (b *Bucket) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting > 0 || len(b.waiters) > 0 || b.cell.pending.Load() != 0 {
		return false
	}
	if b.counting {
		return true
	}
	return b.cell.fold() == 0 && b.ask == nil && !b.live
}

// settled reports whether all that was admitted was collected, and no request is
// between taking and deciding.
func (b *Bucket) settled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cell.fold()
	return b.cell.pending.Load() == 0 && b.cell.admitted() == b.cell.collectedAdmitted && b.cell.denied() == b.cell.collectedDenied
}

// Pressing reports whether the bucket wants its owner's attention before its time.
func (b *Bucket) Pressing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.early || b.waiting > 0
}
