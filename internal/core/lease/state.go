package lease

import "github.com/f4ee788f/quota/internal/core/limit"

// State is a bucket in a store. Levels and stocks are micro-tokens, trickles micro-tokens a second, demands
// thousandths of a unit a second. Times are microseconds of the bucket's own clock: the store's clock plus
// Offset. It never runs backward.
//
// The invariant that bounds over-admission (docs/error-bound.md) holds for limits that refill, at every time t:
//
//	Level + Stock + Pile + Trickle × (t − Since) ≤ burst + slack,  Trickle ≤ rate
//
// sliding.go, log.go and slots.go have the invariants of the others.
type State struct {
	Algorithm limit.Algorithm
	Level     int64   // what may still be granted; below zero after an overdraft
	Carry     float64 // fraction of a micro-token gained, in [0, 1)
	Last      int64   // refilled up to here
	Offset    int64
	Since     int64 // trickle that went unused before this is void: the bucket was full
	Burst     int64 // the capacity that Level is of, as the limit has it
	// Use beyond a limit that shrank. If the limit refills, it is not in Level any more; of a window it is. See
	// resize.
	Forgiven   int64
	Changed    int64 // when leases were first out at a recent change of algorithm; see change.go
	Window     int64 // start of the window, Unix microseconds; 0 and 0 without
	WindowEnd  int64
	Generation int64
	Full       int64 // the store's clock when the bucket may be forgotten: full, and nothing out

	Locked   int64 // until then everything is denied (lockout)
	Suspect  int64 // until then leases may live that the store forgot (forget.go)
	Withheld int64 // what they, or holders out of contact, may hold of a window or of slots: in no sum, nor in Level

	Unsure   int64 // of a Ledgered window: its use is not known before a figure through here; 0 once it is (figure.go)
	Moved    int64 // the store's clock when units of it were last granted, reported or lapsed
	Lapsed   bool  // of a Ledgered window: more of it may be left than Level says, and a figure can tell (figure.go)
	Spent    int64 // micro-tokens of it that are known to be used: by holders' reports, or by a figure
	Returned int64 // the bucket's time when a figure granted again what had lapsed of leases begun before

	Largest      int64 // units of the largest request that waited at any holder lately:
	LargestUntil int64 // until then no smaller one takes its place

	Before   int64 // of a sliding window: what was used in the window before, and
	Left     int64 // what of it still counts; see sliding.go
	Edge     int64 // when the window began
	LastEdge int64 // and the one before; of slots, from when on others give way to the request of Largest

	Log []Entry // of a sliding window log, oldest first

	Out  Sums // over the ring
	Ring Ring

	Holders map[string]*Record

	// Steps counts the renewals that were executed on the bucket. While it stands still, as for a repeated or
	// stale number, a store that keeps the bucket elsewhere has nothing to write.
	Steps int
}

// Sums are totals over leases.
type Sums struct {
	Stock   int64 // tokens granted to spend at once; of slots all that the holder has
	Pile    int64 // the most that may have piled up from trickles; of a leaky bucket, beyond one token
	Trickle int64
	Demand  int64
	Next    int64 // tokens granted of each window that begins while the lease is kept
	// Fallback is rate that holders go on with out of contact, of a limit that refills; see fallback.go.
	Fallback int64
}

// Add adds o.
func (s *Sums) Add(o Sums) {
	*s = Sums{s.Stock + o.Stock, s.Pile + o.Pile, s.Trickle + o.Trickle, s.Demand + o.Demand, s.Next + o.Next,
		s.Fallback + o.Fallback}
}
func (s *Sums) subtract(o Sums) {
	*s = Sums{s.Stock - o.Stock, s.Pile - o.Pile, s.Trickle - o.Trickle, s.Demand - o.Demand, s.Next - o.Next,
		s.Fallback - o.Fallback}
}

// apart is the fallback, and all else.
func (s Sums) apart() (lent, fallback Sums) {
	fallback.Fallback, s.Fallback = s.Fallback, 0
	return s, fallback
}

// turned is what is left of the sums when the window turns. The holder has its part of the new one. Until it renews it
// will have the same of the window after that. What another algorithm lent stays out.
func (s Sums) turned() Sums {
	s.Stock = s.Next
	return s
}

// Record is what a store knows of one holder: its last renewal, so that the same
// number gets the same answer, and its lease.
type Record struct {
	Algorithm limit.Algorithm // of the bucket when it was made
	Lease     Sums            // what is in the ring at Slot
	// The stock granted. Waiting requests spend their part at once, so that part is not in Lease.Stock.
	Lent       int64
	Slot       int64 // of the ring; the lease's sums are in it until the slot is over
	Start      int64
	Expires    int64
	Window     int64 // of the lease's stock
	NextWindow int64 // the first of its Next; 0 without
	Fresh      bool  // its demand was guessed
	Foretold   int64 // what it spent in windows that the store was not in yet
	Largest    int64 // units of the largest request that waited lately
	Declared   int64 // the trickle that it had when the store forgot, while the bucket is suspect
	Ahead      int64 // by how much the bucket's clock runs ahead of the holder's, beyond their closest

	Began    int64 // the conversation, and its counts so far
	Admitted int64
	Denied   int64
	Grant    Grant // of the number Grant.Number
}

// gone reports whether a record is out of date at t: its holder is a newcomer.
func (r *Record) gone(t int64) bool {
	return r.Expires+RecordLife <= t && r.Slot*SlotLen <= t
}
