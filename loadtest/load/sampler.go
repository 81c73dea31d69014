package load

import "math/rand/v2"

// sampleEvery is one of how many decisions is timed; timing reads the clock twice.
const sampleEvery = 1024

// sampler says which of a worker's requests are timed: one of sampleEvery, at random. So each place in a chunk is as
// likely as any other, however many requests a chunk has.
type sampler struct {
	left  int // requests until the next
	begun bool
}

// next returns which of the n requests of a chunk is timed first; n or more if none is.
func (s *sampler) next(n int) int {
	if !s.begun {
		s.begun, s.left = true, rand.IntN(sampleEvery)
	}
	first := s.left
	if first >= n {
		s.left -= n
	}
	return first
}

// after returns which of the n requests of a chunk is timed after request i. It is never one that was written together
// with i.
func (s *sampler) after(i, n int) int {
	s.left = i + ahead + rand.IntN(2*(sampleEvery-ahead)+1)
	following := s.left
	if following >= n {
		s.left -= n
		return n
	}
	return following
}
