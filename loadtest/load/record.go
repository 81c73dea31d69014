package load

import (
	"math/bits"
	"time"
)

// chunk is the most requests that a worker makes in one go at one gateway. They are enough that the clock and their
// count cost nothing, and few enough to take some milliseconds.
const chunk = 512

// record is the outcome of a chunk. All results of a run are counted from records. A run of 300 million decisions has
// some 50 MB of them.
type record struct {
	at       int64              // when its first request was made, microseconds since the load began
	took     int32              // all of them, microseconds
	n        int32              // requests, 1 to chunk
	from     uint32             // the first one's place on the track, which may be beyond its end, once round; or trackEnd and the tenant of a first touch
	admitted [chunk / 64]uint64 // a bit for each
}

// add adds the outcome of one more request, of at most chunk.
func (r *record) add(allowed bool) {
	if allowed {
		r.admitted[r.n/64] |= 1 << (r.n % 64)
	}
	r.n++
}

// allowed returns how many of its requests were allowed.
func (r *record) allowed() (n int64) {
	for _, m := range r.admitted {
		n += int64(bits.OnesCount64(m))
	}
	return n
}

// trackEnd is beyond every track.
const trackEnd = 1 << 31

// each calls f with each request: its tenant, about when it was made, and its outcome. Requests of a chunk are taken to
// have come evenly.
func (r *record) each(track []uint32, f func(tenant uint32, at int64, admitted bool)) {
	if r.from >= trackEnd {
		f(r.from-trackEnd, r.at, r.admitted[0]&1 == 1)
		return
	}
	for i := range int(r.n) {
		at := r.at + int64(r.took)*int64(i)/int64(r.n)
		f(track[(int(r.from)+i)&(len(track)-1)], at, r.admitted[i/64]>>(i%64)&1 == 1)
	}
}

// times counts durations by size, in steps of a sixteenth.
type times struct {
	counts [64 * 16]int64
	most   time.Duration
}

func (t *times) add(d time.Duration) {
	t.counts[bucketOf(d)]++
	t.most = max(t.most, d)
}

func (t *times) merge(o *times) {
	for i, n := range o.counts {
		t.counts[i] += n
	}
	t.most = max(t.most, o.most)
}

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 16 {
		return int(v)
	}
	e := bits.Len64(v) - 5 // v>>e has 5 bits
	return (e+1)*16 + int(v>>e) - 16
}

// at returns a duration that the share q of all do not exceed, rounded down by at most a sixteenth.
func (t *times) at(q float64) time.Duration {
	rank := int64(q * float64(t.total()))
	for i, n := range t.counts {
		if rank -= n; rank < 0 {
			if i < 16 {
				return time.Duration(i)
			}
			return time.Duration(uint64(16+i%16) << (i/16 - 1))
		}
	}
	return t.most
}

func (t *times) total() (n int64) {
	for _, c := range t.counts {
		n += c
	}
	return n
}
