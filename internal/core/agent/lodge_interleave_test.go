//go:build interleave

package agent

import (
	"slices"
	"testing"
)

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
		s.withStock(i, func(st *stock) {
			s.credited[i] += n + st.credit(n)
			if got := st.admitted(); got > s.asked[i] {
				s.fault = "more counts as admitted than was asked for"
			}
		})
	}
}

// withStock calls f under the mutex of a bucket, with what its book says.
func (s *memoScene) withStock(i int, f func(*stock)) {
	e := s.of[i]
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.stock()
	st.in, st.folded = stocked+s.in[i], s.folded[i]
	f(&st)
	s.in[i], s.folded[i] = st.in-stocked, st.folded
}

// rememberBoth remembers a request that both buckets are asked for, the one of index first before the other.
func (s *memoScene) rememberBoth(first int) func() {
	return func() {
		items := []*Item{&s.sets[0].Items[first], &s.sets[0].Items[1-first]}
		s.r.Remember(memoRequest(2), s.sets[0], items, []*Entry{s.of[first], s.of[1-first]}, 0)
	}
}

// both is such a request. What a bucket has not, it is asked for again under its mutex, and where that denies, the other has its unit back.
func (s *memoScene) both() {
	if known, _, _ := recall(s.r, memoRequest(2)); known != nil {
		s.takeBoth(known)
	}
}

// looked is such a request that has looked before all else.
func (s *memoScene) looked() func() {
	known, _, _ := recall(s.r, memoRequest(2))
	return func() { s.takeBoth(known) }
}

func (s *memoScene) takeBoth(known *Resolution) {
	of := func(i int) int {
		if known.Entry(i) == s.of[0] {
			return 0
		}
		return 1
	}
	s.asked[0]++
	s.asked[1]++
	refused := known.Take(1)
	for i := refused; i < 2; i++ {
		if i > refused {
			if known.holds[i] {
				known.Entry(i).Hold(1)
			}
			if known.Entry(i).Take(1) {
				continue
			}
		}
		ok := false
		s.withStock(of(i), func(st *stock) {
			st.fold()
			ok = st.takeQuietly(1)
		})
		if ok {
			continue
		}
		for j := range i + 1 {
			if j < i {
				known.Entry(j).PutBack(1)
			}
			if known.holds[j] {
				known.Entry(j).Release(1)
			}
		}
		return
	}
	for i := range 2 {
		if known.holds[i] && refused < 2 {
			known.Entry(i).Release(1)
		}
		s.taken[i]++
	}
}

// handle is a handle's life: it takes from what it found as it came.
func (s *memoScene) handle(i int) func() {
	return func() {
		s.asked[i]++
		s.of[i].Pin()
		if s.of[i].Stock().Add(-Unit) >= 0 {
			s.taken[i]++
		}
		s.of[i].Unpin()
	}
}

// forget forgets the request of both, as one does whose bucket is no more.
func (s *memoScene) forget() {
	m := &s.r.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	for i := range t.groups {
		for at := range memoWays {
			if known := t.groups[i].ways[at].known.v; known != nil && !known.plain {
				t.drop(uint32(i), at)
			}
		}
	}
}

// known returns all resolutions that were ever known.
func (s *memoScene) known() []*Resolution {
	for _, t := range s.r.memo.tables {
		if t == nil {
			continue
		}
		for i := range t.groups {
			for at := range memoWays {
				if known := t.groups[i].ways[at].known.v; known != nil && !slices.Contains(s.resolutions, known) {
					s.resolutions = append(s.resolutions, known)
				}
			}
		}
	}
	return s.resolutions
}

// astray reports what a resolution says of tokens that are not there, when all is done.
func (s *memoScene) astray() string {
	for _, known := range s.known() {
		for i := range known.limits {
			if tokens := known.at[i].v; tokens != known.entries[i].tokens() && !(tokens == &known.entries[i].at.tokens && known.entries[i].has(lodged)) {
				return "a resolution says that tokens are where they are not"
			}
			if known.at[i].v.v >= 0 && known.at[i].v != known.entries[i].tokens() {
				return "there are tokens in two places"
			}
		}
		for i := range known.lodge {
			if !known.plain && known.lodge[i].v > 0 && (i >= known.limits || known.at[i].v != &known.lodge[i]) {
				return "tokens were left behind in a resolution"
			}
		}
	}
	return ""
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

// scenesOfLodgingWithin is the same of a request of several limits, whose resolution has the tokens.
func scenesOfLodgingWithin() map[string]func() scene {
	remembered := func() *memoScene {
		s := newMemoScene()
		s.rememberBoth(0)()
		return s
	}
	scarce := func(has int64) *memoScene { // the second bucket asked
		s := remembered()
		s.credit(1, has-stocked)()
		return s
	}
	return map[string]func() scene{
		"they move in": func() scene {
			s := newMemoScene()
			return s.scene(s.rememberBoth(0), s.both, s.credit(1, -3))
		},
		"they are sent home, and one moves in elsewhere": func() scene {
			s := remembered()
			return s.scene(s.looked(), then(s.forget, s.remember(1)))
		},
		"they are sent home, and move in again": func() scene {
			s := remembered()
			return s.scene(s.both, then(s.forget, s.rememberBoth(0)))
		},
		"they are sent home, and move in again in another order": func() scene {
			s := remembered()
			return s.scene(s.both, then(s.forget, s.rememberBoth(1)))
		},
		"another takes its place": func() scene {
			s := remembered()
			return s.scene(s.both, then(s.replace(0), s.remember(1)))
		},
		"another request comes to a bucket": func() scene {
			s := remembered()
			return s.scene(s.looked(), s.remember(0), s.credit(0, 2))
		},
		"it comes to what another request has": func() scene {
			s := newMemoScene()
			s.remember(1)()
			return s.scene(s.recall(1), then(s.rememberBoth(0), s.both))
		},
		"it comes to what another request has, and its owner too": func() scene {
			s := newMemoScene()
			s.remember(1)()
			return s.scene(s.recall(1), s.rememberBoth(0), s.credit(1, -1))
		},
		"a handle comes to a bucket": func() scene {
			s := remembered()
			return s.scene(s.looked(), s.handle(1), s.credit(1, -3))
		},
		"a handle comes as they move in": func() scene {
			s := newMemoScene()
			return s.scene(s.rememberBoth(0), s.handle(1), s.both)
		},
		"the second refuses": func() scene {
			s := scarce(1)
			return s.scene(s.looked(), s.looked(), s.credit(1, 1))
		},
		"the second refuses as they are sent home": func() scene {
			s := scarce(0)
			return s.scene(s.looked(), s.forget, s.credit(1, 1))
		},
		"the second refuses as another comes to the first": func() scene {
			s := scarce(0)
			return s.scene(s.looked(), s.remember(0), s.credit(0, 0))
		},
		"the table is replaced": func() scene {
			s := remembered()
			return s.scene(s.looked(), s.anew)
		},
		"the table is replaced twice": func() scene {
			s := remembered()
			return s.scene(s.take(1), then(s.anew, s.anew))
		},
		"the first announces what it takes": func() scene {
			s := newMemoScene()
			s.sets[0].Items[0].Hold = true
			s.rememberBoth(0)()
			s.credit(1, 1-stocked)()
			return s.scene(s.looked(), s.looked())
		},
		"the first announces what it takes as they are sent home": func() scene {
			s := newMemoScene()
			s.sets[0].Items[0].Hold = true
			s.rememberBoth(0)()
			return s.scene(s.looked(), then(s.forget, s.remember(1)))
		},
	}
}

// In every order a bucket's units are in one place, are taken once, and are no other's; and where one of two buckets has none, the other has
// what was taken back.
func TestInterleavingsOfLodgingWithin(t *testing.T) {
	for name, make := range scenesOfLodgingWithin() {
		holds(t, name, make)
	}
}

// In every order a bucket's units are in one place, are taken once, and are no other's.
func TestInterleavingsOfLodging(t *testing.T) {
	for name, make := range scenesOfLodging() {
		holds(t, name, make)
	}
}

// So it is within a resolution, of each bucket by itself.
func TestTokensLodgeWithinInSomeOrder(t *testing.T) {
	s := newMemoScene()
	s.rememberBoth(0)()
	s.anew()
	known, _, _ := recall(s.r, memoRequest(2))
	if !s.of[0].has(lodged) || !s.of[1].has(lodged) || known.at[1].v != &known.lodge[1] || known.lodge[1].v != stocked*Unit {
		t.Error("the tokens are at home")
	}
	s.pin(0)()
	if s.of[0].has(lodged) || !s.of[1].has(lodged) || s.of[0].at.tokens.v != stocked*Unit || known.at[0].v != &s.of[0].at.tokens {
		t.Error("the tokens of what a handle holds are not at home, or another's are")
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
