package granted

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/judge"
)

const (
	// overdrawnBuckets bounds how many buckets of a limit add to the margin of a report.
	overdrawnBuckets = 100
	// overdrawnPart is the part of the grants that may be missing besides: one in so many.
	overdrawnPart = 20
	// overdrawnWait is how long a report above the grants is sent back. Meanwhile other servers write what they
	// granted, and the agent tells of debts.
	overdrawnWait = 30 * time.Second
	// overdrawnLate is the least age of a report's usage that can come from an outage.
	overdrawnLate = time.Minute
	// overdrawnAway is how long nothing is held against an agent after the lease store did not answer its renewal.
	overdrawnAway = time.Minute
	// overdrawnTrust is how long nothing is held against any agent after the ledger was found to be another. It may
	// have forgotten what servers recorded.
	overdrawnTrust = 10 * time.Minute
	// overdrawnAgain bounds how often one agent's account is read.
	overdrawnAgain = time.Second
	// drawnReads bounds the readings of one call, because an agent that makes up epochs causes one for each.
	drawnReads = 16
	// drawnTimeout bounds one reading.
	drawnTimeout = 2 * time.Second
	// maxDrawn bounds the limits that are remembered over all agents, some 200 bytes each. maxRuns bounds the agents'
	// runs of leases, some 500 bytes each. Together they take some 50 MB. What is forgotten is read again.
	maxDrawn = 200_000
	maxRuns  = 20_000
)

// Overdrafts hold what agents settle against what they were granted. Renewals and reports are added up in memory, by
// agent and limit. Where a report does not fit, the ledger is read, which has what other servers granted and settled.
// What still does not fit after overdrawnWait goes to quarantine.
//
// Usage that is in order fits, even if it was granted through a server that died, told late, or admitted during an
// outage: see docs/ledger.md.
type Overdrafts struct {
	books  ledger.Books
	rules  Rules
	policy Policy
	tally  *Tally
	log    *slog.Logger
	now    func() time.Time
	units  prometheus.Counter // withheld

	mu      sync.Mutex // after tally.mu
	runs    map[ledger.Epoch]*drawn
	of      map[ledger.Epoch]*drawn // by any epoch that is of the run
	limits  int                     // of all runs
	trusted time.Time               // until then nothing is withheld
}

// drawn is what is known of one run of leases: see ledger.Drawn.
type drawn struct {
	root    ledger.Epoch
	totals  map[int64]int64 // units settled, by epoch: those of which it is known
	through int64
	limits  map[string]*drawnLimit
	read    time.Time
	since   time.Time // when a report of it first did not fit; zero where the last one did
	away    time.Time // when the lease store last did not answer a renewal
	// renewed is when a renewal was last answered, at the latest when this account was first read. quiet is the sum of
	// all silences between renewals that lasted longer than overdrawnLate. Usage of other times is no outage's,
	// whatever its agent says.
	renewed time.Time
	quiet   time.Duration
	refuse  time.Time // until then what does not fit is sent back unread
	why     string    // and told this
}

type drawnLimit struct {
	recorded ledger.Recorded
	settled  int64
	outage   int64 // units that the limit may have admitted meanwhile, where nobody could be asked
	buckets  int   // the most that a report had
	free     bool  // a tenant has it without a bound
	// forgiven is the units settled above the grants when the ledger was read. The server that settled them judged them
	// then, or they needed no lease.
	forgiven int64
}

// granted is what was leased and not given back, plus what renewals told as spent. The latter is charged to the bucket
// whether or not there was a lease.
func (l *drawnLimit) granted() int64 {
	r := &l.recorded
	n := min(max(r.Granted-r.Unrun-r.Returned, 0), ledger.MaxTotal) + min(r.Spent, ledger.MaxTotal)
	return n + n/overdrawnPart + l.forgiven
}

// forgive is called after the ledger was read; was is the account before, nil for none. The part of the margin that
// this server let through stays used.
func (l *drawnLimit) forgive(was *drawnLimit) {
	used := int64(0)
	if was != nil {
		l.outage, l.buckets, l.free = was.outage, was.buckets, was.free
		used = max(was.settled-was.granted(), 0)
	}
	l.forgiven = max(l.settled-l.granted()-used, 0)
}

// Rules knows what the limits of policy versions may admit: see judge.Judge.
type Rules interface {
	// Limits are a version's limits; false if it was not read on this server.
	Limits(version int64) (judge.Bounds, bool)
}

// Policy is what is in force: see view.View.
type Policy interface {
	Version() int64
	// Overrides are the overrides of each tenant. It fails if one tenant's cannot be made out.
	Overrides(ctx context.Context, ids []string) ([][]limit.Limit, error)
}

// NewOverdrafts checks reports against what t has noted. From then on t tells it of grants.
func NewOverdrafts(books ledger.Books, rules Rules, policy Policy, t *Tally, log *slog.Logger, now func() time.Time, r prometheus.Registerer) (*Overdrafts, error) {
	o := &Overdrafts{
		books: books, rules: rules, policy: policy, tally: t, log: log, now: now, runs: map[ledger.Epoch]*drawn{}, of: map[ledger.Epoch]*drawn{},
		units: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_overdrawn_units_total", Help: "Units settled above the grants of their agents, which went to quarantine.",
		}),
	}
	if t != nil {
		t.over = o
	}
	return o, r.Register(o.units)
}

// Forget has everything read again, because the ledger is another than before.
func (o *Overdrafts) Forget() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.runs)
	clear(o.of)
	o.limits, o.trusted = 0, o.now().Add(overdrawnTrust)
}

// renewed opens an epoch's account for a grant; nil where there is none. The caller calls done.
func (o *Overdrafts) renewed(e ledger.Epoch) (d *drawn, done func()) {
	if o == nil {
		return nil, func() {}
	}
	o.mu.Lock()
	return o.of[e], o.mu.Unlock
}

// answered notes that a renewal was granted now.
func (d *drawn) answered(now time.Time) {
	if silent := now.Sub(d.renewed); silent > overdrawnLate {
		d.quiet += silent
	}
	d.renewed = now
}

// granted adds what was granted; nil adds to nothing.
func (d *drawn) granted(o *Overdrafts, name string, r ledger.Recorded) {
	if d != nil {
		if l := o.limitLocked(d, name); l != nil {
			l.recorded.Add(r)
		}
	}
}

// limitLocked is the account of a limit in a run; nil where there are too many.
func (o *Overdrafts) limitLocked(d *drawn, name string) *drawnLimit {
	l := d.limits[name]
	if l == nil && len(d.limits) < ledger.MaxDrawnLimits {
		l = &drawnLimit{}
		d.limits[strings.Clone(name)] = l
		o.limits++
	}
	return l
}

// load reads an epoch's account from the ledger. It adds what this server has granted and not written yet.
func (o *Overdrafts) load(ctx context.Context, e ledger.Epoch, units map[string]int64) error {
	o.tally.writing.RLock() // nothing is written meanwhile: each grant is in one of both
	defer o.tally.writing.RUnlock()
	c, cancel := context.WithTimeout(ctx, drawnTimeout)
	defer cancel()
	began := o.now()
	found, err := o.books.Drawn(c, e)
	if err != nil {
		return err
	}
	e.Agent = strings.Clone(e.Agent)
	root := ledger.Epoch{Agent: e.Agent, Epoch: found.Root}
	o.tally.mu.Lock()
	defer o.tally.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &drawn{
		root: root, totals: map[int64]int64{e.Epoch: found.Total}, through: found.Through, limits: map[string]*drawnLimit{}, read: began,
		renewed: began,
	}
	if found.Recorded > 0 {
		d.renewed = time.UnixMilli(found.Recorded)
	}
	was := o.runs[root]
	if was != nil {
		d.since, d.away, d.renewed, d.quiet = was.since, was.away, was.renewed, was.quiet
		for name := range was.limits {
			o.limitLocked(d, name)
		}
		o.dropLocked(was)
	}
	for name, l := range found.Limits {
		if l.Settled > 0 || l.Recorded != (ledger.Recorded{}) {
			if n := o.limitLocked(d, name); n != nil {
				n.recorded, n.settled = l.Recorded, l.Settled
			}
		}
	}
	own := func(a *ledger.Account) {
		if of := a.ID.Epoch; of.Agent == e.Agent && of.Epoch >= found.Root && (found.Next == 0 || of.Epoch < found.Next) {
			d.granted(o, a.ID.Limit, a.Recorded)
			d.renewed = began
		}
	}
	for i := range o.tally.under {
		own(&o.tally.under[i])
	}
	for name := range units {
		for _, of := range []ledger.Epoch{root, e} {
			if a := o.tally.noted[ledger.AccountID{Epoch: of, Limit: name}]; a != nil {
				own(a)
			}
			if root == e {
				break
			}
		}
	}
	for name, l := range d.limits {
		if was == nil {
			l.forgive(nil)
		} else {
			l.forgive(was.limits[name])
		}
	}
	o.runs[root], o.of[root], o.of[e] = d, d, d
	for id, other := range o.runs {
		if o.limits <= maxDrawn && len(o.runs) <= maxRuns {
			break
		}
		if id != root {
			o.dropLocked(other)
		}
	}
	return nil
}

// limitsOf are a version's limits. If it is not known here, they are those of the version in force, and false.
func (o *Overdrafts) limitsOf(version int64) (judge.Bounds, bool) {
	v, ok := o.rules.Limits(version)
	if !ok {
		v, _ = o.rules.Limits(o.policy.Version())
	}
	return v, ok
}

func (o *Overdrafts) dropLocked(d *drawn) {
	delete(o.runs, d.root)
	delete(o.of, d.root)
	for e := range d.totals {
		delete(o.of, ledger.Epoch{Agent: d.root.Agent, Epoch: e})
	}
	o.limits -= len(d.limits)
}
