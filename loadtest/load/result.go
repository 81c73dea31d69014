package load

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Result is the result of a run. Scripts read its JSON, so names stay. Unless a field says that it is of the whole
// load, it is of the measured seconds, without the warming and the settling.
type Result struct {
	Gateways           int     `json:"gateways"`
	Journals           bool    `json:"journals"` // each gateway had one
	Tenants            int     `json:"tenants"`
	LimitsPerRequest   int     `json:"limits_per_request"`
	Seconds            float64 `json:"seconds"`
	WarmSeconds        float64 `json:"warm_seconds"`
	TouchSeconds       float64 `json:"touch_seconds"`     // until every tenant had asked at every gateway, before the warming
	FirstLeases        int64   `json:"first_leases"`      // that were begun in these
	WarmDecisions      int64   `json:"warm_decisions"`    // from the first touch to the warming's end
	WarmDeniedShare    float64 `json:"warm_denied_share"` // of these; saturated tenants are denied rightly
	RateAsked          int64   `json:"rate_asked"`        // a second; 0 for as many as possible
	Decisions          int64   `json:"decisions"`
	DecisionsPerSecond float64 `json:"decisions_per_second"`
	AdmittedShare      float64 `json:"admitted_share"`
	Denied             int64   `json:"denied"`
	Saturated          int     `json:"saturated_tenants"` // tenants that were denied at least once

	RPCs             int64   `json:"rpcs"` // calls of all gateways to the server, of every kind
	RPCRatio         float64 `json:"rpc_ratio"`
	RPCsFailed       int64   `json:"rpcs_failed"`
	RenewedBuckets   int64   `json:"renewed_buckets"`
	RenewedPerSecond float64 `json:"renewed_buckets_per_second"`
	RenewedRatio     float64 `json:"renewed_ratio"`
	Waited           int64   `json:"waited"` // requests that waited for the server
	WaitedRatio      float64 `json:"waited_ratio"`
	LateSpends       int64   `json:"late_spends"`
	OutageUnits      int64   `json:"outage_units"`
	CountedSeconds   float64 `json:"counted_seconds"` // that calls, renewals and waits are of: a busy gateway says late what it has done

	*OfRedis                     // nil where Redis was not seen
	ReportRowsPerSecond *float64 `json:"report_rows_per_second,omitempty"` // nil where the ledger was not seen

	*Compared // nil where the limits in force are not known

	DecisionNS          Times              `json:"decision_ns"`  // of the calls that one takes; sampled, waiting for the server included
	GeneratorNS         float64            `json:"generator_ns"` // a decision's, besides the decision
	CPUSeconds          map[string]float64 `json:"cpu_seconds,omitempty"`
	ObservedSeconds     float64            `json:"observed_seconds,omitempty"` // that these are of
	Processors          int                `json:"processors"`
	Buckets             int64              `json:"buckets"`                          // live, of all gateways
	AgentBytesPerBucket *float64           `json:"agent_bytes_per_bucket,omitempty"` // nil where the server's memory cannot be told from the gateways'

	// These are of the whole load, cold tenants included.
	AdmittedUnits int64  `json:"admitted_units"` // as the load counted them itself
	LedgerUnits   int64  `json:"ledger_units"`
	LedgerEqual   bool   `json:"ledger_equal"` // for every tenant, to the unit
	ColdTenants   int    `json:"cold_tenants"`
	PlanChanges   int    `json:"plan_changes"`
	Engines       string `json:"engines"`
	Shape         string `json:"shape"`
	LoadAverage   string `json:"load_average"` // of the machine, before and after

	Differences []Difference `json:"differences,omitempty"` // at most maxDifferences
	Samples     []Sample     `json:"samples,omitempty"`
}

// Compared is a run beside one ideal central limiter for each tenant, on the same arrivals.
type Compared struct {
	ErrorPct       float64 `json:"error_pct"`               // (Σ admitted − Σ ideal) ÷ Σ ideal
	ScarceErrorPct float64 `json:"scarce_error_pct"`        // of tenants that were, or ideally would be, denied something
	ApartPct       float64 `json:"apart_pct"`               // Σ |admitted − ideal| ÷ Σ ideal, tenant by tenant
	IdealSaturated int     `json:"ideal_saturated_tenants"` // tenants that it would have denied at least once
	OverBound      int64   `json:"over_bound"`              // windows of 1, 2 and 10 s above (1 + ε)(rate × W + burst), of the whole load
	WindowsTested  int64   `json:"windows_tested"`          // in which more was asked than that: no others can be above it
	Windows        int64   `json:"windows"`                 // that were looked at
}

// OfRedis is what its masters did.
type OfRedis struct {
	RedisCommandsPerSecond float64 `json:"redis_commands_per_second"` // those that scripts call included
	RedisScriptsPerSecond  float64 `json:"redis_scripts_per_second"`
	RedisScriptUS          float64 `json:"redis_script_us"` // that one took by Redis's own clock, microseconds
}

// Times are of sampled decisions, in nanoseconds.
type Times struct {
	P50     int64 `json:"p50"`
	P99     int64 `json:"p99"`
	P999    int64 `json:"p999"`
	Max     int64 `json:"max"`
	Samples int64 `json:"samples"`
}

// Difference is a tenant whose ledger disagrees with what was admitted.
type Difference struct {
	Tenant   string `json:"tenant"`
	Admitted int64  `json:"admitted"`
	Ledger   int64  `json:"ledger"`
}

// maxDifferences bounds the list; the first few tell as much as all.
const maxDifferences = 20

// count fills in the sums of the records, and returns the units admitted in the whole load, by tenant.
func (l *load) count(r *Result) map[string]int64 {
	records, latency := make([][]record, len(l.workers)), new(times)
	last := int64(0)
	for i := range l.workers {
		records[i] = l.workers[i].records
		for j := range records[i] {
			last = max(last, records[i][j].at+int64(records[i][j].took))
		}
		latency.merge(&l.workers[i].times)
	}
	bins := int(last/binLen) + 1
	from := min(int(l.warmed.Load()/binLen)+1, bins)
	to := min(int((l.warmed.Load()+l.Duration.Microseconds())/binLen), bins)
	warm, denied := warming(records, l.warmed.Load())
	r.WarmDecisions = warm
	r.WarmDeniedShare = float64(denied) / float64(max(r.WarmDecisions, 1))
	t := l.replay(records, bins, from, to)
	r.Decisions, r.Denied, r.Saturated = t.decisions, t.decisions-t.taken, t.saturated
	if to > from {
		r.Seconds = float64(to-from) * binLen / 1e6
		r.DecisionsPerSecond = float64(t.decisions) / r.Seconds
	}
	percent := func(a, b int64) float64 {
		if b == 0 {
			return 0
		}
		return 100 * float64(a) / float64(b)
	}
	r.AdmittedShare = percent(t.taken, t.decisions) / 100
	if !l.Unknown {
		r.Compared = &Compared{
			ErrorPct: percent(t.taken-t.ideal, t.ideal), ScarceErrorPct: percent(t.scarceTaken-t.scarceIdeal, t.scarceIdeal), ApartPct: percent(t.apart, t.ideal),
			IdealSaturated: t.idealSaturated, OverBound: t.over, WindowsTested: t.tested, Windows: t.windows,
		}
	}
	r.DecisionNS = Times{latency.at(0.5).Nanoseconds(), latency.at(0.99).Nanoseconds(), latency.at(0.999).Nanoseconds(), latency.most.Nanoseconds(), latency.total()}
	admitted := maps.Clone(l.cold.admitted)
	r.ColdTenants = len(admitted)
	for i, n := range t.admitted {
		admitted[l.Tenant(i)] = n
		r.PlanChanges += len(l.quotas[i]) - 1
	}
	return admitted
}

// warming counts the requests of chunks that began before a time, and how many of them were denied.
func warming(records [][]record, until int64) (decisions, denied int64) {
	for _, worker := range records {
		for i := range worker {
			if r := &worker[i]; r.at < until {
				decisions += int64(r.n)
				denied += int64(r.n) - r.allowed()
			}
		}
	}
	return decisions, denied
}

// compare fills in the ledger's side. Both maps are units by tenant; a missing tenant has none.
func (r *Result) compare(admitted, ledger map[string]int64) {
	r.AdmittedUnits, r.LedgerUnits, r.LedgerEqual = 0, 0, true
	differ := func(tenant string) {
		r.LedgerEqual = false
		if len(r.Differences) < maxDifferences {
			r.Differences = append(r.Differences, Difference{tenant, admitted[tenant], ledger[tenant]})
		}
	}
	for tenant, n := range admitted {
		r.AdmittedUnits += n
		if ledger[tenant] != n {
			differ(tenant)
		}
	}
	for tenant, n := range ledger {
		r.LedgerUnits += n
		if _, ok := admitted[tenant]; !ok && n != 0 {
			differ(tenant)
		}
	}
}

// processors lists what programs use, the busiest first.
func processors(cpu map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(cpu), func(a, b string) int {
		if cpu[a] != cpu[b] {
			return int(1e6 * (cpu[b] - cpu[a]))
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "  %s %.2f", name, cpu[name])
	}
	return b.String()
}

// WriteTable prints the result for people.
func (r *Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("gateways × tenants", "%d × %d, %s, engines %s, limits a request: %d", r.Gateways, r.Tenants, r.Shape, r.Engines, r.LimitsPerRequest)
	line("first leases", "%d in %.1f s, %.0f a second; %.0f s more until they were not new", r.FirstLeases, r.TouchSeconds, float64(r.FirstLeases)/max(r.TouchSeconds, 0.001), r.WarmSeconds)
	line("while warming", "%d decisions, %.3f %% denied", r.WarmDecisions, 100*r.WarmDeniedShare)
	line("load", "%.1f s: %d decisions, %.0f a second", r.Seconds, r.Decisions, r.DecisionsPerSecond)
	ideally := ""
	if r.Compared != nil {
		ideally = fmt.Sprintf("; ideally of %d", r.IdealSaturated)
	}
	line("admitted", "%.2f %%; %d denied, of %d tenants%s", 100*r.AdmittedShare, r.Denied, r.Saturated, ideally)
	line("calls to the server", "%d, %.5f %% of decisions; %d failed", r.RPCs, 100*r.RPCRatio, r.RPCsFailed)
	line("renewed buckets", "%d, %.0f a second, %.5f %% of decisions", r.RenewedBuckets, r.RenewedPerSecond, 100*r.RenewedRatio)
	line("waited for the server", "%d, %.5f %% of decisions", r.Waited, 100*r.WaitedRatio)
	if r.Compared == nil {
		line("against one ideal limiter", "not known: the server has limits of its own")
	} else {
		line("against one ideal limiter", "%+.3f %%; of saturated tenants %+.3f %%; apart, tenant by tenant, %.3f %%", r.ErrorPct, r.ScarceErrorPct, r.ApartPct)
		line("windows above the bound", "%d of %d in which more was asked than it lets, of %d", r.OverBound, r.WindowsTested, r.Windows)
	}
	line("a decision", "p50 %d ns, p99 %d ns, p99.9 %d ns, most %d ns, of %d; the generator's own part %.1f ns", r.DecisionNS.P50, r.DecisionNS.P99, r.DecisionNS.P999, r.DecisionNS.Max, r.DecisionNS.Samples, r.GeneratorNS)
	each := "; the server's memory is among the gateways'"
	if r.AgentBytesPerBucket != nil {
		each = fmt.Sprintf(", %.0f bytes each", *r.AgentBytesPerBucket)
	}
	line("live buckets", "%d%s", r.Buckets, each)
	if r.OfRedis != nil {
		line("Redis", "%.0f scripts/s of %.1f µs, %.0f commands/s", r.RedisScriptsPerSecond, r.RedisScriptUS, r.RedisCommandsPerSecond)
	} else {
		line("Redis", "not seen")
	}
	if r.ReportRowsPerSecond != nil {
		line("report rows", "%.0f a second", *r.ReportRowsPerSecond)
	} else {
		line("report rows", "not seen")
	}
	if len(r.CPUSeconds) > 0 {
		perSecond := make(map[string]float64)
		for name, v := range r.CPUSeconds {
			perSecond[name] = v / r.ObservedSeconds
		}
		line("processors used", "%s of %d", strings.TrimSpace(processors(perSecond)), r.Processors)
	}
	if r.LoadAverage != "" {
		line("load average", "%s", r.LoadAverage)
	}
	line("admitted units, in all", "%d (%d cold tenants, %d plan changes)", r.AdmittedUnits, r.ColdTenants, r.PlanChanges)
	line("ledger units", "%d", r.LedgerUnits)
	if r.LedgerEqual {
		line("ledger = admitted", "yes, for every tenant")
	} else {
		line("ledger = admitted", "NO")
	}
	for _, d := range r.Differences {
		line("  "+d.Tenant, "admitted %d, ledger %d (%+d)", d.Admitted, d.Ledger, d.Ledger-d.Admitted)
	}
	return t.Flush()
}

// WriteJSON writes the result to a file, whole or not at all.
func (r *Result) WriteJSON(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	return write(file, append(b, '\n'))
}

func write(file string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	if err := tmp.Chmod(0o644); err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	if _, err := tmp.Write(b); err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	return nil
}
