package ledger

import (
	"cmp"
	"slices"
	"time"
)

// maxLagging bounds Usage.Lagging.
const maxLagging = 100

// OpenEpochs is how many open epochs of one agent hold usage back: those heard of last. An agent that starts
// over and over leaves more behind; the others count as lost.
const OpenEpochs = 100

// OpenEpochsOfKey is the same bound over all agents under one key, so that a client that makes up agents is
// bounded too.
const OpenEpochsOfKey = 20_000

// Completed is through when all usage is in, but for what lost epochs did not settle.
type Completed struct {
	Through time.Time  // zero where nothing was ever settled
	Lagging []string   // agents that hold it back by more than two slots, at most maxLagging
	Lost    []Frontier // epochs that ended without their last report, those heard of last first
}

// Completeness says through when all usage is in, what holds that back, and what will never come.
//
// It is the earliest Through over the epochs that matter, and at most now less NotedWithin. An epoch matters if it is
// touched: it settled usage of what is asked for, or holds or held leases of it. Servers note leases that soon (Hold),
// so no other epoch can have earlier usage under way. Closed epochs do not matter, nor lost ones
// (StateAt). Nor do more than OpenEpochs of an agent and OpenEpochsOfKey of a key. A fenced epoch matters until
// it is silent, for what its agent still held. An epoch that has settled nothing yet is complete until its
// first lease.
//
// Each touched epoch that is not closed either holds usage back, or is among the lost. An epoch that another goes on
// from is neither once all before the other is settled.
//
// settled says whether an epoch ever settled a report; without one nothing is complete.
func Completeness(epochs []Frontier, touched func(Epoch) bool, settled bool, now time.Time, slot time.Duration) (c Completed) {
	if slot <= 0 {
		slot = DefaultSlot
	}
	recent := now.Add(-2 * slot).UnixMilli()
	complete := now.Add(-NotedWithin).UnixMilli()
	epochs = slices.Clone(epochs)
	slices.SortFunc(epochs, func(a, b Frontier) int { return cmp.Or(cmp.Compare(b.Seen, a.Seen), b.Epoch.compare(a.Epoch)) })
	of, ofKey := make(map[string]int), make(map[string]int)
	// counts says whether the epoch is among those of its agent and key that hold usage back.
	counts := func(f *Frontier) bool {
		if of[f.Epoch.Agent]++; of[f.Epoch.Agent] > OpenEpochs {
			return false
		}
		if f.Key == "" {
			return true
		}
		ofKey[f.Key]++
		return ofKey[f.Key] <= OpenEpochsOfKey
	}
	for i := range epochs {
		f := &epochs[i]
		if f.State == StateClosed || f.Seq == 0 && f.Seen == 0 || !touched(f.Epoch) {
			continue
		}
		if !f.waitedFor(now) || !counts(f) {
			if f.Next == 0 || f.Total < f.Ends {
				c.Lost = append(c.Lost, *f)
			}
			continue
		}
		through := f.through()
		complete = min(complete, through)
		if through < recent {
			c.Lagging = append(c.Lagging, f.Epoch.Agent)
		}
	}
	slices.Sort(c.Lagging)
	c.Lagging = slices.Compact(c.Lagging)
	if len(c.Lagging) > maxLagging {
		c.Lagging = c.Lagging[:maxLagging]
	}
	if c.Through = time.UnixMilli(complete).UTC(); !settled {
		c.Through, c.Lagging = time.Time{}, nil
	}
	return c
}

// waitedFor reports whether the epoch may still settle usage that nobody else does.
func (f *Frontier) waitedFor(now time.Time) bool {
	return f.StateAt(now) == StateOpen || f.State == StateFenced && f.Seq > 0 && !f.silent(now)
}

// through is how far the epoch is complete: before its first report until it may first have held a lease.
func (f *Frontier) through() int64 {
	if f.Seq == 0 {
		return f.Seen - NotedWithin.Milliseconds()
	}
	return f.Through
}

// silent reports whether the epoch told of no later time for SilentAfter. Reports that repeat the same Through
// hold nothing back for longer than silence would.
func (f *Frontier) silent(now time.Time) bool {
	return now.UnixMilli()-f.Seen >= SilentAfter.Milliseconds()
}

// StateAt is the epoch's state as of now: an open one that has been silent for
// SilentAfter is lost. SucceededAfter suffices where a later epoch of the agent reports: it began without a journal of
// this one, or would have closed it first. That is not kept: its next report of a later time ends it.
func (f *Frontier) StateAt(now time.Time) string {
	if f.State == StateOpen && (f.silent(now) || f.Succeeded && now.UnixMilli()-f.Seen >= SucceededAfter.Milliseconds()) {
		return StateLost
	}
	return f.State
}

// Agent returns the frontier as Store.Agents answers it.
func (f *Frontier) Agent(now time.Time) AgentState {
	reason := f.Reason
	if !f.waitedFor(now) && f.State != StateClosed {
		reason = f.unwaited(now)
	}
	return AgentState{
		Agent: f.Epoch.Agent, Epoch: f.Epoch.Epoch, Seq: f.Seq, Total: f.Total,
		Through: time.UnixMilli(f.Through).UTC(), Seen: time.UnixMilli(f.Seen).UTC(), State: f.StateAt(now), Key: f.Key, Reason: reason,
	}
}
