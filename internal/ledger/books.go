package ledger

import "context"

// Books is what operators do with a ledger besides reading usage. An engine has one
// beside its Store. Its methods are safe for concurrent use, and while servers settle
// and fold. Errors wrap ErrUnavailable where the engine cannot answer.
type Books interface {
	// Verify checks the whole ledger against itself, in one snapshot.
	Verify(ctx context.Context, progress func(Progress)) (*Verified, error)
	// Rebuild makes roll-ups again from entries, and returns how many were wrong.
	Rebuild(ctx context.Context, progress func(Progress)) (int64, error)
}
