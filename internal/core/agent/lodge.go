package agent

import "math"

// Where one remembered request alone comes to a bucket, the bucket's tokens are not among what else requests touch of it, but
// lodge in the memo: beside that request's key where it is its only limit, so that a decision reads one cache line and no other, and in its
// Resolution where it has several, which is a line for all of them. What is at home says where they are: the way, and which of its limits.
//
// Tokens are in one place at any time, and whoever moves them holds the bucket's mutex, and the memo's. Requests do not: one that looked
// before tokens were moved finds none where they were, and asks the bucket; or it finds some again, and then they are that bucket's. So a way
// lodges the tokens of one bucket in its life, for a request with that bucket in hand must not take another's. Ways are as new in the next
// table. A resolution has for each limit a place that is that bucket's alone, and tokens may come and go there.
//
// A resolution with tokens is in the one way that they are said to be in: they move in once it is there, and are sent home before it is
// moved or the way is another's. What says so is read under the bucket's mutex, and so holds for as long as that is held.
//
// What requests touch besides tokens is at home, and is reached through them (Resolution.hot): so what is to be announced does not lodge.
// What a crash is not to take is a journal's, and does not lodge; nor what several requests that are remembered come to, for
// each but one of them would go by what is at home; nor what a handle ever had, for it subtracts there without a look.

const (
	// lodgedBelow is less than tokens ever are: none are there, for they were moved.
	lodgedBelow = math.MinInt64 / 2

	// spent is what is left where tokens were when they are sent home: in a way for good, in a resolution until they are back.
	spent = math.MinInt64 + 1<<lodgeTraces

	// lodgeTraces is bits below which a refusal of a request that had looked before tokens were moved leaves a trace: there is
	// room for those of eight million requests that were between the look and the subtraction.
	lodgeTraces = 24

	// memoSpent of ways, one may have lodged tokens before the table is replaced.
	memoSpent = 16
)

// lodgedAt is what is at home of tokens that are in a table: in a way itself where within is 0, or in the resolution that it has, of whose
// limits within is the one, counted from 1.
func lodgedAt(number uint8, group uint32, way, within int) int64 {
	return math.MinInt64 + (int64(number)<<35|int64(group)<<3|int64(within)<<1|int64(way)+1)<<lodgeTraces - Unit
}

// lodging returns where tokens lodge, by what is at home of them: see lodgedAt. The mutex of their bucket is held, or the memo's.
func (m *memo) lodging(home int64) (t *memoTable, group uint32, way, within int) {
	at := uint64(home-math.MinInt64) >> lodgeTraces
	return m.tables[at>>35&1], uint32(at >> 3), int(at & 1), int(at >> 1 & 3)
}

// tokens is where what is spendable is. The mutex is held.
func (of *Bucket) tokens() *counter {
	if !of.has(lodged) {
		return &of.at.tokens
	}
	t, group, way, within := of.scope().registry.memo.lodging(of.at.tokens.Load())
	w := &t.groups[group].ways[way]
	if within == 0 {
		return &w.tokens
	}
	return &w.known.Load().lodge[within-1]
}

// takeLodged is Take of what may lodge.
func (of *Bucket) takeLodged(n int64) bool {
	of.mu.Lock()
	defer of.mu.Unlock()
	return takeQuietly(of.tokens(), n)
}

// lodge moves the tokens of what a request of one limit alone comes to to its way, if they may lodge there. The memo's mutex is held.
func (t *memoTable) lodge(group uint32, way int, known *Resolution) bool {
	tokens := &t.groups[group].ways[way].tokens
	of := known.entries[0]
	if !known.plain {
		return false
	}
	if of.has(lodged) { // for another request
		of.scope().registry.memo.shareLocked(of)
	}
	if tokens.Load() != 0 || of.has(durable|several) {
		return false
	}
	of.moveTo(tokens, lodgedAt(t.number, group, way, 0))
	t.lodging++
	return true
}

// lodgeWithin moves the tokens of what a request of several limits alone comes to into its resolution, which is in this way by now. Those of
// what may not lodge there are at home from now on, wherever else they might, for the request goes by what is at home. The memo's mutex is held.
func (t *memoTable) lodgeWithin(group uint32, way int, known *Resolution) {
	for i, of := range known.entries[:known.limits] {
		if of.has(lodged) || !known.mayLodge(i) { // for another request
			of.scope().registry.memo.shareLocked(of)
		}
		if !of.has(durable | several) {
			of.moveTo(&known.lodge[i], lodgedAt(t.number, group, way, 1+i))
			known.at[i].Store(&known.lodge[i])
		}
	}
}

// mayLodge reports whether the tokens of limit i's bucket may lodge in a resolution: there is room, and a request touches nothing else of it.
func (p *path) mayLodge(i int) bool {
	return i < memoLodged && !p.slots && !p.holds[i] && !p.inherited[i]
}

// moveTo moves tokens from home, where it leaves what says where they are. The memo's mutex is held.
func (of *Bucket) moveTo(tokens *counter, at int64) {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.marks.set(lodged, true)
	if s := of.seldom(); s != nil {
		s.shutUntil.Store(0) // the next denial has the tokens say so, where they may
	}
	tokens.Store(of.at.tokens.Swap(at))
}

// moveHome moves them back. The memo's mutex is held.
func (of *Bucket) moveHome(tokens *counter) {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.at.tokens.Store(tokens.Swap(spent))
	of.marks.set(lodged, false)
}

// sendHome moves tokens back that lodge in a way, or in the resolution that it has, if any do. The memo's mutex is held.
func (t *memoTable) sendHome(group uint32, way int) {
	g := &t.groups[group]
	w := &g.ways[way]
	switch says := g.state.Load() >> (memoBits * way); {
	case says&memoLodges != 0:
		g.lodgeNone(way)
		w.known.Load().entries[0].moveHome(&w.tokens)
		t.lodging--
		t.spent++
	case says&memoWithin != 0:
		g.lodgeNone(way)
		known := w.known.Load()
		for i := range known.limits {
			known.sendHome(i)
		}
	}
}

// sendHome moves the tokens of limit i's bucket back, if they lodge here. The memo's mutex is held.
func (r *Resolution) sendHome(i int) {
	if i < memoLodged && r.at[i].Load() == &r.lodge[i] {
		r.entries[i].moveHome(&r.lodge[i])
		r.at[i].Store(&r.entries[i].at.tokens)
	}
}

// lodgeNone says of a way that no tokens lodge there, nor in its resolution. The memo's mutex is held.
func (g *memoGroup) lodgeNone(way int) {
	for {
		state := g.state.Load()
		if g.state.CompareAndSwap(state, state&^((memoLodges|memoWithin)<<(memoBits*way))) {
			return
		}
	}
}

// share is shareLocked.
func (m *memo) share(of *Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shareLocked(of)
}

func (m *memo) sendHomeLocked(of *Entry) {
	if of.has(lodged) {
		t, group, way, within := m.lodging(of.at.tokens.Load())
		if within > 0 {
			t.groups[group].ways[way].known.Load().sendHome(within - 1)
		} else {
			t.sendHome(group, way)
		}
	}
}

// shareLocked has a bucket's tokens be at home from now on, for several requests come to it, or a handle.
func (m *memo) shareLocked(of *Entry) {
	of.marks.set(several, true)
	m.sendHomeLocked(of)
	if isShut(of.at.tokens.Load()) {
		of.reopen() // what others subtract there without a look would count as denied
	}
}

// vacateLocked sends home all that lodge in a table, which is then of the past.
func (m *memo) vacateLocked(number uint8) {
	t := m.tables[number]
	if t == nil {
		return
	}
	t.each(func(group uint32, way int, _ *Resolution) { t.sendHome(group, way) })
	m.tables[number] = nil
}
