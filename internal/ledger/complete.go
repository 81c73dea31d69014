package ledger

import (
	"slices"
	"time"
)

// maxLagging bounds Usage.Lagging.
const maxLagging = 100

// Completeness says through when all usage is in, and which agents hold that
// back by more than two slots.
//
// It is the earliest Through over the epochs that matter, and at most now. Closed
// epochs do not matter, nor those silent for SilentAfter, which count as lost; a
// fenced epoch matters until then, for what its agent still held. To a tenant an
// open epoch matters if it settled usage of the tenant or holds leases of it (Hold), or
// if it was heard of within the last two slots: its first usage of the tenant may be
// under way. A silent agent that neither reported the tenant nor holds of it holds back
// only the others. An epoch that has settled nothing yet is complete until its first lease.
//
// touched is nil where all tenants are asked for. settled says whether an epoch ever
// settled a report; without one nothing is complete.
func Completeness(epochs []Frontier, touched func(Epoch) bool, settled bool, now time.Time, slot time.Duration) (time.Time, []string) {
	if !settled {
		return time.Time{}, nil
	}
	if slot <= 0 {
		slot = DefaultSlot
	}
	recent := now.Add(-2 * slot).UnixMilli()
	complete := now.UnixMilli()
	var lagging []string
	for i := range epochs {
		f := &epochs[i]
		if f.Seq == 0 && (f.Seen == 0 || f.State != StateOpen) || f.StateAt(now) != StateOpen && !(f.State == StateFenced && !f.silent(now)) {
			continue
		}
		if touched != nil && f.Seen < recent && !touched(f.Epoch) {
			continue
		}
		through := f.Through
		if f.Seq == 0 {
			through = f.Seen
		}
		complete = min(complete, through)
		if through < recent {
			lagging = append(lagging, f.Epoch.Agent)
		}
	}
	slices.Sort(lagging)
	lagging = slices.Compact(lagging)
	if len(lagging) > maxLagging {
		lagging = lagging[:maxLagging]
	}
	return time.UnixMilli(complete).UTC(), lagging
}

func (f *Frontier) silent(now time.Time) bool {
	return now.UnixMilli()-f.Seen >= SilentAfter.Milliseconds()
}

// StateAt is the epoch's state as of now: an open one that has been silent for
// SilentAfter is lost. That is not kept: its next report ends it.
func (f *Frontier) StateAt(now time.Time) string {
	if f.State == StateOpen && f.silent(now) {
		return StateLost
	}
	return f.State
}

// Agent returns the frontier as Store.Agents answers it.
func (f *Frontier) Agent(now time.Time) AgentState {
	return AgentState{
		Agent: f.Epoch.Agent, Epoch: f.Epoch.Epoch, Seq: f.Seq, Total: f.Total,
		Through: time.UnixMilli(f.Through).UTC(), Seen: time.UnixMilli(f.Seen).UTC(), State: f.StateAt(now),
	}
}
