package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Shapes of how requests spread over tenants.
const (
	Uniform = "uniform"
	Zipf    = "zipf"
)

// ErrShape means that a distribution's name is not known.
var ErrShape = errors.New("load: no such distribution")

// track is how many requests a worker draws in advance: drawing costs more than
// deciding, so the worker goes round a track, long enough that every tenant of
// a large run is on it.
const track = 1 << 16

// request is one request of a track: from which gateway, of which tenant.
type request struct{ gateway, tenant uint32 }

// draw makes one worker's track. Requests choose their gateway evenly and their
// tenant by shape; the same seed gives the same track. Every worker's Zipf has the
// same order of tenants, so that one tenant is the busiest of the whole run.
func draw(shape string, gateways, tenants int, seed uint64) ([]request, error) {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var tenant func() uint32
	switch shape {
	case Uniform, "":
		tenant = func() uint32 { return uint32(r.IntN(tenants)) }
	case Zipf:
		// s = 1.1: the busiest of a thousand tenants has a tenth to a fifth of all requests.
		z := rand.NewZipf(r, 1.1, 1, uint64(tenants-1))
		tenant = func() uint32 { return uint32(z.Uint64()) }
	default:
		return nil, fmt.Errorf("%w: %q; write %s or %s", ErrShape, shape, Uniform, Zipf)
	}
	requests := make([]request, track)
	for i := range requests {
		requests[i] = request{uint32(r.IntN(gateways)), tenant()}
	}
	return requests, nil
}
