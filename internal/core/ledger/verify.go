package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
)

// MaxFaults is how many faults one verification tells; it counts the others.
const MaxFaults = 1_000

// Fault is one thing that verification found wrong.
type Fault struct {
	Table string // where: frontier, reports, queue, blocks, keys, entries, rollups, touched, settled, leases or quarantine
	Which string // which of it, such as agent/epoch/seq, or a block's height
	What  string // what is wrong
}

// String is one line.
func (f Fault) String() string { return f.Table + " " + f.Which + ": " + f.What }

// Verified is what a verification found.
type Verified struct {
	Faults []Fault // the first MaxFaults
	More   int64   // how many others
	Counts Counts  // how much was checked; archived reports are among the reports
	// Archived is the part that could be checked only by what the ledger still holds of it.
	Archived Archived
	Lost     Losses // which are no faults; at most MaxLosses told
	Height   int64  // the highest block, and
	Hash     [32]byte
}

// Sound reports whether nothing was wrong.
func (v *Verified) Sound() bool { return len(v.Faults) == 0 }

// Counts says how much a ledger holds.
type Counts struct{ Epochs, Reports, Blocks, Entries, Rollups, Quarantined int64 }

// Archived is the part of a ledger that went into files, and so is checked by less. Reports are checked by
// their numbers and digests, blocks by the chain of hashes alone, roll-ups not at all.
type Archived struct {
	Before  int64 // entries of slots before it are in files, Unix seconds; 0 for none
	Reports int64
	Blocks  int64 // that reports or entries of are in files
	Rollups int64 // of hours before Before
}

// Progress says how far a verification is: done of about total, within a stage.
type Progress struct {
	Stage       string // frontiers, reports, quarantine, blocks, roll-ups
	Done, Total int64
}

// Snapshot is a whole ledger at one moment, as Verify reads it. Each function calls
// do for everything there is, in the stated order, and ends with do's error.
type Snapshot interface {
	Counts(ctx context.Context) (Counts, error)
	// Archives are the months that went into files, in their order, and how many reports
	// and roll-ups are of them.
	Archives(ctx context.Context) (all []Archive, reports, rollups int64, err error)
	Frontiers(ctx context.Context, do func(*Frontier) error) error
	// Reports are in the order of agent, epoch and seq, archived ones among them.
	Reports(ctx context.Context, do func(*KeptReport) error) error
	Queue(ctx context.Context, do func(*Queued) error) error
	// Quarantine is in the order of agent, epoch, seq and row, whole reports first.
	Quarantine(ctx context.Context, do func(*Quarantined) error) error
	// Block is the lowest block above that height, with its entries; nil above the last.
	Block(ctx context.Context, above int64) (*KeptBlock, error)
	// Sources calls do for the reports of those runs that hold something to fold, within
	// an epoch in the order of seq.
	Sources(ctx context.Context, runs []Source, do func(*Pending) error) error
	// ArchivedSources counts by epoch the reports of those runs that hold something to
	// fold, and are archived.
	ArchivedSources(ctx context.Context, runs []Source) (map[Epoch]int64, error)
	// Untouched are those of the notes that the ledger does not hold.
	Untouched(ctx context.Context, notes []Touch) ([]Touch, error)
	// Corrections are those of these numbers that are there, in their order.
	Corrections(ctx context.Context, numbers []int64) ([]Correction, error)
	// CorrectionNumbers calls do for every correction, and whether it is queued.
	CorrectionNumbers(ctx context.Context, do func(number int64, queued bool) error) error
	// Released are the rows that a correction released out of quarantine.
	Released(ctx context.Context, correction int64) ([]Quarantined, error)
	// Misresolved calls do for each resolution of a row that quarantine does not hold,
	// or that names a correction which releases nothing.
	Misresolved(ctx context.Context, do func(quarantined, correction int64) error) error
	// Settled calls do for every account that reports were folded into, and
	// ArchivedSettled for what archived reports of one hold, any number of times.
	Settled(ctx context.Context, do func(SettledUnits) error) error
	ArchivedSettled(ctx context.Context, do func(SettledUnits) error) error
	// Accounts are all accounts of leases, as Books.Reconcile has them.
	Accounts(ctx context.Context, do func(*Reconciled) error) error
	// Losses are those of all time, at most MaxLosses of them told.
	Losses(ctx context.Context) (Losses, error)
	// Unrolled calls do for each roll-up that is not the sum of its entries, but for those
	// of archived months.
	Unrolled(ctx context.Context, do func(*RollupFault) error) error
}

// KeptReport is a report as the ledger holds it.
type KeptReport struct {
	Report   Report // an archived one has no payload
	Rows     int
	Held     []byte
	Stored   int64 // Unix milliseconds
	Archived bool
}

// Queued is a report's place in the queue.
type Queued struct {
	ID       ReportID
	Foldable bool // the report is there, and holds something to fold
}

// KeptBlock is a block as the ledger holds it: its entries with the keys that they
// name, and how many it says that it has.
type KeptBlock struct {
	Block
	Count int   // of entries, as the block says
	N     []int // each entry's place, as the entry says
	Keys  []Key // each entry's key; the entry's names are the key's
	Named []bool
}

// RollupFault is a roll-up and what its entries add up to.
type RollupFault struct {
	Hour     int64
	Key      Key
	Has, Sum Sum
}

// Verify checks a snapshot against itself:
//
//   - Reports are contiguous and end at their frontier. Each is folded once or queued.
//   - Entries are the reports of their block, and the blocks' hashes chain.
//   - Roll-ups are the sums of entries.
//   - What agents say of their leases adds up and is settled.
//
// What cannot be read is an error; what does not fit is a fault. Of facts that retention put into files, it
// checks what the ledger still holds, and counts it in Archived. Progress may be nil.
//
// It holds some hundred bytes for each epoch, and one block with one of its reports.
func Verify(ctx context.Context, s Snapshot, progress func(Progress)) (*Verified, error) {
	v := &verification{s: s, progress: progress, epochs: map[Epoch]*verifiedEpoch{}, held: map[ReportID]keptRows{}, touches: NewNotes(seenTouches), sealed: map[int64]int64{}, units: settled{}}
	if v.progress == nil {
		v.progress = func(Progress) {}
	}
	var err error
	if v.Counts, err = s.Counts(ctx); err != nil {
		return nil, err
	}
	if v.archives, v.Archived.Reports, v.Archived.Rollups, err = s.Archives(ctx); err != nil {
		return nil, err
	}
	if n := len(v.archives); n > 0 {
		v.Archived.Before = v.archives[n-1].Month.AddDate(0, 1, 0).Unix()
	}
	for _, stage := range []func(context.Context) error{v.frontiers, v.reports, v.quarantine, v.queue, v.blocks, v.settled, v.accounts, v.conserved, v.corrections, v.rollups} {
		if err := stage(ctx); err != nil {
			return nil, err
		}
	}
	if v.Lost, err = s.Losses(ctx); err != nil {
		return nil, err
	}
	return &v.Verified, nil
}

// seenTouches bounds what a verification remembers not to ask for again.
const seenTouches = 200_000

type verification struct {
	Verified
	s        Snapshot
	progress func(Progress)
	archives []Archive
	epochs   map[Epoch]*verifiedEpoch
	held     map[ReportID]keptRows // reports with rows in quarantine, until they are found there
	touches  *Notes
	sealed   map[int64]int64 // the block of each correction
	units    settled         // what blocks' reports add up to
}

// verifiedEpoch is what was found of an epoch so far.
type verifiedEpoch struct {
	frontier Frontier
	known    bool // there is a frontier
	last     Report
	through  int64
	foldable int64 // reports that hold something to fold
	folded   int64 // of these, in blocks
	queued   int64
	above    int64 // the highest seq in a block
	first    int64 // the lowest in the queue
}

// keptRows are the rows of a report that shall be in quarantine: how many, and a
// digest over their places and bodies.
type keptRows struct {
	rows   int
	digest [32]byte
	// archived ones have no digest: the rows are in a file.
	archived bool
}

func (v *verification) fault(table, which, format string, args ...any) {
	if len(v.Faults) == MaxFaults {
		v.More++
		return
	}
	v.Faults = append(v.Faults, Fault{table, which, fmt.Sprintf(format, args...)})
}

func (v *verification) epoch(e Epoch) *verifiedEpoch {
	state := v.epochs[e]
	if state == nil {
		state = &verifiedEpoch{}
		v.epochs[e] = state
	}
	return state
}

// String names the account as people write it: agent/epoch/limit.
func (a AccountID) String() string { return fmt.Sprintf("%s/%s", a.Epoch, clip(a.Limit)) }

func (e Epoch) String() string { return fmt.Sprintf("%s/%d", e.Agent, e.Epoch) }

// String names the report as people write it: agent/epoch/seq.
func (id ReportID) String() string { return fmt.Sprintf("%s/%d", id.Epoch, id.Seq) }

func (v *verification) frontiers(ctx context.Context) error {
	var n int64
	return v.s.Frontiers(ctx, func(f *Frontier) error {
		e := v.epoch(f.Epoch)
		e.frontier, e.known = *f, true
		switch f.State {
		case StateOpen, StateClosed, StateFenced, StateGone, StateLost:
		default:
			v.fault("frontier", f.Epoch.String(), "its state is %q", clip(f.State))
		}
		v.tick("frontiers", &n, v.Counts.Epochs)
		return nil
	})
}

// tick counts one done, and tells now and then.
func (v *verification) tick(stage string, n *int64, total int64) {
	if *n++; *n%1000 == 0 || *n == total {
		v.progress(Progress{stage, *n, total})
	}
}

// reports checks each report against its digest and the one before it, and each
// epoch's last against its frontier.
func (v *verification) reports(ctx context.Context) error {
	var n int64
	err := v.s.Reports(ctx, func(k *KeptReport) error {
		v.report(k)
		v.tick("reports", &n, v.Counts.Reports)
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range v.sorted() {
		v.ends(id, v.epochs[id])
	}
	return nil
}

func (v *verification) report(k *KeptReport) {
	r := &k.Report
	id := ReportID{Epoch{r.Agent, r.Epoch}, r.Seq}
	e := v.epoch(id.Epoch)
	var table []string
	var rows []codedRow
	if !k.Archived {
		var err error
		table, rows, err = r.check()
		switch {
		case err != nil:
			v.fault("reports", id.String(), "%v", err)
		case len(rows) != k.Rows:
			v.fault("reports", id.String(), "it is said to have %d rows, and has %d", k.Rows, len(rows))
		}
	}
	switch {
	case r.Seq != e.last.Seq+1:
		v.fault("reports", id.String(), "the one before it is %d: the epoch has a gap", e.last.Seq)
	case r.Before != e.last.After:
		v.fault("reports", id.String(), "it begins at %d units, and the one before it ends at %d", r.Before, e.last.After)
	case e.last.Closed:
		v.fault("reports", id.String(), "the one before it closed the epoch")
	}
	held := decodeHeld(k.Held)
	has := len(rows)
	if k.Archived {
		has = k.Rows
	}
	if !bytes.Equal(encodeHeld(held), k.Held) || len(held) > 0 && held[len(held)-1] >= has {
		v.fault("reports", id.String(), "what it has in quarantine cannot be read")
		held = nil
	}
	switch {
	case len(held) == 0:
	case k.Archived:
		v.held[id] = keptRows{rows: len(held), archived: true}
	default:
		v.held[id] = rowsKept(table, rows, held, len(r.Payload))
	}
	if k.Rows > 0 || r.Closed {
		e.foldable++
	}
	e.through = max(e.through, min(r.Through, k.Stored))
	e.last = *r
	e.last.Payload = nil
}

// rowsKept is what quarantine shall hold of a report.
func rowsKept(table []string, rows []codedRow, held []int, payload int) keptRows {
	h, kept := sha256.New(), 0
	for _, i := range held {
		var body []byte
		if body = keepBody(rows[i].row(table), &kept, payload); body == nil {
			body = []byte{}
		}
		addKept(h, i, body)
	}
	return keptRows{rows: len(held), digest: [32]byte(h.Sum(nil))}
}

func addKept(h hash.Hash, row int, body []byte) {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(row))
	binary.BigEndian.PutUint64(b[8:], uint64(len(body)))
	h.Write(b[:])
	h.Write(body)
}

// ends checks an epoch's reports against its frontier.
func (v *verification) ends(id Epoch, e *verifiedEpoch) {
	f, last := &e.frontier, &e.last
	switch {
	case !e.known:
		v.fault("frontier", id.String(), "there is none, and there are reports")
		return
	case f.Seq != last.Seq:
		v.fault("frontier", id.String(), "it is at report %d, and the last one is %d", f.Seq, last.Seq)
	case f.Total != last.After:
		v.fault("frontier", id.String(), "it is at %d units, and the last report at %d", f.Total, last.After)
	case f.Seq > 0 && f.Digest != last.Digest:
		v.fault("frontier", id.String(), "its digest is not the last report's")
	}
	switch {
	case f.Through != e.through:
		v.fault("frontier", id.String(), "it is complete through %d ms, and its reports through %d", f.Through, e.through)
	case (f.State == StateOpen || f.State == StateLost) && last.Closed:
		v.fault("frontier", id.String(), "it is open, and its last report closed it")
	case f.State == StateClosed && !last.Closed:
		v.fault("frontier", id.String(), "it is closed, and its last report did not close it")
	}
}

func (v *verification) sorted() []Epoch {
	ids := make([]Epoch, 0, len(v.epochs))
	for id := range v.epochs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, Epoch.compare)
	return ids
}
