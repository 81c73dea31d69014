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
	// judgedVersions and judgedTenants bound what a judge remembers of all agents: twice that.
	judgedVersions = 64
	judgedTenants  = 100_000
	// judgedAgents bounds the agents that something was looked up for of late, and judgedOfKey those of one key;
	// judgedOf what was found for one.
	judgedAgents = 1_024
	judgedOfKey  = judgedAgents / 4
	judgedOf     = ledger.MaxRows
	// judgedFor is how long it holds for an agent that something was not there: longer than a report waits for intake.
	judgedFor = 10 * time.Second
)

// Judge says which rows of a report may become entries: those whose meter and
// tenant were known under the policy version that they were admitted under, and whose plan their tenant had. The
// others go to quarantine, from where they can be released. What it does not know
// it says so of (ledger.ErrUnchecked), and never accepts: the report is not stored, its
// agent keeps it, and Learn looks up what it names (learn.go).
//
// That something exists holds for everybody. That it does not holds for the agent alone
// that it was looked up for, and for seconds: else whoever asks for a tenant just before
// it is created would have the usage of others refused.
type Judge struct {
	store policystore.Store
	reads chan struct{} // look-ups under way

	mu sync.Mutex
	// Forget puts others in the place of these. What is being read meanwhile goes into the old ones.
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

// judged is what a version says that matters here.
type judged struct {
	meters      map[string]bool
	defaultPlan string
	unread      error // why it is not known what it says; nil where it is
	Bounds
}

// Bounds are a version's limits by name, of whichever plan.
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

// Forget has all read again: the policy store is another, in which numbers of versions may have come again.
// It is safe for concurrent use.
func (j *Judge) Forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known, j.agents = newAsserted(), make(map[string]*inquiry)
}

// Accept is the ledger's question: why a row of an agent's may not become an entry, or nil; ErrUnchecked where that is
// not known. It reads nothing, and is safe for concurrent use.
func (j *Judge) Accept(agent string, r ledger.Row) error {
	lacks, err := j.judge(agent, &r)
	if lacks != (lack{}) {
		return ledger.ErrUnchecked
	}
	return err
}

// lack is what has to be known of a row before it can be judged: a version, a tenant or its plans.
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

// named says why a version does not have the meter and tenant of a row, or what is lacking.
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
