package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

const (
	// judgeTimeout bounds looking up what a row names; the row's report waits for it.
	judgeTimeout = time.Second
	// judgedVersions and judgedTenants bound what a judge remembers.
	judgedVersions = 64
	judgedTenants  = 100_000
	// judgeReads is how often the store is asked within a second. Only rows that name
	// what is not known ask at all, and a flood of them must not hold up intake.
	judgeReads = 200
)

// Judge says which rows of a report may become entries: those whose meter and
// tenant were known under the policy version that they were admitted under. The
// others go to quarantine, from where they can be released. Where it cannot find
// out in time, it accepts: usage must not wait for the policy store.
type Judge struct {
	store policy.Store

	mu       sync.Mutex
	versions map[int64]*judged
	tenants  map[string]bool // that exist; whether they have overrides
	reads    int             // since second
	second   time.Time
}

// errBusy means that too much was asked within this second.
var errBusy = errors.New("server: too many rows name what is not known")

// judged is what a version says that matters here.
type judged struct {
	meters      map[string]bool
	defaultPlan bool
}

// NewJudge returns a judge that reads versions and tenants from store.
func NewJudge(store policy.Store) *Judge {
	return &Judge{store: store, versions: make(map[int64]*judged), tenants: make(map[string]bool)}
}

// Accept is the ledger's question: why a row may not become an entry, or nil. It is
// safe for concurrent use.
func (j *Judge) Accept(r ledger.Row) error {
	v, err := j.version(r.Version)
	switch {
	case errors.Is(err, policy.ErrNotFound):
		return fmt.Errorf("policy version %d was never in force", r.Version)
	case err != nil:
		return nil
	}
	if v.defaultPlan && (r.Meter == "" || v.meters[r.Meter]) {
		return nil
	}
	known := r.Meter == "" || v.meters[r.Meter]
	exists, overrides, err := j.tenant(r.Tenant, !known)
	switch {
	case err != nil:
		return nil
	case !exists && !v.defaultPlan:
		return fmt.Errorf("there is no tenant %s, and version %d has no default plan", limit.Quote(r.Tenant), r.Version)
	case !known && !overrides: // an override may feed a meter of its own
		return fmt.Errorf("there is no meter %s in version %d", limit.Quote(r.Meter), r.Version)
	}
	return nil
}

func (j *Judge) version(number int64) (*judged, error) {
	j.mu.Lock()
	v, ok := j.versions[number]
	j.mu.Unlock()
	if ok {
		return v, nil
	}
	if number < 1 {
		return nil, policy.ErrNotFound // 0 would be the one in force
	}
	if !j.mayRead() {
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(context.Background(), judgeTimeout)
	defer cancel()
	stored, err := j.store.Version(ctx, number)
	if err != nil {
		return nil, err
	}
	doc, err := policy.Parse(stored.File, []byte(stored.Text))
	if err != nil {
		return nil, err
	}
	p := doc.Policy(number)
	v = &judged{meters: make(map[string]bool), defaultPlan: p.DefaultPlan != ""}
	add := func(limits []limit.Limit) {
		for _, l := range limits {
			if l.Meter != "" {
				v.meters[l.Meter] = true
			}
		}
	}
	add(p.Limits)
	for _, plan := range p.Plans {
		add(plan.Limits)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.versions) >= judgedVersions {
		clear(j.versions)
	}
	j.versions[number] = v
	return v, nil
}

// tenant reports whether there is such a tenant and, where that is asked, whether
// it has overrides. What may have changed since is read again.
func (j *Judge) tenant(id string, ask bool) (exists, overrides bool, err error) {
	j.mu.Lock()
	overrides, exists = j.tenants[id]
	j.mu.Unlock()
	if exists && (overrides || !ask) {
		return true, overrides, nil
	}
	if !j.mayRead() {
		return false, false, errBusy
	}
	ctx, cancel := context.WithTimeout(context.Background(), judgeTimeout)
	defer cancel()
	tenants, err := j.store.Tenants(ctx, []string{id})
	if err != nil || len(tenants) != 1 || !tenants[0].Exists {
		return false, false, err
	}
	overrides = len(tenants[0].Overrides) > 0
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.tenants) >= judgedTenants {
		clear(j.tenants)
	}
	j.tenants[id] = overrides
	return true, overrides, nil
}

// mayRead counts a read of the store.
func (j *Judge) mayRead() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := time.Now(); now.Sub(j.second) >= time.Second {
		j.second, j.reads = now, 0
	}
	j.reads++
	return j.reads <= judgeReads
}
