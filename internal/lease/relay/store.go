package relay

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/lease"
)

const (
	shards = 64
	// maxBuckets bounds each shard. The renewals of what does not fit go to the store, as if there were no relay.
	maxBuckets = 1 << 14
	// maxHolders bounds the agents that each shard remembers, of all buckets, at some 400 bytes each: 2 GB in all.
	maxHolders = 80_000
	// askTimeout bounds one call of the store, whoever waits for it.
	askTimeout = 2 * time.Second
	// look is how many buckets each call looks at that brings new ones, or is the first since sweepEvery, so that those that
	// ended do not pile up.
	look = 4
	// sweepEvery is in microseconds.
	sweepEvery = 10_000
)

// Store is a lease.Store in front of another: it holds what is Eligible here, one lease of each bucket, and hands on
// the rest. Nothing here outlives the process.
type Store struct {
	upstream lease.Store
	holder   string
	began    time.Time
	seed     maphash.Seed
	shards   [shards]shard
	flights  sync.WaitGroup
}

type shard struct {
	mu      sync.Mutex
	buckets map[string]*held
	holders int      // of all of them
	swept   int64    // when some were last looked at
	_       [32]byte // a cache line each: neighbours are hit by different calls
}

// held is a bucket, and who waits for it; its shard's mutex guards it.
type held struct {
	bucket *Bucket
	shard  *shard
	key    string
	queue  []*waiter

	holders int // as counted in the shard
}

// waiter is a renewal that waits for the store.
type waiter struct {
	renewal *lease.Renewal
	answer  *lease.Answer
	call    *sync.WaitGroup
	late    bool // it came while the store was asked for a first lease, for others
	done    bool // answered, or given up
}

// flight is one bucket's renewal on its way to the store.
type flight struct {
	held    *held
	renewal lease.Renewal
	now     int64 // the time that the caller said, or 0
}

// New returns a relay in front of upstream, to which it is holder: a name that no other has, nor had before.
func New(upstream lease.Store, holder string) *Store {
	s := &Store{upstream: upstream, holder: holder, began: time.Now(), seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].buckets = make(map[string]*held)
	}
	return s
}

// clock is the server's own, which never runs backward.
func (s *Store) clock() int64 { return s.began.Add(time.Since(s.began)).UnixMicro() }

// Renew implements lease.Store.
func (s *Store) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	answers := make([]lease.Answer, len(renewals))
	var flights []flight
	var through []int
	var waiting []*waiter
	var call sync.WaitGroup
	clock := s.clock()
	for i := range renewals {
		r := &renewals[i]
		if err := r.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		now := clock
		if r.Now != 0 {
			now = r.Now
		}
		sh := &s.shards[maphash.String(s.seed, r.Key)%shards]
		sh.mu.Lock()
		h := sh.find(r, now, s.holder)
		if h == nil {
			sh.mu.Unlock()
			through = append(through, i)
			continue
		}
		late := h.bucket.Cold()
		a, ok := h.bucket.Renew(now, r, false)
		if answers[i] = a; !ok {
			w := &waiter{renewal: r, answer: &answers[i], call: &call, late: late}
			call.Add(1)
			h.queue = append(h.queue, w)
			waiting = append(waiting, w)
		}
		if h.bucket.Due(now) {
			flights = append(flights, flight{held: h, renewal: h.bucket.Ask(now), now: r.Now})
		}
		sh.weigh(h)
		sh.mu.Unlock()
	}
	if len(flights) > 0 {
		s.flights.Go(func() { s.fly(flights) })
	}
	s.hand(ctx, renewals, answers, through)
	if len(waiting) > 0 {
		s.await(ctx, waiting, &call)
	}
	return answers
}

// find returns the bucket that is held or is to be, or nil for one that the store answers.
func (sh *shard) find(r *lease.Renewal, now int64, holder string) *held {
	h := sh.buckets[r.Key]
	if !Eligible(&r.Spec) || r.Kept.Demand > 0 {
		return nil // or of a relay's behind this one; what was leased of it before the limit changed runs to its end
	}
	if now >= sh.swept+sweepEvery {
		sh.sweep(now, look)
	}
	if h != nil {
		if sh.holders >= maxHolders && !h.bucket.Knows(r.Holder) {
			return nil
		}
		return h
	}
	sh.sweep(now, look)
	if len(sh.buckets) >= maxBuckets || sh.holders >= maxHolders {
		return nil
	}
	h = &held{bucket: NewBucket(r.Key, holder, rand.Int64N(issued)), shard: sh, key: r.Key}
	sh.buckets[r.Key] = h
	return h
}

// sweep forgets some buckets of which there is nothing to remember.
func (sh *shard) sweep(now int64, n int) {
	sh.swept = now
	for _, h := range sh.buckets {
		if len(h.queue) == 0 && h.bucket.Forgettable(now) {
			sh.drop(h)
		}
		if n--; n == 0 {
			return
		}
	}
}

// weigh keeps count of the holders that are remembered.
func (sh *shard) weigh(h *held) {
	n := h.bucket.Holders()
	sh.holders, h.holders = sh.holders+n-h.holders, n
}

func (sh *shard) drop(h *held) {
	sh.holders -= h.holders
	h.holders = 0
	delete(sh.buckets, h.key)
}

// hand has the store answer what is not held here.
func (s *Store) hand(ctx context.Context, renewals []lease.Renewal, answers []lease.Answer, through []int) {
	if len(through) == 0 {
		return
	}
	rest := make([]lease.Renewal, len(through))
	for j, i := range through {
		rest[j] = renewals[i]
	}
	for j, a := range (Direct{s.upstream}).Renew(ctx, rest) {
		answers[through[j]] = a
	}
}

// await waits until all are answered, or ctx ends: what is not answered then will not be executed.
func (s *Store) await(ctx context.Context, waiting []*waiter, call *sync.WaitGroup) {
	answered := make(chan struct{})
	go func() {
		call.Wait()
		close(answered)
	}()
	select {
	case <-answered:
		return
	case <-ctx.Done():
	}
	for _, w := range waiting {
		sh := &s.shards[maphash.String(s.seed, w.renewal.Key)%shards]
		sh.mu.Lock()
		w.finish(lease.Answer{Err: fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err())})
		sh.mu.Unlock()
	}
	<-answered
}

// finish answers the renewal, once. Its shard is locked.
func (w *waiter) finish(a lease.Answer) {
	if !w.done {
		*w.answer, w.done = a, true
		w.call.Done()
	}
}

// fly asks the store, in one batch, until nobody waits for an answer of it.
func (s *Store) fly(flights []flight) {
	for len(flights) > 0 {
		renewals := make([]lease.Renewal, len(flights))
		for i, f := range flights {
			renewals[i] = f.renewal
			renewals[i].Now = f.now
		}
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		answers := s.upstream.Renew(ctx, renewals)
		cancel()
		var next []flight
		for i, f := range flights {
			if again, ok := s.land(f, answers[i]); ok {
				next = append(next, again)
			}
		}
		flights = next
	}
}

// land takes in the store's answer and answers who waited for it. Where more have come since, the bucket flies again.
func (s *Store) land(f flight, a lease.Answer) (flight, bool) {
	h := f.held
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	now := f.now
	if now == 0 {
		now = s.clock()
	}
	b := h.bucket
	b.Answered(now, a)
	queue := h.queue
	h.queue = nil
	for _, w := range queue {
		if w.done {
			continue
		}
		if answer, ok := b.Renew(now, w.renewal, !w.late); ok {
			w.finish(answer)
		} else {
			w.late = false
			h.queue = append(h.queue, w)
		}
	}
	b.Settled()
	h.shard.weigh(h)
	if len(h.queue) > 0 && b.Due(now) {
		return flight{held: h, renewal: b.Ask(now), now: f.now}, true
	}
	for _, w := range h.queue {
		w.finish(lease.Answer{Err: fmt.Errorf("%w: no lease of the bucket", lease.ErrUnavailable)})
	}
	h.queue = nil
	if b.Forgettable(now) && h.shard.buckets[h.key] == h {
		h.shard.drop(h)
	}
	return flight{}, false
}

// Close waits for what is under way. No call may come afterwards. What is held stays counted in the store until it lapses: agents go on
// with most of it, and a last renewal would keep it for longer than none.
func (s *Store) Close() error {
	s.flights.Wait()
	return nil
}

// Ping is the store's, where it has one.
func (s *Store) Ping(ctx context.Context) error { return Direct{s.upstream}.Ping(ctx) }

// Run is the store's, where it has one.
func (s *Store) Run(ctx context.Context, tell func(lease.Loss)) error {
	return Direct{s.upstream}.Run(ctx, tell)
}
