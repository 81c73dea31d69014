package load

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// Result is what a run came to. Its JSON is read by scripts: names stay.
type Result struct {
	Gateways           int     `json:"gateways"`
	Tenants            int     `json:"tenants"`
	Seconds            float64 `json:"seconds"` // of load, without start and settling
	Decisions          int64   `json:"decisions"`
	DecisionsPerSecond float64 `json:"decisions_per_second"`
	AdmittedUnits      int64   `json:"admitted_units"` // as the load counted them itself
	Denied             int64   `json:"denied"`
	RPCs               int64   `json:"rpcs"` // calls of all gateways to the server, of every kind
	RPCRatio           float64 `json:"rpc_ratio"`
	RenewedBuckets     int64   `json:"renewed_buckets"`
	RenewedRatio       float64 `json:"renewed_ratio"`
	LedgerUnits        int64   `json:"ledger_units"`
	LedgerEqual        bool    `json:"ledger_equal"` // for every tenant, to the unit
	Engines            string  `json:"engines"`
	Shape              string  `json:"shape"`
	Saturated          int     `json:"saturated_tenants"` // tenants that were denied at least once

	Differences []Difference `json:"differences,omitempty"` // at most maxDifferences
}

// Difference is a tenant whose ledger disagrees with what was admitted.
type Difference struct {
	Tenant   string `json:"tenant"`
	Admitted int64  `json:"admitted"`
	Ledger   int64  `json:"ledger"`
}

// maxDifferences bounds what is listed; the first few tell as much as all.
const maxDifferences = 20

// compare fills in the ledger's side and the ratios. Both maps are units by tenant;
// one that is missing has none.
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
	if r.Seconds > 0 {
		r.DecisionsPerSecond = float64(r.Decisions) / r.Seconds
	}
	if r.Decisions > 0 {
		r.RPCRatio = float64(r.RPCs) / float64(r.Decisions)
		r.RenewedRatio = float64(r.RenewedBuckets) / float64(r.Decisions)
	}
}

// WriteTable prints the result for people.
func (r *Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("gateways × tenants", "%d × %d, %s, engines %s", r.Gateways, r.Tenants, r.Shape, r.Engines)
	line("load", "%.1f s, %d decisions, %.0f a second", r.Seconds, r.Decisions, r.DecisionsPerSecond)
	line("admitted units", "%d", r.AdmittedUnits)
	line("denied", "%d (%d tenants saturated)", r.Denied, r.Saturated)
	line("calls to the server", "%d, %.5f %% of decisions", r.RPCs, 100*r.RPCRatio)
	line("renewed buckets", "%d, %.5f %% of decisions", r.RenewedBuckets, 100*r.RenewedRatio)
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
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	if err := tmp.Chmod(0o644); err != nil {
		return fmt.Errorf("load: result: %w", err)
	}
	if _, err := tmp.Write(append(b, '\n')); err != nil {
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
