package agent

// Denials are as many as a caller out of bounds likes. One that an earlier one made certain takes no mutex (Bucket.Shut), and where the bucket's
// tokens lodge in a way (lodge.go) it reads nothing but them: they say themselves until when there are none, and count what is denied until
// then (Resolution.Shut). Whatever becomes of the tokens, the count goes to the book in the same step.
//
// So what they say has to end with what made it true: whoever has units come back without the mutex, or ends what was certain, has it end
// (reopen), and whoever has it begin looks for such afterwards. It begins in a way alone, and moves with the tokens, but for those of
// what a handle may hold, which subtracts without a look.

// Tokens that say so are below all that refusals leave and above lodgedBelow: from shutFrom on, the time, the count, and room below for what
// refusals leave that had looked before.
const (
	shutFrom   = -1 << 61
	shutBits   = 60
	shutTraces = 13 // bits: room for four thousand requests that were between the look and the subtraction
	shutCounts = 14 // bits of how many were denied
	shutGrain  = 11 // bits: times are in steps of two milliseconds
	shutOne    = 1 << shutTraces
	shutMost   = 1<<shutCounts - 1
	shutEnd    = 1 << (shutBits - shutTraces - shutCounts + shutGrain) // no later time: two hundred days

	// shutLater is where the parity is of what has a cell, none of which lodges: it says that when there may be some is not that time, and is in the
	// resolution.
	shutLater = 1
)

// shutBy is tokens that say that there are none before a time; later that when there may be some is another.
func shutBy(until int64, later bool) int64 {
	tokens := shutFrom + until>>shutGrain<<(shutCounts+shutTraces) + shutOne - Unit
	if later {
		tokens |= shutLater
	}
	return tokens
}

func isShut(tokens int64) bool { return uint64(tokens-shutFrom)>>shutBits == 0 }

// shutTime is when tokens that say so may be there again, at the earliest.
func shutTime(tokens int64) int64 {
	return (tokens - shutFrom) >> (shutCounts + shutTraces) << shutGrain
}

// shutDenied is how many units were denied by what tokens say.
func shutDenied(tokens int64) int64 {
	if !isShut(tokens) {
		return 0
	}
	return (tokens - shutFrom) >> shutTraces & shutMost
}

// Shut reports whether a bucket's tokens say until when there are none, be that over or not.
func (c Cell) Shut() bool { return isShut(c.tokens.Load()) }

// Shut denies one unit of a request that is Plain, if its cell says that there is none now. On false the caller goes on as where it says nothing.
// It is not for a time without contact. The denial is of the same moment as Bucket.Slow's would be, but for units that the store grants
// meanwhile; what it says to stay away is up to two milliseconds more, but of a window's end.
func (r *Resolution) Shut(c Cell, now int64) (Verdict, bool) {
	for met := false; ; met = true {
		tokens := c.tokens.Load()
		if !isShut(tokens) {
			return Verdict{}, false
		}
		left, n := shutTime(tokens)-now, shutDenied(tokens)+1
		if left <= 0 || n > shutMost {
			return Verdict{}, false
		}
		retry := left + 1<<shutGrain
		if tokens&shutLater != 0 {
			later := r.later.Load()
			if later == 0 { // they were said for a request that was forgotten since
				return Verdict{}, false
			}
			retry = max(later-now, left)
		}
		if c.tokens.CompareAndSwap(tokens, tokens+shutOne) {
			if met && n > denialsFrom {
				r.entries[0].countApart()
			}
			return Verdict{Outcome: Denied, RetryAfter: retry, Count: n}, true
		}
	}
}

// shutInWayLocked has a bucket's tokens say that none are there until then, where they lodge in a way and no other than the bucket decides; at retry
// there may be some.
func (b *book) shutInWayLocked(now, until, retry int64) bool {
	home := b.at.tokens.Load()
	if until-now < 4<<shutGrain || until >= shutEnd || b.soft || b.has(lost|dead) || !b.has(lodged) || !inWay(home) {
		return false
	}
	if s := b.seldom(); s != nil && s.denials.Load() != nil {
		return false
	}
	apart := retry > until || b.length > 0 // of a window the end is known to the microsecond
	if apart {
		t, group, way, _ := b.scope().registry.memo.lodging(home)
		known := t.groups[group].ways[way].known.Load()
		if known == nil || &known.entries[0].Bucket != b.Bucket { // they are just moving in
			return false
		}
		known.later.Store(retry)
	}
	if !b.cell.shut(shutBy(until, apart)) {
		return false
	}
	if b.cell.due() != 0 { // whoever put it back may have looked before
		b.cell.reopen()
		return false
	}
	return true
}

// shut has tokens say that there are none; false where there are some.
func (s *stock) shut(by int64) bool {
	for {
		tokens := s.tokens.Load()
		if tokens >= Unit {
			return false
		}
		if s.tokens.CompareAndSwap(tokens, by) {
			s.refused += shutDenied(tokens)
			return true
		}
	}
}

// reopen ends that.
func (s *stock) reopen() {
	for {
		tokens := s.tokens.Load()
		if !isShut(tokens) {
			return
		}
		if s.tokens.CompareAndSwap(tokens, 0) {
			s.refused += shutDenied(tokens)
			return
		}
	}
}

// reopen ends what the bucket's tokens say of denials.
func (of *Bucket) reopen() {
	if of.saysShut() {
		b := of.open(new(hand))
		defer b.close()
		b.cell.reopen()
	}
}

func (of *Bucket) saysShut() bool {
	of.mu.Lock()
	defer of.mu.Unlock()
	return isShut(of.tokens().Load())
}

// reopenLocked ends what was noted as denied for certain.
func (b *book) reopenLocked() {
	b.cell.reopen()
	if s := b.seldom(); s != nil {
		s.shutUntil.Store(0)
	}
}

// shutLastsLocked reports whether units are denied without the mutex.
func (b *book) shutLastsLocked(now int64) bool {
	if tokens := b.cell.tokens.Load(); isShut(tokens) {
		return shutTime(tokens) > now
	}
	s := b.seldom()
	return s != nil && s.shutUntil.Load() > now
}

// shutLocked notes how long one unit is denied for certain: the store said to deny, and
// until then no trickle brings a whole token and no window turns.
func (b *book) shutLocked(now int64, lost bool) {
	if lost || b.slots || b.paced || b.patients() > 0 || now >= b.denyUntil || b.least > 1 {
		return
	}
	retry := now + b.retryAfterLocked(now, 1, false)
	if b.length > 0 {
		retry = min(retry, b.turnAt)
	}
	until := min(retry, b.deniesUntilLocked())
	was := b.cell.tokens.Load()
	switch {
	case !b.shutInWayLocked(now, until, retry):
		b.cell.reopen() // whose time is over, if they say anything
	case !isShut(was) || shutTime(was) <= now:
		return
	}
	// Who asked does not go by what the tokens say, for its request is not the one that is remembered.
	s := b.rarely()
	s.refused.CompareAndSwap(gathered, 0)
	s.shutRetry.Store(retry)
	s.shutUntil.Store(until)
}

// Shut denies one unit, whose Take failed, without the mutex where an earlier denial made it certain:
// denials are as many as a caller out of bounds likes. On false the caller asks Slow.
// It is not for a time without contact. The verdict is of the same moment as Slow's would be, but
// for units that the store grants meanwhile.
func (of *Bucket) Shut(now int64) (Verdict, bool) {
	s := of.seldom()
	if s == nil {
		return Verdict{}, false
	}
	until := s.shutUntil.Load()
	if now >= until || s.due(of.at) != 0 {
		return Verdict{}, false
	}
	var n int64
	var met bool
	if d := s.denials.Load(); d != nil {
		n = d.add()
	} else if c := of.mapped(); c != nil {
		n = c.refused.Add(1)
	} else if n, met = s.refuse(); n == 0 {
		return Verdict{}, false
	} else if met && n > denialsFrom {
		of.countApart()
	}
	return Verdict{Outcome: Denied, RetryAfter: max(s.shutRetry.Load()-now, 1), Count: n}, true
}
