// Command curves measures how costs grow: with tenants, gateways, limits of a request, ε and holders of a bucket. It
// prints tables, and with -report writes them and their charts into a report. All but one table are measured in
// process. The server of decisions never runs dry, gateways are the simulation's, and renewals are those of the store
// in process. The load test, on real engines, measures what buckets cost the server, Redis and the ledger (engines.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/loadtest/bench"
	"github.com/f4ee788f/quota/loadtest/sim"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Marks around the tables in the report.
const (
	beginMark = "<!-- curves: made by make curves -->\n"
	endMark   = "<!-- /curves -->\n"
)

// figure is a table and its chart.
type figure struct {
	file, title, point, note string
	points                   []string
	curves                   []sim.Curve
	charted                  int // of curves, that the chart has
}

// add appends a point with a value for each curve.
func (f *figure) add(point string, values ...float64) {
	f.points = append(f.points, point)
	for i, v := range values {
		f.curves[i].Values = append(f.curves[i].Values, v)
	}
}

// table is the figure as Markdown.
func (f *figure) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", f.point)
	for _, c := range f.curves {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	fmt.Fprintf(&b, "\n| --- |%s\n", strings.Repeat(" --- |", len(f.curves)))
	for i, p := range f.points {
		fmt.Fprintf(&b, "| %s |", p)
		for _, c := range f.curves {
			fmt.Fprintf(&b, " %s |", number(c.Values[i]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// number has three significant digits, and thousands apart.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1000:
		return thousands(int64(math.Round(v)))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// measure makes a figure. Its name is the name of the chart's file.
type measure struct {
	name string
	make func(part int) (figure, error)
}

func main() {
	report := flag.String("report", "", "directory of the report to write into; none if empty")
	part := flag.Int("part", 1, "divides the largest sizes, to see that it runs; above 1 nothing is written")
	only := flag.String("only", "", "figures whose name has this in it; in the report the others stay as they are")
	program := flag.String("loadtest", "../../bin/loadtest", "the load test that the figure engines is made with; quota-server is beside it")
	onEngines := flag.Bool("engines", true, "make the figure engines, for which redis-server and postgres are needed; without, it stays as it is")
	flag.Parse()
	if err := run(*report, max(*part, 1), *only, *onEngines, loadtest{*program}); err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
}

func run(report string, part int, only string, onEngines bool, l loadtest) error {
	if part > 1 {
		report = ""
	}
	measures := []measure{
		{"tenants", byTenants}, {"limits", byLimits}, {"gateways", byGateways}, {"terms", byTerm}, {"epsilon", byEpsilon}, {"holders", byHolders},
	}
	if onEngines && strings.Contains("engines", only) {
		if err := l.ready(); err != nil {
			return err
		}
		measures = append(measures, measure{"engines", l.byEngines})
	}
	var figures []figure
	for _, m := range measures {
		if !strings.Contains(m.name, only) {
			continue
		}
		f, err := m.make(part)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		f.file = m.name
		fmt.Printf("%s\n\n%s\n%s\n\n", f.title, f.table(), f.note)
		figures = append(figures, f)
	}
	if len(figures) == 0 {
		return fmt.Errorf("no figure has %q in its name", only)
	}
	if report == "" {
		return nil
	}
	return write(report, figures)
}

// write puts the figures into the report, between the marks. Each replaces the section that shows its chart. Sections
// of other figures stay as they are.
func write(report string, figures []figure) error {
	page := filepath.Join(report, "README.md")
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), beginMark)
	between, after, closed := strings.Cut(rest, endMark)
	if !ok || !closed {
		return fmt.Errorf("%s has no place for curves: %s%s", page, beginMark, endMark)
	}
	var sections []string
	for section := range strings.SplitSeq("\n"+between, "\n### ") {
		sections = append(sections, strings.TrimSpace(section))
	}
	sections = sections[1:] // what comes before the first no figure has made
	for i := range figures {
		f := &figures[i]
		chart := fmt.Sprintf("](%s.svg)", f.file)
		section := fmt.Sprintf("%s\n\n%s\n%s\n\n![%s%s", f.title, f.table(), f.note, f.title, chart)
		if at := slices.IndexFunc(sections, func(s string) bool { return strings.HasSuffix(s, chart) }); at >= 0 {
			sections[at] = section
		} else {
			sections = append(sections, section)
		}
		if err := os.WriteFile(filepath.Join(report, f.file+".svg"), sim.Curves(f.title, f.points, f.curves[:f.charted]...), 0o644); err != nil {
			return err
		}
	}
	var out strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&out, "### %s\n\n", s)
	}
	return os.WriteFile(page, []byte(before+beginMark+out.String()+endMark+after), 0o644)
}

func named(names ...string) (curves []sim.Curve) {
	for _, n := range names {
		curves = append(curves, sim.Curve{Name: n})
	}
	return curves
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// each is the processor time of f for each of n. It is the least of some turns, because other work of the machine can
// only add to it.
func each(n int, f func()) float64 {
	least := math.Inf(1)
	for range 7 {
		began := cpu()
		f()
		least = min(least, float64(cpu()-began)/float64(n))
	}
	return least
}

// policy has plans of one limit and more, all of the tenant.
func policy() *quotav1.Policy {
	p := &quotav1.Policy{}
	for n := 1; n <= 8; n++ {
		plan := &quotav1.Plan{Name: fmt.Sprintf("limits-%d", n)}
		for i := range n {
			meter := ""
			if i == 0 {
				meter = "requests"
			}
			plan.Limits = append(plan.Limits, bench.Limit(fmt.Sprintf("limit-%d", i), meter))
		}
		p.Plans = append(p.Plans, plan)
	}
	return p
}

func tenantOf(i int) string { return fmt.Sprintf("tenant-%08x", uint32(i)*2654435761) }

// walk asks n requests of tenants in an order that no prefetcher guesses.
func walk(c *client.Client, tenants []string, n int) {
	state := uint32(1)
	for range n {
		state = state*1664525 + 1013904223
		if !c.Allow(context.Background(), client.Tenant(tenants[int(state>>1)%len(tenants)])).Allowed {
			panic("denied, where nothing is to be")
		}
	}
}

// touch has each tenant's request decided often enough to be known.
func touch(c *client.Client, tenants []string) {
	var group sync.WaitGroup
	const company = 2048 // so that a call to the server carries as many tenants and buckets as it may
	for g := range company {
		group.Go(func() {
			for i := g; i < len(tenants); i += company {
				for range 4 {
					c.Allow(context.Background(), client.Tenant(tenants[i]))
				}
			}
		})
	}
	group.Wait()
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// pauses is how often the collector stopped the program, by length.
func pauses() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	h := *s[0].Value.Float64Histogram()
	h.Counts = slices.Clone(h.Counts)
	return &h
}

// quantile is a quantile of the counts of h beyond those before, in microseconds, rounded up to its bucket's end.
func quantile(h, before *metrics.Float64Histogram, q float64) float64 {
	var all, sum uint64
	for i := range h.Counts {
		all += h.Counts[i] - before.Counts[i]
	}
	for i := range h.Counts {
		if sum += h.Counts[i] - before.Counts[i]; float64(sum) >= q*float64(all) && sum > 0 {
			return h.Buckets[min(i+1, len(h.Buckets)-2)] * 1e6
		}
	}
	return 0
}

func byTenants(part int) (f figure, err error) {
	f = figure{
		title: "Tenants on one agent", point: "tenants, a bucket each", charted: 2,
		curves: named("ns a decision", "bytes a bucket", "heap, MB", "renewal loop, % of a core", "renewals/s", "GC pause p99, µs"),
		note: "A decision waits for memory beyond some ten thousand buckets, as a map read does. Bytes are of all that the process has for a bucket: its tenant, its key, what is remembered of its request, and the little that the server here keeps. " +
			"The loop's part is the whole process's for five seconds without a request, that server's included; leases here are of ten minutes. Pauses are of ten collections under way meanwhile.",
	}
	for _, n := range []int{100, 1_000, 10_000, 100_000, 1_000_000} {
		if n > 1_000_000/part {
			break
		}
		tenants := make([]string, n)
		for i := range tenants {
			tenants[i] = tenantOf(i)
		}
		before := heap()
		c, stop, err := bench.Open(policy(), func(string) string { return "limits-1" })
		if err != nil {
			return f, err
		}
		touch(c, tenants)
		if b := c.Stats().Buckets; b != int64(n) {
			return f, fmt.Errorf("%d live buckets, want %d", b, n)
		}
		size := heap() - before
		ns := each(200_000, func() { walk(c, tenants, 200_000) })
		quiet := 5 * time.Second / time.Duration(min(part, 50))
		renewals, paused, began := c.Stats().Renewals, pauses(), cpu()
		time.Sleep(quiet)
		idle := float64(cpu()-began) / float64(quiet) * 100
		perSecond := float64(c.Stats().Renewals-renewals) / quiet.Seconds()
		for range 10 {
			runtime.GC()
		}
		fmt.Fprintf(os.Stderr, "curves: %s tenants\n", thousands(int64(n)))
		f.add(thousands(int64(n)), ns, size/float64(n), size/1e6, idle, perSecond, quantile(pauses(), paused, 0.99))
		if err := stop(); err != nil {
			return f, err
		}
		debug.FreeOSMemory()
	}
	return f, nil
}

func byLimits(part int) (f figure, err error) {
	f = figure{
		title: "Limits of a request", point: "limits", charted: 1, curves: named("ns a decision", "ns a limit"),
		note: "Among 1,000 tenants, all limits of the tenant. A request that comes again is remembered with up to four limits, and matched anew beyond them: from the fifth on all are looked up each time.",
	}
	tenants := make([]string, 1000)
	for i := range tenants {
		tenants[i] = tenantOf(i)
	}
	for n := 1; n <= 8; n++ {
		c, stop, err := bench.Open(policy(), func(string) string { return fmt.Sprintf("limits-%d", n) })
		if err != nil {
			return f, err
		}
		touch(c, tenants)
		asked := 200_000 / min(part, 10)
		ns := each(asked, func() { walk(c, tenants, asked) })
		f.add(fmt.Sprint(n), ns, ns/float64(n))
		if err := stop(); err != nil {
			return f, err
		}
	}
	return f, nil
}

// saturated asks for a tenth more than there is.
const saturated = 1.1

// shared is one bucket from which all agents together want factor times its rate.
func shared(agents int, factor float64, epsilon int64, seconds int64) sim.Scenario {
	const rate = 10_000
	l := limit.Limit{
		Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: rate, Per: time.Second}, Burst: 2 * rate,
		Enforcement: limit.Hard, EpsilonPPM: epsilon,
	}
	if epsilon == 0 {
		l.Enforcement = limit.Strict
	}
	return sim.Scenario{
		Name: fmt.Sprintf("%d agents, ε %d ppm", agents, epsilon), Agents: agents, Limit: l, Duration: seconds * 1_000_000,
		Demand: func(int, int64) float64 { return factor * rate / float64(agents) },
	}
}

func byGateways(part int) (f figure, err error) {
	f = figure{
		title: "Gateways that share one saturated bucket", point: "gateways", charted: 2,
		curves: named("renewals/s", "renewals/s a gateway", "renewed, % of requests", "error, %", "most ÷ bound"),
		note:   "From the simulation: a limit of 10,000/s, asked for 11,000/s by all together, 20 s, ε 5 %. Renewals grow with gateways, for each has a lease of its own, and not with requests; each gateway's part gets smaller, and so does what it may hold. A renewal is a read and a write of its bucket in Redis. The ledger's rows do not grow with gateways: a key has an entry for each fold and slot that it is reported in, whoever reports it.",
	}
	seconds := int64(20 / min(part, 10))
	for _, n := range []int{1, 3, 10, 30, 100, 300, 1000} {
		if n > 1000/min(part, 10) {
			break
		}
		r := sim.Run(shared(n, saturated, 50_000, seconds), 1)
		perSecond := float64(r.Renewals) / float64(seconds)
		f.add(thousands(int64(n)), perSecond, perSecond/float64(n), r.RenewedPct, r.ErrorPct, r.Over)
	}
	return f, nil
}

func byTerm(part int) (f figure, err error) {
	f = figure{
		title: "Demand, and how long leases last", point: "demand ÷ limit", charted: 2,
		curves: named("s between renewals of a lease", "renewed, % of requests", "error, %"),
		note:   "The same bucket of 100 gateways, for 60 s. Terms adapt, and no option sets them: long where there is plenty, short where the bucket is scarce or demand changes.",
	}
	seconds := int64(60 / min(part, 10))
	const gateways = 100
	for _, factor := range []float64{0.1, 0.5, 0.8, 0.9, 1, saturated, 3} {
		r := sim.Run(shared(gateways, factor, 50_000, seconds), 1)
		f.add(fmt.Sprint(factor), float64(gateways*seconds)/float64(max(r.Renewals, 1)), r.RenewedPct, r.ErrorPct)
	}
	return f, nil
}

func byEpsilon(part int) (f figure, err error) {
	f = figure{
		title: "The error that a limit allows", point: "ε, %", charted: 2,
		curves: named("renewals/s", "error, %", "renewed, % of requests", "most ÷ bound"),
		note:   "The same bucket of 100 gateways. ε 0 is `enforcement: strict`.",
	}
	seconds := int64(20 / min(part, 10))
	for _, percent := range []int64{0, 1, 2, 5, 10} {
		r := sim.Run(shared(100, saturated, percent*10_000, seconds), 1)
		f.add(fmt.Sprint(percent), float64(r.Renewals)/float64(seconds), r.ErrorPct, r.RenewedPct, r.Over)
	}
	return f, nil
}

func byHolders(part int) (f figure, err error) {
	f = figure{
		title: "Holders of a bucket at the store", point: "holders", charted: 1,
		curves: named("µs a renewal"),
		note:   "The step of the store in process, 1,000 renewals of one bucket at a time. Sums are kept, not made: a step does the same work for any number of holders, and waits for memory where their records are many. In Redis all that come together are one read and one write of the bucket, and what each adds is its holder's record.",
	}
	spec := lease.Spec{Algorithm: limit.TokenBucket, Units: 1_000_000, Period: 1_000_000, Burst: 2_000_000, EpsilonPPM: 50_000}
	for _, holders := range []int{1, 10, 100, 1000, 10_000} {
		if holders > 10_000/min(part, 10) {
			break
		}
		s := memstore.New()
		at, number := time.Now().UnixMicro(), int64(0)
		batch := make([]lease.Renewal, 1000)
		next := 0
		renew := func() error {
			number++
			at += 1000
			for i := range batch {
				if next++; next >= holders {
					next = 0
				}
				batch[i] = lease.Renewal{Key: "requests", Spec: spec, Holder: fmt.Sprintf("agent-%d", next), Now: at, Number: number*1000 + int64(i), Began: 1, Admitted: number}
			}
			for _, a := range s.Renew(context.Background(), batch) {
				if a.Err != nil {
					return a.Err
				}
			}
			return nil
		}
		for range holders/len(batch) + 1 {
			if err := renew(); err != nil {
				return f, err
			}
		}
		var fault error
		const turns = 100
		ns := each(turns*len(batch), func() {
			for range turns {
				if err := renew(); err != nil {
					fault = err
				}
			}
		})
		if fault != nil {
			return f, fault
		}
		f.add(thousands(int64(holders)), ns/1000)
	}
	return f, nil
}
