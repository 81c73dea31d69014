//go:build interleave

package agent

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// memoScene is requests and the owner on a memo. No request is decided by a set that was gone when it
// began, or by what another request came to.
type memoScene struct {
	r      *Registry
	groups []memoGroup
	sets   [2]*Set // of tenants of a request each
	of     [2]*Entry
	taken  [2]int64 // units of each that its requests have
	fault  string

	asked, credited, in, folded [2]int64
	resolutions                 []*Resolution // that were ever known
}

// stocked is the units that each bucket has to begin with.
const stocked = 4

func memoRequest(i int) []limit.Attribute {
	return []limit.Attribute{{Name: "tenant", Value: memoTenants[i]}}
}

// memoTenants are such that the first two are in one group of two: one may take the other's place.
var memoTenants = func() []string {
	t := &memoTable{groups: make([]memoGroup, 2)}
	place := func(i int) uint32 {
		k := KeyOf([]limit.Attribute{{Name: "tenant", Value: fmt.Sprint(i)}})
		return t.place(k, 0)
	}
	rival := 1
	for place(rival) != place(0) {
		rival++
	}
	return []string{"0", fmt.Sprint(rival), "another"}
}()

func newMemoScene() *memoScene {
	s := &memoScene{r: NewRegistry(10)}
	for i := range s.sets {
		s.sets[i] = &Set{List: List{shared: &shared{Items: make([]Item, 2)}}}
		s.of[i] = entryOn(s.r)
		s.of[i].at.tokens.Store(stocked * Unit)
	}
	atHome = func(c *counter) bool { return c == &s.of[0].at.tokens || c == &s.of[1].at.tokens }
	s.r.memo.begin()
	// Few groups, so that all share them.
	s.r.memo.table.v = s.r.memo.newTableLocked(2, 0, false)
	s.groups = s.r.memo.table.v.groups
	return s
}

// recall is one request. What it is held to is what it saw as it began, so the first of an actor, which begins
// before all else, is held to nothing.
func (s *memoScene) recall(i int) func() {
	return func() {
		gone := s.sets[i].Gone()
		known, plain, _ := recall(s.r, memoRequest(i))
		switch {
		case known == nil:
		case known.Set() != s.sets[i]:
			s.fault = "a request is decided by what another came to"
		case gone:
			s.fault = "a request is decided by a set that was gone before"
		default:
			s.asked[i]++
			if plain.Take(1) || plain.moved() && known.Entry(0).Take(1) {
				s.taken[i]++
			}
		}
	}
}

func (s *memoScene) remember(i int) func() {
	return func() {
		s.r.Remember(memoRequest(i), s.sets[i], []*Item{&s.sets[i].Items[0]}, []*Entry{s.of[i]}, 0)
	}
}

// replace is what the owner does when it replaces a set.
func (s *memoScene) replace(i int) func() {
	return func() {
		s.r.memo.pause(s.sets[0])
		s.sets[i].gone.Store(true)
		s.r.memo.resume()
	}
}

func (s *memoScene) scene(actors ...func()) scene {
	return scene{
		actors: actors,
		state: func() []int64 {
			m := &s.r.memo
			out := []int64{identity(m.table.v), identity(m.paused)}
			for i := range s.groups {
				g := &s.groups[i]
				out = append(out, int64(g.state.v), int64(g.more.v))
				for at := range g.ways {
					out = append(out, int64(g.keys[at].v), identity(g.ways[at].known.v), g.ways[at].tokens.v)
				}
			}
			for i, e := range s.of {
				out = append(out, e.at.tokens.v, e.at.back.v, e.at.pending.v, int64(e.marks.Load()), s.taken[i], s.asked[i], s.credited[i], s.folded[i])
			}
			for _, t := range m.tables {
				if t == nil {
					continue
				}
				out = append(out, int64(t.lodging), int64(t.spent))
				for i := range t.groups {
					g := &t.groups[i]
					out = append(out, int64(g.state.v), identity(g.ways[0].known.v), g.ways[0].tokens.v, identity(g.ways[1].known.v), g.ways[1].tokens.v)
				}
			}
			for _, known := range s.known() {
				for i := range known.lodge {
					out = append(out, identity(known.at[i].v), known.lodge[i].v)
				}
			}
			for _, set := range s.sets {
				if set.Gone() {
					out = append(out, 1)
				}
			}
			return out
		},
		always: func() string { return s.fault },
		atEnd: func() string {
			for i, set := range s.sets {
				if known, _, _ := recall(s.r, memoRequest(i)); known != nil && set.Gone() {
					return "what is gone is known at the end"
				}
				if e := s.of[i]; e.has(pinned) && e.has(lodged) {
					return "a handle's tokens are elsewhere"
				}
				if has := unitsOf(s.of[i].tokens()) + s.of[i].at.back.v - s.folded[i]; has+s.taken[i] != stocked+s.credited[i] {
					return fmt.Sprintf("a bucket has %d units of %d, and its requests have %d", has, stocked+s.credited[i], s.taken[i])
				}
			}
			return s.astray()
		},
	}
}

// In every order of requests that look and remember with the replacement of a set.
func TestInterleavingsOfTheMemo(t *testing.T) {
	for name, make := range map[string]func() scene{
		"remembered as the set is replaced": func() scene {
			s := newMemoScene()
			return s.scene(s.remember(0), s.replace(0), then(s.recall(0), s.recall(0)))
		},
		"one is dropped, and another takes its place": func() scene {
			s := newMemoScene()
			s.remember(0)()
			return s.scene(then(s.recall(0), s.recall(0)), then(s.replace(0), s.remember(1)))
		},
		"one is looked up as it takes another's place": func() scene {
			s := newMemoScene()
			s.remember(0)()
			return s.scene(then(s.recall(1), s.recall(1)), then(s.replace(0), s.remember(1)))
		},
		"forgotten while it is looked up": func() scene {
			s := newMemoScene()
			s.remember(0)()
			known, _, _ := recall(s.r, memoRequest(0))
			return s.scene(s.recall(0), then(func() {
				known.Entry(0).marks.set(dead, true)
				s.r.Forget(known)
			}, s.remember(1)))
		},
	} {
		holds(t, name, make)
	}
}

// With a guard removed some order shows it.
func TestInterleavingsFindWhatAMemoMustNotKnow(t *testing.T) {
	for name, make := range map[string]func() scene{
		"the set is gone before the table is taken away": func() scene {
			s := newMemoScene()
			s.remember(0)()
			return s.scene(then(s.recall(0), s.recall(0)), func() {
				s.sets[0].gone.Store(true)
				s.r.memo.pause(s.sets[0])
				s.r.memo.resume()
			})
		},
		"the table is given back before the set is gone": func() scene {
			s := newMemoScene()
			return s.scene(s.remember(0), func() {
				s.r.memo.pause(s.sets[0])
				s.r.memo.resume()
				s.sets[0].gone.Store(true)
			}, s.recall(0))
		},
	} {
		fault, _ := explore(t, make)
		t.Logf("%s: %s", name, fault)
		if fault == "" {
			t.Errorf("%s: no order shows it", name)
		}
	}
}
