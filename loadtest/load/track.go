package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
)

// Shapes of how requests spread over tenants.
const (
	Uniform = "uniform"
	Zipf    = "zipf"
)

// ErrShape means that a distribution's name is not known.
var ErrShape = errors.New("load: no such distribution")

// trackLen is how many requests are drawn in advance, because drawing costs more than deciding. Each gateway goes round
// the track from a place of its own; at 50,000 requests a second it comes round after more than a minute.
const trackLen = 1 << 22

// zipfExponent is how fast the shape falls off: the busiest of ten thousand tenants has a
// seventh of all requests.
const zipfExponent = 1.1

// weights returns each tenant's part of all requests; they sum to 1.
func weights(shape string, tenants int) ([]float64, error) {
	w := make([]float64, tenants)
	sum := 0.0
	for i := range w {
		switch shape {
		case Uniform:
			w[i] = 1
		case Zipf:
			w[i] = math.Pow(float64(i+1), -zipfExponent)
		default:
			return nil, fmt.Errorf("%w: %q; write %s or %s", ErrShape, shape, Uniform, Zipf)
		}
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w, nil
}

// draw makes a track of n requests: the index of the tenant of each. The same seed gives the same track.
func draw(w []float64, n int, seed uint64) []uint32 {
	cumulated := make([]float64, len(w))
	sum := 0.0
	for i, v := range w {
		sum += v
		cumulated[i] = sum
	}
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	track := make([]uint32, n)
	for i := range track {
		track[i] = uint32(min(sort.SearchFloat64s(cumulated, r.Float64()*sum), len(w)-1))
	}
	return track
}
