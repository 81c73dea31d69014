package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
)

// quarantine checks that it holds the rows that reports say it does, and no others.
func (v *verification) quarantine(ctx context.Context) error {
	var n int64
	var of ReportID
	h, rows := sha256.New(), 0
	done := func() {
		if rows == 0 {
			return
		}
		want, ok := v.held[of]
		delete(v.held, of)
		switch {
		case !ok:
			v.fault("quarantine", of.String(), "its report has no rows there")
		case want.rows != rows:
			v.fault("quarantine", of.String(), "it holds %d rows, and the report says %d", rows, want.rows)
		case !want.archived && want.digest != [32]byte(h.Sum(nil)):
			v.fault("quarantine", of.String(), "its rows are not the report's")
		}
		h.Reset()
		rows = 0
	}
	err := v.s.Quarantine(ctx, func(q *Quarantined) error {
		v.tick("quarantine", &n, v.Counts.Quarantined)
		if q.ID != of {
			done()
			of = q.ID
		}
		if q.Row >= 0 {
			rows++
			addKept(h, q.Row, q.Body)
			// A body that is not kept is in its report, which says the rest.
			if row, err := DecodeRows(q.Body); err == nil && len(row) == 1 && q.Note != nil && *q.Note != *row[0].note() {
				v.fault("quarantine", q.ID.String(), "row %d is noted as %d units of tenant %q in slot %s, and is another", q.Row, q.Note.Units, clip(q.Note.Tenant), stamp(q.Note.Slot))
			}
			return nil
		}
		r, err := DecodeReport(q.Body)
		if err == nil && q.ID != (ReportID{}) && q.ID != (ReportID{Epoch{r.Agent, r.Epoch}, r.Seq}) {
			err = fmt.Errorf("it is %s's", ReportID{Epoch{r.Agent, r.Epoch}, r.Seq})
		}
		if err != nil {
			v.fault("quarantine", q.ID.String(), "a whole report: %v", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	done()
	missing := make([]ReportID, 0, len(v.held))
	for id := range v.held {
		missing = append(missing, id)
	}
	slices.SortFunc(missing, func(a, b ReportID) int {
		if c := a.Epoch.compare(b.Epoch); c != 0 {
			return c
		}
		return int(a.Seq - b.Seq)
	})
	for _, id := range missing {
		v.fault("quarantine", id.String(), "the report says %d rows, and there are none", v.held[id].rows)
	}
	return nil
}

func (v *verification) queue(ctx context.Context) error {
	return v.s.Queue(ctx, func(q *Queued) error {
		e := v.epoch(q.ID.Epoch)
		if !q.Foldable {
			v.fault("queue", q.ID.String(), "there is no such report to fold")
			return nil
		}
		e.queued++
		if e.first == 0 || q.ID.Seq < e.first {
			e.first = q.ID.Seq
		}
		return nil
	})
}

// accounts checks that what is settled of each limit is what the epoch's reports hold.
func (v *verification) accounts(ctx context.Context) error {
	err := v.s.ArchivedSettled(ctx, func(a SettledUnits) error {
		v.units[a.ID] += a.Units
		return nil
	})
	if err != nil {
		return err
	}
	err = v.s.Settled(ctx, func(a SettledUnits) error {
		if want := v.units[a.ID]; want != a.Units {
			v.fault("settled", a.ID.String(), "it says %d units, and the reports in blocks hold %d", a.Units, want)
		}
		delete(v.units, a.ID)
		return nil
	})
	for _, a := range v.units.sorted() {
		v.fault("settled", a.ID.String(), "the reports in blocks hold %d units, and it is not there", a.Units)
	}
	return err
}

// conserved checks that no account of leases has a difference without a legitimate cause. What agents had
// equals what they spent, gave back, let expire and hold. What they spent and booked is settled once their
// epoch is closed.
func (v *verification) conserved(ctx context.Context) error {
	return v.s.Accounts(ctx, func(r *Reconciled) error {
		for _, d := range r.Differences() {
			if d.Fault() && d.Name != Overdrawn { // that is an agent's fault, and not the ledger's
				v.fault("leases", r.ID.String(), "%d units %s: %s", d.Units, d.Of, d.Name)
			}
		}
		return nil
	})
}

// corrections checks each correction against its digest, that it is in a block or in
// the queue, and what releases say against quarantine.
func (v *verification) corrections(ctx context.Context) error {
	var numbers []int64
	err := v.s.CorrectionNumbers(ctx, func(number int64, queued bool) error {
		numbers = append(numbers, number)
		height, folded := v.sealed[number]
		delete(v.sealed, number)
		switch {
		case queued && folded:
			v.fault("corrections_queue", fmt.Sprint(number), "it is queued, and in block %d", height)
		case !queued && !folded:
			v.fault("corrections_queue", fmt.Sprint(number), "it is neither queued nor in a block")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n := int64(0); len(numbers) > 0; {
		some := numbers[:min(len(numbers), MaxSealed)]
		numbers = numbers[len(some):]
		corrections, err := v.s.Corrections(ctx, some)
		if err != nil {
			return err
		}
		for i := range corrections {
			if n++; corrections[i].Number != n {
				v.fault("corrections", fmt.Sprint(corrections[i].Number), "the one before it is %d: there is a gap", n-1)
				n = corrections[i].Number
			}
			if err := v.correction(ctx, &corrections[i]); err != nil {
				return err
			}
		}
	}
	return v.s.Misresolved(ctx, func(quarantined, correction int64) error {
		v.fault("resolutions", fmt.Sprint(quarantined), "it is of no row in quarantine, or its correction %d releases nothing", correction)
		return nil
	})
}

func (v *verification) correction(ctx context.Context, c *Correction) error {
	which := fmt.Sprint(c.Number)
	rows, err := DecodeRows(c.Payload)
	switch {
	case c.Sum() != c.Digest:
		v.fault("corrections", which, "its digest does not fit the content")
	case err != nil:
		v.fault("corrections", which, "%v", err)
	case len(rows) != c.Rows:
		v.fault("corrections", which, "it is said to have %d rows, and has %d", c.Rows, len(rows))
	}
	if c.Kind != KindRelease {
		return nil
	}
	released, err := v.s.Released(ctx, c.Number)
	if err != nil {
		return err
	}
	var all []Row
	for i := range released {
		rows, err := DecodeRows(released[i].Body)
		if err != nil {
			v.fault("quarantine", released[i].ID.String(), "a released row: %v", err)
		}
		all = append(all, rows...)
	}
	if !bytes.Equal(EncodeRows(all), c.Payload) {
		v.fault("resolutions", "of correction "+which, "the rows that it released are not what it adds")
	}
	return nil
}

// touched checks that the tenants of epochs that are not closed are noted.
func (v *verification) touched(ctx context.Context, touched map[Touch]struct{}) error {
	var notes []Touch
	for t := range touched {
		e := v.epoch(t.Epoch())
		// The note goes when the closing report is folded.
		if over := e.last.Closed && e.queued == 0; !over {
			notes = append(notes, t)
			v.touches.Add(t)
		}
	}
	if len(notes) == 0 {
		return nil
	}
	missing, err := v.s.Untouched(ctx, notes)
	for _, t := range missing {
		v.fault("touched", t.Epoch().String(), "it settled usage of tenant %q, and that is not noted", clip(t.Tenant()))
	}
	return err
}

// settled checks that each report is folded or queued.
func (v *verification) settled(context.Context) error {
	for _, id := range v.sorted() {
		e := v.epochs[id]
		if e.foldable != e.folded+e.queued {
			v.fault("queue", id.String(), "of %d reports to fold, %d are in blocks and %d are queued", e.foldable, e.folded, e.queued)
		}
		if e.queued > 0 && e.first <= e.above {
			v.fault("queue", id.String(), "report %d is queued, and %d is in a block", e.first, e.above)
		}
	}
	return nil
}

func (v *verification) rollups(ctx context.Context) error {
	err := v.s.Unrolled(ctx, func(r *RollupFault) error {
		v.fault("rollups", fmt.Sprintf("%s %x", stamp(r.Hour), r.Key), "it is %d, %d, %d, and its entries add up to %d, %d, %d",
			r.Has.Admitted, r.Has.Overage, r.Has.Denied, r.Sum.Admitted, r.Sum.Overage, r.Sum.Denied)
		return nil
	})
	v.progress(Progress{"roll-ups", v.Counts.Rollups, v.Counts.Rollups})
	return err
}
