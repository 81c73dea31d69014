package session

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/recovery"
)

// Stats is a snapshot of a session's work and of what it holds; package client, which tells it, says what each field is.
type Stats struct {
	Evicted int64

	RenewCalls, RenewFailed   int64
	SettleCalls, SettleFailed int64
	Renewals, Tenants         int64
	Window, Pressing          int64
	Strain                    float64
	LateSpends, OutageUnits   int64
	Overshoot                 []Overshoot

	Buckets, LiveTenants int64
	PolicyVersion        int64
	Lost                 bool
	Unreachable          string
	UnreachableSince     time.Time
	SwitchFile           string

	ReportsPending, UnitsPending int64
	UnitsSettled                 int64
	ReportsAside, UnitsAside     int64
	Epoch                        int64
	Through                      time.Time

	UnitsRecovered, UnitsToRecover int64
	Unjournalled                   int64
	UnitsResent, UnitsForgotten    int64
	JournalRefused, UnitsUnsealed  int64
	Journal                        string
}

// Overshoot is what one limit may have been exceeded by at most.
type Overshoot struct {
	Limit       string
	LateSpends  int64
	OutageUnits int64
}

// Counts is what buckets decided, in units.
type Counts struct {
	Admitted, Denied, Billed, Overage int64
	Trials                            []Trial
}

// Trial is what a limit that denies nothing would have done.
type Trial struct {
	Limit     string
	Version   bool // of the shadow version
	Admitted  int64
	WouldDeny int64
}

// decided is what buckets decided in all.
type decided struct {
	admitted, denied, billed int64
	overage                  int64
	trials                   map[trialKey]trialCount
	named                    map[string]bool // limits that the policies in force and on trial name
}

// otherLimits stands for limits that only tenants' overrides name: tenants are millions, and may name
// them as they like.
const otherLimits = "(override)"

// nameOf is what the limit of that name is counted under.
func (d *decided) nameOf(limit string) string {
	if d.named[limit] {
		return limit
	}
	return otherLimits
}

// trialKey names limits on trial: bounded by the names that policies ever had.
type trialKey struct {
	limit   string
	version bool // of the shadow version
}

type trialCount struct{ admitted, denied int64 }

func (d *decided) add(e *agent.Entry) {
	admitted, denied, billed := e.Counts()
	if e.OnTrial() {
		if d.trials == nil {
			d.trials = make(map[trialKey]trialCount)
		}
		k := trialKey{d.nameOf(e.Limit()), e.Shadow()}
		t := d.trials[k]
		d.trials[k] = trialCount{t.admitted + admitted, t.denied + denied}
		return
	}
	d.admitted += admitted
	d.denied += denied
	d.billed += billed
	if e.Overage() {
		d.overage += admitted
	}
}

// counts visits every bucket.
func (l *Loop) counts() Counts {
	sum := l.count.decided
	sum.trials = maps.Clone(sum.trials)
	l.s.Registry.Each(sum.add)
	n := Counts{Admitted: sum.admitted, Denied: sum.denied, Billed: sum.billed, Overage: sum.overage}
	for k, t := range sum.trials {
		n.Trials = append(n.Trials, Trial{Limit: k.limit, Version: k.version, Admitted: t.admitted, WouldDeny: t.denied})
	}
	slices.SortFunc(n.Trials, func(a, b Trial) int {
		return cmp.Or(strings.Compare(a.Limit, b.Limit), btoi(a.Version)-btoi(b.Version))
	})
	return n
}

func (l *Loop) stats() Stats {
	s, o, made := l.s, l.outbox.State(), l.renewals.Counts()
	st := Stats{
		Evicted:    l.count.evicted,
		RenewCalls: made.Calls, RenewFailed: made.Failed,
		SettleCalls: l.count.settleCalls, SettleFailed: l.count.settleFailed,
		Renewals: made.Renewals, Tenants: l.count.tenants,
		Window: int64(l.renewals.Window()), Pressing: int64(l.renewals.Waiting()), Strain: l.renewals.Strain(s.Now()),
		Buckets: s.Registry.Buckets(), LiveTenants: int64(s.Registry.Tenants()), PolicyVersion: s.Registry.Version(), Lost: s.Lost.Load(),
		Unreachable: l.reach.why, UnreachableSince: l.reach.since,
		ReportsPending: int64(o.Reports), UnitsPending: o.Units, UnitsSettled: o.Settled,
		ReportsAside: o.AsideReports, UnitsAside: o.AsideUnits, Epoch: o.Epoch,
		UnitsRecovered: l.recovered, UnitsToRecover: recovery.UnitsOf(l.past), Unjournalled: s.journal.Records().Without(),
		UnitsResent: l.looking.units, UnitsForgotten: l.looking.forgotten.Units(),
	}
	l.count.overshoot.into(&st, l.count.named)
	if err := s.journal.Records().Fault(); err != nil {
		st.Journal = err.Error()
	}
	if s.journal != nil {
		st.JournalRefused, st.UnitsUnsealed = s.journal.Refused, s.journal.Unsealed
	}
	if l.fault != nil {
		st.SwitchFile = l.fault.Error()
	}
	if o.Through > 0 {
		st.Through = time.UnixMilli(o.Through)
	}
	return st
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
