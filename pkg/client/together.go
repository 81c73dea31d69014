package client

import (
	"context"
	"sync"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/handover"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Request is what a call that takes several requests is told of each.
type Request struct {
	Units      int64
	Attributes []Attribute
}

// AllowTogether decides several requests as one: all of them are allowed, or nothing is taken of any limit. Two
// requests that meet the same bucket need the sum of their units of it.
//
// The decisions are in the order of the requests. Each says whether its request fits, together with those before it that do; all are
// admitted where every decision is Allowed, and none is where any is not. Once one is denied, which counts as demand on the limit that
// denied, nothing is waited for any more: the others are looked at as far as it is known here, and a bucket of which nothing is known
// denies nobody.
//
// A request of 0 units asks whether one unit would be allowed, before the others take theirs. One that no limit holds is allowed, whether or
// not it names a tenant. Limits of slots are left out, for nobody tells when the requests end.
func (c *Client) AllowTogether(ctx context.Context, requests []Request) []Decision {
	if f := handover.Of(ctx); f != nil {
		ctx = handover.BeforeWait(ctx, sync.OnceFunc(f))
	}
	parts := make([]part, len(requests))
	decisions := make([]Decision, len(requests))
	for i := range parts {
		parts[i] = newPart(ctx, c, &requests[i])
		defer parts[i].end()
	}
	allowed := decideTogether(ctx, parts, decisions)
	all := new(conjunction)
	for i := range parts {
		parts[i].finish(all, allowed)
	}
	return decisions
}

// decideTogether fills in the decisions and reports whether all requests are allowed: then they have what they asked for in hand.
func decideTogether(ctx context.Context, parts []part, decisions []Decision) (allowed bool) {
	allowed = true
	for i := range parts { // before anything is taken
		if p := &parts[i]; p.r.n == 0 {
			decisions[i] = p.check(ctx)
			allowed = allowed && decisions[i].Allowed
		}
	}
	for i := range parts {
		switch p := &parts[i]; {
		case p.r.n == 0:
		case allowed:
			decisions[i] = p.start(ctx)
			allowed = p.waits || decisions[i].Allowed
		default:
			decisions[i] = p.look()
		}
	}
	for i := range parts { // what they wait for was asked for at once
		switch p := &parts[i]; {
		case !p.waits:
		case allowed:
			decisions[i] = p.goOn(ctx)
			allowed = decisions[i].Allowed
		default:
			p.abandon()
			decisions[i] = p.look()
		}
	}
	return allowed
}

// part is one of several requests that are decided together.
type part struct {
	c           *Client
	r           *request
	set         *agent.Set // that held it, or was looked at; nil while it is not known
	waits       bool       // for answers of its limits
	unaccounted bool       // it was allowed without being known, and counted so
}

func newPart(ctx context.Context, c *Client, of *Request) part {
	r := c.request(of.Units, attributesOf(of.Attributes))
	r.together, r.endless, r.before = true, true, handover.Of(ctx)
	return part{c: c, r: r}
}

func (p *part) end() { p.r.end() }

// find finds what holds the request, waiting for its tenant to be known, unless that is decided already.
func (p *part) find(ctx context.Context) (d Decision, decided bool) {
	c, r := p.c, p.r
	switch {
	case c.closed.Load():
		return Decision{Reason: ReasonClosed}, true
	case r.n < 0 || r.n > limit.MaxUnits:
		c.refused.Add(1)
		return Decision{Reason: ReasonInvalid}, true
	}
	if p.set, d = c.resolve(ctx, r); p.set == nil {
		p.unaccounted = d.Allowed
		return d, true
	}
	return c.refusal(p.set)
}

// check answers a request of no units.
func (p *part) check(ctx context.Context) Decision {
	d, decided := p.find(ctx)
	if !decided {
		d = p.peek(nil)
	}
	return d
}

// start asks all limits of the request. Where it waits for answers there is no decision yet.
func (p *part) start(ctx context.Context) Decision {
	for {
		d, decided := p.find(ctx)
		if decided {
			return d
		}
		d, again, stop := p.r.ask(ctx, p.set)
		if !stop {
			if p.waits = p.r.waiting > 0; p.waits {
				return d
			}
			d, again = p.r.conclude(ctx, p.set)
		}
		if !again {
			return d
		}
	}
}

// goOn waits for the answers, and asks again where the limits changed meanwhile.
func (p *part) goOn(ctx context.Context) Decision {
	for {
		d, again := p.r.conclude(ctx, p.set)
		p.waits = false
		if again {
			d = p.start(ctx)
		}
		if !p.waits {
			return d
		}
	}
}

// abandon ends the waiting, with nothing in hand.
func (p *part) abandon() {
	p.r.giveBack(false)
	p.waits = false
}

// look is what is to be expected of the request beside those before it, as far as it is known here. What is there of its units it
// takes, so that those after it are looked at beside it: without asking anybody, and for no longer than all are undecided.
func (p *part) look() Decision {
	r := p.r
	if r.n < 0 || r.n > limit.MaxUnits {
		return Decision{Reason: ReasonInvalid}
	}
	if p.set = p.c.reg.Find(agent.Lookup(r.attrs, AttrTenant)); p.set == nil {
		return Decision{Allowed: true, Reason: ReasonUnknown}
	}
	if d, is := p.c.refusal(p.set); is {
		return d
	}
	d := p.peek(func(h leg) {
		r.add(h.item, h.entry)
		r.taken[len(r.taken)-1] = h.entry.Try(r.n)
	})
	if !d.Allowed {
		r.giveBack(false)
	}
	return d
}

func (p *part) peek(met func(leg)) Decision {
	d := p.c.peek(p.set, max(p.r.n, 1), p.r.attrs, true, met)
	if d.Reason == ReasonNoTenant {
		return Decision{Allowed: true, Reason: ReasonUnlimited}
	}
	return d
}

// finish ends the request with what became of all, of which those before have tried what the shadow version's limits say.
func (p *part) finish(all *conjunction, allowed bool) {
	if allowed {
		p.r.release()
	} else {
		for _, h := range p.r.legs {
			h.entry.Fits()
		}
		p.r.giveBack(false)
		if p.unaccounted {
			p.c.unaccounted.Add(-p.r.n)
		}
	}
	if p.set != nil && p.set.Trying && p.r.n > 0 && p.set.Refusal == agent.NotRefused {
		p.c.tryAs(all, p.set, p.r.n, p.r.attrs, allowed)
	}
}
