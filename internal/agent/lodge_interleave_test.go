//go:build interleave

package agent

import "testing"

// take is one request that takes a unit of its bucket without the memo, as one that is not known does.
func (s *memoScene) take(i int) func() {
	return func() {
		s.asked[i]++
		if s.of[i].Take(1) {
			s.taken[i]++
		}
	}
}

// credit is what a bucket's owner does to its stock, under its mutex.
func (s *memoScene) credit(i int, n int64) func() {
	return func() {
		e := s.of[i]
		e.mu.Lock()
		defer e.mu.Unlock()
		st := e.stock()
		st.in = stocked + s.in[i]
		short := st.credit(n)
		s.credited[i] += n + short
		s.in[i] = st.in - stocked
		if got := st.admitted(); got > s.asked[i] {
			s.fault = "more counts as admitted than was asked for"
		}
	}
}

// again is a request of other attributes that comes to the same bucket.
func (s *memoScene) again(i int) func() {
	return func() {
		s.r.Remember(memoRequest(2), s.sets[i], []*Item{&s.sets[i].Items[0]}, []*Entry{s.of[i]}, 0)
	}
}

func (s *memoScene) pin(i int) func() { return func() { s.of[i].Pin() } }

// anew is what a sweep does to a table of which many ways are spent.
func (s *memoScene) anew() {
	m := &s.r.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resizeLocked(m.table.Load(), 2)
}

// scenesOfLodging is what may happen to a bucket at once, some of whose requests find its tokens in the memo and some at home.
func scenesOfLodging() map[string]func() scene {
	remembered := func() *memoScene {
		s := newMemoScene()
		s.remember(0)()
		return s
	}
	return map[string]func() scene{
		"they move in": func() scene {
			s := newMemoScene()
			return s.scene(s.remember(0), then(s.recall(0), s.take(0)), s.credit(0, -3))
		},
		"they are sent home, and another's move in": func() scene {
			s := remembered()
			return s.scene(then(s.recall(0), s.recall(0)), then(s.replace(0), s.remember(1), s.take(1)))
		},
		"another request comes to the bucket": func() scene {
			s := remembered()
			return s.scene(then(s.recall(0), s.take(0)), s.again(0), s.credit(0, 2))
		},
		"a handle comes to the bucket": func() scene {
			s := remembered()
			return s.scene(then(s.recall(0), s.recall(0)), s.pin(0), s.credit(0, -3))
		},
		"a handle comes before they move in": func() scene {
			s := newMemoScene()
			return s.scene(s.remember(0), s.pin(0), then(s.recall(0), s.recall(0)))
		},
		"the table is replaced": func() scene {
			s := remembered()
			return s.scene(then(s.recall(0), s.take(0)), s.anew, s.credit(0, -1))
		},
		"the table is replaced twice": func() scene {
			s := remembered()
			return s.scene(s.recall(0), then(s.anew, s.anew))
		},
	}
}

// In every order a bucket's units are in one place, are taken once, and are no other's.
func TestInterleavingsOfLodging(t *testing.T) {
	for name, make := range scenesOfLodging() {
		holds(t, name, make)
	}
}

// At the end of some order tokens lodge: what is tested above is not what always stays at home.
func TestTokensLodgeInSomeOrder(t *testing.T) {
	s := newMemoScene()
	s.remember(0)()
	s.anew()
	if !s.of[0].has(lodged) {
		t.Error("the tokens are at home")
	}
	s.pin(0)()
	if s.of[0].has(lodged) || s.of[0].at.tokens.Load() != stocked*Unit {
		t.Error("the tokens of what a handle holds are not at home")
	}
}
