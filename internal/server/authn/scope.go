package authn

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

const (
	// aboveEvery is the shortest time between two reads of the tenants above a scope's, while those change.
	aboveEvery = time.Second
	// aboveTimeout bounds one read of them.
	aboveTimeout = 2 * time.Second
	// aboveWait is how long calls wait for such a read, from its begin. A call that comes sooner gets what was known
	// before, or hears that it is not known now.
	aboveWait = 100 * time.Millisecond
)

// Reach is what a tenant is to a scope.
type Reach uint8

const (
	Outside Reach = iota
	// Above is an ancestor of a tenant within. Requests of that tenant spend from the ancestor's buckets too, and its
	// agents are told of it. The key may neither settle nor read the ancestor's own usage.
	Above
	Within
	Undecided // it cannot be found out now
)

// Tree is which tenant is below which.
type Tree interface {
	// Above returns the tenant directly above each, empty for none, and whether that is known now.
	Above(ctx context.Context, ids []string) (parents []string, known []bool)
	// Parents are the tenants directly above the named ones, and above those whose ids have one of the prefixes.
	Parents(ctx context.Context, ids, begin []string) ([]string, error)
}

// Scope is what a key is for: some tenants, and some limits. It tells nothing of others, not even whether they exist.
// Only its set of tenants above changes. It is safe for concurrent use.
type Scope struct {
	Key     string
	tenants limit.Names // none for all
	exact   []string    // the tenants that are named, and how others' names begin
	begin   []string
	subtree bool
	limits  limit.Names // none for all
	tree    Tree

	above atomic.Pointer[map[string]bool]
	stale atomic.Bool

	mu    sync.Mutex    // guards these; not held while the store is asked
	begun time.Time     // the last read of the tenants above
	done  chan struct{} // closed when it has ended; nil before the first
}

// NewScope returns a key's scope; nil for a key without bounds. A scope that cannot be read is an error: it must not be
// taken for none.
func NewScope(k *policystore.Key, tree Tree) (*Scope, error) {
	if len(k.Tenants) == 0 && len(k.Limits) == 0 {
		return nil, nil
	}
	s := &Scope{Key: k.ID, subtree: k.Subtree, tree: tree}
	var err error
	if s.tenants, err = limit.ParseNames(k.Tenants, limit.ValidTenant); err != nil {
		return nil, err
	}
	s.exact, s.begin = s.tenants.Split()
	s.limits, err = limit.ParseNames(k.Limits, limit.ValidName)
	return s, err
}

// NarrowsTenants reports whether it is for some tenants only.
func (s *Scope) NarrowsTenants() bool { return s != nil && !s.tenants.None() }

// HasLimit reports whether it is for a limit.
func (s *Scope) HasLimit(name string) bool { return s.limits.None() || s.limits.Has(name) }

// Reach says how each tenant relates to the scope.
func (s *Scope) Reach(ctx context.Context, ids []string) []Reach {
	out := make([]Reach, len(ids))
	var rest []int // which are not named
	for i, id := range ids {
		if s.tenants.None() || s.tenants.Has(id) {
			out[i] = Within
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
		case out[i] != Outside:
		case ancestors == nil:
			out[i] = Undecided
		case ancestors[ids[i]]:
			out[i] = Above
		}
	}
	return out
}

// below looks for a named tenant above each of the rest.
func (s *Scope) below(ctx context.Context, ids []string, rest []int, out []Reach) {
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
		parents, known := s.tree.Above(ctx, asked)
		for n, parent := range parents {
			i := places[n]
			switch {
			case !known[n]:
				out[i] = Undecided
			case parent == "":
			case s.tenants.Has(parent):
				out[i] = Within
			default:
				at[i] = parent
				continue
			}
			delete(at, i)
		}
	}
}

// ancestors returns the tenants above those that the scope names; nil while they are not known.
func (s *Scope) ancestors(ctx context.Context) map[string]bool {
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

// refresh begins to read the tenants above, unless that is under way or was just done. It returns a channel that is
// closed at the end of the read, and how long to wait for it.
func (s *Scope) refresh() (done <-chan struct{}, most time.Duration) {
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
func (s *Scope) readAncestors(done chan<- struct{}) {
	defer close(done)
	s.stale.Store(false) // what changes from here on makes it stale again
	ctx, cancel := context.WithTimeout(context.Background(), aboveTimeout)
	defer cancel()
	all := make(map[string]bool)
	next, err := s.tree.Parents(ctx, s.exact, s.begin)
	for err == nil && len(next) > 0 {
		var news []string
		for _, id := range next {
			if !all[id] {
				all[id] = true
				news = append(news, id)
			}
		}
		next, err = s.tree.Parents(ctx, news, nil)
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

// moved is told of a tenant that changed, and its parent now: the scope's tenants above may have changed.
func (s *Scope) moved(id, parent string) {
	known := s.above.Load()
	if known != nil && ((*known)[id] || s.tenants.Has(id)) && (len(*known) > 0 || parent != "") {
		s.stale.Store(true)
	}
}

// NotFor is the refusal of a tenant. It is the same whether or not the tenant exists.
func (s *Scope) NotFor(tenant string) error {
	return fmt.Errorf("%w: key %s is not for tenant %s", fault.ErrDenied, s.Key, limit.Quote(tenant))
}

// NotForLimit refuses a limit that the key does not cover.
func (s *Scope) NotForLimit(name string) error {
	return fmt.Errorf("%w: key %s is not for limit %s", fault.ErrDenied, s.Key, limit.Quote(name))
}
