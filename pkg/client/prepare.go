package client

import (
	"context"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Prepared is a request that is about to be decided; see Client.Prepare, which makes it: the zero Prepared cannot be asked. Its methods
// are safe for concurrent use.
type Prepared struct {
	c          *Client
	attributes []limit.Attribute
	key        agent.Key
}

// Prepare begins what a decision on a request of these attributes will wait for, and waits for nothing itself: what is known of the
// request is brought from memory meanwhile. Among more live buckets than a processor's cache holds, that is most of a decision's
// time. So a server that has several requests at hand prepares them all and then decides each, which takes it half of
// the time or less; one that knows a request's attributes some tenth of a microsecond before it needs the decision prepares it then.
//
// Nothing is decided or taken before Allow or AllowN, which decide by what holds at that time, and as often as they are called. A
// request that is prepared, and not decided, costs nobody anything. The attributes are kept, not copied: neither they nor the bytes of their
// strings may change for as long as the Prepared is in use. It allocates nothing.
func (c *Client) Prepare(attributes ...Attribute) Prepared {
	p := Prepared{c: c, attributes: attributesOf(attributes)}
	p.key = agent.KeyOf(p.attributes)
	c.reg.Near(p.key)
	return p
}

// Fetch goes on with what Prepare began, for requests that are at hand together: between preparing them and deciding the first. Where their units are
// not at hand it begins to bring what the decisions will need then, which is several pieces of memory, each of which says where the next is: those of
// all requests side by side. It decides and takes nothing, need not be called, and allocates nothing. A zero Prepared is not to be among them.
func Fetch(prepared []Prepared) {
	for len(prepared) > 0 {
		n := min(len(prepared), together)
		var sought [together]agent.Sought
		count := 0
		var now int64 // looked up where it is needed
		for i := range prepared[:n] {
			p := &prepared[i]
			if s, ok := p.c.reg.Sought(p.key); ok {
				sought[count] = s
				count++
			}
		}
		for step := 0; count > 0 && step < agent.Steps; step++ {
			all := sought[:count]
			count = 0
			for _, s := range all {
				if step == 1 {
					if until := s.Until(); until > 0 {
						if now == 0 {
							now = prepared[0].c.now() // or of another client's clock: then something is brought for nothing, or not
						}
						if until > now {
							continue
						}
					}
				}
				s.Near(step)
				sought[count] = s
				count++
			}
		}
		prepared = prepared[n:]
	}
}

// together is of about how many requests a processor can wait for memory at a time.
const together = 16

// Allow asks for one unit, as Client.Allow does.
func (p *Prepared) Allow(ctx context.Context) Decision { return p.c.allow(ctx, 1, p.attributes, p.key) }

// AllowN asks for n units, as Client.AllowN does.
func (p *Prepared) AllowN(ctx context.Context, n int64) Decision {
	return p.c.allow(ctx, n, p.attributes, p.key)
}
