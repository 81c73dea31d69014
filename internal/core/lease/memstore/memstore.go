// Package memstore keeps buckets in process: the embedded engine, and the
// reference that redisstore is tested against. It runs the step of package
// lease as it stands. Its buckets are gone when the process ends.
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
)

const (
	shards = 64
	// maxBuckets bounds each shard; beyond it new buckets are refused as
	// unavailable, unless something idle is found to drop.
	maxBuckets = 1 << 16
)

// Store is a lease.Store in memory.
type Store struct {
	seed   maphash.Seed
	since  int64 // it remembers nothing of before, Unix microseconds
	shards [shards]shard
}

type shard struct {
	mu      sync.Mutex
	buckets map[string]*lease.State
	_       [40]byte // a cache line each: neighbours are hit by different requests
}

// New returns an empty store.
func New() *Store {
	s := &Store{seed: maphash.MakeSeed(), since: time.Now().UnixMicro()}
	for i := range s.shards {
		s.shards[i].buckets = make(map[string]*lease.State)
	}
	return s
}

// Renew implements lease.Store.
func (s *Store) Renew(_ context.Context, renewals []lease.Renewal) []lease.Answer {
	answers := make([]lease.Answer, len(renewals))
	for i := range renewals {
		r := &renewals[i]
		if err := r.Check(); err != nil {
			answers[i].Err = err
			continue
		}
		now := r.Now
		if now == 0 {
			now = time.Now().UnixMicro()
		}
		if r.Now == 0 {
			r.Memory.Since = s.since
		}
		answers[i] = s.renew(now, r)
	}
	return answers
}

// Run says until ctx ends what of leases that were granted before the store began it knows: nothing.
func (s *Store) Run(ctx context.Context, _ func(lease.Loss), forgotBefore func(int64)) error {
	forgotBefore(s.since)
	<-ctx.Done()
	return nil
}

func (s *Store) renew(now int64, r *lease.Renewal) lease.Answer {
	sh := &s.shards[maphash.String(s.seed, r.Key)%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b := sh.buckets[r.Key]
	if b == nil {
		// Each new bucket looks at some others, so that those that are idle do not pile up.
		look := 4
		if len(sh.buckets) >= maxBuckets {
			look = 64
		}
		sh.dropIdle(now, look)
		if len(sh.buckets) >= maxBuckets {
			return lease.Answer{Err: fmt.Errorf("memstore: more than %d buckets: %w", shards*maxBuckets, lease.ErrUnavailable)}
		}
		b = new(lease.State)
		sh.buckets[r.Key] = b
	}
	b.Sweep(now)
	g, err := b.Renew(now, r)
	return lease.Answer{Grant: g, Err: err}
}

// dropIdle drops buckets that nothing is lost with, looking at so many.
func (sh *shard) dropIdle(now int64, look int) {
	for key, b := range sh.buckets {
		if b.Idle(now) {
			delete(sh.buckets, key)
		}
		if look--; look == 0 {
			return
		}
	}
}

// Buckets returns how many buckets are kept.
func (s *Store) Buckets() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].buckets)
		s.shards[i].mu.Unlock()
	}
	return n
}
