//go:build interleave

package bucket

import (
	"fmt"
	"testing"
)

// parts is the operations whose order the counts rest on; a control puts a wrong one in.
type parts struct {
	kept     bool // in a journal's cell
	admitted func(*stock) int64
	credit   func(*stock, int64) int64
	putBack  func(c *stock, n int64)
	take     func(*stock, int64) bool
}

var right = parts{
	admitted: func(c *stock) int64 { return c.admitted() },
	credit:   (*stock).credit,
	take:     func(c *stock, n int64) bool { return take(&c.tokens, n) },
	// As a request of several limits does: announced before, taken back after.
	putBack: func(c *stock, n int64) {
		c.back.Add(n)
		c.pending.Add(-n)
	},
}

// both is a test of what has a journal's cell, and of what has not.
func both(t *testing.T, test func(t *testing.T, p parts)) {
	for _, kept := range []bool{false, true} {
		p := right
		p.kept = kept
		t.Run(map[bool]string{false: "in a bucket", true: "in a cell"}[kept], func(t *testing.T) { test(t, p) })
	}
}

// cell is where a journal has what is counted; nil where it does not.
func (p parts) cell() *Cell {
	if p.kept {
		return new(Cell)
	}
	return nil
}

// ghost is what truly happened in a cell, as far as its actors know.
type ghost struct {
	c         *stock
	flying    int64 // units of requests under way
	granted   int64 // credited by the owner in all, less what it took out
	atMost    int64 // units that are admitted, or may be by a request under way
	admitted  int64 // units that requests were told they have, for good
	inHand    int64 // of these, those not given back
	refused   int64
	collected int64 // what the owner has told the ledger of
}

func (g *ghost) state() []int64 {
	c := g.c
	return append(g.c.mapped().state(),
		c.tokens.v, c.refused.v, c.back.v, c.pending.v, c.in, c.shared.Load().finished.v, c.shared.Load().folded.v,
		g.flying, g.granted, g.atMost, g.admitted, g.inHand, g.refused, g.collected,
	)
}

func (g *ghost) always() string {
	switch {
	case g.inHand > g.granted:
		return fmt.Sprintf("requests have %d units in hand, %d were granted", g.inHand, g.granted)
	case g.collected > g.atMost:
		return fmt.Sprintf("%d units are told to the ledger, %d at most are admitted", g.collected, g.atMost)
	}
	return crashed(g.c.mapped(), g.admitted, g.flying)
}

func (g *ghost) atEnd() string {
	c := g.c
	left := c.fold()
	switch {
	case c.admitted() != g.admitted:
		return fmt.Sprintf("%d units count as admitted, %d were", c.admitted(), g.admitted)
	case c.refused.Load() != g.refused:
		return fmt.Sprintf("%d units count as denied, %d were", c.refused.Load(), g.refused)
	case left+g.inHand != g.granted:
		return fmt.Sprintf("%d units are left and %d in hand, of %d granted", left, g.inHand, g.granted)
	case c.due() != 0 || c.pending.v != 0 || left < 0:
		return fmt.Sprintf("%d left, %d back, %d pending at the end", left, c.due(), c.pending.v)
	}
	return ""
}

// crashed is asked after every operation of every order: a process that is killed there leaves
// all that was admitted, and no more than requests under way have besides.
func crashed(c *Cell, admitted, flying int64) string {
	if c == nil {
		return "" // it takes all
	}
	if got := c.taken(); got < admitted || got > admitted+flying {
		return fmt.Sprintf("a crash leaves %d units as admitted: %d were, and %d are under way", got, admitted, flying)
	}
	return ""
}

// request takes n units; with finish it gives them back at its end.
func (g *ghost) request(p parts, n int64, finish bool) func() {
	return func() {
		g.atMost += n
		g.flying += n
		if !p.take(g.c, n) {
			g.atMost -= n
			g.refused += n
			g.flying -= n
			g.c.refused.Add(n) // as Ask does
			return
		}
		g.flying -= n
		g.admitted += n
		g.inHand += n
		if finish {
			g.inHand -= n
			g.c.shared.Load().finished.Add(n)
		}
	}
}

// denied takes n units, which another limit then denies.
func (g *ghost) denied(p parts, n int64) func() {
	return func() {
		g.flying += n
		defer func() { g.flying -= n }()
		g.c.pending.Add(n)
		if p.take(g.c, n) {
			p.putBack(g.c, n)
			return
		}
		g.refused += n
		g.c.refused.Add(n)
		g.c.pending.Add(-n)
	}
}

func (g *ghost) credit(p parts, n int64) func() {
	return func() {
		g.granted += max(n, 0) // before anyone can have them
		short := p.credit(g.c, n)
		g.granted += min(n, 0) + short
	}
}

// collect tells the ledger what was admitted, as Bucket.Collect does.
func (g *ghost) collect(p parts) func() {
	return func() { g.collected = max(g.collected, p.admitted(g.c)) }
}

func then(fs ...func()) func() {
	return func() {
		for _, f := range fs {
			f()
		}
	}
}

func newGhost(p parts, tokens int64) *ghost {
	g := &ghost{granted: tokens, c: stockOf(new(Hot))}
	g.c.common()
	if at := p.cell(); at != nil {
		g.c.Hot, g.c.in = &at.Hot, inCell
	}
	g.c.credit(tokens)
	return g
}

func (g *ghost) scene(actors ...func()) scene {
	return scene{actors: actors, state: g.state, always: g.always, atEnd: g.atEnd}
}

// scenesOfCells are every pair and some threes of what may happen to a cell at once, the
// owner's operations one after the other as under its mutex.
func scenesOfCells(p parts) map[string]func() scene {
	fold := func(g *ghost) func() { return g.credit(p, 0) }
	return map[string]func() scene{
		"take, take, refill": func() scene {
			g := newGhost(p, 1)
			return g.scene(g.request(p, 1, false), g.request(p, 1, false), then(g.credit(p, 1), g.collect(p)))
		},
		"several units and one": func() scene {
			g := newGhost(p, 2)
			return g.scene(g.request(p, 2, false), g.request(p, 1, false), then(g.credit(p, -1), g.collect(p)))
		},
		"put back while the owner counts": func() scene {
			g := newGhost(p, 1)
			return g.scene(g.denied(p, 1), g.request(p, 1, false), then(g.collect(p), fold(g), g.collect(p)))
		},
		"several put back while units are taken out": func() scene {
			g := newGhost(p, 3)
			return g.scene(g.denied(p, 2), g.request(p, 1, false), then(g.credit(p, -3), g.collect(p), fold(g)))
		},
		"slots come back while the owner counts": func() scene {
			g := newGhost(p, 1)
			return g.scene(g.request(p, 1, true), g.request(p, 1, true), then(g.collect(p), fold(g), g.collect(p)))
		},
		"slots come back and are put back": func() scene {
			g := newGhost(p, 2)
			return g.scene(g.request(p, 2, true), g.denied(p, 1), then(fold(g), g.collect(p)))
		},
		"slots come back to the first in line": func() scene {
			g := newGhost(p, 1)
			return g.scene(then(g.request(p, 1, true)), g.request(p, 1, true), func() {
				for range 3 {
					g.atMost++
					g.flying++
					got := g.c.claim(1)
					g.flying--
					if got == 1 {
						g.admitted++
						g.inHand++
						return
					}
					g.atMost--
				}
			})
		},
		"slots that come back are nobody's": func() scene {
			g := newGhost(p, 1)
			return g.scene(g.request(p, 1, true), g.denied(p, 1), func() {
				n := g.c.forfeit(5)
				g.granted -= n
				g.collect(p)()
			})
		},
		"the lease ends": func() scene {
			g := newGhost(p, 2)
			return g.scene(then(g.request(p, 1, false), g.request(p, 1, false)), g.request(p, 1, false), then(g.credit(p, -1<<30), g.collect(p)))
		},
	}
}

// twoWords is a credit of units that writes what is there and what counts as put in one after the
// other: right once both are written, and not between.
func twoWords(write func(c *stock, there, counts func() bool) bool) func(*stock, int64) int64 {
	return func(c *stock, n int64) int64 {
		for {
			v, due := c.tokens.Load(), c.due()
			have := max(v>>1, 0)
			next := max(have+due+n, 0)
			was := c.mapped().put[v&1].Load()
			if !write(c,
				func() bool { return c.tokens.CompareAndSwap(v, next<<1|v&1) },
				func() bool { c.mapped().put[v&1].Store(was + next - have); return true }) {
				c.mapped().put[v&1].Store(was)
				continue
			}
			c.folds(due)
			return next - have - due - n
		}
	}
}

// Every order of what may happen to a cell at once keeps its counts, and so does a crash between any
// two operations.
func TestInterleavingsOfACell(t *testing.T) {
	both(t, func(t *testing.T, p parts) {
		for name, make := range scenesOfCells(p) {
			holds(t, name, make)
		}
	})
}

// With a guard removed some order breaks the counts, and it is found.
func TestInterleavingsFindWhatIsWrong(t *testing.T) {
	for name, change := range map[string]func(*parts){
		"what is back is read before what is there": func(p *parts) {
			p.admitted = func(c *stock) int64 {
				back, pending := c.back.Load(), c.pending.Load()
				return c.taken() + c.back.Load() - pending - back
			}
		},
		"announced no more before it is back": func(p *parts) {
			p.putBack = func(c *stock, n int64) { c.pending.Add(-n); c.back.Add(n) }
		},
		"put in without a look at who takes": func(p *parts) {
			p.credit = func(c *stock, n int64) int64 {
				v, due := c.tokens.Load(), c.due()
				have := max(v>>1, 0)
				next := max(have+due+n, 0)
				c.mapped().put[1-v&1].Store(c.mapped().put[v&1].Load() + next - have)
				c.tokens.Store(next<<1 | (1 - v&1))
				c.folds(due)
				return next - have - due - n
			}
		},
		"there before it counts as put in": func(p *parts) {
			p.credit = twoWords(func(c *stock, there, counts func() bool) bool {
				ok := there()
				counts()
				return ok
			})
		},
		"counts as put in before it is there": func(p *parts) {
			p.credit = twoWords(func(c *stock, there, counts func() bool) bool {
				counts()
				return there()
			})
		},
		"several units are taken without a look back": func(p *parts) {
			p.take = func(c *stock, n int64) bool {
				if c.units() < n {
					return n == 1 && take(&c.tokens, 1)
				}
				c.tokens.Add(-n * Unit)
				return true
			}
		},
	} {
		p := right
		p.kept = true
		change(&p)
		found := ""
		for scene, make := range scenesOfCells(p) {
			if fault, _ := explore(t, make); fault != "" {
				found = scene + ": " + fault
				break
			}
		}
		t.Logf("%s: %s", name, found)
		if found == "" {
			t.Errorf("%s: no order of any scene shows it", name)
		}
	}
}

// A request of two limits has units of both or of none, in every order with another such
// request, whatever the other limit's bucket holds.
func TestInterleavingsOfTwoLimits(t *testing.T) {
	both(t, func(t *testing.T, p parts) {
		for _, stocks := range [][2]int64{{1, 1}, {2, 1}, {1, 2}} {
			for _, crossed := range []bool{false, true} {
				fault, states := explore(t, func() scene {
					a, b := newGhost(p, stocks[0]), newGhost(p, stocks[1])
					had := 0
					request := func(first, second *ghost) func() {
						return func() {
							first.flying++
							second.flying++
							defer func() { first.flying--; second.flying-- }()
							first.c.pending.Add(1)
							first.atMost++
							if !take(&first.c.tokens, 1) {
								first.atMost--
								first.refused++
								first.c.refused.Add(1)
								first.c.pending.Add(-1)
								return
							}
							second.atMost++
							if !take(&second.c.tokens, 1) {
								second.atMost--
								second.refused++
								second.c.refused.Add(1)
								first.c.back.Add(1)
								first.atMost--
								first.c.pending.Add(-1)
								return
							}
							for _, g := range []*ghost{first, second} {
								g.admitted++
								g.inHand++
							}
							had++
							first.c.pending.Add(-1)
						}
					}
					second := request(a, b)
					if crossed {
						second = request(b, a)
					}
					return scene{
						actors: []func(){request(a, b), second, then(a.collect(p), func() { a.c.fold() }, b.collect(p))},
						state:  func() []int64 { return append(a.state(), b.state()...) },
						always: func() string { return a.always() + b.always() },
						atEnd: func() string {
							if int64(had) > min(stocks[0], stocks[1]) || a.admitted != b.admitted {
								return fmt.Sprintf("%d requests have both, of %v", had, stocks)
							}
							return a.atEnd() + b.atEnd()
						},
					}
				})
				t.Logf("stocks %v, crossed %v: %d states", stocks, crossed, states)
				if fault != "" {
					t.Errorf("stocks %v, crossed %v: %s", stocks, crossed, fault)
				}
			}
		}
	})
}

// What an ancestor's bucket bills after a crash is all that was admitted for itself, and of requests
// under way no more than they take: what is billed below is not billed here as well.
func TestInterleavingsOfAnAncestor(t *testing.T) {
	for _, hurried := range []bool{false, true} {
		fault, states := explore(t, func() scene {
			p := right
			p.kept = true
			g := newGhost(p, 3)
			own := int64(0)
			below := func(n int64, denied bool) func() {
				return func() {
					g.flying += n
					if hurried {
						g.c.mapped().inherited.Add(n)
						g.c.pending.Add(n)
					} else {
						g.c.pending.Add(n)
						g.c.mapped().inherited.Add(n)
					}
					if taken := take(&g.c.tokens, n); denied || !taken {
						if taken {
							g.c.back.Add(n)
						}
						g.c.mapped().inherited.Add(-n)
					}
					g.c.pending.Add(-n)
					g.flying -= n
				}
			}
			return scene{
				actors: []func(){below(1, false), below(1, true), func() {
					g.flying++
					if take(&g.c.tokens, 1) {
						own++
					}
					g.flying--
					g.c.fold()
				}},
				state: func() []int64 { return append(g.state(), g.c.mapped().inherited.v, own) },
				always: func() string {
					if got := g.c.mapped().TakenOwn(Crash{}); got < own || got > own+g.flying {
						return fmt.Sprintf("a crash leaves %d units to bill here: %d were admitted, and %d are under way", got, own, g.flying)
					}
					return ""
				},
				atEnd: func() string { return "" },
			}
		})
		t.Logf("inherited before it is announced %v: %d states, %s", hurried, states, fault)
		if (fault != "") != hurried {
			t.Errorf("inherited before it is announced %v: fault %q", hurried, fault)
		}
	}
}
