package usage

import (
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Outbox freezes usage into numbered reports and keeps each until the ledger has
// acknowledged it. It is pure, and the owner's alone.
type Outbox struct {
	Usage Usage // not frozen yet

	unsealed Usage // likewise, in a recovery: what the journal does not vouch for

	journal     *Journal            // nil without
	acknowledge func(ledger.Report) // is told of what the ledger acknowledged; nil for nobody

	agent   string
	epoch   int64
	seq     int64 // of the last report frozen
	total   int64
	through int64           // of the last report frozen
	reports []ledger.Report // frozen and not acknowledged
	closed  bool            // the last report of the epoch is frozen
	turning bool            // because it has had enough units: the next begins when it is acknowledged
	origin  ledger.Origin   // of the epoch

	settled      int64 // units acknowledged, over all epochs
	acknowledged int64 // through of the last report acknowledged
	aside        []ledger.Report
	asideReports int64
	asideUnits   int64
}

const (
	// maxFrozen bounds the reports that wait, where one freezing does not make more. Further usage stays in Usage,
	// merged by key and slot. So an outage costs memory by its keys, not by its length, and what waits is settled in
	// seconds.
	maxFrozen = 8
	// maxAside bounds the reports kept of fenced epochs; of more only the counts are kept.
	maxAside = 64
	// turnAt is the units after which an epoch ends, long before the ledger takes no
	// more: a report adds ledger.MaxReportUnits at most.
	turnAt = ledger.MaxTotal / 2
)

// Keep has the outbox, and its Usage, record what they do. It is called before anything else.
func (o *Outbox) Keep(j *Journal) { o.journal, o.Usage.journal = j, j }

// NewOutbox returns an empty outbox of an agent's epoch.
func NewOutbox(agent string, epoch int64) *Outbox { return &Outbox{agent: agent, epoch: epoch} }

// Full reports whether another report has to wait.
func (o *Outbox) Full() bool { return len(o.reports) >= maxFrozen }

// Freeze makes reports of the usage gathered: at least one, a heartbeat when
// there is none. All usage before through (Unix milliseconds) is in them;
// final says that no more will come. The caller asks Full first, unless it is final.
func (o *Outbox) Freeze(through int64, final bool) {
	if o.closed {
		return
	}
	if !final && o.total >= turnAt {
		o.turning, final = true, true
	}
	parts := ledger.Split(o.Usage.Take())
	sealed := len(parts)
	parts = append(parts, ledger.Split(o.unsealed.Take())...)
	if len(parts) == 0 {
		parts, sealed = [][]ledger.Row{nil}, 1
	}
	through = max(through, o.through) // a clock that stepped back takes nothing back
	first := len(o.reports)
	for i, rows := range parts {
		last := i == len(parts)-1
		upto := o.through
		if last {
			upto = through
		}
		o.seq++
		r := ledger.NewReport(o.agent, o.epoch, o.seq, o.total, rows, upto, final && last)
		if r.Seq == 1 {
			r.Origin = o.origin
		}
		r.Unsealed = i >= sealed
		o.total, o.through = r.After, upto
		o.reports = append(o.reports, r)
	}
	o.closed = final
	o.journal.frozen(o.reports[first:], o.turning)
}

// FreezeRest freezes the usage left in an epoch that admits nothing more, as its last report. It does nothing where
// that is done, or where the epoch never had any.
func (o *Outbox) FreezeRest() {
	if o.seq > 0 || o.waits() {
		o.Freeze(o.through, true)
	}
}

// waits reports whether there is usage that is not frozen.
func (o *Outbox) waits() bool { return o.Usage.Rows() > 0 || o.unsealed.Rows() > 0 }

// Done reports whether all of an epoch that has ended is acknowledged, or aside.
func (o *Outbox) Done() bool {
	return len(o.reports) == 0 && !o.waits() && (o.closed || o.seq == 0)
}

// Next returns the reports to send now, oldest first: at most n, of at most size bytes of payload. It returns at least
// one if there is one.
func (o *Outbox) Next(n, size int) []ledger.Report {
	for i := range o.reports {
		size -= len(o.reports[i].Payload)
		if i == n || (i > 0 && size < 0) {
			return o.reports[:i:i]
		}
	}
	return o.reports[:len(o.reports):len(o.reports)]
}

// Fault is what went wrong with settlement, for the log; nil when nothing did.
type Fault struct {
	Receipt ledger.Receipt
	Report  ledger.Report
	Aside   int // reports that only an operator can place
	Epoch   int64
}

// Receive takes the receipts of reports sent, in order, and returns whether anything was acknowledged. next is the
// epoch to go on under when this one is fenced.
//
// A fenced report may have been settled by a twin that has its rows as well. It and those behind it are put aside,
// never sent under another number. A rejected one is kept by the ledger itself; those behind it settled nowhere and
// are frozen anew. A ledger that waits for a report that it had acknowledged before has lost it: the rest goes on
// under a new epoch. A caller that can send it again asks Forgotten first.
func (o *Outbox) Receive(sent []ledger.Report, receipts []ledger.Receipt, next int64) (progress bool, fault *Fault) {
	if n := min(len(sent), len(receipts)); n > 0 && len(o.reports) > 0 && sent[0].Epoch == o.epoch && sent[0].Seq == o.reports[0].Seq {
		o.journal.received(receipts[:n], next)
	}
	return o.receive(sent, receipts, next)
}

func (o *Outbox) receive(sent []ledger.Report, receipts []ledger.Receipt, next int64) (progress bool, fault *Fault) {
	for i := range min(len(sent), len(receipts)) {
		if len(o.reports) == 0 || sent[i].Epoch != o.epoch || sent[i].Seq != o.reports[0].Seq {
			return progress, nil // an answer of another epoch
		}
		head, r := &o.reports[0], receipts[i]
		switch r.Status {
		case ledger.Settled, ledger.Already:
			if o.acknowledge != nil {
				o.acknowledge(*head)
			}
			o.settled += head.After - head.Before
			o.acknowledged = max(o.acknowledged, head.Through)
			o.pop()
			progress = true
			if o.turning && len(o.reports) == 0 {
				o.begin(next, ledger.Origin{Epoch: o.epoch, Total: o.total})
			}
		case ledger.Fenced:
			f := &Fault{Receipt: r, Report: *head, Aside: len(o.reports), Epoch: next}
			for range f.Aside {
				o.setAside()
			}
			o.begin(next, ledger.Origin{})
			return progress, f
		case ledger.Rejected:
			f := &Fault{Receipt: r, Report: *head, Aside: 1, Epoch: next}
			origin := ledger.Origin{Epoch: f.Report.Epoch, Total: f.Report.Before}
			if f.Report.Origin != (ledger.Origin{}) {
				origin = f.Report.Origin // of this one nothing is settled, and nobody has been told that it goes on from that
			}
			o.setAside()
			o.thaw()
			o.begin(next, origin)
			return progress, f
		case ledger.Ahead:
			if r.NextSeq > 0 && r.NextSeq < head.Seq {
				f := &Fault{Receipt: r, Report: *head, Epoch: next}
				o.thaw()
				o.begin(next, ledger.Origin{Epoch: f.Report.Epoch, Total: f.Report.Before})
				return progress, f
			}
			return progress, nil // sent again, from the first
		default:
			return progress, nil
		}
	}
	return progress, nil
}

// Forgotten returns the place of the first receipt by which the ledger waits for a report that it had acknowledged,
// and which it is. Without that receipt and those behind it Receive leaves what they are of as it is, to be sent again.
func (o *Outbox) Forgotten(sent []ledger.Report, receipts []ledger.Receipt) (at int, next int64, ok bool) {
	if len(sent) == 0 || len(o.reports) == 0 || sent[0].Epoch != o.epoch || sent[0].Seq != o.reports[0].Seq {
		return 0, 0, false // an answer of another epoch
	}
	for i := range min(len(sent), len(receipts)) {
		switch r := receipts[i]; r.Status {
		case ledger.Settled, ledger.Already:
		default:
			return i, r.NextSeq, r.Status == ledger.Ahead && r.NextSeq > 0 && r.NextSeq < sent[i].Seq
		}
	}
	return 0, 0, false
}

func (o *Outbox) pop() {
	o.reports[0] = ledger.Report{}
	o.reports = o.reports[1:]
	if len(o.reports) == 0 {
		o.reports = nil
	}
}

func (o *Outbox) setAside() {
	r := o.reports[0]
	o.asideReports++
	o.asideUnits += r.After - r.Before
	if len(o.aside) < maxAside {
		o.aside = append(o.aside, r)
	}
	o.pop()
}

// thaw turns reports that settled nowhere back into usage.
func (o *Outbox) thaw() {
	for len(o.reports) > 0 {
		rows, err := ledger.DecodeRows(o.reports[0].Payload)
		if err != nil {
			o.setAside() // cannot be: it was encoded here
			continue
		}
		if o.reports[0].Unsealed {
			o.unsealed.Return(rows)
		} else {
			o.Usage.Return(rows)
		}
		o.pop()
	}
}

// begin starts an epoch. Its first reports say again from when on they speak. Where it is given units of the epoch
// before, that is its origin: a copy of the journal may give them to another.
func (o *Outbox) begin(epoch int64, origin ledger.Origin) {
	o.epoch, o.seq, o.total, o.closed, o.turning, o.origin = epoch, 0, 0, false, false, origin
}

// OutboxState is what an outbox holds, for operators.
type OutboxState struct {
	Epoch                    int64
	Reports                  int   // frozen, not acknowledged
	Units                    int64 // in them, and not frozen yet
	Unsealed                 int64 // of these, unsealed
	Settled                  int64
	AsideReports, AsideUnits int64
	Through                  int64 // all usage before this is acknowledged, Unix milliseconds
}

// State returns a snapshot.
func (o *Outbox) State() OutboxState {
	s := OutboxState{
		Epoch: o.epoch, Reports: len(o.reports), Units: o.Usage.Units() + o.unsealed.Units(), Unsealed: o.unsealed.Units(), Settled: o.settled,
		AsideReports: o.asideReports, AsideUnits: o.asideUnits, Through: o.acknowledged,
	}
	for i := range o.reports {
		units := o.reports[i].After - o.reports[i].Before
		if s.Units += units; o.reports[i].Unsealed {
			s.Unsealed += units
		}
	}
	return s
}

// Aside returns the reports of fenced epochs that are still kept.
func (o *Outbox) Aside() []ledger.Report { return o.aside }
