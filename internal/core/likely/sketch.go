package likely

import "math/bits"

const (
	// parts of each power of two. A bucket's upper edge is at most one part above anything in it: 1/8 too much.
	parts    = 8
	partBits = 3
	// Largest is the largest amount that is told apart: a request's units of a cost.
	Largest = 1_000_000_000
	// Needed is how many amounts have to be known before a quantile says something: of fewer, 95 % is their maximum.
	Needed = 20
	// HalfLife is how many later amounts make one count half: a new version of a model is learned within minutes.
	HalfLife = 500
	// growth is 2^(1/HalfLife): instead of fading all counts, each amount weighs more than the one before.
	growth = 1.0013872557113346
	// heaviest is the weight at which all are scaled back, long before a float32 counts too roughly.
	heaviest = 1 << 20
	// buckets are for 0 to 7, then for 8 parts of each power of two up to 2^30, which is above Largest.
	buckets = parts + (30-partBits)*parts
)

// sketch is a histogram of amounts whose counts fade. It has some 900 bytes.
type sketch struct {
	counts [buckets]float32 // weights by bucket
	sum    float64          // of counts
	weight float64          // of the last amount
	known  int              // amounts, up to Needed
}

// bucketOf returns the bucket of an amount of 0 to Largest.
func bucketOf(n int64) int {
	if n < parts {
		return int(n)
	}
	shift := bits.Len64(uint64(n)) - 1 - partBits // n>>shift is 8 to 15
	return shift*parts + int(n>>shift)
}

// upper returns the largest amount of a bucket.
func upper(bucket int) int64 {
	if bucket < parts {
		return int64(bucket)
	}
	shift := bucket/parts - 1
	return int64(bucket%parts+parts+1)<<shift - 1
}

// observe counts an amount of 0 to Largest.
func (s *sketch) observe(n int64) {
	s.weight = max(s.weight*growth, 1)
	if s.weight > heaviest {
		for i := range s.counts {
			s.counts[i] /= heaviest
		}
		s.sum /= heaviest
		s.weight /= heaviest
	}
	s.counts[bucketOf(n)] += float32(s.weight)
	s.sum += s.weight
	s.known = min(s.known+1, Needed)
}

// quantile returns what so many millionths of the amounts do not exceed, rounded up to its bucket's upper edge. It is
// false while fewer than Needed are known.
func (s *sketch) quantile(ppm int64) (n int64, ok bool) {
	if s.known < Needed {
		return 0, false
	}
	// Sums of rounded weights may be off by less than a millionth.
	rank, sum, last := s.sum*(float64(ppm)-0.5)/1e6, 0.0, 0
	for i, c := range s.counts {
		if c == 0 {
			continue
		}
		if sum, last = sum+float64(c), i; sum >= rank {
			break
		}
	}
	return min(upper(last), Largest), true
}
