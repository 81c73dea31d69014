package ledger

import (
	"context"
	"time"
)

// Books is what operators do with a ledger besides reading usage. An engine has one beside its Store. Its
// methods are safe for concurrent use, and while servers settle and fold. Each change is written with its row
// of the audit log, in one transaction; actor is who makes it. Errors wrap ErrUnavailable where the engine
// cannot answer.
type Books interface {
	// Verify checks the whole ledger against itself, in one snapshot.
	Verify(ctx context.Context, progress func(Progress)) (*Verified, error)
	// VerifyRecords checks what is kept beside usage, in one snapshot, as the function of that name does. It
	// returns the first MaxFaults faults, and how many others there are.
	VerifyRecords(ctx context.Context) ([]Fault, int64, error)
	// Rebuild makes roll-ups again from entries, and returns how many were wrong. Each month that had wrong
	// ones is a row of the audit log.
	Rebuild(ctx context.Context, actor string, progress func(Progress)) (int64, error)

	// Quarantine pages through what is kept aside, oldest first.
	Quarantine(ctx context.Context, q QuarantineQuery) ([]KeptRow, error)
	// Kept is one of them, with its body; ErrNotFound without it.
	Kept(ctx context.Context, id int64) (KeptRow, error)
	// Retry judges rows again, at most MaxResolved. Those that may become entries now
	// are released by one correction, once; the others stay, each with its new reason.
	// An id that is resolved already, or of a whole report, is ErrTaken or ErrCorrection.
	Retry(ctx context.Context, actor, reason string, ids []int64) (Retried, error)
	// Withheld is how much of tenants' usage, in parts of time, is in quarantine, neither released nor
	// discarded. It has the tenants that have any, by id. Parts of one tenant do not overlap. Rows that an
	// earlier release kept have no tenant noted. They are told as the empty tenant's, for they may be
	// anybody's. Whole reports and rows whose tenant is no text are nobody's.
	Withheld(ctx context.Context, of []Part) ([]Withheld, error)
	// Discard says that rows or whole reports will never be used, once.
	Discard(ctx context.Context, actor, reason string, ids []int64) error

	// Correct adds a correction of rows. The same key with the same content returns
	// what is there; with other content it is ErrTaken. Rows that may not become
	// entries, and keys that fail CheckKey, are ErrCorrection, and nothing is changed.
	Correct(ctx context.Context, actor string, c Correction) (Correction, error)
	// Revert takes a correction back, once.
	Revert(ctx context.Context, actor, reason string, number int64) (Correction, error)
	// Corrections pages through them, newest first, below before (0: all).
	Corrections(ctx context.Context, before int64, n int) ([]KeptCorrection, error)
	// Correction is one of them; ErrNotFound without it.
	Correction(ctx context.Context, number int64) (KeptCorrection, error)
	// CorrectionOf is the one of a key; ErrNotFound without it.
	CorrectionOf(ctx context.Context, key string) (KeptCorrection, error)

	// Sealed reads the entries of a tenant in blocks, in one snapshot, for statements. ErrNotFound without the
	// block.
	Sealed(ctx context.Context, q SealedQuery) (SealedSums, error)

	// Breakdown reads entries of blocks, told apart as asked. It hands out rows in the order of their times and
	// names, or by their counts with Top. It keeps none, and reads a chunk at a time: progress, unless nil, is
	// told how many chunks are done. An error of emit ends it. Errors wrap ErrQuery, or ErrNotFound without the
	// block.
	Breakdown(ctx context.Context, q BreakdownQuery, emit func(*BreakdownRow) error, progress func(Progress)) (BreakdownInfo, error)

	// Newest is the newest block; zero where nothing was ever folded.
	Newest(ctx context.Context) (KeptBlockInfo, error)
	// Block is the one of a height; ErrNotFound without it.
	Block(ctx context.Context, height int64) (KeptBlockInfo, error)
	// After is the first block above a height; zero where there is none.
	After(ctx context.Context, height int64) (KeptBlockInfo, error)
	// Changed returns tenants after one, by id, with entries in blocks above since up to a height.
	Changed(ctx context.Context, since, height int64, after string, n int) ([]ChangedTenant, error)
	// Hourly adds up tenants' usage from roll-ups; errors wrap ErrQuery.
	Hourly(ctx context.Context, q HourlyQuery) (HourlySums, error)
	// Added is what blocks above since add, up to a height, of all tenants, in their order. It is false if that
	// is more than n sums, or if since is no block of this ledger.
	Added(ctx context.Context, since KeptBlockInfo, height int64, n int) ([]AddedSum, bool, error)

	// DeclareLost says that an epoch will report no more. So the epoch no longer holds back completeness. If a
	// report comes after all, that ends it. A fenced epoch takes no report either way: it is StateGone. An
	// epoch that is lost or gone already stays as it is; a closed one is ErrTaken.
	DeclareLost(ctx context.Context, actor, reason string, e Epoch) (AgentState, error)
	// LoseKeys declares lost the epochs whose key (Frontier.Key) was revoked at least after ago, and returns
	// how many it found. Such an epoch is open again with its next report, or hold, under another key. A second
	// call finds none.
	LoseKeys(ctx context.Context, actor string, after time.Duration) (int, error)

	// Losses are the lost epochs that were heard of at or after a time, at most n of them told.
	Losses(ctx context.Context, since time.Time, n int) (Losses, error)

	// Record writes what a server noted of accounts since the last time, and what agents said last. server is
	// new with every start of one. number counts its records: the same one again adds nothing. Sums end at
	// MaxSum. An error other than ErrUnavailable is the accounts' own: they would be refused again.
	Record(ctx context.Context, server string, number int64, accounts []Account) error
	// Backlog is what waits to be folded, and what is in quarantine.
	Backlog(ctx context.Context) (Backlog, error)
	// Reconcile pages through accounts, in the order of agent, epoch and limit.
	Reconcile(ctx context.Context, q ReconcileQuery) ([]Reconciled, error)
	// Drawn is what an epoch draws on, in one snapshot.
	Drawn(ctx context.Context, e Epoch) (Drawn, error)

	// TraceReport follows a report to the block and the entries that it is in.
	TraceReport(ctx context.Context, id ReportID) (*ReportTrace, error)
	// TraceEntry follows an entry back to what it is made of.
	TraceEntry(ctx context.Context, id EntryID) (*EntryTrace, error)
}

// Backlog is what the ledger has still to do: by folding, or by its operators.
type Backlog struct {
	Reports, Rows int64     // that are not folded
	Oldest        time.Time // when the oldest of them was stored; zero without one
	Corrections   int64     // that are not folded
	Quarantined   int64     // rows and whole reports, neither released nor discarded
}

// QuarantineQuery selects what is in quarantine: a page of it, see MaxKeptPage.
type QuarantineQuery struct {
	After int64  // ids above it
	N     int    // at most
	Agent string // of this agent; empty for all
	All   bool   // also what is resolved
}

// MaxKeptPage is the size in bytes of bodies and reasons at which a page of quarantine ends before N.
const MaxKeptPage = 1 << 20

// More reports whether there may be more than that page, of at most n.
func More(page []KeptRow, n int) bool {
	size := 0
	for i := range page {
		size += page[i].Size()
	}
	return len(page) >= n || size >= MaxKeptPage
}

// Size is what a page counts the row as.
func (k *KeptRow) Size() int { return len(k.Body) + len(k.Reason) }

// KeptRow is a row, or with Row -1 a whole report, in quarantine.
type KeptRow struct {
	ID int64
	Quarantined
	Of     ReportID // as in Quarantined.ID
	Stored time.Time
	// Resolution says what became of it, where something did.
	Resolution *Resolution
}

// Part is a part of a tenant's time.
type Part struct {
	Tenant string `json:"tenant"`
	From   int64  `json:"begins"` // slots from this one, Unix seconds
	To     int64  `json:"ends"`   // and before this one
}

// Withheld is what quarantine holds of a tenant.
type Withheld struct {
	Tenant string // empty where it was not noted
	Rows   int64
	Units  int64 // admitted; ends at MaxSum, and is 0 where it was not noted
}

// Resolution is what became of a row in quarantine.
type Resolution struct {
	Correction int64 // that released it; 0 where it was discarded
	Reason     string
	Actor      string
	At         time.Time
}

// Retried says what became of rows that were judged again.
type Retried struct {
	Correction int64 // that released rows; 0 where none was
	Released   []int64
	Refused    []Refused
}

// Refused is a row that stays in quarantine.
type Refused struct {
	ID     int64
	Reason string
}

// KeptCorrection is a correction, and what became of it.
type KeptCorrection struct {
	Correction
	Height     int64 // the block that it is in; 0 while it is queued
	RevertedBy int64 // 0 while it holds
}

// KeptBlockInfo names a block.
type KeptBlockInfo struct {
	Height int64 // 0 for none
	Hash   [32]byte
	Folded time.Time
}

// ReportTrace is where a report went.
type ReportTrace struct {
	Report Report // without its payload
	Stored time.Time
	Block  KeptBlockInfo // zero while it is queued, and of a heartbeat
	Queued bool
	Rows   []TracedRow // none where it is archived
	File   string      // the archive that it is in; empty where it is not archived
}

// TracedRow is a row of a report, and the entry that it is in, or its place in quarantine.
type TracedRow struct {
	Row         Row
	Entry       EntryID // zero while it is not folded
	Quarantined int64   // zero where it was taken
}

// EntryTrace is what an entry is made of.
type EntryTrace struct {
	ID         EntryID
	Row        Row
	Block      KeptBlockInfo
	Reports    []Share         // that it merges, but for those archived
	Archived   int64           // how many reports of its block are in archives
	Correction *KeptCorrection // that it is of, instead
	Corrected  []int64         // corrections that name this entry
}

// Share is what a report adds to an entry.
type Share struct {
	ID  ReportID
	Sum Sum
}
