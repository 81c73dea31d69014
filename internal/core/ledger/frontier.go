package ledger

import "fmt"

// Frontier is how far an epoch has settled: the row that makes settlement happen once. An epoch with Seq 0 has
// settled nothing.
type Frontier struct {
	Epoch   Epoch
	Seq     int64
	Total   int64
	Through int64 // Unix milliseconds, the latest stated, each at most when its report was stored
	// When the last report that moved Through was stored, Unix milliseconds. Before the first, when the epoch
	// was first noted to hold a lease.
	Seen   int64
	Digest [32]byte
	State  string // StateOpen, StateClosed, StateFenced, StateGone or StateLost
	Reason string // why it is fenced
	Next   int64  // epoch that goes on from this one (Origin); 0 for none
	Ends   int64  // most units of this epoch that are settled, if another goes on from it
	Key    string // the id of the key of its last report or hold; empty where none was asked for
	// Succeeded is set if a later epoch of the agent has told of more since Seen. Intake does not ask for it.
	Succeeded bool
}

// standing is the frontier of an epoch as locked.
func standing(frontiers map[Epoch]Frontier, e Epoch) Frontier {
	if f, ok := frontiers[e]; ok {
		return f
	}
	return Frontier{Epoch: e, State: StateOpen}
}

// goOn lets a later epoch go on from this one at total, or says why it cannot.
func (f *Frontier) goOn(epoch, total int64) string {
	switch {
	case f.Next != 0 && (f.Next != epoch || f.Ends != total):
		return fmt.Sprintf("from epoch %d, epoch %d goes on at unit %d", f.Epoch.Epoch, f.Next, f.Ends)
	case f.Total > total:
		return fmt.Sprintf("epoch %d was to end at unit %d, and is settled through %d", f.Epoch.Epoch, total, f.Total)
	}
	f.Next, f.Ends = epoch, total
	return ""
}

// judge says what becomes of an arrival, and fences the epoch if that is due. A settled report is acknowledged
// again, whatever became of its epoch since. Otherwise its agent would report the same units under its next
// epoch.
func (f *Frontier) judge(a *arrival, digest [32]byte, known bool) (Status, string) {
	r := a.report
	past := r.Seq >= 1 && r.Seq <= f.Seq
	if past && (known && digest == r.Digest || !known && a.fault == nil) {
		return Already, ""
	}
	if f.fenced() {
		if a.fault != nil && !past && f.Reason == clip(a.fault.Error()) {
			// This report fenced the epoch and was kept, and its answer was lost. Reports behind it are good,
			// and its agent must not take it for a twin's.
			return Rejected, a.fault.Error()
		}
		return Fenced, "the epoch is fenced: " + f.Reason
	}
	if a.fault != nil {
		f.fence(a.fault.Error())
		return Rejected, a.fault.Error()
	}
	switch {
	case past:
		f.fence(fmt.Sprintf("report %d came again with other content", r.Seq))
		return Fenced, f.Reason
	case f.State == StateClosed:
		return Fenced, "the epoch is closed"
	case r.Seq > f.Seq+1:
		return Ahead, fmt.Sprintf("report %d is missing", f.Seq+1)
	case f.Next != 0 && r.After > f.Ends:
		// The agent may still send again what was settled of the epoch before.
		return Fenced, fmt.Sprintf("beyond unit %d, epoch %d goes on", f.Ends, f.Next)
	case r.Before != f.Total:
		f.fence(fmt.Sprintf("report %d begins at %d, the ledger is at %d", r.Seq, r.Before, f.Total))
		return Fenced, f.Reason
	}
	return Settled, ""
}

// fenced reports whether the epoch takes no more reports.
func (f *Frontier) fenced() bool { return f.State == StateFenced || f.State == StateGone }

func (f *Frontier) fence(reason string) {
	f.State, f.Reason = StateFenced, clip(reason)
}
