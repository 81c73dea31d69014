package sqlbooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/archive"
)

// CheckedArchives is what a check of archives found.
type CheckedArchives struct {
	Faults                          []ledger.Fault // the first ledger.MaxFaults
	More                            int64          // how many others
	Files, Reports, Entries, Blocks int64
	// Unchecked blocks have entries in files that are at fault.
	Unchecked int64
}

// Check reads the archives in a directory again. Each file must be what the ledger noted of it. Each report
// must have the digest that the ledger kept. Entries of files, with those that the ledger still holds, must be
// what each block was sealed with. Progress may be nil.
//
// Reports are not folded again: verification did so while the ledger had them. Their digests, like the blocks'
// hashes, are of what it had.
func (o *Owner) Check(ctx context.Context, dir string, progress func(ledger.Progress)) (c *CheckedArchives, err error) {
	release, err := o.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	id, err := o.identity(ctx)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(ledger.Progress) {}
	}
	c = &CheckedArchives{}
	err = o.b.read(ctx, func(tx *sql.Tx) error {
		all, err := o.b.archives(ctx, tx, "")
		if err != nil {
			return err
		}
		k := &archiveCheck{CheckedArchives: c, s: snapshot{Books: o.b, tx: tx}, dir: dir, id: id}
		for i := range all {
			if err := k.file(ctx, &all[i]); err != nil {
				return err
			}
			progress(ledger.Progress{Stage: "archives", Done: int64(i + 1), Total: int64(len(all))})
		}
		return k.blocks(ctx, progress)
	})
	return c, err
}

type archiveCheck struct {
	*CheckedArchives
	s       snapshot
	dir, id string
	entries []ledger.Archive // files of entries that are what the ledger noted
	bad     []ledger.Archive // and those that are not
}

func (c *archiveCheck) fault(which, format string, args ...any) {
	if len(c.Faults) == ledger.MaxFaults {
		c.More++
		return
	}
	c.Faults = append(c.Faults, ledger.Fault{Table: "archives", Which: which, What: fmt.Sprintf(format, args...)})
}

func (c *archiveCheck) header(a *ledger.Archive) archive.Header {
	return archive.NewHeader(a.Fact, a.Month, c.id)
}

// file reads a whole file.
func (c *archiveCheck) file(ctx context.Context, a *ledger.Archive) error {
	path := filepath.Join(c.dir, a.File)
	var got archive.Summary
	var err, failed error
	if a.Fact == ledger.FactReports {
		var kept *keptReports
		if kept, err = c.s.keptReports(ctx, a.Month.Unix()); err != nil {
			return err
		}
		got, err = archive.Read(path, c.header(a), func(line archive.Report) error {
			want, e := kept.next()
			if e != nil {
				failed = e
				return e
			}
			c.Reports++
			return sameReport(want, line.Kept())
		})
		if e := kept.close(); failed == nil {
			failed = e
		}
		if failed != nil {
			return failed
		}
	} else {
		got, err = archive.Read(path, c.header(a), func(json.RawMessage) error { c.Entries++; return nil })
	}
	c.Files++
	switch {
	case err != nil:
		c.fault(a.File, "%v", err)
	case got.Rows != a.Rows:
		c.fault(a.File, "it has %d rows, and %d were archived", got.Rows, a.Rows)
	case got.SHA256 != a.SHA256 || got.Bytes != a.Bytes:
		c.fault(a.File, "it is of %d bytes with the SHA-256 %s, and was of %d with %s", got.Bytes, got.SHA256, a.Bytes, a.SHA256)
	default:
		if a.Fact == ledger.FactEntries {
			c.entries = append(c.entries, *a)
		}
		return ctx.Err()
	}
	if a.Fact == ledger.FactEntries {
		c.bad = append(c.bad, *a)
	}
	return ctx.Err()
}

// sameReport says what of an archived report is not what the ledger kept of it.
func sameReport(want, got *ledger.KeptReport) error {
	r := &got.Report
	if want == nil {
		return fmt.Errorf("report %s/%d/%d was not archived", r.Agent, r.Epoch, r.Seq)
	}
	if r.Agent != want.Report.Agent || r.Epoch != want.Report.Epoch || r.Seq != want.Report.Seq || r.Digest != want.Report.Digest {
		return fmt.Errorf("report %s/%d/%d is not the one that was archived, %s/%d/%d: or its digest is another",
			r.Agent, r.Epoch, r.Seq, want.Report.Agent, want.Report.Epoch, want.Report.Seq)
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("report %s/%d/%d: %w", r.Agent, r.Epoch, r.Seq, err)
	}
	return nil
}

// keptReports are what the ledger kept of a month's reports, one after another.
type keptReports struct{ rows *sql.Rows }

func (s *snapshot) keptReports(ctx context.Context, month int64) (*keptReports, error) {
	rows, err := s.tx.QueryContext(ctx, "SELECT agent, epoch, seq, digest FROM archived_reports WHERE month = "+s.d.month("$1")+" ORDER BY agent, epoch, seq", month)
	if err != nil {
		return nil, err
	}
	return &keptReports{rows}, rows.Err()
}

// next is nil after the last.
func (k *keptReports) next() (*ledger.KeptReport, error) {
	if !k.rows.Next() {
		return nil, k.rows.Err()
	}
	var r ledger.KeptReport
	var digest []byte
	err := k.rows.Scan(&r.Report.Agent, &r.Report.Epoch, &r.Report.Seq, &digest)
	hash(&r.Report.Digest, digest)
	return &r, err
}

func (k *keptReports) close() error { return errors.Join(k.rows.Close(), k.rows.Err()) }

// cursor is at an entry of a file.
type cursor struct {
	at   archive.Entry
	more bool
	next func() (archive.Entry, error, bool)
	stop func()
}

func (c *cursor) step() (err error) {
	c.at, err, c.more = c.next()
	return err
}

var errStopped = errors.New("sqlbooks: stopped")

// open begins to read a file of entries.
func (c *archiveCheck) open(a *ledger.Archive) *cursor {
	next, stop := iter.Pull2(func(yield func(archive.Entry, error) bool) {
		_, err := archive.Read(filepath.Join(c.dir, a.File), c.header(a), func(e archive.Entry) error {
			if !yield(e, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(archive.Entry{}, err)
		}
	})
	return &cursor{next: next, stop: stop}
}

// blocks puts the entries of each block together again: those of files, in the order of
// their heights, and those that the ledger still has.
func (c *archiveCheck) blocks(ctx context.Context, progress func(ledger.Progress)) error {
	var low, high int64
	for _, a := range slices.Concat(c.entries, c.bad) {
		if a.High > 0 && (low == 0 || a.Low < low) {
			low = a.Low
		}
		high = max(high, a.High)
	}
	var cursors []*cursor
	defer func() {
		for _, k := range cursors {
			k.stop()
		}
	}()
	for i := range c.entries {
		k := c.open(&c.entries[i])
		cursors = append(cursors, k)
		if err := k.step(); err != nil {
			return err
		}
	}
	for above := low - 1; above < high; {
		b, err := c.s.Block(ctx, above)
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		above = b.Height
		if err := c.block(b, cursors); err != nil {
			return err
		}
		progress(ledger.Progress{Stage: "blocks", Done: b.Height, Total: high})
	}
	for _, k := range cursors {
		if k.more {
			c.fault(fmt.Sprintf("%d/%d", k.at.Height, k.at.N), "there is no such block")
		}
	}
	return nil
}

// block checks one block that has entries in files.
func (c *archiveCheck) block(b *ledger.KeptBlock, cursors []*cursor) error {
	whole := make([]*archive.Entry, b.Count)
	put := func(e archive.Entry) {
		if e.N < 0 || e.N >= b.Count || whole[e.N] != nil {
			c.fault(fmt.Sprintf("%d/%d", e.Height, e.N), "its block has no such place, or another entry there")
			return
		}
		whole[e.N] = &e
	}
	archived := false
	for _, k := range cursors {
		for k.more && k.at.Height <= b.Height {
			archived = true
			put(k.at)
			if err := k.step(); err != nil {
				return err
			}
		}
	}
	if !archived && len(b.Entries) == b.Count {
		return nil // none is archived: verification has it all
	}
	for i, row := range b.Entries {
		put(archive.Entry{
			Height: b.Height, N: b.N[i], Slot: row.Slot, Tenant: row.Tenant, Limit: row.Limit, Meter: row.Meter, Version: row.Version, Plan: row.Plan, Attributes: row.Attributes,
			Admitted: row.Admitted, Overage: row.Overage, Denied: row.Denied, Correction: b.Correction(i),
		})
	}
	again := b.Block
	again.Entries, again.Names, again.Merged = nil, nil, 0
	for _, e := range whole {
		if e == nil {
			c.missing(b)
			return nil
		}
		again.Entries = append(again.Entries, e.Row())
		if e.Correction == 0 && len(again.Names) == 0 {
			again.Merged++
		} else {
			again.Names = append(again.Names, e.Correction)
		}
	}
	c.Blocks++
	if again.Sum() != b.Hash {
		c.fault(fmt.Sprint(b.Height), "the block's entries are not what it was sealed with")
	}
	return nil
}

// missing is of a block of which not all entries are anywhere.
func (c *archiveCheck) missing(b *ledger.KeptBlock) {
	for _, a := range c.bad {
		if a.Low <= b.Height && b.Height <= a.High {
			c.Unchecked++ // the file's fault was told
			return
		}
	}
	c.fault(fmt.Sprint(b.Height), "entries of the block are neither in the ledger nor in files")
}
