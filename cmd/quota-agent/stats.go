package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/pkg/client"
)

// stats shows the client's counts to Prometheus. They are read at each scrape.
type stats struct {
	client  *client.Client
	figures []figure
}

// Metrics by limit. There are as many label values as the policies name limits.
var (
	lateSpent = prometheus.NewDesc("quota_client_late_spent_units_total",
		"Units that may have been spent from leases that had ended, because the process did not run.", []string{"limit"}, nil)
	outageUnits = prometheus.NewDesc("quota_client_outage_units_total",
		"Units admitted out of contact from leases that ended meanwhile. The limit was exceeded by these at most.", []string{"limit"}, nil)
	trialAdmitted = prometheus.NewDesc("quota_client_trial_admitted_units_total",
		"Units that a shadow limit, or the shadow policy's, admitted.", []string{"limit", "policy"}, nil)
	trialDenied = prometheus.NewDesc("quota_client_would_deny_units_total",
		"Units that a shadow limit, or the shadow policy's, would have denied.", []string{"limit", "policy"}, nil)
)

// snapshot is the source of all figures of a scrape.
type snapshot struct {
	client.Stats
	client.Counters
}

type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(snapshot) float64
}

func newStats(c *client.Client) *stats {
	s := &stats{client: c}
	counter := func(name, help string, value func(snapshot) int64) {
		s.figures = append(s.figures, figure{
			prometheus.NewDesc("quota_client_"+name+"_total", help, nil, nil), prometheus.CounterValue,
			func(s snapshot) float64 { return float64(value(s)) },
		})
	}
	gauge := func(name, help string, value func(snapshot) float64) {
		s.figures = append(s.figures, figure{
			prometheus.NewDesc("quota_client_"+name, help, nil, nil), prometheus.GaugeValue, value,
		})
	}
	counter("admitted_units", "Units admitted, one count for each limit that held them.", func(s snapshot) int64 { return s.Admitted })
	counter("denied_units", "Units denied, one count for each limit that denied them.", func(s snapshot) int64 { return s.Denied })
	counter("overage_units", "Units admitted above a soft limit.", func(s snapshot) int64 { return s.Overage })
	counter("billed_units", "Units admitted that are reported to the ledger.", func(s snapshot) int64 { return s.Billed })
	counter("unaccounted_units", "Units admitted that no ledger will show.", func(s snapshot) int64 { return s.Unaccounted })
	counter("waited_requests", "Requests that had to wait for the server.", func(s snapshot) int64 { return s.Waited })
	counter("unknown_requests", "Requests decided without a policy.", func(s snapshot) int64 { return s.Unknown })
	counter("refused_requests", "Requests of tenants without a plan or suspended.", func(s snapshot) int64 { return s.Refused })
	counter("deadlined_requests", "Requests denied because no answer came in time.", func(s snapshot) int64 { return s.Deadlined })
	counter("overloaded_requests", "Requests denied because too much is held already.", func(s snapshot) int64 { return s.Overloaded })
	counter("evicted_buckets", "Buckets given up before they were idle, to make room for other tenants'.", func(s snapshot) int64 { return s.Evicted })
	counter("expired_reservations", "Reservations that nobody ended in time.", func(s snapshot) int64 { return s.Expired })
	counter("booked_events", "Events of usage that were booked.", func(s snapshot) int64 { return s.EventsBooked })
	counter("repeated_events", "Events of usage that came again, and were known.", func(s snapshot) int64 { return s.EventsAgain })
	gauge("known_events", "Events of usage whose ids are known, so that they are booked once.", func(s snapshot) float64 { return float64(s.EventsKnown) })
	counter("renew_calls", "Renew calls sent.", func(s snapshot) int64 { return s.RenewCalls })
	counter("renew_failures", "Renew calls that failed.", func(s snapshot) int64 { return s.RenewFailed })
	counter("settle_calls", "Settle calls sent.", func(s snapshot) int64 { return s.SettleCalls })
	counter("settle_failures", "Settle calls that failed.", func(s snapshot) int64 { return s.SettleFailed })
	counter("renewed_buckets", "Buckets renewed, repeats included.", func(s snapshot) int64 { return s.Renewals })
	gauge("renewal_window", "Renewals that may be under way at once; small where the server is slower than its agents ask.", func(s snapshot) float64 { return float64(s.Window) })
	gauge("pressing_buckets", "Buckets that requests asked to be renewed, and that wait for a place in the window.", func(s snapshot) float64 { return float64(s.Pressing) })
	gauge("renewal_strain", "Factor by which leases are lengthened while servers are slow, 1 to 16, or while renewals cost more than they are worth, 1 to 4.", func(s snapshot) float64 { return s.Strain })
	counter("settled_units", "Units that the ledger acknowledged.", func(s snapshot) int64 { return s.UnitsSettled })
	gauge("pending_units", "Units not yet acknowledged.", func(s snapshot) float64 { return float64(s.UnitsPending) })
	gauge("pending_reports", "Reports not yet acknowledged.", func(s snapshot) float64 { return float64(s.ReportsPending) })
	gauge("aside_units", "Units in reports of fenced epochs, which an operator has to place.", func(s snapshot) float64 { return float64(s.UnitsAside) })
	counter("recovered_units", "Units of earlier starts, found in the journal, that the ledger acknowledged.", func(s snapshot) int64 { return s.UnitsRecovered })
	gauge("to_recover_units", "Units of earlier starts, found in the journal, that the ledger has not acknowledged yet.", func(s snapshot) float64 { return float64(s.UnitsToRecover) })
	counter("unjournalled_buckets", "Buckets that found no room in the journal.", func(s snapshot) int64 { return s.Unjournalled })
	counter("resent_units", "Units that a restored ledger had forgotten, settled again from the journal.", func(s snapshot) int64 { return s.UnitsResent })
	gauge("forgotten_units", "Units that the ledger acknowledged and has forgotten, and that cannot be sent again.", func(s snapshot) float64 { return float64(s.UnitsForgotten) })
	gauge("journal_refused_bytes", "Bytes of the journal that did not verify under its secret at the start, kept aside.", func(s snapshot) float64 { return float64(s.JournalRefused) })
	gauge("unsealed_units", "Units of earlier starts, found at this start, that the journal does not vouch for. They are in quarantine.", func(s snapshot) float64 { return float64(s.UnitsUnsealed) })
	gauge("journal_void", "1 once the journal cannot be written: a kill loses what is not settled.", func(s snapshot) float64 {
		if s.Journal != "" {
			return 1
		}
		return 0
	})
	gauge("reserved_units", "Units of live reservations.", func(s snapshot) float64 { return float64(s.UnitsReserved) })
	gauge("buckets", "Buckets held.", func(s snapshot) float64 { return float64(s.Buckets) })
	gauge("policy_version", "Policy version in force here; 0 while none is known.", func(s snapshot) float64 { return float64(s.PolicyVersion) })
	gauge("switch_file_broken", "1 while the switch file has a fault, and its previous content holds.", func(s snapshot) float64 {
		if s.SwitchFile != "" {
			return 1
		}
		return 0
	})
	gauge("lost", "1 while the server is out of contact.", func(s snapshot) float64 {
		if s.Lost {
			return 1
		}
		return 0
	})
	return s
}

// Describe implements prometheus.Collector.
func (s *stats) Describe(to chan<- *prometheus.Desc) {
	for i := range s.figures {
		to <- s.figures[i].desc
	}
	to <- lateSpent
	to <- outageUnits
	to <- trialAdmitted
	to <- trialDenied
}

// Collect implements prometheus.Collector.
func (s *stats) Collect(to chan<- prometheus.Metric) {
	now := snapshot{s.client.Stats(), s.client.Counters()}
	for i := range s.figures {
		f := &s.figures[i]
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(now))
	}
	for _, x := range now.Overshoot {
		to <- prometheus.MustNewConstMetric(lateSpent, prometheus.CounterValue, float64(x.LateSpends), x.Limit)
		to <- prometheus.MustNewConstMetric(outageUnits, prometheus.CounterValue, float64(x.OutageUnits), x.Limit)
	}
	for _, t := range now.Trials {
		policy := "active"
		if t.Version {
			policy = "shadow"
		}
		to <- prometheus.MustNewConstMetric(trialAdmitted, prometheus.CounterValue, float64(t.Admitted), t.Limit, policy)
		to <- prometheus.MustNewConstMetric(trialDenied, prometheus.CounterValue, float64(t.WouldDeny), t.Limit, policy)
	}
}
