package agent

import "math"

// Where one remembered request alone comes to a bucket, the bucket's tokens are not among what else requests touch of it, but
// lodge in the memo beside that request's key: a decision then reads one cache line and no other. What is at home says where they are.
//
// Tokens are in one place at any time, and whoever moves them holds the bucket's mutex, and the memo's. Requests do not: one that looked
// before tokens were moved finds none where they were, neither then nor ever after, and asks the bucket. So a way lodges the tokens of one bucket
// in its life, for a request with that bucket in hand must not take another's. Ways are as new in the next table.
//
// What a crash is not to take is a journal's, and does not lodge; nor what several requests that are remembered come to, for
// each but one of them would go by what is at home; nor what a handle ever had, for it subtracts there without a look.

const (
	// lodgedBelow is less than tokens ever are: none are there, for they were moved.
	lodgedBelow = math.MinInt64 / 2

	// spent is what a way's tokens are from when they were sent home on.
	spent = math.MinInt64 + 1<<lodgeTraces

	// lodgeTraces is bits below which a refusal of a request that had looked before tokens were moved leaves a trace: there is
	// room for those of eight million requests that were between the look and the subtraction.
	lodgeTraces = 24

	// memoSpent of ways, one may have lodged tokens before the table is replaced.
	memoSpent = 16
)

// lodgedAt is what is at home of tokens that are in a table.
func lodgedAt(number uint8, group uint32, way int) int64 {
	return math.MinInt64 + (int64(number)<<33|int64(group)<<1|int64(way)+1)<<lodgeTraces - Unit
}

// lodging returns where tokens lodge, by what is at home of them. The mutex of their bucket is held, or the memo's.
func (m *memo) lodging(home int64) (t *memoTable, group uint32, way int) {
	at := uint64(home-math.MinInt64) >> lodgeTraces
	return m.tables[at>>33&1], uint32(at >> 1), int(at & 1)
}

// tokens is where what is spendable is. The mutex is held.
func (of *Bucket) tokens() *counter {
	if !of.has(lodged) {
		return &of.at.tokens
	}
	t, group, way := of.scope().registry.memo.lodging(of.at.tokens.Load())
	return &t.groups[group].ways[way].tokens
}

// takeLodged is Take of what may lodge.
func (of *Bucket) takeLodged(n int64) bool {
	of.mu.Lock()
	defer of.mu.Unlock()
	return takeQuietly(of.tokens(), n)
}

// lodge moves the tokens of what a request alone comes to to its way, if they may lodge there. The memo's mutex is held.
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
	of.mu.Lock()
	defer of.mu.Unlock()
	of.marks.set(lodged, true)
	tokens.Store(of.at.tokens.Swap(lodgedAt(t.number, group, way)))
	t.lodging++
	return true
}

// sendHome moves tokens back that lodge in a way, if any do. The memo's mutex is held.
func (t *memoTable) sendHome(group uint32, way int) {
	g := &t.groups[group]
	if !g.lodges(way) {
		return
	}
	g.lodgeNone(way)
	w := &g.ways[way]
	of := w.known.Load().entries[0]
	of.mu.Lock()
	defer of.mu.Unlock()
	of.at.tokens.Store(w.tokens.Swap(spent))
	of.marks.set(lodged, false)
	t.lodging--
	t.spent++
}

// lodges reports whether tokens lodge in a way. The memo's mutex is held.
func (g *memoGroup) lodges(way int) bool { return g.state.Load()>>(memoBits*way)&memoLodges != 0 }

// lodgeNone says that they do not. The memo's mutex is held.
func (g *memoGroup) lodgeNone(way int) {
	for {
		state := g.state.Load()
		if g.state.CompareAndSwap(state, state&^(memoLodges<<(memoBits*way))) {
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
		t, group, way := m.lodging(of.at.tokens.Load())
		t.sendHome(group, way)
	}
}

// shareLocked has a bucket's tokens be at home from now on, for several requests come to it, or a handle.
func (m *memo) shareLocked(of *Entry) {
	of.marks.set(several, true)
	m.sendHomeLocked(of)
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
