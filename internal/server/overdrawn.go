package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/limit"
)

const (
	// overdrawnMargin is how long a limit's rate may have been granted by a server that died before it recorded it: it records
	// every tallyEvery, and may take as long to do so.
	overdrawnMargin = 30 * time.Second
	// overdrawnBuckets bounds the buckets of a limit that a report has the margin for.
	overdrawnBuckets = 100
	// overdrawnPart of what was granted may be missing besides: one in so many.
	overdrawnPart = 20
	// overdrawnWait is how long a report that is above is sent back for other servers to write what they granted, and for the
	// agent to tell of debts.
	overdrawnWait = 30 * time.Second
	// overdrawnLate is how old the usage of a report has to be for it to be of an outage.
	overdrawnLate = time.Minute
	// overdrawnAway is for how long after a renewal that the lease store did not answer nothing is held against its agent.
	overdrawnAway = time.Minute
	// overdrawnTrust is the same of all agents, after the ledger was found to be another: it may have forgotten what servers recorded.
	overdrawnTrust = 10 * time.Minute
	// overdrawnAgain bounds how often one agent's account is read.
	overdrawnAgain = time.Second
	// drawnTimeout bounds one reading.
	drawnTimeout = 2 * time.Second
	// maxDrawn bounds the limits that are remembered, over all agents, some 200 bytes each, and maxRuns the agents' runs of leases, some
	// 500 bytes each: some 50 MB. What is forgotten is read again.
	maxDrawn = 200_000
	maxRuns  = 20_000
)

// bound is what a limit may admit: by its definition alone, whatever was leased.
type bound struct {
	free   bool    // without a lease, as much as is asked for, so that nothing can be held against it
	margin int64   // units of a bucket in overdrawnMargin, its burst or window included
	rate   float64 // units of a bucket a second
}

// boundOf is a limit's bound.
func boundOf(l *limit.Limit) bound {
	b := bound{free: l.CountsOnly() || l.Slots > 0 || l.Shadow || l.OnOutage == limit.OutageOpen || l.FirstTouch == limit.TouchAdmit ||
		l.Enforcement == limit.Soft && l.OveragePPM == 0}
	each := func(r limit.Rate, burst int64) {
		if r.Units == 0 || r.Per <= 0 {
			return
		}
		rate, margin := float64(r.Units)/r.Per.Seconds(), float64(r.Units)
		if !l.Algorithm.Windowed() && l.Algorithm != limit.SlidingWindowLog {
			margin = math.Ceil(rate*overdrawnMargin.Seconds()) + float64(burst)
		}
		above := 1 + float64(l.OveragePPM)/limit.Micro
		b.rate, b.margin = max(b.rate, rate*above), max(b.margin, int64(margin*above)+l.Borrow)
	}
	each(l.Rate, l.Burst)
	for i := range l.Variants {
		v := &l.Variants[i]
		r, burst := v.Rate, v.Burst
		if r.Units == 0 {
			r = l.Rate
		}
		each(r, max(burst, l.Burst))
	}
	return b
}

// or is the bound of either of two limits of one name.
func (b bound) or(o bound) bound {
	return bound{b.free || o.free, max(b.margin, o.margin), max(b.rate, o.rate)}
}

// overdrafts hold what agents settle against what they were granted. Renewals and reports are added up in memory, by agent and
// limit; only where that does not fit is the ledger read, which has what other servers granted and settled. What still does not fit
// once overdrawnWait is over goes to quarantine. Usage that is in order and was granted through a server that died, told late, or
// admitted while nobody could be asked is within it: see docs/ledger.md.
type overdrafts struct {
	books ledger.Books
	judge *Judge
	view  *view
	tally *tally
	log   *slog.Logger
	now   func() time.Time
	units prometheus.Counter // withheld

	mu      sync.Mutex // after tally.mu
	runs    map[ledger.Epoch]*drawn
	of      map[ledger.Epoch]*drawn // by any epoch that is of the run
	limits  int                     // of all runs
	trusted time.Time               // until then nothing is withheld
}

// drawn is what is known of one run of leases: see ledger.Drawn.
type drawn struct {
	root    ledger.Epoch
	next    int64
	totals  map[int64]int64 // units settled, by epoch: those of which it is known
	through int64
	limits  map[string]*drawnLimit
	read    time.Time
	since   time.Time // when a report of it first did not fit; zero where the last one did
	away    time.Time // when the lease store last did not answer a renewal
}

type drawnLimit struct {
	recorded ledger.Recorded
	settled  int64
	outage   int64 // units that the limit may have admitted meanwhile, where nobody could be asked
	buckets  int   // the most that a report had
	free     bool
}

// granted is what was leased and not given back, and what renewals told as spent: that is charged to the bucket, with a lease or without.
func (l *drawnLimit) granted() int64 {
	r := &l.recorded
	n := min(max(r.Granted-r.Unrun-r.Returned, 0), ledger.MaxTotal) + min(r.Spent, ledger.MaxTotal)
	return n + n/overdrawnPart
}

func newOverdrafts(books ledger.Books, judge *Judge, v *view, log *slog.Logger, now func() time.Time, r prometheus.Registerer) (*overdrafts, error) {
	o := &overdrafts{
		books: books, judge: judge, view: v, log: log, now: now, runs: map[ledger.Epoch]*drawn{}, of: map[ledger.Epoch]*drawn{},
		units: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_overdrawn_units_total", Help: "Units that agents settled above what they were granted, and that went to quarantine for it.",
		}),
	}
	return o, r.Register(o.units)
}

// forget has all read again: the ledger is another than before.
func (o *overdrafts) forget() {
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
func (o *overdrafts) renewed(e ledger.Epoch) (d *drawn, done func()) {
	if o == nil {
		return nil, func() {}
	}
	o.mu.Lock()
	return o.of[e], o.mu.Unlock
}

// granted notes a renewal that was granted; nil notes nothing.
func (d *drawn) granted(o *overdrafts, name string, r ledger.Recorded) {
	if d != nil {
		o.limitLocked(d, name).recorded.Add(r)
	}
}

func (o *overdrafts) limitLocked(d *drawn, name string) *drawnLimit {
	l := d.limits[name]
	if l == nil {
		l = &drawnLimit{}
		d.limits[strings.Clone(name)] = l
		o.limits++
	}
	return l
}

// claim is what a report asks to have settled.
type claim struct {
	report  *ledger.Report
	d       *drawn // nil where nothing is held against it
	units   map[string]int64
	outage  map[string]int64
	buckets map[string]int
	free    []string // limits that a tenant has without a bound
	kept    int64    // units withheld
	wait    string   // why it cannot be judged yet
	unread  bool     // the judge of rows has to read a policy version first
}

// claims are those of one call, in its order.
type claims struct {
	o   *overdrafts
	all []claim
}

// check sets Overdrawn of reports; note is told what became of them.
func (o *overdrafts) check(ctx context.Context, reports []ledger.Report) *claims {
	if o == nil {
		return nil
	}
	cs := &claims{o: o, all: make([]claim, 0, len(reports))}
	for i := range reports {
		r := &reports[i]
		r.Overdrawn = nil
		c := claim{report: r}
		cs.judge(ctx, &c)
		if c.wait != "" {
			r.Overdrawn = map[int]error{0: ledger.ErrUnchecked}
		}
		cs.all = append(cs.all, c)
	}
	return cs
}

// waits reports whether a report is to be sent again, whatever else the judge of rows learns.
func (cs *claims) waits(i int) bool { return cs != nil && cs.all[i].wait != "" && !cs.all[i].unread }

// note takes the receipts of the reports.
func (cs *claims) note(receipts []ledger.Receipt) {
	if cs == nil || len(receipts) != len(cs.all) {
		return
	}
	o := cs.o
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range cs.all {
		c := &cs.all[i]
		if c.wait != "" && receipts[i].Unchecked {
			receipts[i].Message = c.wait
		}
		if c.d == nil || receipts[i].Status != ledger.Settled {
			continue
		}
		r, d := c.report, c.d
		if c.kept > 0 {
			o.units.Add(float64(c.kept))
			o.log.Error("an agent settled more than it was granted; what is above is in quarantine", "agent", r.Agent, "epoch", r.Epoch, "seq", r.Seq, "units", c.kept)
		}
		if o.runs[d.root] != d {
			continue // it was read since
		}
		if total, ok := d.totals[r.Epoch]; !ok || total != r.Before {
			delete(d.totals, r.Epoch) // another server settled of it meanwhile: read it again
			continue
		}
		d.totals[r.Epoch], d.through = r.After, max(d.through, r.Through)
		for name, n := range c.units {
			o.limitLocked(d, name).settled += n
		}
		for name, n := range c.outage {
			o.limitLocked(d, name).outage += n
		}
		for name, n := range c.buckets {
			l := o.limitLocked(d, name)
			l.buckets = max(l.buckets, n)
		}
		for _, name := range c.free {
			o.limitLocked(d, name).free = true
		}
		if c.kept == 0 {
			d.since = time.Time{}
		}
	}
}

// judge says whether a report fits, first by what is in memory.
func (cs *claims) judge(ctx context.Context, c *claim) {
	o, r := cs.o, c.report
	sums, err := r.ByLimit()
	if err != nil {
		return // the ledger keeps it whole
	}
	bounds := make(map[string]bound, 4)
	c.units = make(map[string]int64, 4)
	for _, s := range sums {
		v, ok := o.limitsOf(s.Version)
		c.unread = c.unread || !ok
		if b := v.limits[s.Limit]; !v.trial && !b.free {
			bounds[s.Limit] = bounds[s.Limit].or(b)
			c.units[s.Limit] += s.Units
		}
	}
	now := o.now()
	e := ledger.Epoch{Agent: r.Agent, Epoch: r.Epoch}
	late := now.UnixMilli()-r.Through > overdrawnLate.Milliseconds()
	o.mu.Lock()
	known := false
	if d := o.of[e]; d != nil {
		if _, known = d.totals[r.Epoch]; known {
			c.d = d
		}
	}
	fits := len(c.units) == 0 || known && !late && cs.excessLocked(c, nil) == nil
	o.mu.Unlock()
	if !fits {
		cs.look(ctx, c, bounds, late, known, now)
	}
}

// look judges a report that does not fit by what is in memory alone.
func (cs *claims) look(ctx context.Context, c *claim, bounds map[string]bound, late, known bool, now time.Time) {
	o, r := cs.o, c.report
	e := ledger.Epoch{Agent: r.Agent, Epoch: r.Epoch}
	rows, err := ledger.DecodeRows(r.Payload)
	if err != nil {
		return
	}
	o.overrides(ctx, c, rows, bounds)
	c.buckets = bucketsOf(rows, c.units)
	for attempt := 0; ; attempt++ {
		if !known {
			if err := o.load(ctx, e, c.units); err != nil {
				c.d, c.wait = nil, "what its agent was granted cannot be read now: "+err.Error()
				return
			}
		}
		o.mu.Lock()
		if c.d = o.of[e]; c.d == nil {
			o.mu.Unlock()
			known = false
			if attempt > 1 {
				c.wait = "what its agent was granted cannot be kept now"
				return
			}
			continue
		}
		if late {
			cs.outageLocked(c, bounds)
		}
		above := cs.excessLocked(c, bounds)
		again := above != nil && attempt == 0 && known && now.Sub(c.d.read) >= overdrawnAgain
		if again {
			o.mu.Unlock()
			known = false
			continue
		}
		if above != nil {
			cs.withholdLocked(c, rows, bounds, above, now)
		}
		o.mu.Unlock()
		return
	}
}

// outageLocked adds what limits may have admitted while nobody could be asked: their rate, from where the reports before end, of
// buckets that had a lease.
func (cs *claims) outageLocked(c *claim, bounds map[string]bound) {
	from := c.d.through
	for i := range cs.all {
		if p := &cs.all[i]; p.d == c.d && p.wait == "" {
			from = max(from, p.report.Through)
		}
	}
	if from == 0 {
		from = c.report.Through - overdrawnLate.Milliseconds()
	}
	seconds := float64(max(c.report.Through-from, 0)) / 1000
	c.outage = make(map[string]int64, len(c.units))
	for name := range c.units {
		if l := c.d.limits[name]; l != nil && l.recorded.Granted > 0 {
			c.outage[name] = int64(min(math.Ceil(bounds[name].rate*seconds)*float64(c.buckets[name]), ledger.MaxTotal/2))
		}
	}
}

// excessLocked is what the claim is above what its limits were granted, by limit; nil where it fits. Without bounds there is no margin.
func (cs *claims) excessLocked(c *claim, bounds map[string]bound) (above map[string]excess) {
	o := cs.o
	ahead, settled, outage := int64(0), map[string]int64(nil), map[string]int64(nil)
	total := c.d.totals[c.report.Epoch]
	for i := range cs.all {
		p := &cs.all[i]
		if p.d != c.d || p.wait != "" || p.report.Epoch == c.report.Epoch && p.report.After <= total {
			continue // nothing new
		}
		if p.report.Epoch == c.report.Epoch {
			ahead += p.report.After - p.report.Before
		}
		if settled == nil {
			settled, outage = map[string]int64{}, map[string]int64{}
		}
		for name, n := range p.units {
			settled[name] += n
		}
		for name, n := range p.outage {
			outage[name] += n
		}
	}
	if c.report.After <= total {
		return nil // it is settled, and comes again
	}
	// What was settled and is not known of which limits may be of each.
	unknown := max(c.report.Before-total-ahead, 0)
	now := o.now()
	for name, n := range c.units {
		l := c.d.limits[name]
		if l == nil {
			l = &drawnLimit{}
		}
		if l.free {
			continue
		}
		margin := bounds[name].margin * int64(min(max(l.buckets, c.buckets[name], 1), overdrawnBuckets))
		x := excess{settled: l.settled + settled[name] + unknown, granted: l.granted(), margin: min(margin, ledger.MaxTotal) + l.outage + outage[name] + c.outage[name], unknown: unknown > 0}
		if x.over(n) <= 0 {
			continue
		}
		if bounds != nil && (now.Before(o.trusted) || now.Sub(c.d.away) < overdrawnAway) {
			continue // nobody could be asked, or the ledger has forgotten
		}
		if above == nil {
			above = make(map[string]excess)
		}
		above[name] = x
	}
	return above
}

// excess is by how much a limit is overdrawn.
type excess struct {
	settled, granted, margin int64
	unknown                  bool
}

func (x *excess) over(n int64) int64 { return x.settled + n - x.granted - x.margin }

// withholdLocked keeps the rows aside that are above, in their order, or has the report sent again where it may yet fit.
func (cs *claims) withholdLocked(c *claim, rows []ledger.Row, bounds map[string]bound, above map[string]excess, now time.Time) {
	if c.d.since.IsZero() {
		c.d.since = now
	}
	for name, x := range above {
		if x.unknown || now.Sub(c.d.since) < overdrawnWait {
			c.wait = fmt.Sprintf("agent %s settles %d units of limit %s and was granted %d, with a margin of %d; other servers may have granted more, send again",
				c.report.Agent, x.settled+c.units[name], limit.Quote(name), x.granted, x.margin)
			return
		}
	}
	c.report.Overdrawn = make(map[int]error)
	for name := range above {
		c.units[name] = 0
	}
	for i := range rows {
		row := &rows[i]
		x, ok := above[row.Limit]
		if !ok || row.Admitted == 0 {
			continue
		}
		if v, _ := cs.o.limitsOf(row.Version); v.trial || v.limits[row.Limit].free {
			continue
		}
		if x.over(c.units[row.Limit]+row.Admitted) <= 0 {
			c.units[row.Limit] += row.Admitted
			continue
		}
		c.kept += row.Admitted
		c.report.Overdrawn[i] = fmt.Errorf("agent %s settled %d units of limit %s before, and was granted %d, with a margin of %d",
			c.report.Agent, x.settled+c.units[row.Limit], limit.Quote(row.Limit), x.granted, x.margin)
	}
}

// bucketsOf is how many buckets of each limit rows are of.
func bucketsOf(rows []ledger.Row, units map[string]int64) map[string]int {
	type bucket struct{ limit, tenant, attributes string }
	seen := make(map[bucket]bool)
	n := make(map[string]int, len(units))
	for i := range rows {
		r := &rows[i]
		b := bucket{r.Limit, r.Tenant, r.Attributes}
		if _, ok := units[r.Limit]; ok && r.Admitted > 0 && !seen[b] {
			seen[b] = true
			n[r.Limit]++
		}
	}
	return n
}

// overrides adds the limits that the tenants of rows have themselves. One without a bound frees the limit: what its tenants used of
// it cannot be told apart.
func (o *overdrafts) overrides(ctx context.Context, c *claim, rows []ledger.Row, bounds map[string]bound) {
	seen := make(map[string]bool)
	var ids []string
	for i := range rows {
		if r := &rows[i]; !seen[r.Tenant] && r.Tenant != "" && r.Admitted > 0 {
			seen[r.Tenant] = true
			ids = append(ids, r.Tenant)
		}
	}
	for _, r := range o.view.tenants(ctx, ids) {
		if r.err != nil { // what it has cannot be made out: nothing is held against it
			clear(c.units)
			return
		}
		for i := range r.tenant.Overrides {
			l := &r.tenant.Overrides[i]
			if _, ok := c.units[l.Name]; !ok {
				continue
			}
			b := boundOf(l)
			bounds[l.Name] = bounds[l.Name].or(b)
			if b.free {
				c.free = append(c.free, l.Name)
				delete(c.units, l.Name)
			}
		}
	}
}

// load reads what an epoch draws on from the ledger, and adds what this server has granted of it and not written.
func (o *overdrafts) load(ctx context.Context, e ledger.Epoch, units map[string]int64) error {
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
	d := &drawn{root: root, next: found.Next, totals: map[int64]int64{e.Epoch: found.Total}, through: found.Through, limits: map[string]*drawnLimit{}, read: began}
	if was := o.runs[root]; was != nil {
		d.since, d.away = was.since, was.away
		for name, l := range was.limits {
			if l.outage > 0 || l.buckets > 0 || l.free {
				n := o.limitLocked(d, name)
				n.outage, n.buckets, n.free = l.outage, l.buckets, l.free
			}
		}
		o.dropLocked(was)
	}
	for name, l := range found.Limits {
		if l.Settled > 0 || l.Recorded != (ledger.Recorded{}) {
			n := o.limitLocked(d, name)
			n.recorded, n.settled = l.Recorded, l.Settled
		}
	}
	own := func(a *ledger.Account) {
		if of := a.ID.Epoch; of.Agent == e.Agent && of.Epoch >= found.Root && (found.Next == 0 || of.Epoch < found.Next) {
			o.limitLocked(d, a.ID.Limit).recorded.Add(a.Recorded)
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
		// More is settled than was ever granted, and was no case for quarantine: usage that needs no lease is among it.
		r := &l.recorded
		ever := min(r.Granted, ledger.MaxTotal) + min(r.Spent, ledger.MaxTotal)
		margin, ok := o.marginOf(name)
		l.free = l.free || ok && l.settled > ever+ever/overdrawnPart+2*overdrawnBuckets*margin+l.outage
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
func (o *overdrafts) limitsOf(version int64) (bounds, bool) {
	v, ok := o.judge.limitsOf(version)
	if !ok {
		v, _ = o.judge.limitsOf(o.view.current().version())
	}
	return v, ok
}

// marginOf is the margin of a limit in the policy in force.
func (o *overdrafts) marginOf(name string) (int64, bool) {
	v, ok := o.judge.limitsOf(o.view.current().version())
	return v.limits[name].margin, ok
}

func (o *overdrafts) dropLocked(d *drawn) {
	delete(o.runs, d.root)
	delete(o.of, d.root)
	for e := range d.totals {
		delete(o.of, ledger.Epoch{Agent: d.root.Agent, Epoch: e})
	}
	o.limits -= len(d.limits)
}
