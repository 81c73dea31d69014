package size

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Write prints what a load needs, for people.
func Write(w io.Writer, l Load, n Need) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("load", "%s requests/s, %s gateways, %s tenants, limits a request: %d; %g %% of the tenants at %g times a limit, %g %% near one",
		whole(l.Rate), whole(float64(l.Gateways)), whole(float64(l.Tenants)), l.Limits, l.Saturated, l.Beyond, l.Near)
	line("live buckets", "%s", whole(n.Buckets))
	line("buckets renewed", "%s a second, %.3f %% of requests; %s in the minute after all gateways begin anew", whole(n.Renewals), 100*n.Renewals/l.Rate, whole(max(n.Beginning, n.Renewals)))
	line("requests that wait for one", "%s a second, %.3f %%", whole(n.Waits), 100*n.Waits/l.Rate)
	line("calls to servers", "%s a second, %.4f %% of requests", whole(n.Calls), 100*n.Calls/l.Rate)
	line("gateways, all", "%.1f processors for decisions, leases and reports", n.GatewayCPU)
	line("each gateway", "%.0f MiB, %.3f processors for reports", n.GatewayBytes/mib, n.ReportsCPU/float64(l.Gateways))
	line("quota-server", "%.1f processors in use, so %d at %.0f %%", n.ServerCPU, int(math.Ceil(n.ServerCPU/l.Busy)), 100*l.Busy)
	line("Redis masters", "%d of one processor, a replica each; %s MiB", n.Shards, whole(n.RedisBytes/mib))
	line("report rows", "%s a second", whole(n.Rows))
	line("entries", "%s a second, %.1f of a key and slot; somebody folds %.0f %% of the time", whole(n.Entries), n.SlotEntries, 100*n.Folding)
	line("Postgres", "%.2f processors; %s GiB of entries, %s of roll-ups and %s of reports a month, and %.1f besides",
		n.PostgresCPU, whole(n.EntriesMonth/gib), whole(n.RollupsMonth/gib), whole(n.ReportsMonth/gib), n.PostgresBytes/gib)
	line("money", "%s a month at %.3f a processor and hour and %.2f a GiB and month, without the gateways", whole(n.MoneyMonth), l.Core, l.GiBMonth)
	if err := t.Flush(); err != nil {
		return err
	}
	for _, what := range Warnings(l, n) {
		if _, err := fmt.Fprintf(w, "! %s\n", what); err != nil {
			return err
		}
	}
	return nil
}

// Warnings names likely problems, and remedies.
func Warnings(l Load, n Need) (all []string) {
	warn := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	warn(n.Waits > waiting*l.Rate, "%.0f %% of the requests wait for a server: they come too seldom to one gateway for a lease. Route each tenant to few gateways, let gateways ask one quota-agent, or count small tenants in a coarser bucket.",
		100*n.Waits/l.Rate)
	warn(n.Folding > foldable, "folds, of which there is one at a time, would take %.0f %% of the time: reports would wait for them. Report less often (--report-interval), fold less often (--fold-interval), or count by fewer keys.", 100*n.Folding)
	warn(n.ReportsMonth > n.EntriesMonth && n.ReportsMonth > heavy, "reports are %.1f TiB a month: report less often, route each tenant to few gateways, or keep them for less than a month (docs/ledger.md).", n.ReportsMonth/tib)
	return all
}

// whole is v without a fraction, thousands apart.
func whole(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
