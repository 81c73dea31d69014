package judge

import (
	"fmt"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

const (
	// judgedVersions and judgedTenants bound what a judge remembers for all agents: twice that.
	judgedVersions = 64
	judgedTenants  = 100_000
	// judgedAgents bounds the agents with recent look-ups, and judgedOfKey those of one key. judgedOf bounds the
	// findings for one agent.
	judgedAgents = 1_024
	judgedOfKey  = judgedAgents / 4
	judgedOf     = ledger.MaxRows
	// judgedFor is how long a finding of something missing holds for an agent: longer than a report waits for intake.
	judgedFor = 10 * time.Second
)

// Judge says which rows of a report may become entries. Their meter and tenant must be known under the policy version
// of their admission, and their tenant must have had their plan. The others go to quarantine, from where they can be
// released. A report that names something unknown is ledger.ErrUnchecked. It is not stored, its agent keeps it, and
// Learn looks up what it names (learn.go).
//
// What is found to exist holds for everybody. What is found missing holds for seconds, and only for the agent that it
// was looked up for. Otherwise an agent that asks for a tenant just before it is created would have others' usage
// refused.
type Judge struct {
	store policystore.Store
	reads chan struct{} // look-ups under way

	mu sync.Mutex
	// Forget replaces these. A read under way still writes into the old ones.
	known  *asserted
	agents map[string]*inquiry
	keys   map[string]*lookups // what all agents of a key may look up; at most judgedAgents
}

// asserted is what the policy store was found to hold.
type asserted struct {
	versions recent[int64, *judged]
	tenants  recent[string, bool] // whether they have overrides
	plans    recent[string, history]
}

func newAsserted() *asserted {
	return &asserted{versions: newRecent[int64, *judged](judgedVersions), tenants: newRecent[string, bool](judgedTenants), plans: newRecent[string, history](judgedTenants)}
}

// judged is what matters here of a version.
type judged struct {
	meters      map[string]bool
	defaultPlan string
	unread      error // why it is not known what it says; nil where it is
	Bounds
}

// Bounds are a version's limits by name, over all plans.
type Bounds struct {
	Limits map[string]Bound
	Trial  bool // it was only tried beside another, or cannot be read: none of it is billed
}

// Limits are a version's limits; false where it is not known here.
func (j *Judge) Limits(version int64) (Bounds, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v, ok := j.known.versions.get(version)
	if !ok {
		return Bounds{}, false
	}
	return v.Bounds, true
}

// New returns a judge that reads versions and tenants from store.
func New(store policystore.Store) *Judge {
	return &Judge{store: store, reads: make(chan struct{}, judgeWidth), known: newAsserted(), agents: make(map[string]*inquiry), keys: make(map[string]*lookups)}
}

// Forget has everything read again. The policy store is another, where the same version numbers may name other
// documents. It is safe for concurrent use.
func (j *Judge) Forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known, j.agents = newAsserted(), make(map[string]*inquiry)
}

// Accept is the ledger's question: why an agent's row may not become an entry, or nil. It returns ErrUnchecked if that
// is not known. It reads nothing, and is safe for concurrent use.
func (j *Judge) Accept(agent string, r ledger.Row) error {
	lacks, err := j.judge(agent, &r)
	if lacks != (lack{}) {
		return ledger.ErrUnchecked
	}
	return err
}

// lack is what must be known before a row can be judged: a version, a tenant or its plans.
type lack struct {
	version int64
	tenant  string
	named   bool // the tenant is lacking
	plans   bool // its plans are
}

// judge is the verdict on a row, or what it lacks.
func (j *Judge) judge(agent string, r *ledger.Row) (lack, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	in := j.agents[agent]
	v, ok := j.known.versions.get(r.Version)
	if !ok {
		if r.Version < 1 || in.misses(r.Version) {
			return lack{}, fmt.Errorf("policy version %d was never in force", r.Version)
		}
		return lack{version: r.Version}, nil
	}
	if v.unread != nil {
		return lack{}, v.unread
	}
	if lacks, err := j.named(in, r, v); err != nil || lacks != (lack{}) {
		return lacks, err
	}
	return j.plan(in, r, v.defaultPlan)
}

// named says why a version lacks a row's meter and tenant, or what must be looked up.
func (j *Judge) named(in *inquiry, r *ledger.Row, v *judged) (lack, error) {
	known := r.Meter == "" || v.meters[r.Meter]
	if known && v.defaultPlan != "" {
		return lack{}, nil
	}
	overrides, ok := j.known.tenants.get(r.Tenant)
	if ok && (known || overrides) { // an override may feed a meter of its own
		return lack{}, nil
	}
	// It may have been created since it was found missing, or been given overrides.
	as, ok := in.found(r.Tenant)
	switch {
	case !ok:
		return lack{tenant: r.Tenant, named: true}, nil
	case as == absent && v.defaultPlan == "":
		return lack{}, fmt.Errorf("there is no tenant %s, and version %d has no default plan", limit.Quote(r.Tenant), r.Version)
	case !known && as != overridden:
		return lack{}, fmt.Errorf("there is no meter %s in version %d", limit.Quote(r.Meter), r.Version)
	}
	return lack{}, nil
}

func judge(p *limit.Policy) *judged {
	v := &judged{meters: make(map[string]bool), defaultPlan: p.DefaultPlan, Bounds: Bounds{Limits: make(map[string]Bound)}}
	add := func(limits []limit.Limit) {
		for i := range limits {
			l := &limits[i]
			if l.Meter != "" {
				v.meters[l.Meter] = true
			}
			v.Limits[l.Name] = v.Limits[l.Name].Or(BoundOf(l))
		}
	}
	add(p.Limits)
	for _, plan := range p.Plans {
		add(plan.Limits)
	}
	return v
}
