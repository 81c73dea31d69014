package lease

import (
	"context"
	"errors"

	"github.com/f4ee788f/quota/internal/core/limit"
)

var (
	// ErrUnavailable means that the store could not answer now: the lease goes on, and the
	// renewal may be repeated with the same number.
	ErrUnavailable = errors.New("lease: store unavailable")
	// ErrStale means that a later renewal of this holder was executed already.
	ErrStale = errors.New("lease: stale renewal number")
	// ErrInvalid means that a renewal contradicts itself or breaks a bound.
	ErrInvalid = errors.New("lease: invalid renewal")
	// ErrUnsure means that the store cannot know what is used of the bucket's window, and did nothing: the
	// renewal is to be repeated with the ledger's figure, or with one that says that there is none.
	ErrUnsure = errors.New("lease: what is used of the window is not known here")
	// ErrFormat means that the store holds the bucket as a later build wrote it, which this one cannot read: it is
	// left as it is. The lease goes on.
	ErrFormat = errors.New("lease: the bucket is in a later build's format")
)

// Spec is a limit as the step needs it. Times are microseconds.
type Spec struct {
	Algorithm  limit.Algorithm
	Units      int64 // tokens each Period, 1 to limit.MaxUnits
	Period     int64 // microseconds, at least 1,000
	Burst      int64 // tokens that may pile up centrally; for windows 0
	EpsilonPPM int64
	// The window now and the end of the next one, in Unix microseconds, for windowed
	// algorithms. The store's clock decides which of the two it is in.
	WindowStart, WindowEnd, NextWindowEnd int64
	Borrow                                int64 // tokens by which the bucket may be overdrawn
	Lockout                               int64 // once exceeded, nothing is granted for so long; 0 for not
	Hold                                  int64 // how long a silent holder's share stays reserved after its lease; 0: one term
	Prorate                               bool  // a window that is under way when Units change keeps the old ones for its part that is over
	Ledgered                              bool  // of a fixed window: the ledger knows what is used of each bucket (figure.go)
}

// Renewal asks for, reports on, or ends one holder's lease of one bucket.
type Renewal struct {
	Key    string // the bucket: the limit's name and values, at most 512 bytes
	Spec   Spec
	Holder string // agent id and epoch
	Now    int64  // Unix microseconds; 0 for the store's own clock

	Number   int64 // rising, by holder and bucket
	Began    int64 // the number that this conversation began with
	Admitted int64 // units admitted so far, counted since Began
	Denied   int64 // units denied so far, likewise
	Told     int64 // Admitted as of the last renewal that was answered, for a store that forgot
	Held     int64 // units still held, which the new grant replaces
	Waiting  int64 // units that requests wait for now
	Largest  int64 // units of the largest request that waits, at most Waiting; of slots, where they wait their turn, of the first, or 1 while it gathers them
	Reserved int64 // units of Waiting that are, or will be, reserved for what requests may cost: they may come back unspent
	InUse    int64 // of slots: units in flight now, which no grant takes away
	Final    bool  // end the lease, grant nothing
	Strain   int64 // how many times as long as it should the holder waits for answers, at most MaxStrain; 0 and 1 while all is well
	Alone    bool  // some of Admitted was of the share of a window that the holder goes on with out of contact

	Window     int64 // start of the window that Admitted and Held belong to, Unix microseconds
	Trickle    int64 // the live lease's trickle, micro-tokens a second, for re-declaring
	ExpiresIn  int64 // what is left of its term, microseconds; 0 without a live lease
	Generation int64 // of the bucket as last granted; 0 for none
	Elapsed    int64 // since the holder sent its last renewal that was answered, by its own clock, microseconds; 0 for none
	// Tokens of the lease that trickled and surely found no room, at most limit.MaxUnits, and how long ago the last of them came, by the holder's own
	// clock and as of when the store hears of it (Travels), microseconds, at least 1; 0 and 0 for none.
	Void, VoidAgo int64

	Figure Figure // of a Ledgered window, what the ledger says
	Memory Memory // filled in by the store where its own clock decides
}

// Figure is what the ledger says of a bucket's window.
type Figure struct {
	Window  int64 // its start, Unix microseconds; 0 for no figure, nor an attempt to get one
	Used    int64 // units
	Through int64 // all usage before this is in Used, Unix microseconds; 0: the ledger could not say
	Whole   bool  // Used is all that there can be; false where other tenants' usage counts as well
	// How long ago the ledger was asked, and for how long it could be settled with by then without a break, as far as
	// who asked knows; microseconds.
	Age, Unbroken int64
}

// Memory is how far back a store remembers.
type Memory struct {
	Since int64 // from then on it remembers all, by its own clock in Unix microseconds; 0: always did
	Lost  bool  // there was something before: leases may live that it forgot
}

// Grant is the answer: the holder's new lease, which replaces the old one.
type Grant struct {
	Number     int64
	Tokens     int64 // to spend at once
	Trickle    int64 // micro-tokens a second
	Pile       int64 // most tokens that may pile up from the trickle; of slots, most that may lie idle
	TTL        int64 // microseconds, counted from before the request was sent
	DenyFor    int64 // microseconds to deny without asking
	UnitIn     int64 // microseconds until the whole bucket has a unit if nothing that is out comes back; 0 where it has by when DenyFor is over
	Fallback   int64 // the holder's share of the rate, micro-tokens a second; of a window's units, spread over it; of slots, in micro-tokens
	ValidFrom  int64 // window of the tokens, Unix microseconds; 0 and 0 without
	ValidUntil int64
	Next       int64 // tokens of the window after ValidUntil, to spend from then on
	Generation int64
	ExpirySlot int64 // slot of the expiry ring that the lease ends in
	Remaining  int64 // estimate of what the whole bucket has left, tokens
	Reset      int64 // microseconds until it is full or its window turns
	// What is out of the whole bucket, this lease included: tokens that holders have or that
	// may have piled up, and the sum of trickles. For metrics; agents are not told.
	Out   int64
	Drawn int64 // micro-tokens a second
	// Of a Ledgered window: the figure of a ledger that is complete through here would tell more than
	// the store knows, Unix microseconds; 0 for not. Agents are not told.
	Unsure int64
}

// Answer is a grant, or why there is none.
type Answer struct {
	Grant Grant
	Err   error // nil, or one that wraps ErrUnavailable, ErrStale, ErrInvalid, ErrUnsure or ErrFormat
}

// Store keeps the buckets. Renew answers each renewal in one atomic step, in any
// order between buckets and in the given order for one bucket; the answers have
// the renewals' order. A renewal that was executed is answered again from the
// record, never executed again, whoever repeats it. Renew is safe for concurrent use.
type Store interface {
	Renew(ctx context.Context, renewals []Renewal) []Answer
}
