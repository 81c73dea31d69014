package ledger

import (
	"cmp"
	"slices"
	"time"
)

// maxLagging bounds Usage.Lagging.
const maxLagging = 100

// OpenEpochs is how many open epochs of one agent hold usage back: those heard of last. An agent that starts over and
// over leaves more behind; the others count as lost.
const OpenEpochs = 100

// OpenEpochsOfKey is the same of all agents under one key, so that one that makes up agents is bounded too.
const OpenEpochsOfKey = 20_000

// Completeness says through when all usage is in, and which agents hold that
// back by more than two slots.
//
// It is the earliest Through over the epochs that matter, and at most now. An epoch
// matters if it is touched: it settled usage of what is asked for, or holds or held leases of it. Servers note that
// before it can spend (Hold), so that no other can have usage under way. Closed
// epochs do not matter, nor those that are lost (StateAt), nor more than OpenEpochs of an agent and OpenEpochsOfKey of a key; a
// fenced epoch matters until it is silent, for what its agent still held. An epoch that has settled nothing yet is
// complete until its first lease.
//
// settled says whether an epoch ever settled a report; without one nothing is complete.
func Completeness(epochs []Frontier, touched func(Epoch) bool, settled bool, now time.Time, slot time.Duration) (time.Time, []string) {
	if !settled {
		return time.Time{}, nil
	}
	if slot <= 0 {
		slot = DefaultSlot
	}
	recent := now.Add(-2 * slot).UnixMilli()
	complete := now.UnixMilli()
	epochs = slices.Clone(epochs)
	slices.SortFunc(epochs, func(a, b Frontier) int { return cmp.Or(cmp.Compare(b.Seen, a.Seen), b.Epoch.compare(a.Epoch)) })
	of, ofKey := make(map[string]int), make(map[string]int)
	var lagging []string
	for i := range epochs {
		f := &epochs[i]
		if f.Seq == 0 && (f.Seen == 0 || f.State != StateOpen) || f.StateAt(now) != StateOpen && !(f.State == StateFenced && !f.silent(now)) {
			continue
		}
		if !touched(f.Epoch) {
			continue
		}
		if of[f.Epoch.Agent]++; of[f.Epoch.Agent] > OpenEpochs {
			continue
		}
		if f.Key != "" {
			if ofKey[f.Key]++; ofKey[f.Key] > OpenEpochsOfKey {
				continue
			}
		}
		through := f.through()
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

// through is how far the epoch is complete: before its first report until it first held a lease.
func (f *Frontier) through() int64 {
	if f.Seq == 0 {
		return f.Seen
	}
	return f.Through
}

// silent reports whether the epoch said nothing of a later time for SilentAfter: reports that go on saying
// the same hold nothing back for longer than none would.
func (f *Frontier) silent(now time.Time) bool {
	return now.UnixMilli()-f.Seen >= SilentAfter.Milliseconds()
}

// StateAt is the epoch's state as of now: an open one that has been silent for
// SilentAfter is lost. That is not kept: its next report of a later time ends it.
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
		Through: time.UnixMilli(f.Through).UTC(), Seen: time.UnixMilli(f.Seen).UTC(), State: f.StateAt(now), Key: f.Key, Reason: f.Reason,
	}
}
