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
	// ErrUnsure means that the store does not know the use of the bucket's window, and did nothing. The renewal
	// is to be repeated with the ledger's figure, or with one that says that there is none.
	ErrUnsure = errors.New("lease: what is used of the window is not known here")
	// ErrFormat means that a later build wrote the bucket, and this one cannot read it. The bucket is left as
	// it is, and the lease goes on.
	ErrFormat = errors.New("lease: the bucket is in a later build's format")
	// ErrUnknown means that the policy in force does not know the bucket: drop it and match again.
	ErrUnknown = errors.New("lease: the bucket is not known under the policy in force")
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
	// How long nothing is granted once the limit is exceeded; 0 for never.
	Lockout int64
	// How long a silent holder's share stays reserved after its lease; 0: one term.
	Hold int64
	// If Units change within a window, the old ones hold for the part of it that is over.
	Prorate  bool
	Ledgered bool // of a fixed window: the ledger knows what is used of each bucket (figure.go)
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
	Heard    int64 // of a fixed window: the number of the last renewal that was answered; 0 for none
	Told     int64 // Admitted as of the last renewal that was answered, for a store that forgot
	Held     int64 // units still held, which the new grant replaces
	Fraction int64 // of a strict limit: micro-tokens, less than one token, that stay with the holder
	Waiting  int64 // units that requests wait for now
	// Units of the largest request that waits, at most Waiting. Where requests wait their turn for slots: units
	// of the first, or 1 while it gathers them.
	Largest int64
	// Units of Waiting that are, or will be, reserved for what requests may cost: they may come back unspent.
	Reserved int64
	InUse    int64 // of slots: units in flight now, which no grant takes away
	Final    bool  // end the lease, grant nothing
	// The factor by which answers take too long for the holder, at most MaxStrain; 0 and 1 while all is well.
	Strain int64
	Alone  bool // some of Admitted was spent out of contact, on the holder's fallback

	Window     int64 // start of the window that Admitted and Held belong to, Unix microseconds
	Trickle    int64 // the live lease's trickle, micro-tokens a second, for re-declaring
	ExpiresIn  int64 // what is left of its term, microseconds; 0 without a live lease
	Generation int64 // of the bucket as last granted; 0 for none
	// Time since the holder sent its last answered renewal, by its own clock, in microseconds; 0 for none.
	Elapsed int64
	// Void is the tokens of the lease that trickled and surely found no room, at most limit.MaxUnits. VoidAgo
	// is how long ago the last of them came, in microseconds, at least 1. The holder's own clock measures it,
	// as of when the store hears of it (Travels). Both are 0 for none.
	Void, VoidAgo int64

	// Of a log: what is granted to requests that wait is admitted within so long of sending, or not at all; 0: within
	// the lease.
	Within int64

	Figure Figure // of a Ledgered window, what the ledger says
	Memory Memory // filled in by the store where its own clock decides
}

// Figure is what the ledger says of a bucket's window.
type Figure struct {
	Window  int64 // its start, Unix microseconds; 0 for no figure, nor an attempt to get one
	Used    int64 // units
	Through int64 // all usage before this is in Used, Unix microseconds; 0: the ledger could not say
	Whole   bool  // Used is all that there can be; false where other tenants' usage counts as well
	// Age is how long ago the ledger was asked, in microseconds. Unbroken is the time before that in which
	// agents could settle without a break, in microseconds, as far as the asker knows.
	Age, Unbroken int64
}

// Memory is how far back a store remembers.
type Memory struct {
	Since int64 // from then on it remembers all, by its own clock in Unix microseconds; 0: always did
	Lost  bool  // there was something before: leases may live that it forgot
}

// Grant is the answer: the holder's new lease, which replaces the old one.
type Grant struct {
	Number  int64
	Tokens  int64 // to spend at once
	Trickle int64 // micro-tokens a second
	Pile    int64 // most tokens that may pile up from the trickle; of slots, most that may lie idle
	TTL     int64 // microseconds, counted from before the request was sent
	DenyFor int64 // microseconds to deny without asking
	// Microseconds until the whole bucket has a unit, if nothing that is out comes back. It is 0 if a unit is
	// there when DenyFor is over.
	UnitIn int64
	// What the holder goes on with out of contact, in micro-tokens a second; of slots, its share in micro-tokens.
	Fallback   int64
	ValidFrom  int64 // window of the tokens, Unix microseconds; 0 and 0 without
	ValidUntil int64
	Next       int64 // tokens of the window that begins at ValidUntil, to spend from then on
	Generation int64
	ExpirySlot int64 // slot of the expiry ring that the lease ends in
	Remaining  int64 // estimate of what the whole bucket has left, tokens
	Reset      int64 // microseconds until it is full or its window turns
	// Out is what is out of the whole bucket, this lease included: tokens that holders have, or that may have
	// piled up. Drawn is the sum of trickles. For metrics; agents are not told.
	Out   int64
	Drawn int64 // micro-tokens a second
	// Unsure, of a Ledgered window, is the time through which the ledger must be complete to tell more than the
	// store knows, in Unix microseconds. It is 0 if no figure would. Agents are not told.
	Unsure int64
}

// Answer is a grant, or why there is none.
type Answer struct {
	Grant Grant
	Err   error // nil, or one that wraps ErrUnavailable, ErrStale, ErrInvalid, ErrUnsure or ErrFormat
}

// Store keeps the buckets. Renew answers each renewal in one atomic step. It takes renewals of one bucket in
// the given order, and buckets in any order; the answers have the renewals' order. A renewal that was executed
// is answered again from the record, never executed again, even if another caller repeats it. Renew is safe for
// concurrent use.
type Store interface {
	Renew(ctx context.Context, renewals []Renewal) []Answer
}
