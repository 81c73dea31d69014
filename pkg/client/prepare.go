package client

import (
	"context"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/limit"
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

// Fetch goes on with what Prepare began for requests that are at hand together. Called after it, and before the first of them is decided, it looks at
// whether their units are at hand, and where they are not, begins to bring what the decisions will need then: a request of a bucket that has run
// dry, or lives on what a trickle brings, waits for several pieces of memory, each of which says where the next is. It decides and takes nothing, it
// waits only for what Prepare asked for and for what several need of that, and need not be called. It allocates nothing.
func Fetch(prepared []Prepared) {
	for len(prepared) > 0 {
		n := min(len(prepared), together)
		var dry [together]*agent.Resolution
		count := 0
		for i := range prepared[:n] {
			p := &prepared[i]
			if known := p.c.reg.Dry(p.key); known != nil {
				dry[count] = known
				count++
			}
		}
		for step := 0; count > 0 && step < agent.Steps; step++ {
			for _, known := range dry[:count] {
				known.Near(step)
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
