package agent

// Denials are as many as a caller out of bounds likes. One that an earlier one made certain takes no mutex (Bucket.Shut), and where the bucket's
// tokens lodge (lodge.go) it reads nothing but them: they say themselves until when there are none, and count what is denied until
// then (Resolution.Shut). Whatever becomes of the tokens, the count goes to the book in the same step.
//
// So what they say has to end with what made it true: whoever has units come back without the mutex, or ends what was certain, has it end
// (reopen), and whoever has it begin looks for such afterwards. It begins where they lodge, and moves with them, but for those of
// what a handle may hold, which subtracts without a look. A request of several limits looks at all their tokens before it takes any, so that one whose
// later limit denies takes nothing of the others.

// Tokens that say so are below all that refusals leave and above lodgedBelow: from shutFrom on, the time, the count, and room below for what
// refusals leave that had looked before.
const (
	shutFrom   = -1 << 61
	shutBits   = 60
	shutTraces = 13 // bits: room for four thousand requests that were between the look and the subtraction
	shutCounts = 13 // bits of how many were denied
	shutGrain  = 11 // bits: times are in steps of two milliseconds
	shutOne    = 1 << shutTraces
	shutTo     = shutFrom + 1<<shutBits
	shutMost   = 1<<shutCounts - 1
	shutAt     = shutTraces + shutCounts + 1          // of the time
	shutEnd    = 1 << (shutBits - shutAt + shutGrain) // no later time: two hundred days

	// shutApart says that what is denied is counted apart (denials.go), and not here.
	shutApart = 1 << (shutTraces + shutCounts)

	// shutLater is where the parity is of what has a cell, none of which lodges: it says that when there may be some is not that time, and is in the
	// resolution.
	shutLater = 1
)

// shutBy is tokens that say that there are none before a time, with flags.
func shutBy(until, flags int64) int64 {
	return shutFrom + until>>shutGrain<<shutAt + shutOne - Unit + flags
}

func isShut(tokens int64) bool { return uint64(tokens-shutFrom)>>shutBits == 0 }

// shutTime is when tokens that say so may be there again, at the earliest.
func shutTime(tokens int64) int64 {
	return (tokens - shutFrom) >> shutAt << shutGrain
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

// Shut denies one unit of limit i, if its cell says that there is none now, before anything of the request is announced or taken. On false the
// caller goes on as where it says nothing.
// It is not for a time without contact. The denial is of the same moment as Bucket.Slow's would be, but for units that the store grants
// meanwhile; what it says to stay away is up to two milliseconds more, but of a window's end.
func (r *Resolution) Shut(i int, c Cell, now int64) (Verdict, bool) {
	for met, again := false, false; ; met = true {
		tokens := c.tokens.Load()
		if !isShut(tokens) {
			return Verdict{}, false
		}
		left, n, later := shutTime(tokens)-now, shutDenied(tokens)+1, int64(0)
		if tokens&shutLater != 0 {
			later = r.laterOf(i)
		}
		switch full := n > shutMost || tokens&shutLater != 0 && later == 0; {
		case left <= 0 || full && again:
			return Verdict{}, false
		case full:
			r.entries[i].sayAgain(now)
			again = true
			continue
		}
		v := Verdict{Outcome: Denied, RetryAfter: left + 1<<shutGrain, Count: n}
		if later != 0 {
			v.RetryAfter = max(later-now, left)
		}
		if tokens&shutApart != 0 {
			v.Count = r.entries[i].denyApart()
			return v, v.Count > 0
		}
		if c.tokens.CompareAndSwap(tokens, tokens+shutOne) {
			if met && n > denialsFrom {
				r.entries[i].countApart()
			}
			return v, true
		}
	}
}

// denyApart counts a denial apart, and returns how many its place has; 0 where it may not count any more.
func (of *Bucket) denyApart() (n int64) {
	s := of.seldom()
	if s == nil {
		return 0
	}
	d := s.denials.Load()
	if d == nil {
		return 0
	}
	if n = d.add(); of.has(dead) { // what is counted after its end is nobody's
		return 0
	}
	return n
}

// sayAgain has tokens that say that there are none, and have no more room to count, or are said for a request that is forgotten, say it anew.
func (of *Bucket) sayAgain(now int64) {
	b := of.open(new(hand))
	defer b.close()
	if !isShut(b.cell.tokens.Load()) {
		return
	}
	if until, retry, ok := b.deniesForLocked(now, false); !ok || !b.shutHereLocked(now, until, retry) {
		b.cell.reopen()
	}
}

// says notes when there may be some of limit i, for its tokens do not. It is of one limit at a time, for one that is closed is enough to deny: of another
// it is noted again when that is asked.
func (r *Resolution) says(i int, later int64) { r.later.Store(later*memoLimits + int64(i)) }

// laterOf is what was noted; 0 where it is of another limit by now, or was noted for a request that is forgotten.
func (r *Resolution) laterOf(i int) int64 {
	later := r.later.Load()
	if later%memoLimits != int64(i) {
		return 0
	}
	return later / memoLimits
}

// shutHereLocked has a bucket's tokens say that none are there until then, where they lodge and no other than the bucket decides; at retry there may be
// some. It reports whether they do.
func (b *book) shutHereLocked(now, until, retry int64) bool {
	if until-now < 4<<shutGrain || until >= shutEnd || b.soft || b.has(lost|dead) || !b.has(lodged) {
		return false
	}
	flags := int64(0)
	if s := b.seldom(); s != nil && s.denials.Load() != nil {
		flags = shutApart
	}
	if retry > until || b.length > 0 { // of a window the end is known to the microsecond
		flags |= shutLater
		t, group, way, within := b.scope().registry.memo.lodging(b.at.tokens.Load())
		known, i := t.groups[group].ways[way].known.Load(), max(within-1, 0)
		if known == nil || known.entries[i] == nil || &known.entries[i].Bucket != b.Bucket { // they are just moving in
			return false
		}
		known.says(i, retry)
	}
	if !b.cell.shut(shutBy(until, flags)) {
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
			if s.apart != nil {
				s.apart.shutUntil.Store(0) // or nobody would come to say it in tokens again
			}
			return
		}
	}
}

// reopen ends what the bucket's tokens say of denials.
func (of *Bucket) reopen() {
	if of.saysShut() {
		b := of.open(new(hand))
		defer b.close()
		b.reopenLocked()
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

// deniesForLocked returns until when one unit is denied for certain: the store said to deny, and until then no trickle brings a whole token and no
// window turns. At retry there may be one.
func (b *book) deniesForLocked(now int64, lost bool) (until, retry int64, ok bool) {
	if lost || b.slots || b.paced || b.patients() > 0 || now >= b.denyUntil || b.least > 1 {
		return 0, 0, false
	}
	retry = now + b.retryAfterLocked(now, 1, false)
	if b.length > 0 {
		retry = min(retry, b.turnAt)
	}
	return min(retry, b.deniesUntilLocked()), retry, true
}

// shutLocked notes how long one unit is denied for certain: in the tokens, or else apart.
func (b *book) shutLocked(now int64, lost bool) {
	until, retry, ok := b.deniesForLocked(now, lost)
	if !ok {
		return
	}
	was := b.cell.tokens.Load()
	switch {
	case !b.shutHereLocked(now, until, retry):
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
