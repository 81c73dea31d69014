package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// States of an epoch.
const (
	StateOpen   = "open"
	StateClosed = "closed" // its last report is in
	StateFenced = "fenced" // takes no more reports
	StateGone   = "gone"   // fenced, and declared lost by an operator: nobody waits for what its agent still held
	// Open, and silent for SilentAfter, declared lost by an operator, or without a good key. The next report
	// ends that.
	StateLost = "lost"
)

// SilentAfter is how long an epoch may be silent before it counts as lost.
const SilentAfter = 24 * time.Hour

// SucceededAfter is the same for an epoch whose agent reports under a later one: three reports. Two processes with one
// agent id report side by side, and neither is silent for as long.
const SucceededAfter = 30 * time.Second

// Epoch names one start of an agent.
type Epoch struct {
	Agent string
	Epoch int64
}

func (e Epoch) compare(o Epoch) int {
	return cmp.Or(strings.Compare(e.Agent, o.Agent), cmp.Compare(e.Epoch, o.Epoch))
}

// ReportID names one report.
type ReportID struct {
	Epoch Epoch
	Seq   int64
}

// Rules are what intake judges rows by.
type Rules struct {
	Now    time.Time
	Window Window
	Slot   time.Duration
	// Accept is Options.Accept.
	Accept func(agent string, r Row) error
}

// Judge says why a row may not become an entry, or nil: by its names, its slot and Accept. Intake asks it of an
// agent's rows.
func (rules *Rules) Judge(agent string, row *Row) error {
	err := row.checkNames()
	if err == nil {
		err = rules.Window.check(row.Slot, rules.Now, rules.Slot)
	}
	if err == nil && rules.Accept != nil {
		err = rules.Accept(agent, *row)
	}
	return err
}

// maxKeptRows bounds the rows that one transaction puts into quarantine: a million of
// them took 14 s and 1.6 GB. What is beyond waits for another transaction.
const maxKeptRows = 2 * MaxRows

// Intake judges a batch of reports. It is pure: an engine makes one, reads and
// locks the frontiers it names, and writes the Outcome in one transaction.
type Intake struct {
	rules    Rules
	arrivals []arrival // in the order in which they are judged
}

type arrival struct {
	report  *Report
	at      int // position in the call
	id      ReportID
	rows    int
	size    int   // bytes of the rows that count, each with its names
	held    []int // rows that go to quarantine
	kept    []Quarantined
	fault   error
	unnamed bool // the agent id cannot name an epoch
	later   bool // the batch has too many rows for quarantine without it
	// unchecked is set if it is not known whether all rows may become entries.
	unchecked bool
}

// Stored is a report to insert.
type Stored struct {
	Report *Report
	Month  time.Time // its partition
	Rows   int
	Size   int    // bytes that folding it takes: its payload, or more where rows share names
	Held   []byte // which rows are in quarantine, for Pending.Held; nil for none
}

// Quarantined is a fact to keep aside: one row, or with Row -1 a whole report.
type Quarantined struct {
	ID     ReportID
	Row    int
	Reason string
	// Body is the row by EncodeRows, or the report by its own encoding. It is empty for a row beyond what may
	// be kept of one report. Then Row is its place in the report's payload.
	Body []byte
	// Note is what the row is found by; nil in what an earlier release kept.
	Note *Note
}

// Note is what quarantine finds a row by: its tenant, its slot and its admitted units. The tenant is empty for
// a whole report, and if it is no text.
type Note struct {
	Tenant string
	Slot   int64
	Units  int64
}

// note is what quarantine notes of the row.
func (r *Row) note() *Note {
	n := &Note{Slot: r.Slot, Units: r.Admitted}
	if checkText("tenant", r.Tenant, MaxTenant) == nil {
		n.Tenant = r.Tenant
	}
	return n
}

// maxKept bounds the bodies of a report's quarantined rows, in bytes for each byte of its payload. A payload
// writes every string once, and many rows may share a long one.
const maxKept = 8

// Move moves a frontier, only if it still is where From says.
type Move struct {
	From, To Frontier
}

// Outcome is what one transaction has to write, and what to answer once it is
// committed.
type Outcome struct {
	Receipts []Receipt
	Moves    []Move // sorted by epoch
	Reports  []Stored
	Kept     []Quarantined
}

// NewIntake checks and decodes reports. The reports must not change afterwards.
func NewIntake(reports []Report, rules Rules) *Intake {
	if rules.Slot <= 0 {
		rules.Slot = DefaultSlot
	}
	in := &Intake{rules: rules, arrivals: make([]arrival, len(reports))}
	kept := 0
	for i := range reports {
		if kept >= maxKeptRows {
			in.arrivals[i] = arrival{report: &reports[i], at: i, unnamed: true, later: true} // nothing is read of it
			continue
		}
		in.arrivals[i] = in.arrive(&reports[i], i)
		kept += len(in.arrivals[i].kept)
	}
	// Sorted, so that servers lock in one order, and so that a batch whose reports
	// come out of order settles whole.
	slices.SortStableFunc(in.arrivals, func(a, b arrival) int {
		return cmp.Or(a.id.Epoch.compare(b.id.Epoch), cmp.Compare(a.id.Seq, b.id.Seq))
	})
	return in
}

func (in *Intake) arrive(r *Report, at int) arrival {
	a := arrival{report: r, at: at, id: ReportID{Epoch{r.Agent, r.Epoch}, r.Seq}}
	table, rows, err := r.check()
	if err != nil {
		a.fault = err
		if !validAgent(r.Agent) || r.Epoch < 0 {
			a.unnamed = true
			a.id = ReportID{}
		}
		return a
	}
	a.rows, a.size = len(rows), len(r.Payload)
	if r.Unchecked {
		a.unchecked = true
		return a
	}
	names, kept := 0, 0
	good := -1 // the last row that was accepted
	for i := range rows {
		row := rows[i].row(table)
		var err error
		if r.Barred != nil { // first: faults of another tenant's row are not told to him as his
			if err = r.Barred(&row); err != nil {
				err = fmt.Errorf("%s%w", BarredPrefix, err)
			}
		}
		if err == nil && r.Unsealed {
			err = errUnsealed
		}
		if over := r.Overdrawn[i]; err == nil && over != nil {
			err = fmt.Errorf("%s%w", OverdrawnPrefix, over)
		}
		switch {
		case err != nil:
		case good >= 0 && rows[i].like(&rows[good]):
			err = checkText("attributes", row.Attributes, MaxAttributes)
		default:
			err = in.rules.Judge(r.Agent, &row)
		}
		if err == nil {
			good = i
			names += row.names()
			continue
		}
		if errors.Is(err, ErrUnchecked) {
			a.unchecked, a.held, a.kept = true, nil, nil
			return a
		}
		q := Quarantined{ID: a.id, Row: i, Reason: clip(err.Error()), Body: keepBody(row, &kept, len(r.Payload)), Note: row.note()}
		a.held, a.kept = append(a.held, i), append(a.kept, q)
	}
	a.size = max(a.size, names)
	return a
}

// like reports whether two rows differ in nothing but attributes and counts, by which
// none is judged.
func (r *codedRow) like(o *codedRow) bool {
	return r.slot == o.slot && r.tenant == o.tenant && r.limit == o.limit && r.meter == o.meter && r.version == o.version && r.plan == o.plan
}

// names is how many bytes the row's names have.
func (r *Row) names() (n int) {
	for _, s := range r.texts() {
		n += len(s)
	}
	return n
}

// keepBody is the body that quarantine keeps of a row. It is nil once the report's bodies exceed the bound for
// its payload's size.
func keepBody(row Row, kept *int, payload int) []byte {
	if *kept+row.names() > maxKept*payload {
		return nil
	}
	body := EncodeRows([]Row{row})
	*kept += len(body)
	return body
}

// Epochs returns the epochs that the batch is about, sorted: the engine locks
// their frontiers in this order. For those in begin, a frontier of Seq 0 in
// StateOpen is to be inserted first, where there is none.
func (in *Intake) Epochs() (all, begin []Epoch) {
	for i := range in.arrivals {
		a := &in.arrivals[i]
		if a.unnamed {
			continue
		}
		if e := a.id.Epoch; len(all) == 0 || all[len(all)-1] != e {
			all = append(all, e)
		}
		if e := a.id.Epoch; (a.id.Seq == 1 && !a.unchecked || a.fault != nil) && (len(begin) == 0 || begin[len(begin)-1] != e) {
			begin = append(begin, e)
		}
		if e, ok := a.origin(); ok {
			all, begin = append(all, e), append(begin, e)
		}
	}
	slices.SortFunc(all, Epoch.compare)
	slices.SortFunc(begin, Epoch.compare)
	return slices.Compact(all), slices.Compact(begin)
}

// origin is the epoch that the arrival's goes on from; false where it says none.
func (a *arrival) origin() (Epoch, bool) {
	o := a.report.Origin
	return Epoch{a.id.Epoch.Agent, o.Epoch}, o.Epoch != 0 && a.fault == nil && !a.unnamed
}

// Behind returns the reports whose stored digests Decide needs: those before
// their frontier's last.
func (in *Intake) Behind(frontiers map[Epoch]Frontier) []ReportID {
	var ids []ReportID
	for i := range in.arrivals {
		a := &in.arrivals[i]
		if f := frontiers[a.id.Epoch]; !a.unnamed && a.id.Seq >= 1 && a.id.Seq < f.Seq {
			ids = append(ids, a.id)
		}
	}
	return ids
}

// Decide judges every report against the frontiers as locked, with the stored
// digests of those that Behind named. A missing frontier is one of Seq 0; a missing
// digest is a report that retention dropped, which was acknowledged once.
func (in *Intake) Decide(frontiers map[Epoch]Frontier, stored map[ReportID][32]byte) Outcome {
	out := Outcome{Receipts: make([]Receipt, len(in.arrivals))}
	fresh := map[ReportID][32]byte{}
	ended := map[Epoch]Move{} // that others of the batch go on from
	for i := 0; i < len(in.arrivals); {
		epoch := in.arrivals[i].id.Epoch
		from := standing(frontiers, epoch)
		f := from
		for ; i < len(in.arrivals) && in.arrivals[i].id.Epoch == epoch; i++ {
			a := &in.arrivals[i]
			if a.later {
				out.Receipts[a.at] = Receipt{Status: Unavailable, Message: "too many rows for quarantine at a time; send again"}
				continue
			}
			if a.unnamed {
				out.Kept = append(out.Kept, a.whole())
				out.Receipts[a.at] = Receipt{Status: Rejected, Message: a.fault.Error()}
				continue
			}
			digest, known := a.stored(&f, stored, fresh)
			fenced := f.fenced()
			status, message := f.judge(a, digest, known)
			if status == Settled && a.unchecked {
				status, message = Unavailable, ErrUnchecked.Error()
			}
			if e, ok := a.origin(); ok && status == Settled {
				// It is of an earlier epoch, which was judged before this one.
				m, ok := ended[e]
				if !ok {
					m = out.move(frontiers, e)
				}
				if message = m.To.goOn(epoch.Epoch, a.report.Origin.Total); message != "" {
					f.fence(message)
					status = Fenced
				} else {
					ended[e] = m
				}
			}
			switch status {
			case Settled:
				in.settle(&f, a, &out)
				fresh[a.id] = a.report.Digest
			case Rejected:
				if !fenced { // it is kept once
					out.Kept = append(out.Kept, a.whole())
				}
			}
			out.Receipts[a.at] = Receipt{Status: status, NextSeq: f.Seq + 1, Total: f.Total, Message: message, Unchecked: status == Unavailable}
		}
		if f != from {
			if from.Seq == 0 || f.Through > from.Through {
				f.Seen = in.rules.Now.UnixMilli()
			}
			out.Moves = append(out.Moves, Move{From: from, To: f})
		}
	}
	out.end(ended)
	return out
}

// move returns the move of an epoch that was judged, or that nothing came of.
func (out *Outcome) move(frontiers map[Epoch]Frontier, e Epoch) Move {
	if i, ok := out.find(e); ok {
		return out.Moves[i]
	}
	f := standing(frontiers, e)
	return Move{From: f, To: f}
}

func (out *Outcome) find(e Epoch) (int, bool) {
	return slices.BinarySearchFunc(out.Moves, e, func(m Move, e Epoch) int { return m.To.Epoch.compare(e) })
}

// end puts the epochs that others go on from among the moves.
func (out *Outcome) end(ended map[Epoch]Move) {
	for e, m := range ended {
		i, ok := out.find(e)
		if !ok {
			out.Moves = slices.Insert(out.Moves, i, m)
		}
		out.Moves[i] = m
	}
}

// stored returns the digest under which the arrival's number was settled.
func (a *arrival) stored(f *Frontier, stored, fresh map[ReportID][32]byte) ([32]byte, bool) {
	if d, ok := fresh[a.id]; ok {
		return d, true
	}
	if a.id.Seq == f.Seq {
		return f.Digest, true
	}
	d, ok := stored[a.id]
	return d, ok
}

// settle moves the frontier over the arrival and notes what to write.
func (in *Intake) settle(f *Frontier, a *arrival, out *Outcome) {
	r := a.report
	f.Seq, f.Total, f.Digest, f.Key = r.Seq, r.After, r.Digest, r.Key
	// A report cannot cover time that is not over. Otherwise an agent whose clock is ahead would make usage
	// complete that it still holds. That would last until its clock is set right, or for ever if it falls
	// silent.
	f.Through = max(f.Through, min(r.Through, in.rules.Now.UnixMilli()))
	switch {
	case r.Closed:
		f.State = StateClosed
	case f.State == StateLost:
		f.State, f.Reason = StateOpen, ""
	}
	out.Reports = append(out.Reports, Stored{
		Report: r, Month: in.rules.Window.month(r.Through / 1000), Rows: a.rows, Size: a.size, Held: encodeHeld(a.held),
	})
	out.Kept = append(out.Kept, a.kept...)
}
