//go:build interleave

package agent

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// shutScene is a memoScene whose first bucket's tokens lodge, of which there are none: they may say so.
type shutScene struct {
	*memoScene
	denied  int64 // for certain
	refused int64 // of those, what the scene's stock took over
}

func newShutScene(shut bool) *shutScene {
	s := scarceScene()
	return s.remembered(s.remember(0), shut)
}

func (s *shutScene) remembered(remember func(), shut bool) *shutScene {
	remember()
	if shut {
		s.shut()
	}
	return s
}

// scarceScene is one before the request is remembered.
func scarceScene() *shutScene {
	s := &shutScene{memoScene: newMemoScene()}
	s.of[0].scope().says(termsAlone(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 9}))
	s.credit(-stocked)()
	return s
}

// shut is the end of a denial that is for certain until a second later.
func (s *shutScene) shut() {
	b := s.of[0].open(new(hand))
	defer b.close()
	b.shutHereLocked(sceneTime, sceneTime+1_000_000, sceneTime+2_000_000)
}

// request is one that is denied for certain, or takes a unit, or finds none.
func (s *shutScene) request() { s.late()() }

// late is a request that has looked where the tokens are before all else.
func (s *shutScene) late() func() {
	known, plain, _ := recall(s.r, memoRequest(0))
	return func() {
		if known == nil {
			return
		}
		s.asked[0]++
		if plain.Take(1) {
			s.taken[0]++
		} else if _, ok := known.Shut(0, plain, sceneTime); ok {
			s.denied++
		}
	}
}

func (s *shutScene) credit(n int64) func() {
	return func() {
		s.withStock(0, func(st *stock) {
			s.credited[0] += n + st.credit(n)
			s.refused += st.refused
		})
	}
}

// forget forgets the request, as a sweep does: what its tokens say goes home with them.
func (s *shutScene) forget() {
	m := &s.r.memo
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	t.each(func(group uint32, way int, _ *Resolution) { t.drop(group, way) })
}

// putBack is a request that has a unit of the bucket, and that another limit denies.
func (s *shutScene) putBack() {
	s.taken[0]--
	s.of[0].PutBack(1)
}

// newShutSceneWithin is one whose first bucket's tokens lodge in what a request of both buckets came to.
func newShutSceneWithin(shut bool) *shutScene {
	s := scarceScene()
	return s.remembered(s.rememberBoth(1), shut)
}

// requestOfBoth is one that asks the second bucket first, unless the tokens of the first say that there are none.
func (s *shutScene) requestOfBoth() {
	known, _, _ := recall(s.r, memoRequest(2))
	if known == nil {
		return
	}
	if i := known.Closed(); i >= 0 {
		if _, ok := known.Shut(i, known.Cell(i), sceneTime); ok {
			s.denied++
			return
		}
	}
	s.takeBoth(known)
}

func (s *shutScene) scene(actors ...func()) scene {
	sc := s.memoScene.scene(actors...)
	state, atEnd := sc.state, sc.atEnd
	sc.state = func() []int64 {
		out := append(state(), s.denied, s.refused)
		if b := s.of[0].working.book; b != nil {
			out = append(out, b.cell.refused)
		}
		for _, v := range s.of[0].packed { // where the tokens are is not known at every moment
			out = append(out, int64(v))
		}
		return out
	}
	sc.atEnd = func() string {
		e := s.of[0]
		tokens := e.tokens().Load()
		switch due := e.at.back.v - s.folded[0]; {
		case isShut(tokens) && due > 0:
			return "a unit is back, and the tokens say that there is none"
		case isShut(tokens) && e.has(lost|dead):
			return "the bucket is lost or no more, and the tokens say that it denies"
		case isShut(tokens) && tokens&shutApart == 0 && e.seldom() != nil && e.seldom().denials.Load() != nil:
			return "denials are counted apart, and the tokens say that they count them"
		case isShut(tokens) && e.has(several):
			return "the tokens of what a handle may hold say that there are none"
		}
		if n := s.refused + allDenied(&e.Bucket); n != s.denied {
			return fmt.Sprintf("%d denials are counted, %d were", n, s.denied)
		}
		return atEnd()
	}
	return sc
}

// So it is where they lodge in what a request of several limits came to.
func TestInterleavingsOfTokensWithinThatSayThatThereAreNone(t *testing.T) {
	for name, make := range map[string]func() scene{
		"units are granted": func() scene {
			s := newShutSceneWithin(true)
			return s.scene(s.requestOfBoth, s.credit(1))
		},
		"it begins as requests look": func() scene {
			s := newShutSceneWithin(false)
			return s.scene(s.requestOfBoth, s.shut)
		},
		"it begins as they move in": func() scene {
			s := scarceScene()
			return s.scene(then(s.rememberBoth(1), s.requestOfBoth), s.shut)
		},
		"a unit comes back": func() scene {
			s := newShutSceneWithin(true)
			s.taken[0], s.credited[0] = 1, s.credited[0]+1
			return s.scene(s.requestOfBoth, s.putBack)
		},
		"a unit comes back as it begins": func() scene {
			s := newShutSceneWithin(false)
			s.taken[0], s.credited[0] = 1, s.credited[0]+1
			return s.scene(s.shut, s.putBack)
		},
		"they move into a way as a unit comes back": func() scene {
			s := newShutSceneWithin(true)
			s.taken[0], s.credited[0] = 1, s.credited[0]+1
			return s.scene(then(s.memoScene.forget, s.remember(0)), s.putBack)
		},
		"another request comes to the bucket": func() scene {
			s := newShutSceneWithin(true)
			return s.scene(s.requestOfBoth, s.remember(0))
		},
		"the request is forgotten": func() scene {
			s := newShutSceneWithin(true)
			return s.scene(s.requestOfBoth, then(s.memoScene.forget, s.rememberBoth(1)))
		},
		"a handle comes": func() scene {
			s := newShutSceneWithin(true)
			return s.scene(s.requestOfBoth, s.pin(0))
		},
	} {
		holds(t, name, make)
	}
}

// What tokens say of denials ends with what made it true in every order, and no denial that they count is lost or counted twice.
func TestInterleavingsOfTokensThatSayThatThereAreNone(t *testing.T) {
	for name, make := range map[string]func() scene{
		"units are granted": func() scene {
			s := newShutScene(true)
			return s.scene(then(s.request, s.request), s.request, s.credit(1))
		},
		"it is said again": func() scene {
			s := newShutScene(true)
			return s.scene(then(s.request, s.request), s.request, s.shut)
		},
		"it begins as requests look": func() scene {
			s := newShutScene(false)
			return s.scene(then(s.request, s.request), s.request, s.shut)
		},
		"it begins as units are granted and taken": func() scene {
			s := newShutScene(false)
			return s.scene(s.request, then(s.credit(1), s.credit(0)), s.shut)
		},
		"a unit comes back": func() scene {
			s := newShutScene(true)
			s.taken[0], s.credited[0] = 1, s.credited[0]+1
			return s.scene(s.request, s.request, s.putBack)
		},
		"a unit comes back as it begins": func() scene {
			s := newShutScene(false)
			s.taken[0], s.credited[0] = 1, s.credited[0]+1
			return s.scene(s.request, s.shut, s.putBack)
		},
		"the tokens move in as a unit comes back": func() scene {
			s := newShutScene(false)
			s.anew() // which sends them home and lets them in again
			s.taken[0], s.credited[0] = 1, s.credited[0]+1
			return s.scene(then(s.anew, s.shut), s.putBack)
		},
		"the tokens move in as it begins": func() scene {
			s := scarceScene()
			return s.scene(then(s.remember(0), s.request), s.shut)
		},
		"the tokens are sent home": func() scene {
			s := newShutScene(true)
			return s.scene(s.late(), s.request, s.again(0))
		},
		"a unit comes back as the tokens go home": func() scene {
			s := newShutScene(true)
			s.taken[0], s.credited[0] = 1, s.credited[0]+1
			return s.scene(then(s.forget, s.remember(0)), s.putBack)
		},
		"a handle comes as the tokens go home": func() scene {
			s := newShutScene(true)
			return s.scene(s.forget, s.pin(0), s.late())
		},
		"the tokens go home and move in elsewhere": func() scene {
			s := newShutScene(true)
			return s.scene(s.late(), then(s.forget, s.remember(0), s.request))
		},
		"a handle comes": func() scene {
			s := newShutScene(true)
			return s.scene(s.late(), s.pin(0), s.credit(0))
		},
		"the table is replaced": func() scene {
			s := newShutScene(true)
			return s.scene(s.late(), s.anew, s.shut)
		},
		"the server is lost": func() scene {
			s := newShutScene(true)
			return s.scene(then(s.request, s.shut), func() { s.of[0].SetLost(true) })
		},
		"the bucket is dropped": func() scene {
			s := newShutScene(true)
			return s.scene(s.request, s.shut, func() {
				s.of[0].marks.set(dead, true)
				s.of[0].reopen()
			})
		},
		"a unit is admitted that is not there": func() scene {
			s := newShutScene(true)
			return s.scene(s.request, s.request, func() {
				s.withStock(0, func(st *stock) { st.admit(1) })
				s.asked[0]++
				s.credited[0]++
				s.taken[0]++
			})
		},
		"denials are counted apart": func() scene {
			s := newShutScene(true)
			return s.scene(s.request, s.request, then(func() { s.of[0].countApart() }, s.shut))
		},
	} {
		holds(t, name, make)
	}
}

// allDenied is what a bucket has denied.
func allDenied(of *Bucket) int64 {
	b := of.open(new(hand))
	defer b.close()
	return b.denied()
}
