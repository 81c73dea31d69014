package client

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/match"
)

// Cost is units of one of the costs that the policy names, such as tokens or bytes. "requests" is none of them: its
// units have a place of their own.
type Cost struct {
	Name  string
	Units int64 // 0 to 1,000,000,000
}

// Request is what is to be decided, reserved or booked.
type Request struct {
	Units      int64  // of requests, 0 to 1,000,000,000
	Costs      []Cost // what else it costs, each name once; they are not kept
	Attributes []Attribute
	// Expires is how long a reservation of it lives, 1 second to 1 hour; 0 for WithReservationTime. Nothing else looks
	// at it.
	Expires time.Duration
}

// costNames returns the names of the costs that a request may have, but for requests.
func (c *Client) costNames() []string { return nil } // no policy names costs yet

// nothing reports whether a request costs nothing.
func nothing(n int64, costs []Cost) bool {
	for i := range costs {
		if costs[i].Units != 0 {
			return false
		}
	}
	return n == 0
}

// looks reports whether the request costs nothing: it asks whether one unit would be allowed, and takes none.
func (r *request) looks() bool { return nothing(r.n, r.costs) }

// valid reports whether the request's costs can be decided.
func (r *request) valid() bool {
	return r.n >= 0 && r.n <= limit.MaxUnits && len(r.costs) == 0 // no policy names costs yet
}

// unitsOf returns the units that a limit makes of the request's costs.
func (r *request) unitsOf(*match.Item) int64 { return r.n }
