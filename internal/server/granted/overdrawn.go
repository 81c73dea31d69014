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
	// overdrawnBuckets bounds the buckets of a limit that a report has the margin for.
	overdrawnBuckets = 100
	// overdrawnPart of what was granted may be missing besides: one in so many.
	overdrawnPart = 20
	// overdrawnWait is how long a report that is above is sent back for other servers to write what they granted, and
	// for the agent to tell of debts.
	overdrawnWait = 30 * time.Second
	// overdrawnLate is how old the usage of a report has to be for it to be of an outage.
	overdrawnLate = time.Minute
	// overdrawnAway is for how long after a renewal that the lease store did not answer nothing is held against its
	// agent.
	overdrawnAway = time.Minute
	// overdrawnTrust is the same of all agents, after the ledger was found to be another: it may have forgotten what
	// servers recorded.
	overdrawnTrust = 10 * time.Minute
	// overdrawnAgain bounds how often one agent's account is read.
	overdrawnAgain = time.Second
	// drawnReads bounds the readings of one call: an agent that makes up epochs has the ledger read for each.
	drawnReads = 16
	// drawnTimeout bounds one reading.
	drawnTimeout = 2 * time.Second
	// maxDrawn bounds the limits that are remembered, over all agents, some 200 bytes each, and maxRuns the agents'
	// runs of leases, some 500 bytes each: some 50 MB. What is forgotten is read again.
	maxDrawn = 200_000
	maxRuns  = 20_000
)

// Overdrafts hold what agents settle against what they were granted. Renewals and reports are added up in memory, by
// agent and limit; only where that does not fit is the ledger read, which has what other servers granted and settled.
// What still does not fit once overdrawnWait is over goes to quarantine. Usage that is in order and was granted through
// a server that died, told late, or admitted while nobody could be asked is within it: see docs/ledger.md.
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
	// renewed is when a renewal was last answered, or at the latest when this was first read, and quiet how long there
	// was none, of times above overdrawnLate: usage of other times is no outage's, whatever its agent says.
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
	// forgiven is units that were settled above what was granted when the ledger was read: they were judged by the
	// server that settled them, or needed no lease.
	forgiven int64
}

// granted is what was leased and not given back, and what renewals told as spent: that is charged to the bucket, with a
// lease or without.
func (l *drawnLimit) granted() int64 {
	r := &l.recorded
	n := min(max(r.Granted-r.Unrun-r.Returned, 0), ledger.MaxTotal) + min(r.Spent, ledger.MaxTotal)
	return n + n/overdrawnPart + l.forgiven
}

// forgive is called when the ledger was read, with what was known before; nil for nothing. Of the margin, what this
// server let through stays used.
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
	// Limits are a version's; false where it was not read here.
	Limits(version int64) (judge.Bounds, bool)
}

// Policy is what is in force: see view.View.
type Policy interface {
	Version() int64
	// Overrides are the limits that each of the tenants has itself. It fails where one's cannot be made out.
	Overrides(ctx context.Context, ids []string) ([][]limit.Limit, error)
}

// NewOverdrafts holds what agents settle against what t has noted, and is told of it from then on.
func NewOverdrafts(books ledger.Books, rules Rules, policy Policy, t *Tally, log *slog.Logger, now func() time.Time, r prometheus.Registerer) (*Overdrafts, error) {
	o := &Overdrafts{
		books: books, rules: rules, policy: policy, tally: t, log: log, now: now, runs: map[ledger.Epoch]*drawn{}, of: map[ledger.Epoch]*drawn{},
		units: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_overdrawn_units_total", Help: "Units that agents settled above what they were granted, and that went to quarantine for it.",
		}),
	}
	if t != nil {
		t.over = o
	}
	return o, r.Register(o.units)
}

// Forget has all read again: the ledger is another than before.
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

// renewed opens what is known of an epoch for what is granted to it, nil where nothing is; whoever asks calls done.
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

// limitLocked is what is known of a limit of a run; nil where there are too many.
func (o *Overdrafts) limitLocked(d *drawn, name string) *drawnLimit {
	l := d.limits[name]
	if l == nil && len(d.limits) < ledger.MaxDrawnLimits {
		l = &drawnLimit{}
		d.limits[strings.Clone(name)] = l
		o.limits++
	}
	return l
}

// load reads what an epoch draws on from the ledger, and adds what this server has granted of it and not written.
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

// limitsOf are a version's limits; where it is not known here those of the one in force, and false.
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
