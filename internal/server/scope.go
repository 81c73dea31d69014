package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

const (
	// aboveEvery is how often the tenants above a scope's are read again at most, while those change.
	aboveEvery = time.Second
	// aboveTimeout bounds that.
	aboveTimeout = 2 * time.Second
	// aboveWait is how long calls wait for that, from when it was begun. Who came too soon is told that it is not known now, or
	// what was known before.
	aboveWait = 100 * time.Millisecond
)

// reach is what a tenant is to a scope.
type reach uint8

const (
	outside reach = iota
	// above is an ancestor of a tenant within: requests of that one spend of its buckets as well, and it is told of. Its own
	// usage is not the key's to settle or to read.
	above
	within
	undecided // it cannot be found out now
)

// scope is what a key is for: some tenants, and some limits. It tells nothing of others, not even whether they exist. It
// is immutable but for the tenants above, and safe for concurrent use.
type scope struct {
	key     string
	tenants limit.Names // none for all
	exact   []string    // the tenants that are named, and how others' names begin
	begin   []string
	subtree bool
	limits  limit.Names // none for all
	tree    *view

	above atomic.Pointer[map[string]bool]
	stale atomic.Bool

	mu    sync.Mutex    // guards these; not held while the store is asked
	begun time.Time     // the last read of the tenants above
	done  chan struct{} // closed when it has ended; nil before the first
}

// newScope returns a key's scope; nil where it narrows nothing. What cannot be read is an error: it must not be taken for none.
func newScope(k *policy.Key, tree *view) (*scope, error) {
	if len(k.Tenants) == 0 && len(k.Limits) == 0 {
		return nil, nil
	}
	s := &scope{key: k.ID, subtree: k.Subtree, tree: tree}
	var err error
	if s.tenants, err = limit.ParseNames(k.Tenants, limit.ValidTenant); err != nil {
		return nil, err
	}
	s.exact, s.begin = s.tenants.Split()
	s.limits, err = limit.ParseNames(k.Limits, limit.ValidName)
	return s, err
}

// narrowsTenants reports whether it is for some tenants only.
func (s *scope) narrowsTenants() bool { return s != nil && !s.tenants.None() }

// hasLimit reports whether it is for a limit.
func (s *scope) hasLimit(name string) bool { return s.limits.None() || s.limits.Has(name) }

// reach says of tenants what they are to the scope.
func (s *scope) reach(ctx context.Context, ids []string) []reach {
	out := make([]reach, len(ids))
	var rest []int // which are not named
	for i, id := range ids {
		if s.tenants.None() || s.tenants.Has(id) {
			out[i] = within
		} else {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return out
	}
	if s.subtree {
		s.below(ctx, ids, rest, out)
	}
	ancestors := s.ancestors(ctx)
	for _, i := range rest {
		switch {
		case out[i] != outside:
		case ancestors == nil:
			out[i] = undecided
		case ancestors[ids[i]]:
			out[i] = above
		}
	}
	return out
}

// below looks for a named tenant above each of the rest.
func (s *scope) below(ctx context.Context, ids []string, rest []int, out []reach) {
	at := make(map[int]string, len(rest))
	for _, i := range rest {
		if ids[i] != "" {
			at[i] = ids[i]
		}
	}
	for level := 1; level < limit.MaxTenantLevels && len(at) > 0; level++ {
		asked := make([]string, 0, len(at))
		places := make([]int, 0, len(at))
		for i, id := range at {
			asked, places = append(asked, id), append(places, i)
		}
		for n, r := range s.tree.tenants(ctx, asked) {
			i := places[n]
			switch {
			case !r.placed:
				out[i] = undecided
			case r.parent == "":
			case s.tenants.Has(r.parent):
				out[i] = within
			default:
				at[i] = r.parent
				continue
			}
			delete(at, i)
		}
	}
}

// ancestors returns the tenants above those that the scope names; nil where they are not known yet.
func (s *scope) ancestors(ctx context.Context) map[string]bool {
	known := s.above.Load()
	if known == nil || s.stale.Load() {
		done, most := s.refresh()
		if most > 0 {
			late := time.NewTimer(most)
			defer late.Stop()
			select {
			case <-done:
			case <-late.C:
			case <-ctx.Done():
			}
		}
		known = s.above.Load()
	}
	if known == nil {
		return nil
	}
	return *known
}

// refresh begins to read the tenants above, unless somebody does, or just did. It returns what is closed at the end of that, and
// for how long to wait for it.
func (s *scope) refresh() (done <-chan struct{}, most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reading := false
	if s.done != nil {
		select {
		case <-s.done:
		default:
			reading = true
		}
	}
	wanted := s.above.Load() == nil || s.stale.Load() // another may have read them meanwhile
	if !reading && wanted && (s.done == nil || time.Since(s.begun) >= aboveEvery) {
		s.begun, s.done = time.Now(), make(chan struct{})
		go s.readAncestors(s.done)
	}
	return s.done, aboveWait - time.Since(s.begun)
}

// readAncestors outlives the call that it was begun for: others wait for it too.
func (s *scope) readAncestors(done chan<- struct{}) {
	defer close(done)
	s.stale.Store(false) // what changes from here on makes it stale again
	ctx, cancel := context.WithTimeout(context.Background(), aboveTimeout)
	defer cancel()
	all := make(map[string]bool)
	next, err := s.tree.store.Parents(ctx, s.exact, s.begin)
	for err == nil && len(next) > 0 {
		var news []string
		for _, id := range next {
			if !all[id] {
				all[id] = true
				news = append(news, id)
			}
		}
		next, err = s.tree.store.Parents(ctx, news, nil)
		if len(news) == 0 {
			break
		}
	}
	if err != nil {
		s.stale.Store(true)
		return
	}
	s.above.Store(&all)
}

// changed is told of tenants that changed: those above may be others now.
func (s *scope) changed(tenants []limit.Tenant) {
	for i := range tenants {
		s.moved(tenants[i].ID, tenants[i].Parent)
	}
}

// changedFaulty is told of those that cannot be made out.
func (s *scope) changedFaulty(tenants faultyTenants) {
	for id, f := range tenants {
		s.moved(id, f.parent)
	}
}

func (s *scope) moved(id, parent string) {
	known := s.above.Load()
	if known != nil && ((*known)[id] || s.tenants.Has(id)) && (len(*known) > 0 || parent != "") {
		s.stale.Store(true)
	}
}
