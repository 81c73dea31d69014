package budgets

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// tenant is the one whose budgets these are.
const tenant = "acme"

const (
	mostTokens = 4096 // of an answer, as callers say
	flush      = 24   // tokens at most that a model sends at a time
)

// strategy is what a gateway reserves of an answer.
type strategy struct {
	name   string
	first  int64 // tokens, before the answer begins; the most of them where likely
	extend int64 // tokens at a time, once these are used up; 0 for never
	pace   int64 // tokens a second that a model sends
	likely bool  // the policy has what is likely reserved of the first, and 256 until that is known
}

// request is what a caller asks for.
type request struct {
	model  string
	prompt int64 // tokens
	answer int64 // tokens, where it comes to its end
	leaves int64 // tokens after which the caller goes away; 0 for never
}

// tokens are those that a request wants.
func (q *request) tokens() int64 {
	if q.leaves > 0 {
		return q.prompt + q.leaves
	}
	return q.prompt + q.answer
}

// draw draws a request: most answers are short and a few are very long.
func draw(rng *rand.Rand) request {
	q := request{model: "small", prompt: 20 + rng.Int64N(200)}
	if rng.IntN(10) < 7 {
		q.answer = int64(40 * math.Pow(1-rng.Float64(), -1/1.2)) // Pareto
	} else {
		q.model, q.answer = "large", int64(300*math.Exp(rng.NormFloat64()))
	}
	q.answer = min(max(q.answer, 1), mostTokens)
	if rng.IntN(10) == 0 {
		q.leaves = 1 + rng.Int64N(q.answer)
	}
	return q
}

// usage is tokens that a request used.
type usage struct{ in, out int64 }

func (u usage) costs() []client.Cost {
	return []client.Cost{{Name: "tokens_in", Units: u.in}, {Name: "tokens_out", Units: u.out}}
}

// spend is what tokens cost of the month, in millionths of a dollar, rounded up once for a request: see document.
func spend(model string, u usage) int64 {
	hundredths := u.in*15 + u.out*60
	if model == "large" {
		hundredths = u.in*250 + u.out*1000
	}
	return (hundredths + 99) / 100
}

// trail is what a gateway notes of a request.
type trail interface {
	asks(u usage) // for so much more, in a call that may wait
	answered()    // the call
	denied(client.Decision)
	begins(client.ReservationID)
	uses(u usage)    // in all, before the reservation is told
	used(u usage)    // afterwards
	ends(early bool) // it is committed; the budget ended before the answer did
}

// relay has a gateway pass a stream on. It takes what the model sends, and reserves more once all is used up. So a
// stream whose budget ends used less than a flush more than it had reserved. It returns without an end when ctx ends.
func relay(ctx context.Context, c *client.Client, s *strategy, q request, rng *rand.Rand, to trail) {
	to.asks(usage{q.prompt, s.first})
	r, d := c.ReserveRequest(ctx, client.Request{
		Units: 1, Costs: usage{q.prompt, s.first}.costs(), Expires: 10 * time.Minute,
		Attributes: []client.Attribute{client.Tenant(tenant), {Name: "model", Value: q.model}},
	})
	to.answered()
	if ctx.Err() != nil {
		return
	}
	if r == nil {
		to.denied(d)
		return
	}
	to.begins(r.ID())
	u := usage{in: q.prompt}
	for {
		to.uses(u)
		if r.Use(1, u.costs()...) != nil {
			return
		}
		to.used(u)
		over, early := q.prompt+u.out >= q.tokens(), false
		if !over && s.extend > 0 && u.out >= r.Reserved("tokens_out") {
			to.asks(usage{out: s.extend})
			early = !r.Extend(ctx, 0, client.Cost{Name: "tokens_out", Units: s.extend}).Allowed
			to.answered()
		}
		if ctx.Err() != nil {
			return
		}
		if over || early {
			if r.Commit(1, u.costs()...) == nil {
				to.ends(early)
			}
			return
		}
		n := min(1+rng.Int64N(flush), q.answer-u.out)
		select {
		case <-time.After(time.Duration(n) * time.Second / time.Duration(s.pace)):
		case <-ctx.Done():
			return
		}
		u.out += n
	}
}
