package granted

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/server/judge"
)

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

// Claims are the claims of one call, in its order.
type Claims struct {
	o     *Overdrafts
	all   []claim
	reads int // of the ledger
}

// Check sets Overdrawn of reports. The caller passes the receipts to Note.
func (o *Overdrafts) Check(ctx context.Context, reports []ledger.Report) *Claims {
	if o == nil {
		return nil
	}
	cs := &Claims{o: o, all: make([]claim, 0, len(reports))}
	for i := range reports {
		r := &reports[i]
		r.Overdrawn, r.Unchecked = nil, false
		c := claim{report: r}
		cs.judge(ctx, &c)
		r.Unchecked = c.wait != ""
		cs.all = append(cs.all, c)
	}
	return cs
}

// Waits reports whether a report has to be sent again, whatever the judge of rows still learns.
func (cs *Claims) Waits(i int) bool { return cs != nil && cs.all[i].wait != "" && !cs.all[i].unread }

// Note takes the receipts of the reports.
func (cs *Claims) Note(receipts []ledger.Receipt) {
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
		if receipts[i].Status != ledger.Settled {
			continue
		}
		r, d := c.report, c.d
		if c.kept > 0 {
			o.units.Add(float64(c.kept))
			o.log.Error("an agent settled more than it was granted; what is above is in quarantine", "agent", r.Agent, "epoch", r.Epoch, "seq", r.Seq, "units", c.kept)
		}
		if d == nil || o.runs[d.root] != d {
			continue // it was read since, or is not known
		}
		if total, ok := d.totals[r.Epoch]; !ok || total != r.Before {
			delete(d.totals, r.Epoch) // another server settled of it meanwhile: read it again
			continue
		}
		d.totals[r.Epoch], d.through = r.After, max(d.through, r.Through)
		for _, name := range c.free {
			if l := o.limitLocked(d, name); l != nil {
				l.free = true
			}
		}
		for name, n := range c.units {
			if n == 0 {
				continue
			}
			if l := o.limitLocked(d, name); l != nil {
				l.settled += n
				l.outage += c.outage[name]
				l.buckets = max(l.buckets, c.buckets[name])
			}
		}
		if c.kept == 0 {
			d.since = time.Time{}
		}
	}
}

// judge says whether a report fits, first by what is in memory.
func (cs *Claims) judge(ctx context.Context, c *claim) {
	o, r := cs.o, c.report
	if r.Unsealed { // none of it is billed
		return
	}
	sums, err := r.ByLimit()
	if err != nil {
		return // the ledger keeps it whole
	}
	bounds := make(map[string]judge.Bound, 4)
	c.units = make(map[string]int64, 4)
	for _, s := range sums {
		v, ok := o.limitsOf(s.Version)
		c.unread = c.unread || !ok
		if b := v.Limits[s.Limit]; !v.Trial && !b.Free {
			bounds[s.Limit] = bounds[s.Limit].Or(b)
			c.units[s.Limit] += s.Units
		}
	}
	now := o.now()
	e := ledger.Epoch{Agent: r.Agent, Epoch: r.Epoch}
	late := now.UnixMilli()-r.Through > overdrawnLate.Milliseconds()
	if len(c.units) > ledger.MaxDrawnLimits { // none has as many
		cs.keep(c, func(*ledger.Row) error {
			return fmt.Errorf("it names %d limits, and at most %d are held against leases", len(c.units), ledger.MaxDrawnLimits)
		})
		clear(c.units)
		return
	}
	o.mu.Lock()
	known := false
	if d := o.of[e]; d != nil {
		if _, known = d.totals[r.Epoch]; known {
			c.d = d
		}
	}
	fits := len(c.units) == 0 || known && !late && cs.excessLocked(c, nil) == nil
	if !fits && known && now.Before(c.d.refuse) {
		c.wait = c.d.why
	}
	o.mu.Unlock()
	if !fits && c.wait == "" {
		cs.look(ctx, c, bounds, late, known, now)
	}
}

// look judges a report that does not fit by what is in memory alone.
func (cs *Claims) look(ctx context.Context, c *claim, bounds map[string]judge.Bound, late, known bool, now time.Time) {
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
			if cs.reads++; cs.reads > drawnReads {
				c.d, c.wait = nil, fmt.Sprintf("what more than %d runs of leases were granted is not read at once; send again", drawnReads)
				return
			}
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
			cs.waitLocked(c, above, now)
		}
		o.mu.Unlock()
		if above != nil && c.wait == "" {
			cs.withhold(c, above)
		}
		return
	}
}

// outageLocked adds what limits may have admitted while the server could not be asked. It is the limit's rate, from the
// end of the reports before, for each bucket that had a lease.
func (cs *Claims) outageLocked(c *claim, bounds map[string]judge.Bound) {
	from := c.d.through
	for i := range cs.all {
		if p := &cs.all[i]; p.d == c.d && p.wait == "" {
			from = max(from, p.report.Through)
		}
	}
	if from == 0 {
		from = c.report.Through - overdrawnLate.Milliseconds()
	}
	outage := min(time.Duration(max(c.report.Through-from, 0))*time.Millisecond, c.d.quiet+cs.o.now().Sub(c.d.renewed))
	c.outage = make(map[string]int64, len(c.units))
	for name := range c.units {
		if l := c.d.limits[name]; l != nil && l.recorded.Granted > 0 {
			each := math.Ceil(bounds[name].Rate * outage.Seconds())
			c.outage[name] = int64(min(each*float64(min(c.buckets[name], overdrawnBuckets)), ledger.MaxTotal/2))
		}
	}
}

// excessLocked is what the claim is above what its limits were granted, by limit; nil where it fits. Without bounds
// there is no margin.
func (cs *Claims) excessLocked(c *claim, bounds map[string]judge.Bound) (above map[string]excess) {
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
	// Units that were settled under unknown limits may belong to any of them.
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
		margin := bounds[name].Margin * int64(min(max(l.buckets, c.buckets[name], 1), overdrawnBuckets))
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

// waitLocked sends a report back if it may still come to fit.
func (cs *Claims) waitLocked(c *claim, above map[string]excess, now time.Time) {
	if c.d.since.IsZero() {
		c.d.since = now
	}
	for name, x := range above {
		if x.unknown || now.Sub(c.d.since) < overdrawnWait {
			c.wait = fmt.Sprintf("agent %s settles %d units of limit %s and was granted %d, with a margin of %d; other servers may have granted more, send again",
				c.report.Agent, x.settled+c.units[name], limit.Quote(name), x.granted, x.margin)
			if !c.unread { // with the version it may fit at once
				c.d.refuse, c.d.why = now.Add(overdrawnAgain), c.wait
			}
			return
		}
	}
}

// withhold puts rows above the grants into quarantine, in their order.
func (cs *Claims) withhold(c *claim, above map[string]excess) {
	reasons := make(map[string]error, len(above)) // one for all rows of a limit
	for name := range above {
		c.units[name] = 0
	}
	cs.keep(c, func(row *ledger.Row) error {
		x, ok := above[row.Limit]
		if !ok {
			return nil
		}
		if v, _ := cs.o.limitsOf(row.Version); v.Trial || v.Limits[row.Limit].Free {
			return nil
		}
		if x.over(c.units[row.Limit]+row.Admitted) <= 0 {
			c.units[row.Limit] += row.Admitted
			return nil
		}
		if reasons[row.Limit] == nil {
			reasons[row.Limit] = fmt.Errorf("agent %s settled %d units of limit %s before, and was granted %d, with a margin of %d",
				c.report.Agent, x.settled+c.units[row.Limit], limit.Quote(row.Limit), x.granted, x.margin)
		}
		return reasons[row.Limit]
	})
}

// keep puts the rows into quarantine for which reason returns an error.
func (cs *Claims) keep(c *claim, reason func(*ledger.Row) error) {
	rows, err := ledger.DecodeRows(c.report.Payload)
	if err != nil {
		return // the ledger keeps it whole
	}
	c.report.Overdrawn = make(map[int]error)
	for i := range rows {
		if rows[i].Admitted == 0 {
			continue
		}
		if err := reason(&rows[i]); err != nil {
			c.kept += rows[i].Admitted
			c.report.Overdrawn[i] = err
		}
	}
}

// bucketsOf counts the buckets of rows, by limit.
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

// overrides adds the overrides of the rows' tenants. An override without a bound frees the limit, because its tenants'
// usage cannot be told apart.
func (o *Overdrafts) overrides(ctx context.Context, c *claim, rows []ledger.Row, bounds map[string]judge.Bound) {
	seen := make(map[string]bool)
	var ids []string
	for i := range rows {
		if r := &rows[i]; !seen[r.Tenant] && r.Tenant != "" && r.Admitted > 0 {
			seen[r.Tenant] = true
			ids = append(ids, r.Tenant)
		}
	}
	all, err := o.policy.Overrides(ctx, ids)
	if err != nil { // what one has cannot be made out: nothing is held against it
		clear(c.units)
		return
	}
	for _, limits := range all {
		for i := range limits {
			l := &limits[i]
			if _, ok := c.units[l.Name]; !ok {
				continue
			}
			b := judge.BoundOf(l)
			bounds[l.Name] = bounds[l.Name].Or(b)
			if b.Free {
				c.free = append(c.free, l.Name)
				delete(c.units, l.Name)
			}
		}
	}
}
