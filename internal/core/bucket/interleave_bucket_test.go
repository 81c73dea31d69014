//go:build interleave

package bucket

import (
	"fmt"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// bucketScene is a scene on a whole bucket of slots: whoever was told that it has a slot has
// it, nobody waits while one is there, and all counts agree.
type bucketScene struct {
	b               *Bucket
	at              *Cell // of a journal's; nil for none
	join            func(*Bucket, *Waiter) ([]*Waiter, bool)
	granted         int64
	running, starts int64
	waiting         []*Waiter
	left            int64 // waiters that were abandoned
}

const sceneTime = 1_000_000

func newBucketScene(p parts, slots int64) *bucketScene {
	at := p.cell()
	s := &bucketScene{join: (*Bucket).Join, b: New(TermsAlone(&limit.Limit{Algorithm: limit.Concurrency, Slots: 9, Queue: 9}), at, false, 0), at: at, granted: slots}
	r := s.b.Renew(sceneTime, false)
	s.b.Apply(sceneTime, lease.Grant{Number: r.Number, Tokens: slots, TTL: 10_000_000, DenyFor: 5_000_000})
	return s
}

// state is all that is in it besides what requests touch.
func (c *Cell) state() []int64 {
	if c == nil {
		return nil
	}
	return []int64{c.put[0].v, c.put[1].v, c.inherited.v}
}

func (s *bucketScene) started(n int64) { s.running += n; s.starts += n }

func (s *bucketScene) served(ws []*Waiter) {
	for _, w := range ws {
		if w.verdict.Outcome == Admitted {
			s.started(w.Units)
		}
	}
}

// request takes a slot, or waits its turn; when it has it at once it gives it back again.
func (s *bucketScene) request() {
	if !s.b.Take(1) {
		v := s.b.Ask(sceneTime, 1, false, false)
		if v.Outcome == Wait {
			w := &Waiter{Units: 1}
			s.waiting = append(s.waiting, w)
			served, _ := s.join(s.b, w)
			s.served(served)
			return
		}
		if v.Outcome != Admitted {
			return
		}
	}
	s.started(1)
	s.finish()
}

func (s *bucketScene) finish() {
	s.running--
	s.served(s.b.Finish(1))
}

func (s *bucketScene) scene(actors ...func()) scene {
	return scene{
		actors: actors,
		state: func() []int64 {
			b := s.b
			c := &b.stock
			out := []int64{
				c.tokens.v, c.refused.v, c.back.v, c.pending.v, c.in, s.b.shared.Load().finished.v, s.b.shared.Load().folded.v, int64(s.b.shared.Load().patient.v), b.debt, b.offered,
				s.granted, s.running, s.starts, s.left,
			}
			if b.live {
				out = append(out, 1)
			}
			out = append(out, s.at.state()...)
			for _, w := range s.waiting {
				out = append(out, int64(w.verdict.Outcome))
			}
			return out
		},
		always: func() string {
			if s.running > s.granted {
				return fmt.Sprintf("%d slots are in use, of %d", s.running, s.granted)
			}
			return crashed(s.at, s.starts, int64(len(actors)+len(s.waiting)))
		},
		atEnd: func() string {
			waits := int64(0)
			for _, w := range s.waiting {
				if w.verdict.Outcome == 0 {
					waits++
				}
			}
			waits -= s.left
			admitted, _ := collect(s.b)
			st := s.b.State(sceneTime)
			switch {
			case waits > 0 && st.Tokens > 0:
				return fmt.Sprintf("%d wait, and %d slots are there", waits, st.Tokens)
			case admitted != s.starts:
				return fmt.Sprintf("%d starts are counted, %d were", admitted, s.starts)
			case st.InUse != s.running:
				return fmt.Sprintf("%d slots count as in use, %d are", st.InUse, s.running)
			}
			return ""
		},
	}
}

// A slot that comes back finds who waits for it, in every order; a lease that is renewed,
// answered or over meanwhile loses and doubles none.
func TestInterleavingsOfSlots(t *testing.T) {
	both(t, interleavingsOfSlots)
}

func interleavingsOfSlots(t *testing.T, p parts) {
	for name, make := range map[string]func() scene{
		"one comes back as another begins to wait": func() scene {
			s := newBucketScene(p, 1)
			s.b.Take(1)
			s.started(1)
			return s.scene(s.finish, s.request)
		},
		"two begin to wait": func() scene {
			s := newBucketScene(p, 1)
			s.b.Take(1)
			s.started(1)
			return s.scene(s.finish, s.request, s.request)
		},
		"one gives up waiting": func() scene {
			s := newBucketScene(p, 1)
			s.b.Take(1)
			s.started(1)
			w := &Waiter{Units: 1}
			s.waiting = append(s.waiting, w)
			s.b.Join(w)
			return s.scene(s.finish, s.request, func() {
				served, was := s.b.Abandon(w, true)
				s.served(served)
				if was {
					s.left++
				}
			})
		},
		"a renewal and its answer": func() scene {
			s := newBucketScene(p, 2)
			take := func() {
				if s.b.Take(1) {
					s.started(1)
				}
			}
			return s.scene(s.request, then(take, take), func() {
				r := s.b.Renew(sceneTime+1, false)
				// The server gives what was offered to others.
				s.granted = r.InUse
				s.served(s.b.Apply(sceneTime+2, lease.Grant{Number: r.Number, TTL: 10_000_000, DenyFor: 5_000_000}))
			})
		},
		"the lease ends": func() scene {
			s := newBucketScene(p, 1)
			s.b.Take(1)
			s.started(1)
			return s.scene(s.finish, s.request, func() { s.b.Expire(sceneTime+20_000_000, false) })
		},
	} {
		fault, states := explore(t, make)
		t.Logf("%s: %d states", name, states)
		if fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// One that looks for a slot before it can be seen to wait is overlooked.
func TestInterleavingsFindWhoIsOverlooked(t *testing.T) {
	fault, _ := explore(t, func() scene {
		s := newBucketScene(right, 1)
		s.join = func(b *Bucket, w *Waiter) ([]*Waiter, bool) {
			defer b.enter().leave()
			w.patient = true
			b.enqueueLocked(w, int64(b.most))
			served := b.serveLocked(Never)
			b.stock.common().patient.Add(1)
			return served, true
		}
		s.b.Take(1)
		s.started(1)
		return s.scene(s.finish, s.request)
	})
	t.Log(fault)
	if fault == "" {
		t.Error("no order shows it")
	}
}

// While a lease of tokens is renewed, or given back, requests take of it: what they took is
// spent once, and what was given back is nobody's here. Of one with a trickle two units lie aside.
func TestInterleavingsOfALease(t *testing.T) {
	both(t, interleavingsOfALease)
}

func interleavingsOfALease(t *testing.T, p parts) {
	for _, c := range []struct {
		final          bool
		trickle, again int64 // which is granted then
	}{{false, 0, 1}, {true, 0, 1}, {false, 1, 3}, {true, 1, 3}} {
		final := c.final
		fault, states := explore(t, func() scene {
			const stock = 3
			at := p.cell()
			b := New(TermsAlone(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 9}), at, false, 0)
			b.Apply(sceneTime, lease.Grant{Number: b.Renew(sceneTime, false).Number, Tokens: stock, Trickle: c.trickle, TTL: 10_000_000})
			var taken, refused, left, flying int64
			var r lease.Renewal
			request := func(n int64) func() {
				return func() {
					flying += n
					defer func() { flying -= n }()
					if b.Take(n) {
						taken += n
						return
					}
					switch v := b.Ask(sceneTime, n, false, false); v.Outcome {
					case Admitted:
						taken += n
					case Denied:
						refused += n
					default:
						left += n // it would wait
					}
				}
			}
			return scene{
				actors: []func(){request(1), then(request(2), request(1)), func() {
					r = b.Renew(sceneTime, final)
					b.Apply(sceneTime, lease.Grant{Number: r.Number, Tokens: c.again, Trickle: c.trickle, TTL: 10_000_000})
				}},
				state: func() []int64 {
					c := &b.stock
					return append([]int64{
						c.tokens.v, c.refused.v, c.back.v, c.in, b.debt, b.aside(), taken, refused, left, r.Held, r.Admitted,
					}, at.state()...)
				},
				always: func() string { return crashed(at, taken, flying) },
				atEnd: func() string {
					admitted, denied := collect(b)
					have, since := b.State(sceneTime).Tokens-b.debt, taken-(stock-r.Held)
					switch {
					case admitted != taken || denied != refused:
						return fmt.Sprintf("%d admitted and %d denied are counted, %d and %d were", admitted, denied, taken, refused)
					case final && (since != 0 || have != 0):
						return fmt.Sprintf("%d were given back and %d taken, of %d; %d are left", r.Held, taken, stock, have)
					case !final && have != c.again-since:
						return fmt.Sprintf("%d were granted, %d taken since: %d are left", c.again, since, have)
					}
					return ""
				},
			}
		})
		t.Logf("%+v: %d states", c, states)
		if fault != "" {
			t.Errorf("%+v: %s", c, fault)
		}
	}
}

// A denial without the mutex is counted once in every order with others, and with answers after which none is certain any more.
func TestInterleavingsOfDenials(t *testing.T) {
	for name, tokens := range map[string]int64{"nothing is certain any more": 0, "there is some again": 1} {
		holds(t, name, func() scene {
			b := New(TermsAlone(&limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 9}), nil, false, 0)
			answer := func(now, tokens, denyFor int64) {
				b.Apply(now, lease.Grant{Number: b.Renew(now, false).Number, Tokens: tokens, TTL: 10_000_000, DenyFor: denyFor})
			}
			answer(sceneTime, 0, 5_000_000)
			var denied, collected, left int64
			ask := func() {
				switch b.Ask(sceneTime, 1, false, false).Outcome {
				case Denied:
					denied++
				default:
					left++ // admitted, or it would wait
				}
			}
			ask()
			request := func() {
				if _, ok := b.Shut(sceneTime); ok {
					denied++
					return
				}
				ask()
			}
			gather := func() {
				_, n := collect(b)
				collected += n
			}
			return scene{
				actors: []func(){request, request, func() {
					answer(sceneTime, tokens, 0)
					gather()
				}},
				state: func() []int64 {
					k := b
					return []int64{k.stock.tokens.v, k.stock.refused.v, k.stock.in, k.denyUntil, k.number, k.answeredAt, k.toldDenied, k.collectedDenied, denied, collected, left, k.sharedState()}
				},
				always: func() string {
					if collected > denied+2 {
						return fmt.Sprintf("%d are told to the ledger, %d were denied", collected, denied)
					}
					return ""
				},
				atEnd: func() string {
					if gather(); collected != denied {
						return fmt.Sprintf("%d denials are counted, %d were", collected, denied)
					}
					return ""
				},
			}
		})
	}
}

// sharedState is until when units are denied for certain; 0 where nothing was ever noted.
func (s *stock) sharedState() int64 {
	return s.shared.Load().shutUntil.v
}
