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
	// Where that failed, nothing is looked up for as long: a report has up to 65,536 rows.
	judgeTimeout = time.Second
	// judgedVersions and judgedTenants bound what a judge remembers.
	judgedVersions = 64
	judgedTenants  = 100_000
	// judgeReads is how often the store is asked within a second. Only rows that name
	// what is not known ask at all, and a flood of them must not hold up intake.
	judgeReads = 200
)

// Judge says which rows of a report may become entries: those whose meter and
// tenant were known under the policy version that they were admitted under, and whose plan their tenant had. The
// others go to quarantine, from where they can be released. Where it cannot find
// out in time, it accepts: usage must not wait for the policy store.
type Judge struct {
	store policy.Store

	mu sync.Mutex
	// Forget puts other maps in the place of these. What is being read meanwhile goes into the old ones.
	versions map[int64]*judged
	tenants  map[string]bool // that exist; whether they have overrides
	plans    map[string]history
	reads    int // since second
	second   time.Time
	failed   time.Time // when a read last failed
}

// errBusy means that too much was asked within this second, or that asking failed.
var errBusy = errors.New("server: too many rows name what is not known")

// judged is what a version says that matters here.
type judged struct {
	meters      map[string]bool
	defaultPlan string
}

// NewJudge returns a judge that reads versions and tenants from store.
func NewJudge(store policy.Store) *Judge {
	return &Judge{store: store, versions: make(map[int64]*judged), tenants: make(map[string]bool), plans: make(map[string]history)}
}

// Forget has all read again: the policy store is another, in which numbers of versions may have come again.
// It is safe for concurrent use.
func (j *Judge) Forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.versions, j.tenants, j.plans = make(map[int64]*judged), make(map[string]bool), make(map[string]history)
}

// Accept is the ledger's question: why a row may not become an entry, or nil. It is
// safe for concurrent use.
func (j *Judge) Accept(r ledger.Row) error {
	v, err := j.version(r.Version)
	if err != nil {
		return found(err, fmt.Errorf("policy version %d was never in force", r.Version))
	}
	if err := j.named(&r, v); err != nil {
		return err
	}
	return j.plan(&r, v.defaultPlan)
}

// named says why a version does not have the meter and tenant of a row, or nil.
func (j *Judge) named(r *ledger.Row, v *judged) error {
	known := r.Meter == "" || v.meters[r.Meter]
	if known && v.defaultPlan != "" {
		return nil
	}
	overrides, err := j.tenant(r.Tenant, !known)
	switch {
	case err != nil && v.defaultPlan != "" && errors.Is(err, policy.ErrNotFound):
		overrides = false // nobody created it, and it has the default plan
	case err != nil:
		return found(err, fmt.Errorf("there is no tenant %s, and version %d has no default plan", limit.Quote(r.Tenant), r.Version))
	}
	if !known && !overrides { // an override may feed a meter of its own
		return fmt.Errorf("there is no meter %s in version %d", limit.Quote(r.Meter), r.Version)
	}
	return nil
}

// found is the verdict where something was found not to exist, and none where it
// could not be found out.
func found(err, verdict error) error {
	if errors.Is(err, policy.ErrNotFound) {
		return verdict
	}
	return nil
}

// version returns what a version says; ErrNotFound when there never was one.
func (j *Judge) version(number int64) (*judged, error) {
	j.mu.Lock()
	versions := j.versions
	v, ok := versions[number]
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
		return nil, j.noteRead(err)
	}
	doc, err := policy.Parse(stored.File, []byte(stored.Text))
	if err != nil {
		return nil, err
	}
	v = judge(doc.Policy(number))
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(versions) >= judgedVersions {
		clear(versions)
	}
	versions[number] = v
	return v, nil
}

func judge(p *limit.Policy) *judged {
	v := &judged{meters: make(map[string]bool), defaultPlan: p.DefaultPlan}
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
	return v
}

// tenant reports whether a tenant has overrides; ErrNotFound when there is no such
// tenant. What may have changed since it was read is read again, where that is asked.
func (j *Judge) tenant(id string, ask bool) (overrides bool, err error) {
	j.mu.Lock()
	known := j.tenants
	overrides, ok := known[id]
	j.mu.Unlock()
	if ok && (overrides || !ask) {
		return overrides, nil
	}
	if !j.mayRead() {
		return false, errBusy
	}
	ctx, cancel := context.WithTimeout(context.Background(), judgeTimeout)
	defer cancel()
	tenants, err := j.store.Tenants(ctx, []string{id})
	var faulty policy.FaultyTenants
	if err != nil && !errors.As(err, &faulty) {
		return false, j.noteRead(err)
	}
	if len(tenants) != 1 || !tenants[0].Exists {
		return false, policy.ErrNotFound
	}
	// Overrides that cannot be made out may feed any meter.
	overrides = len(tenants[0].Overrides) > 0 || faulty[id] != nil
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(known) >= judgedTenants {
		clear(known)
	}
	known[id] = overrides
	return overrides, nil
}

// mayRead counts a read of the store.
func (j *Judge) mayRead() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if !j.failed.IsZero() && now.Sub(j.failed) < judgeTimeout {
		return false
	}
	if now.Sub(j.second) >= time.Second {
		j.second, j.reads = now, 0
	}
	j.reads++
	return j.reads <= judgeReads
}

// noteRead notes that a read failed, unless it found that there is nothing.
func (j *Judge) noteRead(err error) error {
	if !errors.Is(err, policy.ErrNotFound) {
		j.mu.Lock()
		j.failed = time.Now()
		j.mu.Unlock()
	}
	return err
}
